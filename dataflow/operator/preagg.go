package operator

import (
	"bytes"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/plan"
)

// PreAgg combines the rows of a batch that share a key into one partial accumulator before they are sent. It pays when
// keys repeat within a batch; when they do not, it switches itself off and looks again from time to time. One goroutine
// uses it at a time.
type PreAgg struct {
	layout *agg.Layout
	nkeys  int
	size   int // of an accumulator; 0 = they differ

	table []int32 // open addressing by hash: number of the entry + 1; 0 = free
	ents  []entry

	idle int // batches left until the next look
}

type entry struct {
	hash       uint64
	from, to   int    // of the key in the batch's key bytes
	acc        []byte // when accumulators differ in size
	tableIndex int32
}

const (
	// minReduction is the share of rows that combining must save: below it the table costs more than the exchange.
	minReduction = 0.20
	// lookAgain is how many batches pass before a PreAgg that saved too little tries again. Few would waste work on
	// data that never repeats, many would miss that it has begun to.
	lookAgain = 64
	// minRows is how many rows a batch needs to say anything about repetition.
	minRows = 256
)

// NewPreAgg returns a PreAgg for a stage, or nil when the stage's rows cannot be combined: a stage that keeps one row
// per key has nothing to combine.
func NewPreAgg(st *plan.Stage) *PreAgg {
	if st.Kind != plan.StageAggregate {
		return nil
	}
	for _, a := range st.Aggs {
		if a.Fn == agg.Any {
			return nil
		}
	}
	p := &PreAgg{layout: agg.NewLayout(st.Aggs), nkeys: len(st.Key)}
	if size, ok := p.layout.Fixed(); ok {
		p.size = size
	}
	return p
}

// Enabled reports whether the next batch should be combined. It is called once per batch.
func (p *PreAgg) Enabled() bool {
	if p.idle > 0 {
		p.idle--
		return p.idle == 0
	}
	return true
}

// Combine folds the rows of b, the stage's key columns and aggregate arguments, by key. hashes has the hash of each
// row's key; nil computes them on the way. It returns a hash, key and partial accumulator per distinct key, in order of
// first appearance; the caller owns them. Weights are respected: a partial may stand for no rows at all and still matter.
func (p *PreAgg) Combine(b *batch.Batch, hashes []uint64) (outHashes []uint64, keys, accs [][]byte, err error) {
	p.reset(b.N)
	keyBytes := make([]byte, 0, 16*b.N)
	var accBytes []byte // all accumulators, when they are of one size
	mask := int32(len(p.table) - 1)
	for row := range b.N {
		at := len(keyBytes)
		for c := range p.nkeys {
			keyBytes = key.AppendVector(keyBytes, b.Cols[c], row)
		}
		var h uint64
		if hashes != nil {
			h = hashes[row]
		} else {
			h = dataflow.HashKey(keyBytes[at:])
		}
		i := int32(h>>32) & mask // the low bits choose the shard
		var e *entry
		num := 0
		for {
			t := p.table[i]
			if t == 0 {
				num = len(p.ents)
				p.ents = append(p.ents, entry{hash: h, from: at, to: len(keyBytes), tableIndex: i})
				e = &p.ents[num]
				p.table[i] = int32(num + 1)
				if p.size > 0 {
					accBytes = p.layout.New(accBytes)
				} else {
					e.acc = p.layout.New(nil)
				}
				break
			}
			num = int(t - 1)
			if e = &p.ents[num]; e.hash == h && bytes.Equal(keyBytes[e.from:e.to], keyBytes[at:]) {
				keyBytes = keyBytes[:at]
				break
			}
			i = (i + 1) & mask
		}
		if p.size > 0 {
			_, err = p.layout.Update(accBytes[num*p.size:(num+1)*p.size], b, row, b.Weight(row))
		} else {
			e.acc, err = p.layout.Update(e.acc, b, row, b.Weight(row))
		}
		if err != nil {
			return nil, nil, nil, err
		}
	}
	p.judge(b.N, len(p.ents))

	n := len(p.ents)
	outHashes = make([]uint64, n)
	slices := make([][]byte, 2*n)
	keys, accs = slices[:n:n], slices[n:]
	for i := range p.ents {
		e := &p.ents[i]
		outHashes[i] = e.hash
		keys[i] = keyBytes[e.from:e.to:e.to]
		if p.size > 0 {
			accs[i] = accBytes[i*p.size : (i+1)*p.size : (i+1)*p.size]
		} else {
			accs[i] = e.acc
			e.acc = nil
		}
	}
	return outHashes, keys, accs, nil
}

// reset makes the table ready for n rows: at most half full, so that probes stay short.
func (p *PreAgg) reset(n int) {
	size := 64
	for size < 2*n {
		size *= 2
	}
	if len(p.table) < size {
		p.table = make([]int32, size)
	} else {
		for i := range p.ents {
			p.table[p.ents[i].tableIndex] = 0
		}
	}
	p.ents = p.ents[:0]
}

// judge switches off when too few rows were saved.
func (p *PreAgg) judge(rows, distinct int) {
	if rows >= minRows && float64(rows-distinct) < minReduction*float64(rows) {
		p.idle = lookAgain
	}
}

// HashKeys appends the hash of each row's key, the first nkeys columns of b, to dst. buf is scratch; both are returned.
func HashKeys(dst []uint64, buf []byte, b *batch.Batch, nkeys int) (hashes []uint64, scratch []byte) {
	for row := range b.N {
		buf = buf[:0]
		for c := range nkeys {
			buf = key.AppendVector(buf, b.Cols[c], row)
		}
		dst = append(dst, dataflow.HashKey(buf))
	}
	return dst, buf
}
