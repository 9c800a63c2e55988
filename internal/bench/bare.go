package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

// bare is what the engine is compared with, because machines differ: a loop per processor that counts the same keys in a hash
// table with the layout of a live table, and does nothing else. Its keys come encoded and in batches that stay in memory, each
// loop's own; its table is as large as it will be from the beginning.
//
//	slot = head u8, key (KeyBytes of the shape), count u64
type bare struct {
	loops []*bareLoop
}

// bareLoop is one loop: its keys, and the table of them.
type bareLoop struct {
	keyLen, inline, size int
	keys                 []byte // one after the other
	next                 int    // the row that comes next
	rows                 uint64 // counted so far
	mem                  []byte
	capacity             int
	hashes               [ringBatch]uint64
	touched              byte
}

// bareInline is how many bytes of a slot a key of each type takes, as in a live table.
func bareInline(text bool) int {
	if text {
		return 16
	}
	return 9
}

// newBare takes the keys of rings. It leaves nothing to be done later: each loop has been through its rows once.
func newBare(k keyKind, rings []*ring, distinct uint64) (*bare, error) {
	b := &bare{}
	for range runtime.GOMAXPROCS(0) {
		b.loops = append(b.loops, &bareLoop{inline: bareInline(k.text)})
	}
	var buf []byte
	for _, r := range rings {
		for _, data := range r.batches {
			rows, err := batch.Decode(k.schema(), data)
			if err != nil {
				return nil, fmt.Errorf("decode a batch of rows: %w", err)
			}
			for i := range rows.N {
				buf = key.AppendVector(buf[:0], rows.Cols[0], i)
				l := b.loops[int(dataflow.HashKey(buf)&0xFFFF)*len(b.loops)>>16]
				l.keyLen, l.keys = len(buf), append(l.keys, buf...)
			}
		}
	}
	for _, l := range b.loops {
		if len(l.keys) == 0 {
			return nil, errors.New("a loop has no keys")
		}
		// As full as the parts of a live table are on average.
		l.size = 1 + l.inline + 8
		l.capacity = int(distinct)/len(b.loops)*3/2 + 1024
		l.mem = bareMemory(l.capacity*l.size + 16)
		for l.rows*uint64(l.keyLen) < uint64(len(l.keys)) {
			l.batch()
		}
	}
	return b, nil
}

// run counts for a while, a batch at least, and returns the rows per second of all loops.
func (b *bare) run(d time.Duration) float64 {
	before := b.rows()
	began := time.Now()
	var wg sync.WaitGroup
	for _, l := range b.loops {
		wg.Go(func() {
			for l.batch(); time.Since(began) < d; {
				l.batch()
			}
		})
	}
	wg.Wait()
	return float64(b.rows()-before) / time.Since(began).Seconds()
}

func (b *bare) rows() (n uint64) {
	for _, l := range b.loops {
		n += l.rows
	}
	return n
}

// check compares what the tables say with what was counted (B2), and gives their memory back.
func (b *bare) check(distinct uint64) error {
	var rows, keys uint64
	for _, l := range b.loops {
		for off := 0; off < l.capacity*l.size; off += l.size {
			if l.mem[off] != 0 {
				keys++
				rows += binary.LittleEndian.Uint64(l.mem[off+1+l.inline:])
			}
		}
		bareFree(l.mem)
	}
	if rows != b.rows() || keys != distinct {
		return voidf("the bare loops count %d rows of %d keys; they were given %d of %d", rows, keys, b.rows(), distinct)
	}
	return nil
}

// batch counts the next batch of keys: it hashes all of them, reads the first byte of each slot, so that the misses of the
// cache overlap, and then adds.
func (l *bareLoop) batch() {
	n := l.keyLen
	keys := l.keys[l.next*n:]
	keys = keys[:min(len(keys), ringBatch*n)]
	hashes := l.hashes[:len(keys)/n]
	if l.next += len(hashes); l.next*n == len(l.keys) {
		l.next = 0
	}
	for i := range hashes {
		hashes[i] = dataflow.HashKey(keys[i*n : (i+1)*n])
	}
	for _, h := range hashes {
		home, _ := bits.Mul64(h, uint64(l.capacity))
		l.touched += l.mem[int(home)*l.size]
	}
	for i, h := range hashes {
		l.add(h, keys[i*n:(i+1)*n])
	}
	l.rows += uint64(len(hashes))
}

// add counts a key, which has 8 to 16 bytes.
func (l *bareLoop) add(hash uint64, k []byte) {
	home, _ := bits.Mul64(hash, uint64(l.capacity))
	head, lastAt := byte(0x80|len(k)), len(k)-7
	first, last := binary.LittleEndian.Uint64(k), binary.LittleEndian.Uint64(k[len(k)-8:])
	pos := int(home)
	for off := pos * l.size; ; off += l.size {
		if pos == l.capacity {
			pos, off = 0, 0
		}
		slot := l.mem[off:][:l.size:l.size]
		if slot[0] == 0 {
			slot[0] = head
			copy(slot[1:], k)
		} else if slot[0] != head || binary.LittleEndian.Uint64(slot[1:]) != first || binary.LittleEndian.Uint64(slot[lastAt:]) != last {
			pos++
			continue
		}
		count := slot[1+l.inline:]
		binary.LittleEndian.PutUint64(count, binary.LittleEndian.Uint64(count)+1)
		return
	}
}
