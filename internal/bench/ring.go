package bench

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/task"
	"github.com/weirdb/weir/node/worker"
)

// keyKind is a distribution of keys of a type.
type keyKind struct {
	keys uint64
	text bool // 12-byte TEXT, else BIGINT
	zipf bool // with exponent 1.1, else uniform
	// memory is the node's budget for live tables; 0 = its default.
	memory int64
}

func (k keyKind) String() string {
	s := fmt.Sprintf("keys=%d", k.keys)
	if !k.text {
		s += " type=bigint"
	}
	if k.zipf {
		s += " dist=zipf1.1"
	}
	if k.memory > 0 {
		s += fmt.Sprintf(" memory=%dMiB", k.memory>>20)
	}
	return s
}

func (k keyKind) schema() dataflow.Schema {
	t := dataflow.TypeBigInt
	if k.text {
		t = dataflow.TypeText
	}
	return dataflow.Schema{{Name: "k", Type: t, NotNull: true}}
}

// draw returns a function that draws keys, from 0 on.
func (k keyKind) draw(seed uint64) func() uint64 {
	if k.zipf {
		return rand.NewZipf(rand.New(rand.NewPCG(seed, 1)), 1.1, 1, k.keys-1).Uint64
	}
	x := xorshift(88172645463325252 + seed)
	return func() uint64 { return x.below(k.keys) }
}

// ringBatch is the number of rows that a batch of a ring has: what a log entry of short rows has.
const ringBatch = batch.TargetRows

// minRing is the least number of rows of all rings together: so many that they do not stay in a core's own cache.
const minRing = 1 << 20

// ring is the rows of one shard: encoded batches that come again and again, as if a log held them.
type ring struct {
	gate    *gate
	batches [][]byte
	counted []uint64 // rows that the plan counts of the batches before
	sums    []uint64 // of the keys of these rows
	handed  atomic.Uint64
}

// rowMaker makes the rows of rings for one plan.
type rowMaker interface {
	schema() dataflow.Schema
	// least is how many rows all rings should have together.
	least() uint64
	// maker returns a function that appends a row for a shard, and says how often the plan counts it, 0 or 1, and its key.
	maker(shard int) func(b *batch.Batch) (counted, key uint64)
	// distinct returns how many keys were made that the plan counts.
	distinct() uint64
}

// keyMaker makes rows of one key column.
type keyMaker struct {
	keyKind
	seen  []uint64
	found uint64
}

func newKeyMaker(k keyKind) *keyMaker {
	return &keyMaker{keyKind: k, seen: make([]uint64, k.keys/64+1)}
}

func (m *keyMaker) least() uint64    { return 2 * m.keys }
func (m *keyMaker) distinct() uint64 { return m.found }

func (m *keyMaker) maker(shard int) func(b *batch.Batch) (counted, key uint64) {
	draw := m.draw(uint64(shard))
	text := make([]byte, 0, 12)
	return func(b *batch.Batch) (counted, key uint64) {
		key = draw()
		if bit := uint64(1) << (key & 63); m.seen[key/64]&bit == 0 {
			m.seen[key/64] |= bit
			m.found++
		}
		if m.text {
			text = fmt.Appendf(text[:0], "k%011d", key)
			b.Cols[0].AppendText(text)
		} else {
			b.Cols[0].AppendInt(int64(key))
		}
		return 1, key
	}
}

var _ worker.Source = (*ring)(nil)

// gate opens and shuts all rings of a run.
type gate struct {
	state atomic.Int32 // gateClosed…
	mu    struct {
		sync.Mutex
		changed chan struct{}
	}
}

const (
	gateNew int32 = iota
	gateOpen
	gateShut
)

func newGate() *gate {
	g := &gate{}
	g.mu.changed = make(chan struct{})
	return g
}

func (g *gate) set(state int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Store(state)
	close(g.mu.changed)
	g.mu.changed = make(chan struct{})
}

// newRings returns a ring per shard.
func newRings(m rowMaker, shards int) (rings []*ring, g *gate) {
	g = newGate()
	perShard := int(max(minRing, m.least())/uint64(shards)+ringBatch-1) / ringBatch
	for shard := range shards {
		r := &ring{gate: g, counted: []uint64{0}, sums: []uint64{0}}
		next := m.maker(shard)
		for i := range perShard {
			b := batch.NewBatch(m.schema())
			rows, sum := r.counted[i], r.sums[i]
			for range ringBatch {
				counted, key := next(b)
				rows, sum = rows+counted, sum+counted*key
			}
			b.N = ringBatch
			r.batches = append(r.batches, batch.Encode(nil, b))
			r.counted, r.sums = append(r.counted, rows), append(r.sums, sum)
		}
		rings = append(rings, r)
	}
	return rings, g
}

// Read returns the batch at from.
func (r *ring) Read(_ dataflow.StreamID, from dataflow.Offset, _ int) ([]task.Rows, error) {
	if r.gate.state.Load() != gateOpen {
		return nil, nil
	}
	n := uint64(from) / ringBatch
	first := n * ringBatch
	r.handed.Store(max(r.handed.Load(), first+ringBatch)) // one task reads a shard
	return []task.Rows{{
		First: dataflow.Offset(first), Count: ringBatch, AppendTime: time.Now().UnixMicro(), Data: r.batches[n%uint64(len(r.batches))],
	}}, nil
}

// Changed is closed when the gate moves.
func (r *ring) Changed() <-chan struct{} {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	return r.gate.mu.changed
}

// End is beyond what has been read for as long as the gate is open: there is always more.
func (r *ring) End(dataflow.StreamID) dataflow.Offset {
	end := r.handed.Load()
	if r.gate.state.Load() == gateOpen {
		end += ringBatch
	}
	return dataflow.Offset(end)
}

// rows returns how many rows have been read of all rings.
func rows(rings []*ring) uint64 {
	n := uint64(0)
	for _, r := range rings {
		n += r.handed.Load()
	}
	return n
}

// rounds returns how often every ring has been read in full.
func rounds(rings []*ring) uint64 {
	least := ^uint64(0)
	for _, r := range rings {
		least = min(least, r.handed.Load()/uint64(len(r.batches)*ringBatch))
	}
	return least
}

// total returns what the tables must say once everything that was read is in them. Every ring has been read once at
// least.
func total(rings []*ring, distinct uint64) truth {
	t := truth{keys: distinct}
	for _, r := range rings {
		batches, n := r.handed.Load()/ringBatch, uint64(len(r.batches))
		t.rows += batches/n*r.counted[n] + r.counted[batches%n]
		t.sum += batches/n*r.sums[n] + r.sums[batches%n]
	}
	return t
}
