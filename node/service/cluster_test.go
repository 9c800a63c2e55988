package service

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/meta"
)

func TestReadyWaitsForThePipelinesThatWillBeServed(t *testing.T) {
	const now = 1_000_000_000
	old, young := now-readyGrace.Microseconds(), now-readyGrace.Microseconds()+1
	notHere := dataflow.Errorf(dataflow.ReasonNoCommittedCheckpoint, "not here yet")
	for _, c := range []struct {
		name    string
		created int64
		errs    [2]error // by shard
		waits   string
	}{
		{"served", old, [2]error{}, ""},
		{"not published after a restart", old, [2]error{nil, notHere}, "p (shard 1)"},
		{"not published on any shard", old, [2]error{notHere, notHere}, "p (shard 0)"},
		{"just deployed", young, [2]error{notHere, notHere}, ""},
		{"damaged", old, [2]error{dataflow.Errorf(dataflow.ReasonCorrupt, "digest"), nil}, ""},
		{"damaged on one shard and not published on the other", old, [2]error{dataflow.Errorf(dataflow.ReasonCorrupt, "digest"), notHere}, "p (shard 1)"},
		{"being dropped", old, [2]error{dataflow.Errorf(dataflow.ReasonPipelineNotFound, "dropped"), nil}, ""},
		{"shutting down", old, [2]error{nil, dataflow.Errorf(dataflow.ReasonShuttingDown, "closed")}, "p (shard 1)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pipelines := []*meta.Pipeline{{Name: "fine", CreatedAt: old}, {Name: "p", CreatedAt: c.created}}
			err := notReady(pipelines, 2, now, func(p *meta.Pipeline, shard int) error {
				if p.Name == "fine" {
					return nil
				}
				return c.errs[shard]
			})
			if c.waits == "" {
				if err != nil {
					t.Errorf("not ready: %v", err)
				}
				return
			}
			var e *dataflow.Error
			if !errors.As(err, &e) || e.Reason != dataflow.ReasonNoCommittedCheckpoint || !strings.HasSuffix(e.Message, " of "+c.waits) {
				t.Errorf("got %v, want it to wait for %s", err, c.waits)
			}
		})
	}
}
