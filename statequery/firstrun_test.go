package statequery_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// goneStore never has tasks: the pipeline is deleted while a read looks for them.
type goneStore struct {
	*world
	deleted *atomic.Bool
}

func (s goneStore) Live(dataflow.PipelineUID) statequery.Live {
	s.deleted.Store(true)
	return nil
}

// goneCatalog has no pipeline once it is deleted.
type goneCatalog struct {
	*world
	deleted *atomic.Bool
}

func (c goneCatalog) Pipeline(name string) (*statequery.Pipeline, error) {
	if c.deleted.Load() {
		return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "there is no pipeline %q", name)
	}
	return c.world.Pipeline(name)
}

func TestALiveReadOfAPipelineDeletedMeanwhileSaysSoAtOnce(t *testing.T) {
	for _, incarnation := range []dataflow.Incarnation{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2)
			w.set(func(p *statequery.Pipeline) { p.Incarnation = incarnation })
			var deleted atomic.Bool
			e := w.engine(func(c *statequery.Config) { c.Store, c.Catalog = goneStore{w, &deleted}, goneCatalog{w, &deleted} })
			began := time.Now()
			_, _, _, err := e.Scan(t.Context(), pipelineName, "counts", dataflow.ScanRange{}, dataflow.Page{}, dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted})
			if dataflow.ReasonOf(err) != dataflow.ReasonPipelineNotFound || time.Since(began) > 0 {
				t.Errorf("incarnation %d: %v after %s", incarnation, err, time.Since(began))
			}
		})
	}
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
