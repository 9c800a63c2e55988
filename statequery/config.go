package statequery

import (
	"context"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// Config describes an Engine. All fields but those with a default are needed.
type Config struct {
	Node    string
	Group   dataflow.GroupID
	Shards  int
	Catalog Catalog
	Store   Store
	Streams Streams
	Leases  Leases
	// Now is the wall clock in µs since 1970; default time.Now.
	Now func() int64
	// CatchUp returns when this node has applied what the group had acknowledged before the call, in all logs; nil = this node
	// is the whole group.
	CatchUp func(ctx context.Context) error
	// Others names the other nodes that may answer; nil = there is none.
	Others func() []string
	// Leads reports whether this node leads the meta log; nil = it always does.
	Leads func() bool
	// MaxWait bounds waiting for a token, when a request does not say, and for a cut to arrive on a shard; default 10 s.
	MaxWait time.Duration
	// MaxTime bounds the reading of one pull query or one page of a scan; default 10 s: as long as a superseded cut is kept.
	MaxTime time.Duration
	// MaxBytes bounds what one pull query or batch of look-ups holds in memory; default 64 MiB.
	MaxBytes int64
	// TotalBytes bounds what all of them hold at once; default 512 MiB. A query takes MaxBytes of it, a batch of look-ups as
	// much as its keys let expect, and MaxBytes if that was not enough; others wait. Each kind has a part of its own, with room
	// for one request at least. Not in it are look-ups of one key, and answers on their way to the caller.
	TotalBytes int64
	// WatchBytes bounds what is kept of the changes of watched tables, for all together; default 1 GiB. Each table has the
	// same part of it.
	WatchBytes int64
	// WatchRetained is how long the changes of a watched table are kept, and for how long after its last watcher has left;
	// default 10 min.
	WatchRetained time.Duration
	// LiveEvery is how often the watchers of a live table are told what has changed; default 100 ms: as often as people see,
	// and seldom enough for a key that changes all the time.
	LiveEvery time.Duration
}

// DefaultTotalBytes is the default of Config.TotalBytes.
const DefaultTotalBytes = 512 << 20

// The defaults of Config.WatchBytes and Config.WatchRetained.
const (
	DefaultWatchBytes    = 1 << 30
	DefaultWatchRetained = 10 * time.Minute
)

func (c *Config) ensureDefaults() {
	if c.Now == nil {
		c.Now = func() int64 { return time.Now().UnixMicro() }
	}
	if c.MaxWait == 0 {
		c.MaxWait = 10 * time.Second
	}
	if c.MaxTime == 0 {
		c.MaxTime = 10 * time.Second
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	if c.WatchBytes == 0 {
		c.WatchBytes = DefaultWatchBytes
	}
	if c.WatchRetained == 0 {
		c.WatchRetained = DefaultWatchRetained
	}
	if c.LiveEvery == 0 {
		c.LiveEvery = 100 * time.Millisecond
	}
	if c.TotalBytes == 0 {
		c.TotalBytes = DefaultTotalBytes
	}
}
