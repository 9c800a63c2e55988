package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/raftlog/meta"
)

var (
	_ api.Tokens  = (*Service)(nil)
	_ api.Cluster = (*Service)(nil)
)

// WaitToken waits until the tables of pipelines cover the positions.
func (s *Service) WaitToken(ctx context.Context, w api.TokenWait) ([]dataflow.Cut, error) {
	st, err := s.cfg.Meta.Current(ctx)
	if err != nil {
		return nil, err
	}
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
				WithHint("weir pipeline describe %s says why, and how it goes on; or wait for other pipelines by name", p.Name).WithMeta("pipeline", p.Name)
		}
		var cut dataflow.Cut
		var err error
		if w.Processed {
			cut, err = s.cfg.Queries.WaitProcessed(ctx, p.Name, want)
		} else {
			cut, err = s.cfg.Queries.WaitCommitted(ctx, p.Name, want)
		}
		if err != nil {
			return nil, heldUp(err, p, w.Processed)
		}
		cuts = append(cuts, cut)
	}
	return cuts, nil
}

// heldUp adds to TOKEN_NOT_REACHED that the pipeline commits nothing by itself, if that is so.
func heldUp(err error, p *meta.Pipeline, processed bool) error {
	var e *dataflow.Error
	if processed || p.Options.Interval > 0 || !errors.As(err, &e) || e.Reason != dataflow.ReasonTokenNotReached {
		return err
	}
	told := *e
	return told.WithHint("pipeline %[1]s makes no checkpoints by itself (checkpoint.interval = 'off'): weir checkpoint trigger %[1]s", p.Name)
}

// Status shows the group as this node sees it.
func (s *Service) Status(context.Context) (api.ClusterStatus, error) {
	st := s.cfg.Meta.State()
	out := api.ClusterStatus{
		Node: s.cfg.Node, Shards: st.Shards, Meta: s.cfg.MetaStatus(), StartedAt: s.cfg.StartedAt,
		Pipelines: len(st.Pipelines), Streams: len(st.Streams),
	}
	out.Logs = s.logs()
	return out, nil
}

// logs shows the shards' logs as this node has them.
func (s *Service) logs() []api.RaftLog {
	var out []api.RaftLog
	for _, sh := range s.cfg.Shards {
		l := api.RaftLog{
			Group: "shard-" + strconv.Itoa(int(sh.ID)), Leader: sh.Log.Leader(), Term: sh.Log.Term(),
			Applied: sh.Log.AppliedIndex(), Last: sh.Log.AppliedIndex(),
		}
		if members, err := sh.Log.Group().Members(); err == nil { // it fails only while the log is being closed
			for _, m := range members {
				l.AddMember(m.ID, m.Voter)
			}
		}
		l.Follows(s.cfg.Node)
		if sh.Log.IsLeader() {
			l.Role = api.RoleLeader
		}
		out = append(out, l)
	}
	return out
}

// readyGrace is how old a pipeline gets before the node has to serve it in order to be ready. Its cut 0 is readable some
// milliseconds after the deployment; a node that takes longer has a problem, or has just started.
const readyGrace = 5 * time.Second

// Ready returns nil when every pipeline has a committed cut that can be read here, and else names those that do not. A
// pipeline that was deployed a moment ago, or whose cut is damaged, does not make the node unready: waiting would not help
// those who read the others.
func (s *Service) Ready(context.Context) error {
	return notReady(s.cfg.Meta.State().PipelineList(), len(s.cfg.Shards), s.cfg.Now(), func(p *meta.Pipeline, shard int) error {
		r := s.cfg.Shards[shard].Replica
		if _, ok := r.Newest(p.UID); ok {
			return nil
		}
		v, err := r.View(p.UID, p.Newest().ID)
		if err == nil {
			v.Release()
		}
		return err
	})
}

// notReady is Ready at the time now, in µs since 1970; read says whether a pipeline's cut can be read on a shard.
func notReady(pipelines []*meta.Pipeline, shards int, now int64, read func(p *meta.Pipeline, shard int) error) error {
	var waiting []string
	for _, p := range pipelines {
		if now-p.CreatedAt < readyGrace.Microseconds() {
			continue
		}
		for shard := range shards {
			switch dataflow.ReasonOf(read(p, shard)) {
			case "", dataflow.ReasonCorrupt, dataflow.ReasonPipelineNotFound: // there is nothing to wait for
				continue
			}
			waiting = append(waiting, fmt.Sprintf("%s (shard %d)", p.Name, shard))
			break
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return dataflow.Errorf(dataflow.ReasonNoCommittedCheckpoint, "no committed cut can be read here yet of %s", strings.Join(waiting, ", "))
}
