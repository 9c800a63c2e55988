package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pace"
	"github.com/weirdb/weir/raftlog"
)

// Defaults of Config.
const (
	// DefaultSnapshotBytes of log lie between snapshots. A restart reads that much again: well under a second. Not smaller,
	// because a snapshot holds the whole index of the shard's rows.
	DefaultSnapshotBytes = 64 << 20
	// DefaultCacheBytes of recently applied rows stay in memory: some dozen entries, so that a task that keeps up never
	// reads the disk. Not larger, because each shard has its own.
	DefaultCacheBytes = 8 << 20
	// DefaultMaxProducers and DefaultMaxKeys bound what a shard remembers of its senders, at about 500 and 150 bytes each.
	DefaultMaxProducers = 1 << 16
	DefaultMaxKeys      = 1 << 20
	// DefaultKeyTTL is longer than anybody retries a request.
	DefaultKeyTTL       = 24 * time.Hour
	DefaultProducerTTL  = dataflow.ProducerTTL
	DefaultAnonymousTTL = dataflow.AnonymousProducerTTL
	// DefaultExpireEvery bounds how much longer than its TTL something is remembered.
	DefaultExpireEvery = time.Minute
	// DefaultMaxLeases is for all other members of a large group at once, and some that have restarted since and come no more: a
	// lease keeps its files, and what is written behind it. Why not fewer: who finds no room waits until one has been idle for long.
	DefaultMaxLeases = 8
	// DefaultLeaseIdle is longer than a member needs to restart and to come back; what it holds the log for is then let go.
	DefaultLeaseIdle = 2 * time.Minute
	// DefaultLeaseMax bounds how long the disk keeps what was dropped meanwhile: time for some 100 GB.
	DefaultLeaseMax = 4 * time.Hour
	// DefaultLookEvery bounds what a busy disk takes between two looks: a few GB.
	DefaultLookEvery = 5 * time.Second
)

// Store is the shard's group in the node's log store: Raft's entries, and those that the shard still refers to after
// Raft is done with them. *logstore.GroupLog is one.
type Store interface {
	raftlog.LogStore
	Entries
}

// Config configures a Log. Zero fields take the defaults that their comments name.
type Config struct {
	Shard   dataflow.ShardID
	Store   Store   // stays the caller's: Close does not close it
	Replica Replica // stays the caller's

	// Raft says who the member is and where it lives: NodeID, FS and Dir at least. Group, Log, FSM, OnDisk and
	// SnapshotBytes are set by Open.
	Raft raftlog.Config

	SnapshotBytes int64         // log bytes between snapshots; default DefaultSnapshotBytes; negative: only Log.Snapshot
	CacheBytes    int64         // recently applied rows kept in memory; default DefaultCacheBytes; negative: none
	MaxProducers  int           // producers remembered before OVERLOADED; default DefaultMaxProducers
	MaxKeys       int           // idempotency keys remembered before OVERLOADED; default DefaultMaxKeys
	KeyTTL        time.Duration // log time for which a key is remembered; default DefaultKeyTTL
	ProducerTTL   time.Duration // log time for which an idle producer is remembered; default DefaultProducerTTL
	AnonymousTTL  time.Duration // the same for producers with anonymous names; default DefaultAnonymousTTL
	ExpireEvery   time.Duration // how often the leader looks for what to forget; default DefaultExpireEvery

	// LookEvery is how often a shard looks whether the store keeps much for want of its snapshot; default DefaultLookEvery.
	LookEvery time.Duration

	// Exports: how many at once, how long one may be unused, how long it may last in all, and the pace of all their bytes.
	MaxLeases   int           // default DefaultMaxLeases
	LeaseIdle   time.Duration // default DefaultLeaseIdle
	LeaseMax    time.Duration // default DefaultLeaseMax
	ExportLimit *pace.Limiter // may be shared; nil: none

	// Now is the wall clock, µs since 1970, read only to fill proposals; default time.Now.
	Now    func() int64
	Logger *slog.Logger // default: discarded
}

func (c *Config) ensureDefaults() {
	def(&c.SnapshotBytes, DefaultSnapshotBytes)
	def(&c.CacheBytes, DefaultCacheBytes)
	def(&c.MaxProducers, DefaultMaxProducers)
	def(&c.MaxKeys, DefaultMaxKeys)
	def(&c.KeyTTL, DefaultKeyTTL)
	def(&c.ProducerTTL, DefaultProducerTTL)
	def(&c.AnonymousTTL, DefaultAnonymousTTL)
	def(&c.ExpireEvery, DefaultExpireEvery)
	def(&c.LookEvery, DefaultLookEvery)
	def(&c.MaxLeases, DefaultMaxLeases)
	def(&c.LeaseIdle, DefaultLeaseIdle)
	def(&c.LeaseMax, DefaultLeaseMax)
	if c.Now == nil {
		c.Now = func() int64 { return time.Now().UnixMicro() }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("shard", c.Shard)
}

func (c *Config) validate() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf("shard.Config."+format, args...))
		}
	}
	bad(c.Store == nil, "Store: is nil")
	bad(c.Replica == nil, "Replica: is nil")
	bad(c.Raft.FS == nil, "Raft.FS: is nil")
	bad(c.Raft.NodeID == "", "Raft.NodeID: is empty")
	bad(c.MaxProducers < 1 || c.MaxProducers > maxCount, "MaxProducers: %d is out of range", c.MaxProducers)
	bad(c.MaxKeys < 1 || c.MaxKeys > maxCount, "MaxKeys: %d is out of range", c.MaxKeys)
	bad(c.KeyTTL < 0, "KeyTTL: %v is negative", c.KeyTTL)
	bad(c.ProducerTTL < 0, "ProducerTTL: %v is negative", c.ProducerTTL)
	bad(c.AnonymousTTL < 0, "AnonymousTTL: %v is negative", c.AnonymousTTL)
	bad(c.ExpireEvery < 0, "ExpireEvery: %v is negative", c.ExpireEvery)
	bad(c.MaxLeases < 1, "MaxLeases: %d is not positive", c.MaxLeases)
	bad(c.LeaseIdle < 0, "LeaseIdle: %v is negative", c.LeaseIdle)
	bad(c.LeaseMax < 0, "LeaseMax: %v is negative", c.LeaseMax)
	bad(c.LookEvery < 0, "LookEvery: %v is negative", c.LookEvery)
	return errors.Join(errs...)
}

// def sets *v to d when it is zero.
func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
