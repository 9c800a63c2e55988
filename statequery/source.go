package statequery

import (
	"context"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
)

// Pipeline is what the meta log says of a pipeline at one moment. It is immutable.
type Pipeline struct {
	Name        string
	UID         dataflow.PipelineUID
	State       dataflow.PipelineState
	Timeline    dataflow.Timeline
	Incarnation dataflow.Incarnation
	Guarantee   dataflow.Guarantee
	Reads       []dataflow.StreamID
	Cuts        []*dataflow.CheckpointCommit // readable ones, ascending; never empty
}

// Newest returns the newest committed cut.
func (p *Pipeline) Newest() *dataflow.CheckpointCommit { return p.Cuts[len(p.Cuts)-1] }

// Catalog knows pipelines and their tables.
type Catalog interface {
	// Pipeline returns a pipeline by name; PIPELINE_NOT_FOUND.
	Pipeline(name string) (*Pipeline, error)
	// Cut returns a readable cut; CHECKPOINT_NOT_FOUND or CHECKPOINT_EXPIRED.
	Cut(p *Pipeline, id dataflow.CheckpointID) (*dataflow.CheckpointCommit, error)
	// Stage returns the stage behind a table; TABLE_NOT_FOUND.
	Stage(p *Pipeline, table string) (*plan.Stage, error)
	// TableNames returns the names of all tables, pipeline.table, for suggestions.
	TableNames() []string
	// Changed returns a channel that is closed when a pipeline may have changed after the call.
	Changed() <-chan struct{}
}

// Store gives committed cuts and live tables.
type Store interface {
	// View returns a cut on a shard and waits until it can be read there. The caller releases it.
	View(ctx context.Context, shard dataflow.ShardID, uid dataflow.PipelineUID, cut dataflow.CheckpointID) (View, error)
	// Live returns the running incarnation, or nil when there is none at this moment.
	Live(uid dataflow.PipelineUID) Live
}

// View is one committed cut on one shard: immutable.
type View interface {
	// Get appends the value of a key to dst.
	Get(stage dataflow.StageID, key, dst []byte) ([]byte, bool, error)
	// Iter iterates over lo ≤ key < hi by key; a nil hi is no bound.
	Iter(stage dataflow.StageID, lo, hi []byte) Iter
	Release()
}

// Iter walks over entries. Key and Value are valid until the next call.
type Iter interface {
	Next() bool
	Key() []byte
	Value() []byte
	Close() error
}

// Live is a running incarnation.
type Live interface {
	Incarnation() dataflow.Incarnation
	// Get appends the newest value of a key to dst.
	Get(stage dataflow.StageID, shard dataflow.ShardID, key, dst []byte) ([]byte, bool)
	// Scan returns copies of the first limit entries with lo ≤ key < hi, by key; a limit of 0 is none.
	Scan(stage dataflow.StageID, shard dataflow.ShardID, lo, hi []byte, limit int) (keys, values [][]byte)
	// Positions returns how far the sources have read.
	Positions() dataflow.Positions
	// Processed waits until every table holds the effect of all rows below want.
	Processed(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error)
}

// Streams says where streams end, for how far an answer is behind.
type Streams interface {
	Ends(streams []dataflow.StreamID) dataflow.Positions
	// AppendTime returns when the row at an offset was appended, in µs since 1970; 0 when there is no such row.
	AppendTime(at dataflow.StreamShard, offset dataflow.Offset) int64
}

// Leases keeps cuts readable between pages.
type Leases interface {
	Lease(ctx context.Context, uid dataflow.PipelineUID, cut dataflow.CheckpointID, ttl time.Duration) (id string, err error)
	Renew(ctx context.Context, uid dataflow.PipelineUID, id string, ttl time.Duration) error
	Release(ctx context.Context, uid dataflow.PipelineUID, id string) error
}

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
	// MaxWait bounds waiting for a token when a request does not say; default 10 s.
	MaxWait time.Duration
	// MaxQueryTime and MaxQueryBytes bound one pull query; defaults 10 s and 64 MiB.
	MaxQueryTime  time.Duration
	MaxQueryBytes int64
}

func (c *Config) ensureDefaults() {
	if c.Now == nil {
		c.Now = func() int64 { return time.Now().UnixMicro() }
	}
	if c.MaxWait == 0 {
		c.MaxWait = 10 * time.Second
	}
	if c.MaxQueryTime == 0 {
		c.MaxQueryTime = 10 * time.Second
	}
	if c.MaxQueryBytes == 0 {
		c.MaxQueryBytes = 64 << 20
	}
}
