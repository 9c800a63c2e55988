package service

import (
	"context"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog/meta"
)

var _ api.Tables = (*Service)(nil)

// tablesOf lists the tables of a plan; live gives their sizes and may be nil.
func (s *Service) tablesOf(pipeline string, pl *plan.Plan, live *worker.Running) []api.Table {
	var out []api.Table
	for _, st := range pl.Stages {
		if st.Name == "" {
			continue
		}
		t := api.Table{Pipeline: pipeline, Name: st.Name, Schema: st.Schema}
		for _, c := range st.KeyCols {
			t.Key = append(t.Key, st.Schema[c].Name)
		}
		if live != nil {
			for _, sh := range s.cfg.Shards {
				if lt := live.Table(st.ID, sh.ID); lt != nil {
					t.Rows += uint64(lt.Len())
					t.Bytes += uint64(lt.Bytes())
				}
			}
		}
		out = append(out, t)
	}
	return out
}

func (s *Service) tables(st *meta.State, p *meta.Pipeline) ([]api.Table, error) {
	prog, err := s.cfg.Catalog.Program(st, p)
	if err != nil {
		return nil, err
	}
	return s.tablesOf(p.Name, prog.Plan, s.cfg.Worker.Live(p.UID)), nil
}

// ListTables lists the tables of one pipeline, of all when the name is empty.
func (s *Service) ListTables(ctx context.Context, pipeline string) ([]api.Table, error) {
	st, err := s.cfg.Meta.Current(ctx)
	if err != nil {
		return nil, err
	}
	if pipeline != "" {
		p, err := st.Pipeline(pipeline)
		if err != nil {
			return nil, err
		}
		return s.tables(st, p)
	}
	var out []api.Table
	for _, p := range st.PipelineList() {
		ts, err := s.tables(st, p)
		if err != nil {
			return nil, err
		}
		out = append(out, ts...)
	}
	return out, nil
}

// DescribeTable shows one table with the newest cut of its pipeline.
func (s *Service) DescribeTable(ctx context.Context, pipeline, table string) (api.Table, *dataflow.Cut, error) {
	st, err := s.cfg.Meta.Current(ctx)
	if err != nil {
		return api.Table{}, nil, err
	}
	p, err := st.Pipeline(pipeline)
	if err != nil {
		return api.Table{}, nil, err
	}
	prog, err := s.cfg.Catalog.Program(st, p)
	if err != nil {
		return api.Table{}, nil, err
	}
	if _, err := prog.Stage(table); err != nil {
		return api.Table{}, nil, err
	}
	for _, t := range s.tablesOf(p.Name, prog.Plan, s.cfg.Worker.Live(p.UID)) {
		if t.Name == table {
			cut := s.cfg.Queries.NewestCut(PipelineInfo(p))
			cut.State = stateNow(s.cfg.Fleet, p)
			return t, &cut, nil
		}
	}
	return api.Table{}, nil, dataflow.Errorf(dataflow.ReasonTableNotFound, "pipeline %s has no table %q", pipeline, table)
}
