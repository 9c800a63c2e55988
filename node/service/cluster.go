package service

import (
	"context"
	"slices"
	"strconv"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
)

var (
	_ api.Tokens  = (*Service)(nil)
	_ api.Cluster = (*Service)(nil)
)

// WaitToken waits until the tables of pipelines cover the positions.
func (s *Service) WaitToken(ctx context.Context, w api.TokenWait) ([]dataflow.Cut, error) {
	st := s.cfg.Meta.State()
	var cuts []dataflow.Cut
	for _, name := range w.Pipelines {
		if _, err := st.Pipeline(name); err != nil {
			return nil, err
		}
	}
	for _, p := range st.PipelineList() {
		named := slices.Contains(w.Pipelines, p.Name)
		if len(w.Pipelines) > 0 && !named {
			continue
		}
		want := make(dataflow.Positions)
		for k, v := range w.Positions {
			if p.ReadsStream(k.Stream) {
				want[k] = v
			}
		}
		if len(want) == 0 && !named {
			continue
		}
		if !p.State.Active() && !named && p.State != dataflow.PipelineFailed {
			continue // stopped by an operator, who knows
		}
		if !p.State.Active() && !p.Newest().Positions.Covers(want) {
			// These rows are perhaps what it failed at: to say nothing would sound like a yes.
			return nil, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s reads the stream and is %s: it has not taken the rows up to the token", p.Name, p.State).
				WithHint("weir pipeline describe %s says why; resume it, or wait for other pipelines by name", p.Name).WithMeta("pipeline", p.Name)
		}
		var cut dataflow.Cut
		var err error
		if w.Processed {
			cut, err = s.cfg.Queries.WaitProcessed(ctx, p.Name, want)
		} else {
			cut, err = s.cfg.Queries.WaitCommitted(ctx, p.Name, want)
		}
		if err != nil {
			return nil, err
		}
		cuts = append(cuts, cut)
	}
	return cuts, nil
}

// Status shows the group as this node sees it.
func (s *Service) Status(context.Context) (api.ClusterStatus, error) {
	st := s.cfg.Meta.State()
	out := api.ClusterStatus{
		Node: s.cfg.Node, Shards: st.Shards, Meta: s.cfg.MetaStatus(), StartedAt: s.cfg.StartedAt,
		Pipelines: len(st.Pipelines), Streams: len(st.Streams),
	}
	for _, sh := range s.cfg.Shards {
		role := "follower"
		if sh.Log.IsLeader() {
			role = "leader"
		}
		out.Logs = append(out.Logs, api.RaftLog{
			Group: "shard-" + strconv.Itoa(int(sh.ID)), Role: role, Leader: sh.Log.Leader(), Term: sh.Log.Term(),
			Applied: sh.Log.AppliedIndex(), Last: sh.Log.AppliedIndex(),
		})
	}
	return out, nil
}

// Ready returns nil when every pipeline has a committed cut that can be read here.
func (s *Service) Ready(context.Context) error {
	st := s.cfg.Meta.State()
	for _, p := range st.PipelineList() {
		for _, sh := range s.cfg.Shards {
			if _, ok := sh.Replica.Newest(p.UID); !ok {
				return dataflow.Errorf(dataflow.ReasonNoCommittedCheckpoint, "pipeline %s has no committed cut on shard %d yet", p.Name, sh.ID)
			}
		}
	}
	return nil
}
