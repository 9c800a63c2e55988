package dataflow

import (
	"fmt"
	"time"
)

// Isolation is what a read may see.
type Isolation uint8

const (
	// ReadCommitted reads come from one committed cut (G3). The default.
	ReadCommitted Isolation = 0
	// ReadUncommitted reads see the newest processed values, which a recovery may take back (G4).
	ReadUncommitted Isolation = 1
)

func (i Isolation) String() string {
	switch i {
	case ReadCommitted:
		return "READ_COMMITTED"
	case ReadUncommitted:
		return "READ_UNCOMMITTED"
	}
	return fmt.Sprintf("ISOLATION(%d)", uint8(i))
}

// ReadOptions is what every read can ask for. The zero value reads the newest committed cut.
type ReadOptions struct {
	Isolation Isolation
	// Min is what the answer must cover (min_token); nil asks for nothing.
	Min Positions
	// Session is the newest cut that the session has seen; nil for none.
	Session *SessionToken
	// MaxWait bounds the wait for Min and Session; then TOKEN_NOT_REACHED. 0 = the server's default.
	MaxWait time.Duration
	// MaxStaleness refuses an answer that may lack rows which were acknowledged longer ago than this: CUT_TOO_OLD; 0 = any
	// answer will do.
	MaxStaleness time.Duration
	// Checkpoint names a retained or leased cut to read instead of the newest; nil for the newest.
	Checkpoint *CheckpointID
}

// Explanation says where an answer comes from.
type Explanation struct {
	Node      string    // that answers
	Isolation Isolation // that is read: a live read of a pipeline that does not run is of what is committed
	Why       string    // it is this node, and this cut
	Shards    []ShardRead
}

// ShardRead says where a shard is read.
type ShardRead struct {
	Shard  ShardID
	Node   string // whose copy, or whose live tables, are read
	Source ReadSource
	Why    string
}

// ReadSource is what is read of a shard.
type ReadSource uint8

const (
	LocalCopy  ReadSource = iota // of the committed state, on the node that answers
	LiveHere                     // the live tables of the node that answers
	LiveRemote                   // the live tables of another node
)

// ScanRange bounds a scan: the leading parts of the key equal Equal, the next part lies within the bounds. A value of
// TypeUnknown that is not NULL is text, to be parsed as the column's type. The bounds are places in the order of keys, where
// NULL comes last: From alone goes on to it, so that ranges which meet tell a table apart without loss.
type ScanRange struct {
	Equal  Row
	Prefix string // the next part, a TEXT, starts with it; "" for no bound
	From   *Value // the next part is at least this; nil for no bound
	To     *Value // the next part is less than this; nil for no bound
}

// Page asks for one page of rows.
type Page struct {
	Limit int    // rows; 0 = the default of 1,000
	Token string // where the page before ended; "" for the first
	// AtMost is how many rows of a scan are still wanted, on this page and those that would follow; 0 = all. The page that
	// reaches it is the last.
	AtMost int64
}

// Cut says which input an answer reflects and how far behind it is. Every answer carries one.
type Cut struct {
	Pipeline    string
	UID         PipelineUID
	Timeline    Timeline
	Checkpoint  CheckpointID // of a live read: the newest committed one
	Incarnation Incarnation
	Guarantee   Guarantee
	TriggeredAt int64 // µs since 1970; 0 = unset
	CommittedAt int64 // µs since 1970; 0 = unset
	AgeMillis   int64 // since CommittedAt
	Positions   Positions
	Watermark   int64 // µs since 1970 of event time; 0 = unset
	// BehindRows counts rows that are acknowledged and not covered; BehindMillis is how long the oldest has been.
	BehindRows   uint64
	BehindMillis int64
	Speculative  bool // a recovery may take the answer back
	CatchingUp   bool
	Node         string
	Role         string // leader or follower
	State        PipelineState
	Skipped      uint64 // rows left out because an expression failed
	Session      SessionToken
}
