package shard

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// TestCommittedDeltasStayUntilSettled lets seeded random tasks write deltas, with re-sends and late writers of older
// incarnations, while a coordinator commits, recovers and settles, and while the machine is at times replaced by one
// restored from its snapshot. The log keeps exactly the deltas that P2 says: those of the current incarnation, and of
// older ones those that a commit named; less what was settled.
func TestCommittedDeltasStayUntilSettled(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			c := &committer{t: t, rnd: rand.New(rand.NewPCG(seed, 2)), m: newMachine()}
			for range 1000 {
				c.act()
				c.check()
			}
		})
	}
}

// committer is a pipeline as the meta log knows it, and its task on the shard.
type committer struct {
	t       *testing.T
	rnd     *rand.Rand
	m       *machine
	line    []dataflow.DeltaRef // complete deltas that count, in order
	current dataflow.Incarnation
	next    dataflow.DeltaRef // the delta being written
	chunks  int
	digest  dataflow.DeltaDigest
	commit  dataflow.DeltaRef // the newest commit
	settled dataflow.DeltaRef
	now     dataflow.LogIndex
}

func (c *committer) step(cmd command) outcome {
	c.now += 1 + dataflow.LogIndex(c.rnd.IntN(2)) // with gaps
	return c.m.step(c.now, cmd)
}

func (c *committer) id(ref dataflow.DeltaRef) dataflow.DeltaID {
	return dataflow.DeltaID{Pipeline: 1, Incarnation: ref.Incarnation, Seq: ref.Seq}
}

func (c *committer) wantFresh(out outcome) {
	c.t.Helper()
	if out.err != nil || !out.fresh {
		c.t.Fatalf("entry %d: fresh=%v, %v\n%s", c.now, out.fresh, out.err, describe(c.m))
	}
}

func (c *committer) act() {
	switch n := c.rnd.IntN(20); {
	case c.current == 0 || n == 0: // Recovery (P4): from the newest commit; what came after it counts no more.
		c.current++
		c.wantFresh(c.step(&beginIncarnation{pipeline: 1, min: c.current, base: c.commit}))
		c.line = slices.DeleteFunc(c.line, func(r dataflow.DeltaRef) bool { return r.Compare(c.commit) > 0 })
		c.next, c.chunks, c.digest = dataflow.DeltaRef{Incarnation: c.current, Seq: 1}, 0, 0
	case n < 3: // A commit names the last complete delta, or none of this incarnation.
		c.commit = dataflow.DeltaRef{Incarnation: c.current, Seq: c.next.Seq - 1}
	case n < 5 && c.commit.Compare(c.settled) > 0: // Anything committed may be settled.
		upTo := c.commit
		if i := c.rnd.IntN(len(c.line) + 1); i < len(c.line) && c.line[i].Compare(c.commit) <= 0 {
			upTo = c.line[i]
		}
		c.wantFresh(c.step(&settle{pipeline: 1, upTo: upTo}))
		c.settled = upTo
		c.line = slices.DeleteFunc(c.line, func(r dataflow.DeltaRef) bool { return r.Compare(upTo) <= 0 })
	case n < 7: // Something late or wrong.
		c.late()
	case n < 9:
		c.m = reopen(c.t, c.m)
	case n < 16:
		data := fmt.Appendf(nil, "%s#%d", c.next, c.chunks)
		c.wantFresh(c.step(&deltaChunk{delta: c.id(c.next), chunk: c.chunks, data: data}))
		if out := c.step(&deltaChunk{delta: c.id(c.next), chunk: c.chunks, data: data}); out.err != nil || out.fresh {
			c.t.Fatalf("chunk again: fresh=%v, %v", out.fresh, out.err)
		}
		c.chunks++
		c.digest = c.digest.Add(data)
	default:
		end := &endDelta{delta: c.id(c.next), chunks: c.chunks, digest: uint64(c.digest)}
		out := c.step(end)
		c.wantFresh(out)
		if again := c.step(end); again.err != nil || again.fresh || again.index != out.index {
			c.t.Fatalf("end again: %+v, first %+v", again, out)
		}
		c.line = append(c.line, c.next)
		c.next, c.chunks, c.digest = dataflow.DeltaRef{Incarnation: c.current, Seq: c.next.Seq + 1}, 0, 0
	}
}

// late sends what must change nothing.
func (c *committer) late() {
	before := persist(c.t, c.m)
	applied := c.m.applied
	var cmd command
	want := ErrDeltaOrder
	switch c.rnd.IntN(5) {
	case 0:
		cmd, want = &deltaChunk{delta: c.id(dataflow.DeltaRef{Incarnation: c.current - 1, Seq: 1 + dataflow.DeltaSeq(c.rnd.IntN(5))})}, ErrStaleIncarnation
	case 1:
		cmd, want = &deltaChunk{delta: c.id(dataflow.DeltaRef{Incarnation: c.current + 1, Seq: 1})}, ErrNotBegun
	case 2:
		cmd = &deltaChunk{delta: c.id(c.next), chunk: c.chunks + 1}
	case 3:
		cmd = &endDelta{delta: c.id(c.next), chunks: c.chunks + 1}
	default:
		cmd = &settle{pipeline: 1, upTo: c.next}
	}
	if out := c.step(cmd); !errors.Is(out.err, want) || out.fresh {
		c.t.Fatalf("%+v: fresh=%v, %v; want %v", cmd, out.fresh, out.err, want)
	}
	c.m.applied = applied // It is all that has changed.
	if after := persist(c.t, c.m); !bytes.Equal(before, after) {
		c.t.Fatalf("a refused %T has changed\n%s", cmd, describe(c.m))
	}
	c.m.applied = c.now
}

func (c *committer) check() {
	c.t.Helper()
	p := c.m.pipelines[1]
	var complete []dataflow.DeltaRef
	for _, d := range p.deltas {
		if d.end != 0 {
			complete = append(complete, d.ref)
		}
	}
	if !slices.Equal(complete, c.line) {
		c.t.Fatalf("deltas %v, want %v\n%s", complete, c.line, describe(c.m))
	}
	if open := p.open(); (open != nil) != (c.chunks > 0) || open != nil && (open.ref != c.next || len(open.chunks) != c.chunks) {
		c.t.Fatalf("want %d chunks of %s\n%s", c.chunks, c.next, describe(c.m))
	}
	last := dataflow.LogIndex(0)
	for _, e := range c.m.past() {
		if e.index <= last {
			c.t.Fatalf("the past is out of order at %d after %d", e.index, last)
		}
		last = e.index
	}
}
