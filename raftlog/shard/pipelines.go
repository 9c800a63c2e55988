package shard

import (
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/dataflow"
)

// pipelineDeltas is what a shard keeps of one pipeline (P2): which incarnation may write, and where in the log the deltas
// lie that are not settled yet.
//
// Every delta in it belongs to the state at some cut that is or may become committed: those of the incarnation that runs,
// and those of earlier ones that a commit named.
type pipelineDeltas struct {
	min     dataflow.Incarnation // the current one; older ones are over
	base    dataflow.DeltaRef    // what the incarnation started from
	begun   dataflow.LogIndex    // where it began
	next    dataflow.DeltaSeq    // the number of its next delta
	settled dataflow.DeltaRef    // deltas up to this one are in the state store for good
	settle  dataflow.LogIndex    // where that was said; 0 = never
	deltas  []delta              // unsettled, in log order; only the last one may be open
}

// delta is where one delta lies.
type delta struct {
	ref    dataflow.DeltaRef
	chunks []chunk // elements never change, so a snapshot may share the slice
	digest dataflow.DeltaDigest
	end    dataflow.LogIndex // of its end entry; 0 = still open
}

// chunk is where one chunk lies, and its XXH64, by which a re-send is recognised.
type chunk struct {
	index dataflow.LogIndex
	hash  uint64
}

// open returns the delta that is being written, or nil.
func (p *pipelineDeltas) open() *delta {
	if n := len(p.deltas); n > 0 && p.deltas[n-1].end == 0 {
		return &p.deltas[n-1]
	}
	return nil
}

func (p *pipelineDeltas) find(ref dataflow.DeltaRef) *delta {
	for i := range p.deltas {
		if p.deltas[i].ref == ref {
			return &p.deltas[i]
		}
	}
	return nil
}

// current checks that the incarnation is the one that runs.
func (p *pipelineDeltas) current(i dataflow.Incarnation) error {
	switch {
	case p == nil || i > p.min:
		return fmt.Errorf("%w: incarnation %d", ErrNotBegun, i)
	case i < p.min:
		return fmt.Errorf("%w: incarnation %d, now %d", ErrStaleIncarnation, i, p.min)
	}
	return nil
}

// writing returns the delta that a chunk or end entry of ref goes to: the open one, or a new one when ref is next.
// past = the delta has been ended before, so the entry is a re-send.
func (p *pipelineDeltas) writing(ref dataflow.DeltaRef) (d *delta, past bool, err error) {
	switch open := p.open(); {
	case ref.Seq == 0:
	case open != nil && open.ref == ref:
		return open, false, nil
	case open == nil && ref.Seq == p.next:
		p.deltas = append(p.deltas, delta{ref: ref})
		return &p.deltas[len(p.deltas)-1], false, nil
	case ref.Seq < p.next:
		return p.find(ref), true, nil
	case open != nil:
		return nil, false, fmt.Errorf("%w: delta %s comes before delta %s has ended", ErrDeltaOrder, ref, open.ref)
	}
	return nil, false, fmt.Errorf("%w: delta %s, but number %d is the next", ErrDeltaOrder, ref, p.next)
}

// chunk takes a chunk of a delta. fresh = it is the next one; otherwise it had come before.
func (p *pipelineDeltas) chunk(index dataflow.LogIndex, c *deltaChunk) (fresh bool, err error) {
	if err := p.current(c.delta.Incarnation); err != nil {
		return false, err
	}
	if c.chunk > 0 && c.delta.Seq == p.next && p.open() == nil {
		return false, fmt.Errorf("%w: chunk %d of delta %s comes first", ErrDeltaOrder, c.chunk, c.delta)
	}
	d, past, err := p.writing(c.delta.Ref())
	if err != nil {
		return false, err
	}
	hash := xxhash.Sum64(c.data)
	switch {
	case d == nil: // Settled, so what it was is no longer known.
		return false, nil
	case c.chunk < len(d.chunks):
		if d.chunks[c.chunk].hash != hash {
			return false, fmt.Errorf("%w: chunk %d of delta %s came before with other bytes", ErrDeltaOrder, c.chunk, c.delta)
		}
		return false, nil
	case past || c.chunk > len(d.chunks):
		return false, fmt.Errorf("%w: chunk %d of delta %s, which has %d", ErrDeltaOrder, c.chunk, c.delta, len(d.chunks))
	}
	d.chunks = append(d.chunks, chunk{index: index, hash: hash})
	d.digest = d.digest.AddHash(hash)
	return true, nil
}

// end takes the end entry of a delta and returns the index of the first such entry. fresh = this is it.
func (p *pipelineDeltas) end(index dataflow.LogIndex, c *endDelta) (at dataflow.LogIndex, fresh bool, err error) {
	if err := p.current(c.delta.Incarnation); err != nil {
		return 0, false, err
	}
	if (c.chunks > 0 || c.digest != 0) && c.delta.Seq == p.next && p.open() == nil {
		return 0, false, fmt.Errorf("%w: the end of delta %s comes before its chunks", ErrDeltaOrder, c.delta)
	}
	d, past, err := p.writing(c.delta.Ref())
	switch {
	case err != nil:
		return 0, false, err
	case d == nil:
		return 0, false, fmt.Errorf("%w: delta %s has been settled", ErrDeltaOrder, c.delta)
	case c.chunks != len(d.chunks) || c.digest != uint64(d.digest):
		return 0, false, fmt.Errorf("%w: delta %s has %d chunks with digest %016x, its end says %d with %016x",
			ErrDeltaOrder, c.delta, len(d.chunks), uint64(d.digest), c.chunks, c.digest)
	case past:
		return d.end, false, nil
	}
	d.end = index
	p.next = d.ref.Seq + 1
	return index, true, nil
}

// begin starts an incarnation and drops what no commit named (P2). fresh = it was not the current one already.
func (p *pipelineDeltas) begin(index dataflow.LogIndex, c *beginIncarnation) (fresh bool, err error) {
	switch {
	case c.min < p.min:
		return false, fmt.Errorf("%w: incarnation %d, now %d", ErrStaleIncarnation, c.min, p.min)
	case c.min == p.min && c.base == p.base && p.begun != 0:
		return false, nil
	case c.min == p.min:
		return false, fmt.Errorf("%w: incarnation %d began from %s, not from %s", ErrDeltaOrder, c.min, p.base, c.base)
	case c.base.Incarnation == c.min && c.base.Seq == 0 && p.begun == 0: // The empty state that it was deployed with.
	case c.base.Incarnation >= c.min:
		return false, fmt.Errorf("%w: incarnation %d cannot begin from %s", ErrDeltaOrder, c.min, c.base)
	case !p.holds(c.base) || c.base.Incarnation > p.min && p.begun != 0:
		return false, fmt.Errorf("%w: incarnation %d begins from %s, which is not in the log", ErrDeltaOrder, c.min, c.base)
	}
	// An open delta is the newest of its incarnation, so it comes after any base.
	p.deltas = slices.DeleteFunc(p.deltas, func(d delta) bool { return d.ref.Compare(c.base) > 0 })
	p.min, p.base, p.begun, p.next = c.min, c.base, index, 1
	return true, nil
}

// holds reports whether the log has, or has had and settled, all deltas up to ref.
func (p *pipelineDeltas) holds(ref dataflow.DeltaRef) bool {
	if ref.Seq == 0 || ref.Compare(p.settled) <= 0 {
		return true
	}
	d := p.find(ref)
	return d != nil && d.end != 0
}

// settleTo forgets the deltas up to and with a ref. fresh = it had not been said before.
func (p *pipelineDeltas) settleTo(index dataflow.LogIndex, c *settle) (fresh bool, err error) {
	switch {
	case c.upTo.Compare(p.settled) <= 0:
		return false, nil
	case c.upTo.Incarnation > p.min || !p.holds(c.upTo):
		return false, fmt.Errorf("%w: %s cannot be settled, it is not in the log", ErrDeltaOrder, c.upTo)
	}
	p.deltas = slices.DeleteFunc(p.deltas, func(d delta) bool { return d.ref.Compare(c.upTo) <= 0 })
	p.settled, p.settle = c.upTo, index
	return true, nil
}
