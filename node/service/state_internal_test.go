package service

import (
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/fleet"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog/meta"
)

func TestAPipelineWithoutTasksIsNotShownAsRunning(t *testing.T) {
	// As after the node's start.
	log := meta.New(nil, meta.NewFSM(), nil)
	idle := fleet.New(fleet.Config{Node: "n1", Meta: log, Worker: worker.New(worker.Config{Meta: log})})
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
