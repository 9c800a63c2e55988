package statequery

import (
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/plan"
)

// lookupMemory is what a batch of look-ups takes while it is under way, to be used again. The zero value is ready; one
// goroutine uses it.
type lookupMemory struct {
	encoded []byte   // the keys, one after the other
	keys    [][]byte // parts of encoded
	hashes  []uint64 // of the keys
	order   []int32  // the numbers of the keys, by shard
	ends    []int    // of each shard's numbers in order
	accs    [][]byte // of the keys
	lookups dataflow.Lookups
}

// keptKeys and keptBytes bound what a lookupMemory is kept with. Why not more: there is one for each request that was ever under
// way at once.
const (
	keptKeys  = shortKeys
	keptBytes = 64 << 10
)

// lookupMemory returns memory for a batch of look-ups; forget gives it back.
func (e *Engine) lookupMemory() *lookupMemory {
	if m, ok := e.memories.Get().(*lookupMemory); ok {
		return m
	}
	return new(lookupMemory)
}

// forget takes memory back that nothing refers to any more.
func (e *Engine) forget(m *lookupMemory) {
	if cap(m.keys) > keptKeys || cap(m.encoded) > keptBytes {
		return
	}
	m.lookups.Reuse()
	e.memories.Put(m)
}

// encodeRows encodes keys given as rows.
func (m *lookupMemory) encodeRows(st *plan.Stage, rows []dataflow.Row) (err error) {
	m.begin(len(rows))
	for i, row := range rows {
		if m.encoded, err = appendKey(m.encoded, st, row); err != nil {
			return err
		}
		m.ends[i] = len(m.encoded)
	}
	m.cut()
	return nil
}

// encodeColumns encodes keys given as columns, one per part of the key.
func (m *lookupMemory) encodeColumns(st *plan.Stage, b *batch.Batch) (err error) {
	if len(b.Cols) != len(st.Key) {
		return errKeyShape(st, len(b.Cols))
	}
	m.begin(b.N)
	for i := range b.N {
		from := len(m.encoded)
		for c, v := range b.Cols {
			if v.Type == st.Key[c].Type {
				m.encoded = key.AppendVector(m.encoded, v, i)
				continue
			}
			part, err := coerce(st.Key[c], v.Value(i))
			if err != nil {
				return err
			}
			m.encoded = key.AppendValue(m.encoded, part)
		}
		if n := len(m.encoded) - from; n > dataflow.MaxKeyBytes {
			return errLongKey(n)
		}
		m.ends[i] = len(m.encoded)
	}
	m.cut()
	return nil
}

// begin makes room for n keys.
func (m *lookupMemory) begin(n int) {
	m.encoded = slices.Grow(m.encoded[:0], 16*n) // a BIGINT takes 9
	m.keys, m.ends = slices.Grow(m.keys[:0], n)[:n], slices.Grow(m.ends[:0], n)[:n]
}

// cut sets the keys to what lies between the ends.
func (m *lookupMemory) cut() {
	at := 0
	for i, end := range m.ends {
		m.keys[i], at = m.encoded[at:end:end], end
	}
}

// byShard hashes the keys and puts their numbers in the order of their shards.
func (m *lookupMemory) byShard(e *Engine, keys [][]byte) {
	n := len(keys)
	m.hashes, m.order = slices.Grow(m.hashes[:0], n)[:n], slices.Grow(m.order[:0], n)[:n]
	m.ends = slices.Grow(m.ends[:0], e.cfg.Shards)[:e.cfg.Shards]
	clear(m.ends)
	for i, k := range keys {
		m.hashes[i] = dataflow.HashKey(k)
		m.ends[e.shardOfHash(m.hashes[i])]++
	}
	at := 0
	for s, n := range m.ends {
		m.ends[s] = at
		at += n
	}
	for i, h := range m.hashes {
		s := e.shardOfHash(h)
		m.order[m.ends[s]] = int32(i)
		m.ends[s]++
	}
}
