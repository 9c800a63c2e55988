package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// chain is what a replica knows of one pipeline: which deltas are here, which layers they form, and which committed cuts
// can be read. It is a pure state machine; the replica's lock guards it.
//
// Deltas form one line, ordered by (incarnation, seq), because the start of an incarnation drops what no commit named
// (P2). So a cut is a position on that line, a DeltaRef.
type chain struct {
	// min is the current incarnation; deltas of older ones count up to begins[min] only.
	min dataflow.Incarnation
	// begins says what incarnations started from, resolved. After a restart the log repeats the newest one only.
	begins map[dataflow.Incarnation]dataflow.DeltaRef
	// base is what the store holds; based = it holds something, a marker at least.
	base  Base
	based bool
	// baseBad says that a commit names the store's state with another digest: no cut can be read (S4).
	baseBad bool
	// staging holds deltas whose end has not come.
	staging map[dataflow.DeltaRef]*staging
	// deltas are the complete ones above the base, in order.
	deltas []delta
	// layers hold the deltas' entries, oldest first. Each covers whole deltas.
	layers []*layer
	// cuts are the published ones that are not expired, by id.
	cuts []*cut
	// floor is the lowest id that may be read: a merge up to it has begun, so what lies below is gone.
	floor dataflow.CheckpointID
	// newest is the highest id that has been published, or that the base holds; published = there is one.
	newest    dataflow.CheckpointID
	published bool
	// verified is the newest position of a cut that became readable: no gap between the base and it. No commit that is
	// published later lies below it.
	verified dataflow.DeltaRef
	// merging says that a merge into the store is under way.
	merging bool
	// shared is a view of the state that somebody holds, for others who want the same; nil = there is none, or it has layers or
	// a snapshot that are no longer needed. changes counts how often that was so.
	shared  *View
	changes uint64
	// busy says that the processor has better to do than to merge layers: they wait until there are busyLayers.
	busy bool
	// dropped says that the pipeline was dropped; work that is under way on it stops.
	dropped bool
}

// delta is one complete delta.
type delta struct {
	ref    dataflow.DeltaRef
	digest uint64
	bad    bool // a commit names it with another digest: it is in no readable state (S4)
}

// staging is a delta that is arriving.
type staging struct {
	chunks int
	digest dataflow.DeltaDigest
	layer  layerBuilder
}

// cutStatus says whether a published cut can be read.
type cutStatus uint8

const (
	cutWaiting cutStatus = iota // deltas are missing
	cutReady
	cutCorrupt
	cutExpired // it lies below the base
)

// cut is a published cut, as this shard sees it.
type cut struct {
	id        dataflow.CheckpointID
	timeline  dataflow.Timeline
	metaIndex dataflow.LogIndex
	named     dataflow.DeltaRef // as committed: incarnation and seq, which may be 0
	digest    uint64
	at        dataflow.DeltaRef // the position: the last delta that counts; valid when ready
	status    cutStatus
}

func newChain(base Base, based bool) *chain {
	return &chain{
		min:       base.Ref.Incarnation,
		begins:    make(map[dataflow.Incarnation]dataflow.DeltaRef),
		base:      base,
		based:     based,
		staging:   make(map[dataflow.DeltaRef]*staging),
		floor:     base.Checkpoint,
		newest:    base.Checkpoint,
		published: based && base.Checkpoint > 0,
	}
}

// wants reports whether a delta counts and is not here yet.
func (c *chain) wants(ref dataflow.DeltaRef) bool {
	if ref.Compare(c.base.Ref) <= 0 {
		return false
	}
	if ref.Incarnation < c.min && ref.Compare(c.begins[c.min]) > 0 {
		return false
	}
	return c.find(ref) == nil
}

func (c *chain) find(ref dataflow.DeltaRef) *delta {
	i, ok := slices.BinarySearchFunc(c.deltas, ref, func(d delta, r dataflow.DeltaRef) int { return d.ref.Compare(r) })
	if !ok {
		return nil
	}
	return &c.deltas[i]
}

// stage returns where the next chunk of a delta is to be put; nil when it is here already, or not wanted.
func (c *chain) stage(ref dataflow.DeltaRef, chunk int) (*staging, error) {
	if !c.wants(ref) {
		return nil, nil
	}
	s := c.staging[ref]
	if s == nil {
		s = &staging{}
		c.staging[ref] = s
	}
	switch {
	case chunk < s.chunks:
		return nil, nil
	case chunk > s.chunks:
		return nil, fmt.Errorf("%w: chunk %d comes after %d chunks", errDelta, chunk, s.chunks)
	}
	return s, nil
}

// add takes the chunk that stage has asked for.
func (s *staging) add(data []byte) error {
	if err := s.layer.addChunk(data); err != nil {
		return err
	}
	s.chunks++
	s.digest = s.digest.Add(data)
	return nil
}

// endStaging takes a delta whose end has come out of those that are arriving; nil when it is here already, or not wanted.
func (c *chain) endStaging(ref dataflow.DeltaRef, chunks int, digest uint64) (*staging, error) {
	if !c.wants(ref) {
		if d := c.find(ref); d != nil && d.digest != digest {
			return nil, fmt.Errorf("%w: it ended before with digest %016x, not %016x", errDelta, d.digest, digest)
		}
		return nil, nil
	}
	s := c.staging[ref]
	if s == nil {
		s = &staging{}
	}
	if s.chunks != chunks || uint64(s.digest) != digest {
		return nil, fmt.Errorf("%w: %d chunks with digest %016x came, its end says %d with %016x", errDelta, s.chunks, uint64(s.digest), chunks, digest)
	}
	delete(c.staging, ref)
	return s, nil
}

// endDelta completes a delta with the layer that was made of it.
func (c *chain) endDelta(ref dataflow.DeltaRef, digest uint64, l *layer) {
	at, _ := slices.BinarySearchFunc(c.deltas, ref, func(d delta, r dataflow.DeltaRef) int { return d.ref.Compare(r) })
	c.deltas = slices.Insert(c.deltas, at, delta{ref: ref, digest: digest})
	at, _ = slices.BinarySearchFunc(c.layers, ref, func(l *layer, r dataflow.DeltaRef) int { return l.first.Compare(r) })
	c.layers = slices.Insert(c.layers, at, l)
}

// begin starts an incarnation: it drops the deltas, and the cuts, of older incarnations above base (P2).
func (c *chain) begin(min dataflow.Incarnation, base dataflow.DeltaRef) error {
	if min <= c.min {
		return nil // seen before
	}
	base, _ = c.resolve(base)
	if base.Compare(c.base.Ref) < 0 {
		return fmt.Errorf("incarnation %d starts from delta %s, below the store's %s", min, base, c.base)
	}
	gone := func(r dataflow.DeltaRef) bool { return r.Incarnation < min && r.Compare(base) > 0 }
	for _, l := range c.layers {
		if gone(l.last) && !gone(l.first) {
			return fmt.Errorf("incarnation %d starts from delta %s, inside the merged layer %s–%s", min, base, l.first, l.last)
		}
	}
	c.min, c.begins[min] = min, base
	for ref := range c.staging {
		if ref.Incarnation < min {
			delete(c.staging, ref)
		}
	}
	c.deltas = slices.DeleteFunc(c.deltas, func(d delta) bool { return gone(d.ref) })
	c.layers = slices.DeleteFunc(c.layers, func(l *layer) bool { return gone(l.first) })
	c.cuts = slices.DeleteFunc(c.cuts, func(k *cut) bool { return gone(k.named) && k.named.Seq != 0 })
	if c.verified.Compare(base) > 0 {
		c.verified = base
	}
	return nil
}

// resolve turns "incarnation i, no delta" into the position that i started from. ok = it is known; when older
// incarnations' starts are not known any more, the position stays i.0, which is right as nothing of them is left beyond it.
func (c *chain) resolve(ref dataflow.DeltaRef) (at dataflow.DeltaRef, ok bool) {
	if ref.Seq != 0 {
		return ref, true
	}
	if b, known := c.begins[ref.Incarnation]; known {
		return b, true
	}
	if ref.Incarnation <= 1 {
		return dataflow.DeltaRef{}, true
	}
	return ref, ref.Incarnation <= c.min
}

// publish makes a commit known.
func (c *chain) publish(k *cut) {
	i, found := slices.BinarySearchFunc(c.cuts, k.id, func(o *cut, id dataflow.CheckpointID) int { return cmp.Compare(o.id, id) })
	c.newest, c.published = max(c.newest, k.id), true
	if found || k.id < c.floor {
		return
	}
	c.cuts = slices.Insert(c.cuts, i, k)
}

// refresh looks again at the cuts that wait, oldest first, and reports whether the status of any has changed.
func (c *chain) refresh() (changed bool) {
	for _, k := range c.cuts {
		if k.status == cutWaiting {
			if k.status = c.evaluate(k); k.status != cutWaiting {
				changed = true
			}
		}
	}
	c.cuts = slices.DeleteFunc(c.cuts, func(k *cut) bool { return k.status == cutExpired })
	return changed
}

// evaluate says whether all deltas from the base to the cut are here, and are those that the commit means (P5, S4).
func (c *chain) evaluate(k *cut) cutStatus {
	at, ok := c.resolve(k.named)
	if !ok {
		return cutWaiting
	}
	if at.Compare(c.base.Ref) < 0 {
		return cutExpired
	}
	if c.baseBad {
		return cutCorrupt
	}
	prev := c.base.Ref
	if c.verified.Compare(prev) > 0 && c.verified.Compare(at) <= 0 {
		prev = c.verified
	}
	for i := range c.deltas {
		d := &c.deltas[i]
		if d.ref.Compare(prev) <= 0 {
			continue
		}
		if d.ref.Compare(at) > 0 {
			break
		}
		if d.bad {
			return cutCorrupt
		}
		if !c.follows(prev, d.ref) {
			return cutWaiting
		}
		prev = d.ref
	}
	if at.Seq != 0 && prev != at {
		return cutWaiting
	}
	if k.named.Seq != 0 {
		if d := c.find(at); d != nil && d.digest != k.digest {
			d.bad = true
			return cutCorrupt
		} else if d == nil && c.base.Digest != k.digest {
			c.baseBad = true
			return cutCorrupt
		}
	}
	if k.at = prev; prev.Compare(c.verified) > 0 {
		c.verified = prev
	}
	return cutReady
}

// follows reports whether next is the delta after prev.
func (c *chain) follows(prev, next dataflow.DeltaRef) bool {
	if prev.Incarnation == next.Incarnation {
		return next.Seq == prev.Seq+1
	}
	if next.Seq != 1 {
		return false
	}
	from, known := c.begins[next.Incarnation]
	if !known || from == prev {
		return true
	}
	// A position i.0 stands for what is left of the incarnations below i.
	unresolved := func(r dataflow.DeltaRef) bool { return r.Seq == 0 && r.Incarnation != 0 }
	return unresolved(from) || unresolved(prev)
}

// lookup returns the published cut with the id, or nil.
func (c *chain) lookup(id dataflow.CheckpointID) *cut {
	i, found := slices.BinarySearchFunc(c.cuts, id, func(o *cut, id dataflow.CheckpointID) int { return cmp.Compare(o.id, id) })
	if !found {
		return nil
	}
	return c.cuts[i]
}

// retain forgets the cuts up to the newest of keep that are not in keep.
func (c *chain) retain(keep []dataflow.CheckpointID) {
	if len(keep) == 0 {
		return
	}
	newest := slices.Max(keep)
	c.cuts = slices.DeleteFunc(c.cuts, func(k *cut) bool { return k.id <= newest && !slices.Contains(keep, k.id) })
}

// toCome reports whether a cut that is not known may still be published.
func (c *chain) toCome(id dataflow.CheckpointID) bool { return !c.published || id > c.newest }

// expireBelow forgets the cuts below floor, for good.
func (c *chain) expireBelow(floor dataflow.CheckpointID) {
	c.floor = max(c.floor, floor)
	c.cuts = slices.DeleteFunc(c.cuts, func(k *cut) bool { return k.id < floor })
}

// upTo returns the layers that make up the position, newest first: a copy.
func (c *chain) upTo(at dataflow.DeltaRef) []*layer {
	n := 0
	for n < len(c.layers) && c.layers[n].last.Compare(at) <= 0 {
		n++
	}
	out := slices.Clone(c.layers[:n])
	slices.Reverse(out)
	return out
}

// leftOut returns the first delta up to a position that is in none of the layers; nil = there is none.
func (c *chain) leftOut(layers []*layer, at dataflow.DeltaRef) *delta {
	for i := range c.deltas {
		d := &c.deltas[i]
		if d.ref.Compare(at) > 0 {
			break
		}
		if !slices.ContainsFunc(layers, func(l *layer) bool { return l.first.Compare(d.ref) <= 0 && l.last.Compare(d.ref) >= 0 }) {
			return d
		}
	}
	return nil
}

// across returns the layer that was merged of deltas on either side of a position; nil = there is none.
func (c *chain) across(at dataflow.DeltaRef) *layer {
	i := slices.IndexFunc(c.layers, func(l *layer) bool { return l.first.Compare(at) <= 0 && l.last.Compare(at) > 0 })
	if i < 0 {
		return nil
	}
	return c.layers[i]
}

// merged says that the store now holds base: the layers up to it go.
func (c *chain) merged(base Base) {
	c.base, c.based = base, true
	c.layers = slices.DeleteFunc(c.layers, func(l *layer) bool { return l.last.Compare(base.Ref) <= 0 })
	c.deltas = slices.DeleteFunc(c.deltas, func(d delta) bool { return d.ref.Compare(base.Ref) <= 0 })
	c.cuts = slices.DeleteFunc(c.cuts, func(k *cut) bool { return k.status == cutReady && k.at.Compare(base.Ref) < 0 })
	for i := range c.begins {
		if i < base.Ref.Incarnation {
			delete(c.begins, i)
		}
	}
	if c.verified.Compare(base.Ref) < 0 {
		c.verified = base.Ref
	}
}

const (
	// foldRatio says when layers are merged with the newer ones beside them: when they are at most so many times as large as
	// these together. The layers that no cut keeps apart then shrink geometrically, so there are few, and an entry is merged a
	// logarithmic number of times.
	foldRatio = 2
	// foldLayers is how many layers are merged at a time at least, unless they are small. A merge reads all entries and writes
	// each key once: when the same keys change in each checkpoint, merging at each would write all of them each time.
	foldLayers = 4
	foldSmall  = 64 << 10
	// busyLayers is how many layers there may be while a pipeline is busy. A look-up asks the filter of each of them, some twenty
	// nanoseconds; the deltas of half a minute, which a restart finds, are as many as checkpoints fit into that.
	busyLayers = 64
)

// pickFold returns neighbouring layers to merge, oldest first, or nil. They may be merged when no cut, and no commit still to
// be published, needs a position between them (P6). A merge into the store may end there meanwhile: then the new layer repeats
// what the store holds, which changes nothing (S1).
func (c *chain) pickFold() []*layer {
	if c.busy && len(c.layers) < busyLayers {
		return nil
	}
	for to := len(c.layers); to > 1; {
		if c.layers[to-1].last.Compare(c.verified) > 0 {
			to--
			continue
		}
		from, best := to-1, to // layers[from:to] could be one
		newer := c.layers[from].bytes
		for from > 0 && c.mayJoin(c.layers[from-1], c.layers[from]) && newer+c.layers[from-1].bytes <= maxFold {
			from--
			bytes := c.layers[from].bytes
			if bytes <= foldRatio*newer && (to-from >= foldLayers || bytes+newer <= foldSmall) {
				best = from
			}
			newer += bytes
		}
		if best < to {
			return c.layers[best:to:to]
		}
		to = from
	}
	return nil
}

// mayJoin reports whether nobody needs a position between two neighbours.
func (c *chain) mayJoin(old, next *layer) bool {
	return !slices.ContainsFunc(c.cuts, func(k *cut) bool {
		at, _ := c.resolve(k.named)
		return at.Compare(old.last) >= 0 && at.Compare(next.first) < 0
	})
}

// unshare lets nobody else hold the view that is shared: what it keeps could be freed otherwise.
func (c *chain) unshare() {
	c.shared = nil
	c.changes++
}

// replace puts one layer in the place of neighbours, if they are still there.
func (c *chain) replace(old []*layer, with *layer) {
	c.unshare()
	i := slices.Index(c.layers, old[0])
	if i < 0 || i+len(old) > len(c.layers) || !slices.Equal(c.layers[i:i+len(old)], old) {
		return
	}
	c.layers = slices.Replace(c.layers, i, i+len(old), with)
}

// expireBefore forgets the cuts that lie below a position.
func (c *chain) expireBefore(at dataflow.DeltaRef) {
	c.cuts = slices.DeleteFunc(c.cuts, func(k *cut) bool { return k.status == cutReady && k.at.Compare(at) < 0 })
}
