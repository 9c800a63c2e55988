package raftlog

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/internal/vfs"
)

// Defaults of Config, and constants of a group.
const (
	// DefaultMaxEntryBytes bounds a command: a row of dataflow.MaxRowBytes with what surrounds it. Not larger, because
	// heartbeats wait behind entries; not smaller, because a row is not split.
	DefaultMaxEntryBytes = dataflow.MaxRowBytes + dataflow.MaxEntryBytes
	// DefaultMaxPending and DefaultMaxPendingBytes bound the commands that wait or are in flight.
	DefaultMaxPending      = 1024
	DefaultMaxPendingBytes = 32 << 20
	// DefaultWriteDeadline is how long a durable write may take while the process runs. Not smaller: a busy disk stalls for
	// seconds without being broken. Not larger: a leader whose disk hangs answers nobody.
	DefaultWriteDeadline = 10 * time.Second
	// DefaultSnapshotBytes of applied commands lie between snapshots.
	DefaultSnapshotBytes = 64 << 20
	// DefaultTrailingBytes of log are kept behind a snapshot, for members that lag a little.
	DefaultTrailingBytes = 8 << 20

	// maxTrailingEntries of log are kept behind a snapshot however small they are: some minutes of a busy shard. Not more,
	// because the store keeps about 20 bytes of each in memory.
	maxTrailingEntries = 128 << 10
	maxTrailingAlone   = 10 << 10 // in a group of one nobody needs them

	// electionTimeoutAlone makes a group with one member elect itself within twice this time after a start. It waits for
	// nobody, so it could be shorter still; 50 ms leaves a loaded machine room for its first writes.
	electionTimeoutAlone = 50 * time.Millisecond
	// electionTimeout of groups with several members must exceed the slowest healthy log write (transport, T1).
	electionTimeout = 2 * time.Second

	retryElection = 100 * time.Millisecond
	retryOverload = 20 * time.Millisecond
)

// LogStore keeps a group's entries and its vote. logstore.GroupLog and the store of OpenBolt are such; both are monotonic.
type LogStore interface {
	raft.LogStore
	raft.StableStore
	raft.MonotonicLogStore
}

// Config describes a group. The zero value of an optional field means its default.
type Config struct {
	// Group names the group in messages and logs: "meta", "shard-3".
	Group string
	// NodeID names this member for good.
	NodeID string
	// FS and Dir say where the snapshots are: in Dir/snapshots.
	FS  vfs.FS
	Dir string
	// Log keeps the entries and the vote. It stays the caller's: Close does not close it.
	Log LogStore
	// FSM is the state that the log builds. With OnDisk it must be an OnDiskFSM.
	FSM FSM
	// OnDisk says that the FSM keeps its state itself; the newest snapshot is not restored at start (P7). The caller has
	// brought the state to at least that snapshot, see NewestSnapshot.
	OnDisk bool
	// PullSnapshots says that the FSM's snapshots refer to what is not in them, so that a leader's is not taken through Raft:
	// Group.Needs tells of it, and the member is brought to a later index while it is closed.
	PullSnapshots bool
	// Transport connects the members; optional for a group of one member. The group closes it.
	Transport raft.Transport
	// Members are the ids and addresses that an empty log is bootstrapped with; optional: this node alone. All of them must
	// be given the same ones.
	Members []Member
	// Join says that this member's log is not bootstrapped: the group is there, and its leader adds this member.
	Join bool
	// Forward carries commands that are proposed on this member to the one that leads; optional: they are refused here.
	Forward Forwarder
	// MaxEntryBytes bounds a command; default DefaultMaxEntryBytes.
	MaxEntryBytes int
	// MaxPending and MaxPendingBytes bound the commands that wait or are in flight; defaults as named above.
	MaxPending      int
	MaxPendingBytes int64
	// WriteDeadline bounds a durable write (R3); default DefaultWriteDeadline.
	WriteDeadline time.Duration
	// SnapshotBytes is how many bytes of commands are applied between snapshots; default DefaultSnapshotBytes.
	// Negative: snapshots are taken by Group.Snapshot only.
	SnapshotBytes int64
	// TrailingBytes of log stay behind a snapshot, as whole entries of average size; default DefaultTrailingBytes. A group
	// of one keeps no more than what came after the snapshot before.
	TrailingBytes int64
	// ElectionTimeout is how long a member waits for its leader; default 2 s, and 50 ms in a group of one.
	ElectionTimeout time.Duration
	// Phases records snapshots; optional.
	Phases *phase.Recorder
	// Logger receives the group's messages; default: discarded.
	Logger *slog.Logger
}

// Member is one member of a group. An empty Addr is the ID, as over transport.Peers.
type Member struct {
	ID   string
	Addr string
}

func (m Member) server() raft.Server {
	if m.Addr == "" {
		m.Addr = m.ID
	}
	return raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Addr)}
}

func (c *Config) ensureDefaults() {
	def(&c.MaxEntryBytes, DefaultMaxEntryBytes)
	def(&c.MaxPending, DefaultMaxPending)
	def(&c.MaxPendingBytes, DefaultMaxPendingBytes)
	def(&c.WriteDeadline, DefaultWriteDeadline)
	def(&c.SnapshotBytes, DefaultSnapshotBytes)
	def(&c.TrailingBytes, DefaultTrailingBytes)
	if c.ElectionTimeout == 0 {
		c.ElectionTimeout = electionTimeout
		if c.alone() {
			c.ElectionTimeout = electionTimeoutAlone
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// alone says that the group is bootstrapped with this node as its only member.
func (c *Config) alone() bool {
	return !c.Join && (len(c.Members) == 0 || len(c.Members) == 1 && c.Members[0].ID == c.NodeID)
}

func (c *Config) validate() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf("raftlog.Config."+format, args...))
		}
	}
	bad(c.Group == "", "Group: is empty")
	bad(c.NodeID == "", "NodeID: is empty")
	bad(c.FS == nil, "FS: is nil")
	bad(c.Log == nil, "Log: is nil")
	bad(c.FSM == nil, "FSM: is nil")
	bad(c.Log != nil && !c.Log.IsMonotonic(), "Log: is not monotonic, so a divergent follower could loop on snapshots")
	bad(c.Transport == nil && !c.alone(), "Transport: is nil in a group of %d members", len(c.Members))
	bad(c.Join && len(c.Members) > 0, "Members: are for bootstrapping, and Join says not to")
	bad(c.MaxEntryBytes < 1, "MaxEntryBytes: %d is not positive", c.MaxEntryBytes)
	bad(c.MaxPending < 1, "MaxPending: %d is not positive", c.MaxPending)
	bad(c.MaxPendingBytes < int64(c.MaxEntryBytes), "MaxPendingBytes: %d is less than MaxEntryBytes %d", c.MaxPendingBytes, c.MaxEntryBytes)
	bad(c.WriteDeadline < 0, "WriteDeadline: %v is negative", c.WriteDeadline)
	bad(c.TrailingBytes < 0, "TrailingBytes: %d is negative", c.TrailingBytes)
	bad(c.ElectionTimeout < 5*time.Millisecond, "ElectionTimeout: %v is less than 5 ms", c.ElectionTimeout)
	if c.OnDisk && c.FSM != nil {
		_, ok := c.FSM.(OnDiskFSM)
		bad(!ok, "FSM: OnDisk needs an AppliedIndex method")
	}
	return errors.Join(errs...)
}

// def sets *v to d when it is zero.
func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
