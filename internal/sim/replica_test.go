package sim

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/shard"
)

// numKeys is how many keys the pipelines have. Key k lives on shard k mod the number of shards.
const numKeys = 8

// table is the keyed state of a pipeline: per key the sum of its rows' hashes. A row that is missing, doubled or of another
// prefix changes it.
type table [numKeys]uint64

// stored is what a replica's store holds of a pipeline, durably: the state up to a delta.
type stored struct {
	ref     dataflow.DeltaRef
	state   table
	dropped bool
}

// replica models the replica of a shard's committed state: a store, deltas over it, and the cuts that were published.
type replica struct {
	n      *node // nil for the oracle's, which settles nothing
	shard  dataflow.ShardID
	stores map[uint64]*stored
	chains map[dataflow.PipelineUID]*chain
}

type chain struct {
	min    dataflow.Incarnation
	deltas []delta
	cuts   []*dataflow.CheckpointCommit
}

type delta struct {
	ref    dataflow.DeltaRef
	chunks [][]byte
	digest dataflow.DeltaDigest
	ended  bool
}

var _ shard.Replica = (*replica)(nil)

func newReplica(n *node, s int) *replica {
	return &replica{n: n, shard: dataflow.ShardID(s), stores: map[uint64]*stored{}, chains: map[dataflow.PipelineUID]*chain{}}
}

func (r *replica) store(uid dataflow.PipelineUID) *stored {
	s := r.stores[uint64(uid)]
	if s == nil {
		s = &stored{}
		r.stores[uint64(uid)] = s
	}
	return s
}

func (r *replica) chain(uid dataflow.PipelineUID) *chain {
	c := r.chains[uid]
	if c == nil {
		c = &chain{}
		r.chains[uid] = c
	}
	return c
}

// has says that a delta is in the store already.
func (r *replica) has(uid dataflow.PipelineUID, ref dataflow.DeltaRef) bool {
	s := r.store(uid)
	return s.dropped || ref.Compare(s.ref) <= 0
}

// ApplyChunk implements shard.Replica.
func (r *replica) ApplyChunk(_ dataflow.LogIndex, d dataflow.DeltaID, n int, data []byte) error {
	if r.has(d.Pipeline, d.Ref()) {
		return nil
	}
	c := r.chain(d.Pipeline)
	if n == 0 {
		c.deltas = append(c.deltas, delta{ref: d.Ref()})
	}
	last := len(c.deltas) - 1
	if last < 0 || c.deltas[last].ref != d.Ref() || len(c.deltas[last].chunks) != n {
		return fmt.Errorf("chunk %d of %s does not follow", n, d)
	}
	c.deltas[last].chunks = append(c.deltas[last].chunks, slices.Clone(data))
	c.deltas[last].digest = c.deltas[last].digest.Add(data)
	return nil
}

// EndDelta implements shard.Replica.
func (r *replica) EndDelta(_ dataflow.LogIndex, d dataflow.DeltaID, chunks int, digest uint64) error {
	if r.has(d.Pipeline, d.Ref()) {
		return nil
	}
	c := r.chain(d.Pipeline)
	last := len(c.deltas) - 1
	if last < 0 || c.deltas[last].ref != d.Ref() || len(c.deltas[last].chunks) != chunks || uint64(c.deltas[last].digest) != digest {
		return fmt.Errorf("the end of %s does not fit", d)
	}
	c.deltas[last].ended = true
	return nil
}

// BeginIncarnation implements shard.Replica.
func (r *replica) BeginIncarnation(_ dataflow.LogIndex, uid dataflow.PipelineUID, min dataflow.Incarnation, base dataflow.DeltaRef) error {
	c := r.chain(uid)
	if min <= c.min {
		return nil
	}
	c.deltas = slices.DeleteFunc(c.deltas, func(d delta) bool { return d.ref.Compare(base) > 0 || !d.ended })
	c.min = min
	return nil
}

// Settle implements shard.Replica.
func (r *replica) Settle(_ dataflow.LogIndex, uid dataflow.PipelineUID, upTo dataflow.DeltaRef) error {
	if r.n == nil || r.has(uid, upTo) {
		return nil
	}
	c, s := r.chain(uid), r.store(uid)
	found := false
	for len(c.deltas) > 0 && c.deltas[0].ref.Compare(upTo) <= 0 {
		d := c.deltas[0]
		d.into(&s.state)
		found = d.ref == upTo
		c.deltas = c.deltas[1:]
	}
	if !found {
		return fmt.Errorf("delta %s is to be settled and is not here", upTo)
	}
	s.ref = upTo
	return nil
}

// DropPipeline implements shard.Replica.
func (r *replica) DropPipeline(_ dataflow.LogIndex, uid dataflow.PipelineUID) error {
	delete(r.chains, uid)
	r.stores[uint64(uid)] = &stored{dropped: true}
	return nil
}

func (d *delta) into(t *table) {
	for _, c := range d.chunks {
		for ; len(c) >= 9; c = c[9:] {
			t[c[0]] = binary.LittleEndian.Uint64(c[1:])
		}
	}
}

// publish hands a committed cut to the replica.
func (r *replica) publish(c *dataflow.CheckpointCommit) {
	ch := r.chain(c.Pipeline)
	if n := len(ch.cuts); n == 0 || ch.cuts[n-1].ID < c.ID {
		ch.cuts = append(ch.cuts, c)
	}
}

// retain forgets the cuts that are not kept.
func (r *replica) retain(uid dataflow.PipelineUID, keep []*dataflow.CheckpointCommit) {
	ch := r.chain(uid)
	ch.cuts = slices.DeleteFunc(ch.cuts, func(c *dataflow.CheckpointCommit) bool {
		return !slices.ContainsFunc(keep, func(k *dataflow.CheckpointCommit) bool { return k.ID == c.ID })
	})
}

type readiness uint8

const (
	waiting readiness = iota
	ready
	gone
)

// view returns the state at a published cut (P5).
func (r *replica) view(c *dataflow.CheckpointCommit) (t table, _ readiness) {
	ch, s := r.chain(c.Pipeline), r.store(c.Pipeline)
	part := c.Shard(r.shard)
	ref := dataflow.DeltaRef{Incarnation: c.Incarnation, Seq: part.Seq}
	switch {
	case s.dropped || ref.Compare(s.ref) < 0:
		return t, gone
	case c.ID == 0:
		return t, ready
	case ch.min < c.Incarnation && s.ref != ref:
		return t, waiting
	}
	t = s.state
	found := ref == s.ref || ref.Seq == 0
	for i := range ch.deltas {
		d := &ch.deltas[i]
		if d.ref.Compare(ref) > 0 || !d.ended {
			break
		}
		if d.ref == ref {
			found = true
			if uint64(d.digest) != part.Digest {
				return t, gone
			}
		}
		d.into(&t)
	}
	if !found {
		return t, waiting
	}
	return t, ready
}

// lastDelta returns the last delta that counts for a cut; the zero ref when there is none.
func (r *replica) lastDelta(c *dataflow.CheckpointCommit) (ref dataflow.DeltaRef) {
	upTo := dataflow.DeltaRef{Incarnation: c.Incarnation, Seq: c.Shard(r.shard).Seq}
	for _, d := range r.chain(c.Pipeline).deltas {
		if d.ended && d.ref.Compare(upTo) <= 0 {
			ref = d.ref
		}
	}
	return ref
}

func cloneStores(m map[uint64]*stored) map[uint64]*stored {
	out := maps.Clone(m)
	for k, v := range out {
		c := *v
		out[k] = &c
	}
	return out
}
