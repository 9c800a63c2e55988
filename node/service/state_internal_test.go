package service

import (
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog/meta"
)

func TestAPipelineWithoutTasksIsNotShownAsRunning(t *testing.T) {
	idle := &worker.Worker{} // as after the node's start
	for in, want := range map[dataflow.PipelineState]dataflow.PipelineState{
		dataflow.PipelineRunning:    dataflow.PipelineRecovering,
		dataflow.PipelineRecovering: dataflow.PipelineRecovering,
		dataflow.PipelineStopping:   dataflow.PipelineStopping,
		dataflow.PipelineStopped:    dataflow.PipelineStopped,
		dataflow.PipelineFailed:     dataflow.PipelineFailed,
	} {
		if got := stateNow(idle, &meta.Pipeline{UID: 1, State: in}); got != want {
			t.Errorf("%s is shown as %s, want %s", in, got, want)
		}
	}
}
