package statequery

import (
	"github.com/weirdb/weir/dataflow"
)

// NewestCut describes the newest committed cut of a pipeline, as an answer from it would.
func (e *Engine) NewestCut(p *Pipeline) dataflow.Cut {
	return e.committed(p, p.Newest(), false).describe()
}

// describe returns the cut that the answer carries.
func (r *reading) describe() dataflow.Cut {
	p, c, e := r.pipeline, r.cut, r.e
	now := e.cfg.Now()
	cut := dataflow.Cut{
		Pipeline: p.Name, UID: p.UID, Timeline: c.Timeline, Checkpoint: c.ID, Incarnation: c.Incarnation,
		Guarantee: c.Guarantee, TriggeredAt: c.TriggeredAt, CommittedAt: c.CommittedAt,
		Positions: c.Positions, CatchingUp: c.CatchingUp, Node: e.cfg.Node, Role: e.role(), State: p.State, Skipped: c.Skipped(),
		Session: dataflow.SessionToken{Group: e.cfg.Group, Pipeline: p.UID, Timeline: c.Timeline, Checkpoint: c.ID},
	}
	if c.CommittedAt > 0 {
		cut.AgeMillis = max(0, (now-c.CommittedAt)/1000)
	}
	if r.live != nil {
		cut.Speculative, cut.Incarnation, cut.Positions = true, r.live.Incarnation(), r.covered
	}
	e.measureLag(&cut, p.Reads, now)
	return cut
}

// role returns what this node is in the meta log's group.
func (e *Engine) role() string {
	if e.cfg.Leads == nil || e.cfg.Leads() {
		return "leader"
	}
	return "follower"
}

// measureLag sets how far the cut is behind what has been acknowledged of the streams.
func (e *Engine) measureLag(cut *dataflow.Cut, reads []dataflow.StreamID, now int64) {
	oldest := now // nothing is acknowledged later than now
	for _, stream := range reads {
		for s := range e.cfg.Shards {
			k := dataflow.StreamShard{Stream: stream, Shard: dataflow.ShardID(s)}
			at, end := cut.Positions[k], e.cfg.Streams.End(k)
			if at >= end {
				continue
			}
			cut.BehindRows += uint64(end - at)
			t := e.cfg.Streams.AppendTime(k, at)
			if t == 0 { // retention has dropped it: what a cut does not cover came, as a rule, after its trigger
				t = cut.TriggeredAt
			}
			if t > 0 {
				oldest = min(oldest, t)
			}
		}
	}
	if cut.BehindRows > 0 {
		cut.BehindMillis = max(1, (now-oldest)/1000) // 0 says that nothing is missing
	}
}
