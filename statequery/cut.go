package statequery

import (
	"github.com/weirdb/weir/dataflow"
)

// NewestCut describes the newest committed cut of a pipeline, as an answer from it would.
func (e *Engine) NewestCut(p *Pipeline) dataflow.Cut {
	return e.committed(p, p.Newest()).describe()
}

// describe returns the cut that the answer carries.
func (r *reading) describe() dataflow.Cut {
	p, c, e := r.pipeline, r.cut, r.e
	now := e.cfg.Now()
	cut := dataflow.Cut{
		Pipeline: p.Name, UID: p.UID, Timeline: c.Timeline, Checkpoint: c.ID, Incarnation: c.Incarnation,
		Guarantee: c.Guarantee, TriggeredAt: c.TriggeredAt, CommittedAt: c.CommittedAt,
		Positions: c.Positions, CatchingUp: c.CatchingUp, Node: e.cfg.Node, Role: "leader", State: p.State, Skipped: c.Skipped(),
		Session: dataflow.SessionToken{Group: e.cfg.Group, Pipeline: p.UID, Timeline: c.Timeline, Checkpoint: c.ID},
	}
	if c.CommittedAt > 0 {
		cut.AgeMillis = max(0, (now-c.CommittedAt)/1000)
	}
	if r.live != nil {
		cut.Speculative, cut.Incarnation, cut.Positions = true, r.live.Incarnation(), r.covered
	}
	oldest := int64(0)
	for k, end := range e.cfg.Streams.Ends(p.Reads) {
		at := cut.Positions[k]
		if at >= end {
			continue
		}
		cut.BehindRows += uint64(end - at)
		if t := e.cfg.Streams.AppendTime(k, at); t > 0 && (oldest == 0 || t < oldest) {
			oldest = t
		}
	}
	if oldest > 0 {
		cut.BehindMillis = max(1, (now-oldest)/1000) // 0 says that nothing is missing
	}
	return cut
}
