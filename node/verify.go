package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog/meta"
)

// restoreHint says what can be done about a directory that has lost something. There is no repair: in this version a node
// has the only copy.
const restoreHint = "restore the whole data directory from one backup, or name a new one with --data-dir and send the rows again; docs/guarantees.md says more, under Damaged and lost files"

// explain makes of an error about damaged or lost files one that says all that is known of it, in one message that names
// the data directory, with a hint. Other errors are returned as they are.
func explain(dir string, err error) error {
	var e *dataflow.Error
	if !errors.As(err, &e) || e.Reason != dataflow.ReasonCorrupt || e.Hint != "" {
		return err
	}
	text := err.Error()
	if !strings.Contains(text, dir) {
		text = fmt.Sprintf("data directory %s: %s", dir, text)
	}
	return &dataflow.Error{Reason: e.Reason, Message: text, Hint: restoreHint, Metadata: e.Metadata, Err: err}
}

// verifier compares what the logs and the state stores of a node say, once all logs have been applied. Each of them is
// sound by itself then, but one may have lost its end, or be from an older backup than another, and would give the same
// offsets, ids and deltas again.
//
// What one of them holds because of an entry of another was written after that entry was durable there. So a crash leaves
// none of what is refused here:
//
//   - A checkpoint is proposed to the meta log when every shard's log has committed the delta that it names (P2). Its
//     positions are offsets of rows that these logs had committed.
//   - A state store folds deltas that its shard's log and a commit in the meta log had made known to it.
//   - A shard learns of a stream, a pipeline and an incarnation from the meta log.
//
// In a group the logs go on meanwhile: what the meta log said before the shards' logs were applied is what these must hold,
// and what a shard knows is compared with what the meta log says afterwards.
type verifier struct {
	dir string // the data directory
	// meta is what the meta log said before the shards' logs were applied, now returns what it says.
	meta     *meta.State
	now      func() (*meta.State, error)
	rowsKept bool // the rows that the positions count are in the logs
}

func (v *verifier) corrupt(format string, args ...any) error {
	return dataflow.Errorf(dataflow.ReasonCorrupt, "data directory %s: %s", v.dir, fmt.Sprintf(format, args...))
}

// shard checks one shard.
func (v *verifier) shard(sh *worker.Shard) error {
	streams := sh.Log.Streams()
	incarnations := make(map[dataflow.PipelineUID]dataflow.Incarnation)
	for _, uid := range sh.Log.Pipelines() {
		st, _ := sh.Log.Pipeline(uid)
		incarnations[uid] = st.Incarnation
	}
	bases := make(map[dataflow.PipelineUID]dataflow.LogIndex)
	for _, p := range sh.Replica.Stats().Pipelines {
		if base, ok := sh.Replica.Base(p.Pipeline); ok {
			bases[p.Pipeline] = base.MetaIndex
		}
	}
	now, err := v.now()
	if err != nil {
		return err
	}
	for _, id := range streams {
		if id >= now.NextStream {
			return v.metaLost(fmt.Sprintf("shard %d has rows of stream %d", sh.ID, id), "does not know")
		}
	}
	for uid, inc := range incarnations {
		p := now.Pipelines[uid]
		if uid >= now.NextPipeline || p != nil && inc > p.Incarnation {
			return v.metaLost(fmt.Sprintf("shard %d has seen incarnation %d of pipeline %d", sh.ID, inc, uid), "does not know")
		}
	}
	for uid, index := range bases {
		if index > now.Index {
			return v.metaLost(fmt.Sprintf("the state of shard %d holds pipeline %d at entry %d of it", sh.ID, uid, index), fmt.Sprintf("ends at entry %d", now.Index))
		}
	}
	for _, p := range v.meta.PipelineList() {
		if now.PipelineDeleted(p.UID) {
			continue // and perhaps dropped in the shards
		}
		if err := v.pipeline(sh, p); err != nil {
			return err
		}
	}
	for _, p := range sh.Replica.Stats().Pipelines {
		if err := v.base(sh, p.Pipeline); err != nil {
			return err
		}
	}
	return nil
}

// pipeline checks that the shard's log holds what the pipeline's cuts name.
func (v *verifier) pipeline(sh *worker.Shard, p *meta.Pipeline) error {
	for _, c := range p.Cuts {
		if len(c.Shards) > 0 {
			part := c.Shard(sh.ID)
			if have := sh.Log.AppliedIndex(); part.Index > have {
				return v.logLost(sh, fmt.Sprintf("it ends at entry %d, and checkpoint %d of pipeline %s needs entry %d", have, c.ID, p.Name, part.Index))
			}
			ref := dataflow.DeltaRef{Incarnation: c.Incarnation, Seq: part.Seq}
			if part.Seq > 0 && !sh.Log.HoldsDelta(p.UID, ref) {
				return v.logLost(sh, fmt.Sprintf("it does not hold delta %s, which checkpoint %d of pipeline %s names", ref, c.ID, p.Name))
			}
		}
		if !v.rowsKept {
			continue
		}
		for _, at := range c.Positions.Sorted() {
			if at.Shard != sh.ID {
				continue
			}
			if _, end, _ := sh.Log.Range(at.Stream); end < c.Positions[at] {
				return v.logLost(sh, fmt.Sprintf("stream %s ends there at offset %d, and checkpoint %d of pipeline %s has read up to %d",
					v.streamName(at.Stream), end, c.ID, p.Name, c.Positions[at]))
			}
		}
	}
	return nil
}

// base checks that the shard's log holds what the state store was made from.
func (v *verifier) base(sh *worker.Shard, uid dataflow.PipelineUID) error {
	base, ok := sh.Replica.Base(uid)
	if !ok {
		return nil
	}
	if base.Ref.Seq > 0 && !sh.Log.HoldsDelta(uid, base.Ref) {
		return v.logLost(sh, fmt.Sprintf("it does not hold delta %s of pipeline %d, which the shard's state has", base.Ref, uid))
	}
	return nil
}

func (v *verifier) streamName(id dataflow.StreamID) string {
	if s := v.meta.Streams[id]; s != nil {
		return s.Name
	}
	return fmt.Sprintf("%d", id)
}

func (v *verifier) logLost(sh *worker.Shard, why string) error {
	return v.corrupt("the end of the log of shard %d in log is missing: %s", sh.ID, why)
}

func (v *verifier) metaLost(what, lacks string) error {
	return v.corrupt("the end of the meta log in meta is missing: %s, and it %s", what, lacks)
}

// verify checks all shards against the meta log. before is what that said before the shards' logs were applied.
func (s *storage) verify(ctx context.Context, cfg *Config, before *meta.State) error {
	v := &verifier{dir: cfg.DataDir, meta: before, rowsKept: cfg.Source == nil, now: func() (*meta.State, error) {
		err := s.applied(ctx, "meta", s.group)
		return s.meta.State(), err
	}}
	if s.peers == nil {
		v.now = func() (*meta.State, error) { return s.meta.State(), nil }
	}
	for _, sh := range s.shards {
		if err := v.shard(sh); err != nil {
			return err
		}
	}
	return nil
}
