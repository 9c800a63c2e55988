package state

import "github.com/weirdb/weir/dataflow"

func errNotHere(pipeline dataflow.PipelineUID, id dataflow.CheckpointID) error {
	return dataflow.Errorf(dataflow.ReasonNoCommittedCheckpoint, "cut %d of pipeline %d is not here yet", id, pipeline).WithRetry(retryAfter)
}

func errExpired(pipeline dataflow.PipelineUID, id dataflow.CheckpointID) error {
	return dataflow.Errorf(dataflow.ReasonCheckpointExpired, "cut %d of pipeline %d is no longer kept", id, pipeline)
}

func errDropped(pipeline dataflow.PipelineUID) error {
	return dataflow.Errorf(dataflow.ReasonPipelineNotFound, "pipeline %d was dropped", pipeline)
}

func errCorruptCut(pipeline dataflow.PipelineUID, id dataflow.CheckpointID) error {
	return dataflow.Errorf(dataflow.ReasonCorrupt, "cut %d of pipeline %d names deltas that differ from those in this replica", id, pipeline)
}

func errShuttingDown() error {
	return dataflow.Errorf(dataflow.ReasonShuttingDown, "the state replica is closing")
}
