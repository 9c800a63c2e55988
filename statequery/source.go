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
	OnError     dataflow.OnError // whether rows that cannot be computed are an error or left out
	Reads       []dataflow.StreamID
	Cuts        []*dataflow.CheckpointCommit // readable ones, ascending; never empty
}

// Newest returns the newest committed cut.
func (p *Pipeline) Newest() *dataflow.CheckpointCommit { return p.Cuts[len(p.Cuts)-1] }

// Catalog knows pipelines and their tables.
type Catalog interface {
	// Pipeline returns a pipeline by name; PIPELINE_NOT_FOUND.
	Pipeline(name string) (*Pipeline, error)
	// CatchUp returns when this node's catalog has everything that was committed before the call, also by way of other nodes.
	CatchUp(ctx context.Context) error
	// Cut returns a readable cut; CHECKPOINT_NOT_FOUND or CHECKPOINT_EXPIRED.
	Cut(p *Pipeline, id dataflow.CheckpointID) (*dataflow.CheckpointCommit, error)
	// Table returns a table of the pipeline, prepared once; TABLE_NOT_FOUND.
	Table(p *Pipeline, name string) (*Table, error)
	// TableNames returns the names of all tables, pipeline.table, for suggestions.
	TableNames() []string
	// Streams returns the streams that exist, for the EXPLAIN of a file that is not deployed.
	Streams() plan.Catalog
	// Changed returns a channel that is closed when a pipeline may have changed after the call.
	Changed() <-chan struct{}
}

// Store gives committed cuts and live tables.
type Store interface {
	// View returns a cut on a shard and waits until it can be read there. The caller releases it. When ctx ends first the
	// error is NO_COMMITTED_CHECKPOINT; a cut that is no longer kept is CHECKPOINT_EXPIRED.
	View(ctx context.Context, shard dataflow.ShardID, uid dataflow.PipelineUID, cut dataflow.CheckpointID) (View, error)
	// Live returns the running incarnation, or nil when there is none at this moment.
	Live(uid dataflow.PipelineUID) Live
}

// View is one committed cut on one shard: immutable.
type View interface {
	// Get appends the value of a key to dst.
	Get(stage dataflow.StageID, key, dst []byte) ([]byte, bool, error)
	// GetAll answers all keys that are open, until they have no room.
	GetAll(stage dataflow.StageID, keys *dataflow.Lookups) error
	// Iter iterates over lo ≤ key < hi by key; a nil hi is no bound.
	Iter(stage dataflow.StageID, lo, hi []byte) Iter
	// Changes iterates over the keys lo ≤ key < hi that differ, or may differ, from an older cut of the same pipeline on the
	// same shard; the value of one that is gone is nil. Both views stay open for as long.
	Changes(older View, stage dataflow.StageID, lo, hi []byte) Iter
	Release()
}

// Iter walks over entries. Key and Value are valid until the next call.
type Iter interface {
	Next() bool
	Key() []byte
	Value() []byte
	// Close ends the walk and returns what went wrong in it. It is called once.
	Close() error
}

// Live is a running incarnation.
type Live interface {
	Incarnation() dataflow.Incarnation
	// Owner returns the node that runs a shard; "" = this one.
	Owner(shard dataflow.ShardID) string
	// Get appends the newest value of a key to dst. The error is PIPELINE_RECOVERING when the incarnation has ended, or the
	// node that runs the shard does not lead its log any more.
	Get(stage dataflow.StageID, shard dataflow.ShardID, key, dst []byte) ([]byte, bool, error)
	// Committed appends the value that a key has in a committed cut to dst, if it is at hand; known is false when it is not,
	// and the cut's View is to be asked. It does not wait.
	Committed(stage dataflow.StageID, shard dataflow.ShardID, cut dataflow.CheckpointID, key, dst []byte) (val []byte, found, known bool)
	// GetAll answers all keys that are open as Get does, until they have no room. The error is Get's.
	GetAll(stage dataflow.StageID, shard dataflow.ShardID, keys *dataflow.Lookups) error
	// CommittedAll answers those of the open keys that Committed has an answer for. It does not wait.
	CommittedAll(stage dataflow.StageID, shard dataflow.ShardID, cut dataflow.CheckpointID, keys *dataflow.Lookups)
	// Scan returns copies of the first limit entries with lo ≤ key < hi, by key; a nil hi is no bound, a limit of 0 none.
	// The error is Get's.
	Scan(stage dataflow.StageID, shard dataflow.ShardID, lo, hi []byte, limit int) (keys, values [][]byte, err error)
	// Fresh returns copies of entries that have changed since the last barrier, in any order, of about maxBytes at most; a nil
	// value says that the key is gone. The error is Get's.
	Fresh(stage dataflow.StageID, shard dataflow.ShardID, maxBytes int64) (keys, values [][]byte, err error)
	// Covered returns positions of which every table holds all effects. It does not wait for rows that are being read.
	Covered(ctx context.Context) dataflow.Positions
	// Processed waits until every table holds the effect of all rows below want, and returns the positions, at least
	// want, that they hold then. The error is ctx's, or says that the incarnation has ended.
	Processed(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error)
}

// Streams says where streams end, for how far an answer is behind.
type Streams interface {
	// End returns the offset that the next row of a stream's shard will get.
	End(at dataflow.StreamShard) dataflow.Offset
	// AppendTime returns when the row at an offset was appended, in µs since 1970; 0 when there is no such row, or not any more.
	AppendTime(at dataflow.StreamShard, offset dataflow.Offset) int64
}

// Leases keeps cuts readable between pages.
type Leases interface {
	Lease(ctx context.Context, uid dataflow.PipelineUID, cut dataflow.CheckpointID, ttl time.Duration) (id string, err error)
	// Renew lets a lease live on; CHECKPOINT_EXPIRED when it has ended.
	Renew(ctx context.Context, uid dataflow.PipelineUID, id string, ttl time.Duration) error
	Release(ctx context.Context, uid dataflow.PipelineUID, id string) error
}
