package statequery_test

import (
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

// lateStore has no tasks at the first look.
type lateStore struct {
	*world
	looked bool
}

func (s *lateStore) Live(uid dataflow.PipelineUID) statequery.Live {
	if !s.looked {
		s.looked = true
		return nil
	}
	return s.world.Live(uid)
}

func TestALiveReadWaitsForTheTasksOfANewPipelineOnly(t *testing.T) {
	for incarnation, want := range map[dataflow.Incarnation]dataflow.Reason{1: "", 2: dataflow.ReasonPipelineRecovering} {
		w := newWorld(t, 2)
		w.set(func(p *statequery.Pipeline) { p.Incarnation = incarnation })
		e := w.engine(func(c *statequery.Config) { c.Store = &lateStore{world: w} })
		_, _, cut, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{}, dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted})
		if dataflow.ReasonOf(err) != want || err == nil && !cut.Speculative {
			t.Errorf("incarnation %d: %v, %v; want %q", incarnation, cut, err, want)
		}
	}
}
