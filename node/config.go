package node

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/inject"
	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/statequery"
)

// Defaults of Config.
const (
	DefaultHTTPAddr = "127.0.0.1:7710"
	DefaultGRPCAddr = "127.0.0.1:7711"
	DefaultShards   = 8
	DefaultNodeID   = "n1"

	DefaultWatchRetained = statequery.DefaultWatchRetained
)

// Config says how to open a node. The zero value of a field means its default.
type Config struct {
	// DataDir holds everything durable. It is made when absent and belongs to one node at a time.
	DataDir string
	// NodeID names the node for good; default "n1". A data directory remembers it and refuses another.
	NodeID string
	// Shards is the number of shards that a new group gets, from 1 to dataflow.MaxShards; default 8. It is fixed when the
	// group is made: another number is refused afterwards. 0 takes what is there.
	Shards int
	// HTTPAddr and GRPCAddr are where the node listens. Addresses off loopback are refused without AllowInsecure, because
	// this version has neither TLS nor authentication.
	HTTPAddr, GRPCAddr string
	AllowInsecure      bool
	// PeerAddr is where the node listens for the other nodes of its group; "" = the group is this node alone, for good.
	PeerAddr string
	// Advertise is the host that other nodes and clients are told to reach this node by; default the one of each address.
	Advertise string
	// Join are addresses of nodes of the group, this one's may be among them: where a node looks for its group.
	Join []string
	// BootstrapExpect is how many nodes found a new group: exactly those of Join. 0 = this node founds none.
	BootstrapExpect int
	// PeerServerTLS and PeerClientTLS secure what goes between nodes; both or none. Without them addresses off loopback are
	// refused, unless AllowInsecure.
	PeerServerTLS, PeerClientTLS *tls.Config
	// PeerNetwork carries what goes between nodes; default TCP.
	PeerNetwork peernet.Network
	// RESPAddr is where the node listens for Redis clients; "" = nowhere. The rule is that of the other addresses.
	RESPAddr string
	// Reflection answers gRPC reflection; FaultInjection admits FailPipeline. Both are off by default.
	Reflection, FaultInjection bool
	// MemoryBytes is what the live tables of all pipelines may take; default half of the machine's memory. Keys that do not
	// fit are looked up in the newest committed cut when they are needed.
	MemoryBytes int64
	// StateCacheBytes is the size of the block cache that all shards share; default 64 MiB.
	StateCacheBytes int64
	// QueryMemoryBytes bounds what queries, scans and look-ups of several keys hold at once; default 512 MiB. Each takes
	// 64 MiB of it, look-ups 1 KiB per key if that is enough; one query and one batch of look-ups always run.
	QueryMemoryBytes int64
	// WatchMemoryBytes bounds what is kept of the changes of watched tables, for all together; default 1 GiB, or an eighth of
	// the machine's memory when that is less.
	WatchMemoryBytes int64
	// WatchRetained is how long these changes are kept; default 10 min.
	WatchRetained time.Duration
	// MinFreeDisk is how many bytes of the data directory's disk must be free for rows to be taken (DISK_LOW); checkpoints
	// go on below it. Default 5 % of the disk, but at least 256 MiB and at most 2 GiB.
	MinFreeDisk int64
	// FS is the file system; default the operating system's. With another one the meta log is kept in the shards' log
	// store instead of BoltDB, which writes to the operating system alone.
	FS vfs.FS
	// Tuning says how often what happens in the background happens.
	Tuning Tuning
	// Source, if set, gives the tasks rows that are in no log; only measurements use it. What it gives is gone after a
	// restart, so the tables are then not what their stream's rows say.
	Source func(dataflow.ShardID) worker.Source
	// Clock is the wall clock that stamps and bounds what is kept by time; default time.Now. How long something takes is always
	// measured by the process's own clock.
	Clock func() time.Time
	// FaultFile is where a test says how the clock, and with FaultDisk the disk, is wrong (internal/inject); "" = they are not.
	// It needs FaultInjection. With FaultDisk the file system is another one than the operating system's: see FS.
	FaultFile string
	FaultDisk bool
	// PhaseFile is where the node records which phases of work it is in (internal/phase), for tests that kill it; "" =
	// nowhere.
	PhaseFile string
	// Version is what the node says of itself.
	Version string
	// Logger takes the node's messages; default slog.Default().
	Logger *slog.Logger
}

// Tuning bounds what happens in the background. The zero value of a field means its package's default, which is right but
// for tests: they make the bounds small, so that what is rare happens often.
type Tuning struct {
	// QueryTime bounds the reading of one query; default 10 s.
	QueryTime time.Duration
	// Merge says when committed layers are folded into the store.
	Merge worker.MergePolicy
	// SnapshotBytes of a log lie between its snapshots, and TrailingBytes stay behind one; in bytes of commands. In a group of
	// several, TrailingBytes of a shard's log is 64 MiB by default.
	SnapshotBytes, TrailingBytes int64
	// RebuildRate is how many bytes per second this node reads and sends to rebuild replicas, here and on other nodes; default
	// 64 MiB, negative = no bound.
	RebuildRate int64
	// RetentionEvery is how often streams are looked at for rows to drop.
	RetentionEvery time.Duration
	// SegmentBytes is the size of the shard logs' segment files.
	SegmentBytes int64
	// ElectionTimeout is how long a log's members wait for their leader before they elect another.
	ElectionTimeout time.Duration
	// RepairAfter is how long a node is silent before others vote in its place; default membership.DefaultRepairAfter.
	RepairAfter time.Duration
	// GiveLeads bounds how long a node that stops waits for the leads of its shards to move behind a checkpoint; default 2 s.
	GiveLeads time.Duration
	// DiskEvery is how often the free space of the disk is looked at.
	DiskEvery time.Duration
	// PeerMap has, for the address of another node, the one to dial instead: of a proxy that the node does not know of.
	PeerMap map[string]string
}

const (
	// defaultRebuildRate leaves most of a disk and of a network of 1 Gbit/s to what users wait for.
	defaultRebuildRate = 64 << 20
	// groupTrailingBytes of a shard's log stay behind a snapshot in a group of several: a member that was away for less is sent
	// what it lacks, and its replica is not rebuilt. Rows are in the log anyway as long as the stream retains them, so what
	// this costs is the deltas. Not larger: at so much the state of a middling shard is brought as fast.
	groupTrailingBytes = 64 << 20
)

// shardTrailing is how much of a shard's log stays behind a snapshot; 0 = raftlog's default.
func (c *Config) shardTrailing() int64 {
	if c.group() && c.Tuning.TrailingBytes == 0 {
		return groupTrailingBytes
	}
	return c.Tuning.TrailingBytes
}

func (t *Tuning) rebuildRate() int64 {
	if t.RebuildRate == 0 {
		return defaultRebuildRate
	}
	return t.RebuildRate
}

// EnsureDefaults fills what is not set.
func (c *Config) EnsureDefaults() {
	if c.NodeID == "" {
		c.NodeID = DefaultNodeID
	}
	if c.HTTPAddr == "" {
		c.HTTPAddr = DefaultHTTPAddr
	}
	if c.GRPCAddr == "" {
		c.GRPCAddr = DefaultGRPCAddr
	}
	if c.PeerNetwork == nil {
		c.PeerNetwork = peernet.TCP{}
	}
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = machineMemory() / 2
	}
	if c.WatchMemoryBytes == 0 {
		c.WatchMemoryBytes = statequery.DefaultWatchBytes
		if m := machineMemory() / 8; m > 0 {
			c.WatchMemoryBytes = min(c.WatchMemoryBytes, m)
		}
	}
}

// Validate reports everything that is wrong, each with its field.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.DataDir == "" {
		bad("data-dir: is empty; name the directory that holds the node's data")
	}
	if !dataflow.ValidName(c.NodeID) {
		bad("node-id: %q is not [a-z_][a-z0-9_]{0,62}", c.NodeID)
	}
	if c.Shards < 0 || c.Shards > dataflow.MaxShards {
		bad("shards: %d is not between 1 and %d", c.Shards, dataflow.MaxShards)
	}
	if c.QueryMemoryBytes < 0 {
		bad("query-memory: %d is negative", c.QueryMemoryBytes)
	}
	if c.MemoryBytes < 0 {
		bad("memory: %d is negative", c.MemoryBytes)
	}
	if c.WatchMemoryBytes < 0 {
		bad("watch-memory: %d is negative", c.WatchMemoryBytes)
	}
	if c.WatchRetained < 0 {
		bad("watch-retained: %s is negative", c.WatchRetained)
	}
	if c.MinFreeDisk < 0 {
		bad("min-free-disk: %d is negative", c.MinFreeDisk)
	}
	if c.FaultFile != "" && !c.FaultInjection {
		bad("fault-file: is refused without --allow-fault-injection: it makes the node's clock and disk wrong")
	}
	if c.FaultDisk && c.FaultFile == "" {
		bad("fault-disk: there is no fault-file that says what is wrong with the disk")
	}
	c.validatePeers(bad)
	for _, a := range []struct{ name, addr string }{{"http-addr", c.HTTPAddr}, {"grpc-addr", c.GRPCAddr}, {"resp-addr", c.RESPAddr}} {
		if a.addr == "" {
			continue // off
		}
		host, _, err := net.SplitHostPort(a.addr)
		if err != nil {
			bad("%s: %q is not host:port", a.name, a.addr)
			continue
		}
		if ip := net.ParseIP(host); !c.AllowInsecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			bad("%s: %s is not a loopback address, and this version has neither TLS nor authentication; listen on 127.0.0.1, or say --allow-insecure", a.name, a.addr)
		}
	}
	return errors.Join(errs...)
}

// now is the wall clock, in µs since 1970.
func (c *Config) now() int64 { return c.Clock().UnixMicro() }

// breakClockAndDisk lets a test say how they are wrong, if it is to.
func (c *Config) breakClockAndDisk() error {
	if c.FaultFile == "" {
		return nil
	}
	faults, err := inject.Open(c.FaultFile)
	if err != nil {
		return err
	}
	c.Clock = faults.Now
	if c.FaultDisk {
		c.FS = vfs.WithSync(c.FS, faults.Sync)
	}
	return nil
}

// group reports whether the node is one of several.
func (c *Config) group() bool { return c.PeerAddr != "" }

// advertised returns an address as others are told it.
func (c *Config) advertised(addr string) string {
	if c.Advertise == "" {
		return addr
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return net.JoinHostPort(c.Advertise, port)
}

// validatePeers checks what concerns other nodes.
func (c *Config) validatePeers(bad func(format string, args ...any)) {
	if !c.group() {
		if len(c.Join) > 0 || c.BootstrapExpect != 0 {
			bad("peer-addr: is empty; a node that joins others needs an address where they reach it")
		}
		return
	}
	host, _, err := net.SplitHostPort(c.PeerAddr)
	if err != nil && c.PeerNetwork == (peernet.TCP{}) {
		bad("peer-addr: %q is not host:port", c.PeerAddr)
		return
	}
	ip := net.ParseIP(host)
	if c.PeerNetwork == (peernet.TCP{}) && !c.AllowInsecure && c.PeerServerTLS == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		bad("peer-addr: %s is not a loopback address, and without certificates anybody could pass for a node; name --peer-cert, --peer-key and --peer-ca, or say --allow-insecure", c.PeerAddr)
	}
	if (host == "" || ip != nil && ip.IsUnspecified()) && c.Advertise == "" {
		bad("advertise: is empty, and others cannot reach %s; name the host by which they reach this node", c.PeerAddr)
	}
	if len(c.Join) == 0 {
		bad("join: is empty; name the addresses of the nodes that found the group, or of some that are in it")
	}
	for i, addr := range c.Join {
		if slices.Contains(c.Join[:i], addr) {
			bad("join: %s stands there twice: is one of them another node's?", addr)
		}
	}
	if c.BootstrapExpect < 0 || c.BootstrapExpect > meta.MaxMembers {
		bad("bootstrap-expect: %d is not between 0 and %d", c.BootstrapExpect, meta.MaxMembers)
	}
}
