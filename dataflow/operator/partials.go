package operator

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

// Partials holds what the rows of a batch come to: a key and a partial accumulator per distinct key, in order of first
// appearance. They lie in flat memory, which a PreAgg uses for batch after batch.
type Partials struct {
	// Hashes has the hash of each key.
	Hashes []uint64

	keys    []byte
	offs    []uint32 // key i is keys[offs[i]:offs[i+1]]
	accs    []byte   // of size bytes each
	size    int      // 0 = they differ
	varying [][]byte // then
}

// Key returns key i.
func (p *Partials) Key(i int) []byte { return p.keys[p.offs[i]:p.offs[i+1]] }

// Acc returns the accumulator of key i.
func (p *Partials) Acc(i int) []byte {
	if p.size == 0 {
		return p.varying[i]
	}
	return p.accs[i*p.size : (i+1)*p.size]
}

// Release lets go of accumulators that were made for this batch alone: those that differ in length.
func (p *Partials) Release() { p.varying = nil }

// encode makes the keys those of rows, whose parts are cols, and computes their hashes.
func (p *Partials) encode(cols []*batch.Vector, rows []int32) {
	p.offs = resized(p.offs, len(rows)+1)
	p.offs[0] = 0
	p.keys = key.AppendKeys(p.keys[:0], p.offs[1:], cols, rows)
	p.Hashes = appendHashes(p.Hashes[:0], p.keys, p.offs[1:])
}

// appendHashes appends the hashes of keys that lie one after the other and end where ends says.
func appendHashes(dst []uint64, keys []byte, ends []uint32) []uint64 {
	at := uint32(0)
	for _, end := range ends {
		dst = append(dst, dataflow.HashKey(keys[at:end]))
		at = end
	}
	return dst
}

// hashRows is how many keys are encoded before they are hashed: few enough for the nearest cache.
const hashRows = 256

// HashKeys appends the hash of each row's key, the first nkeys columns of b, to dst. buf is scratch; both are returned.
func HashKeys(dst []uint64, buf []byte, b *batch.Batch, nkeys int) (hashes []uint64, scratch []byte) {
	var rows [hashRows]int32
	var ends [hashRows]uint32
	for from := 0; from < b.N; from += hashRows {
		n := min(hashRows, b.N-from)
		for i := range n {
			rows[i] = int32(from + i)
		}
		buf = key.AppendKeys(buf[:0], ends[:n], b.Cols[:nkeys], rows[:n])
		dst = appendHashes(dst, buf, ends[:n])
	}
	return dst, buf
}
