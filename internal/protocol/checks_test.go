package protocol

import (
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/raftlog/meta"
)

// stateAt returns what shard s's state at a cut contains: the last delta that the cut names, or what its incarnation
// began with (P2).
func (w *world) stateAt(c *dataflow.CheckpointCommit, s dataflow.ShardID) dataflow.Offset {
	if c.ID == 0 {
		return c.Positions[w.stream(int(s))]
	}
	if seq := c.Shard(s).Seq; seq > 0 {
		return w.deltas[deltaKey{c.Incarnation, s, seq}]
	}
	return w.stateAt(w.bases[c.Incarnation], s)
}

// checkCommits checks the cuts that it has not seen yet.
func (w *world) checkCommits(p *meta.Pipeline) {
	for _, c := range p.Cuts {
		text := c.String()
		if seen, ok := w.cuts[c.ID]; ok {
			if seen != text {
				w.fatalf("cut %d was %s and is %s", c.ID, seen, text)
			}
			continue
		}
		for id := range w.cuts {
			if id >= c.ID {
				w.fatalf("%s was committed after %d", c, id)
			}
		}
		w.cuts[c.ID] = text
		if c.ID == 0 {
			continue
		}
		w.counts.commits++
		if c.Incarnation != p.Incarnation {
			w.fatalf("%s was committed in incarnation %d", c, p.Incarnation)
		}
		for s := range shards {
			shard := dataflow.ShardID(s)
			ack, ok := w.acks[ackKey{c.Incarnation, c.ID, shard}]
			if !ok {
				w.fatalf("%s was committed without shard %d", c, s)
			}
			if got := c.Shard(shard); got.Seq != ack.Seq || got.Digest != ack.Digest || c.Positions[w.stream(s)] != ack.Positions[w.stream(s)] {
				w.fatalf("%s differs from %s", c, ack)
			}
			if rows := w.stateAt(c, shard); rows != c.Positions[w.stream(s)] {
				w.fatalf("shard %d's state at %s has %d rows", s, c, rows)
			}
		}
	}
}

// settle ends the failures and expects that a checkpoint comes that covers everything.
func (w *world) settle() {
	w.bury()
	limit := w.now + 5*time.Minute.Microseconds()
	var last uint64
	for w.now < limit {
		w.step()
		p := w.pipeline()
		if p.State == dataflow.PipelineStopped || p.State == dataflow.PipelineFailed {
			w.resume()
			w.follow()
		}
		if wt := w.waiters[last]; last == 0 || wt.answers > 0 {
			last = w.ask()
		}
		done := len(w.cuts) > 0
		for s := range shards {
			done = done && p.Newest().Positions[w.stream(s)] == w.ends[s]
		}
		if done && p.State == dataflow.PipelineRunning {
			break
		}
	}
	if w.now >= limit {
		w.fatalf("no checkpoint covers everything after the failures have ended: %s, %s", w.leader.machine, w.pipeline().Newest())
	}
	w.feed(w.leader, coordinator.Deposed{})
	for id, wt := range w.waiters {
		if wt.answers != 1 {
			w.fatalf("waiter %d was answered %d times", id, wt.answers)
		}
	}
}
