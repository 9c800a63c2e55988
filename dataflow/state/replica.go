package state

import (
	"context"
	"errors"

	"github.com/weirdb/weir/dataflow"
)

type Replica struct{}

var errAPI = errors.New("api")

// OpenReplica opens the committed state of one shard.
func OpenReplica(cfg Config) (*Replica, error) { return nil, errAPI }

// Methods of raftlog/shard.Replica, called in log order by the shard's apply goroutine.
func (r *Replica) ApplyChunk(idx dataflow.LogIndex, d dataflow.DeltaID, chunk int, data []byte) error {
	return errAPI
}
func (r *Replica) EndDelta(idx dataflow.LogIndex, d dataflow.DeltaID, chunks int, digest uint64) error {
	return errAPI
}
func (r *Replica) BeginIncarnation(idx dataflow.LogIndex, pipeline dataflow.PipelineUID, min dataflow.Incarnation, base dataflow.DeltaRef) error {
	return errAPI
}
func (r *Replica) Settle(idx dataflow.LogIndex, pipeline dataflow.PipelineUID, upTo dataflow.DeltaRef) error {
	return errAPI
}
func (r *Replica) DropPipeline(idx dataflow.LogIndex, pipeline dataflow.PipelineUID) error {
	return errAPI
}

// Publish makes a committed cut known (P5). Cuts come in the order of the meta log; after a restart all retained ones
// again, oldest first. A cut whose deltas are not here yet becomes readable when they are. A digest that differs is CORRUPT.
func (r *Replica) Publish(c *dataflow.CheckpointCommit) error { return errAPI }

// SetRetained says which cuts are retained or leased: the others that have been published up to the newest of keep
// become CHECKPOINT_EXPIRED and the layers between retained cuts are merged in the background.
func (r *Replica) SetRetained(pipeline dataflow.PipelineUID, keep []dataflow.CheckpointID) {}

// View returns one cut, counted: the caller releases it. Errors: NO_COMMITTED_CHECKPOINT (not here yet),
// CHECKPOINT_NOT_FOUND, CHECKPOINT_EXPIRED, CORRUPT, SHUTTING_DOWN.
func (r *Replica) View(pipeline dataflow.PipelineUID, cut dataflow.CheckpointID) (*View, error) {
	return nil, errAPI
}

// Newest returns the newest readable cut.
func (r *Replica) Newest(pipeline dataflow.PipelineUID) (dataflow.CheckpointID, bool) {
	return 0, false
}

// Changed returns a channel that is closed when a cut becomes readable (or corrupt) after the call.
func (r *Replica) Changed() <-chan struct{} { return nil }

// Merge folds the layers up to the cut floor into the store and returns what to propose to Settle (P6). Cuts below
// floor are refused from its start. It returns once the merge is durable.
func (r *Replica) Merge(ctx context.Context, pipeline dataflow.PipelineUID, floor dataflow.CheckpointID) (dataflow.DeltaRef, error) {
	return dataflow.DeltaRef{}, errAPI
}

// Base says what the store holds of a pipeline.
func (r *Replica) Base(pipeline dataflow.PipelineUID) (Base, bool) { return Base{}, false }

// Failed yields the error (once, then closed) when a durable write has failed: the node must stop.
func (r *Replica) Failed() <-chan struct{} { return nil }

// Err returns why Failed is closed.
func (r *Replica) Err() error { return nil }

func (r *Replica) Stats() Stats { return Stats{} }

// Close waits for background work; an error names views that were not released.
func (r *Replica) Close() error { return errAPI }

// Base is the base marker of a pipeline.
type Base struct {
	Timeline   dataflow.Timeline
	Checkpoint dataflow.CheckpointID
	MetaIndex  dataflow.LogIndex // of the commit of Checkpoint: the meta FSM must have passed it before the node serves
	Ref        dataflow.DeltaRef // deltas up to here are in the store
}

// Stats are figures of a replica.
type Stats struct {
	Pipelines []PipelineStats
	OpenViews int
	DiskBytes int64
}

// PipelineStats are figures of one pipeline in a replica.
type PipelineStats struct {
	Pipeline   dataflow.PipelineUID
	Layers     int
	LayerBytes int64 // what a Merge up to the newest cut would fold
	Cuts       int   // readable cuts
}

// View is one committed cut of one pipeline on one shard: immutable, safe for concurrent use.
type View struct{}

func (v *View) Checkpoint() dataflow.CheckpointID { return 0 }

// Get appends the value of a key to dst and reports whether the key is there.
func (v *View) Get(stage dataflow.StageID, key, dst []byte) ([]byte, bool, error) {
	return nil, false, errAPI
}

// Iter iterates over lo ≤ key < hi of a stage in key order; nil hi = no bound.
func (v *View) Iter(stage dataflow.StageID, lo, hi []byte) *Iter { return nil }

// Release ends the use of the view.
func (v *View) Release() {}

// Iter: for it.Next() { it.Key(); it.Value() }; err := it.Close().
type Iter struct{}

func (it *Iter) Next() bool    { return false }
func (it *Iter) Key() []byte   { return nil }
func (it *Iter) Value() []byte { return nil }
func (it *Iter) Close() error  { return errAPI }
