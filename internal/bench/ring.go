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
	sums    []uint64 // of the keys of the batches before
	handed  atomic.Uint64
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

// newRings returns a ring per shard, twice as many rows in all as there are keys, and the number of distinct keys.
func newRings(k keyKind, shards int) (rings []*ring, g *gate, distinct uint64) {
	g = newGate()
	seen := make([]uint64, k.keys/64+1)
	rows := max(minRing, 2*k.keys)
	perShard := int(rows/uint64(shards)+ringBatch-1) / ringBatch
	for shard := range shards {
		r := &ring{gate: g, sums: []uint64{0}}
		draw := k.draw(uint64(shard))
		text := make([]byte, 0, 12)
		for range perShard {
			b := batch.NewBatch(k.schema())
			sum := r.sums[len(r.sums)-1]
			for range ringBatch {
				key := draw()
				sum += key
				if bit := uint64(1) << (key & 63); seen[key/64]&bit == 0 {
					seen[key/64] |= bit
					distinct++
				}
				if k.text {
					text = fmt.Appendf(text[:0], "k%011d", key)
					b.Cols[0].AppendText(text)
				} else {
					b.Cols[0].AppendInt(int64(key))
				}
			}
			b.N = ringBatch
			r.batches = append(r.batches, batch.Encode(nil, b))
			r.sums = append(r.sums, sum)
		}
		rings = append(rings, r)
	}
	return rings, g, distinct
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
		handed := r.handed.Load()
		batches, n := handed/ringBatch, uint64(len(r.batches))
		t.rows += handed
		t.sum += batches/n*r.sums[n] + r.sums[batches%n]
	}
	return t
}
