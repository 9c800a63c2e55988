package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/weirdb/weir/dataflow"
)

// A delta is a set of entries, each key of a stage once, in no particular order: about that of the keys' hashes, so that who
// reads it fills a hash table from one end to the other. It is cut into blocks, each of one stage, and chunks of whole
// blocks:
//
//	chunk = block…
//	block = version u8, 0 u8 ×3, stage u32, entries u32, payload length u32, CRC32C u32 of all of the block but this field,
//	        payload
//	entry = key length uvarint, key, value length + 1 uvarint (0 = tombstone), value
//
// Integers are little-endian. The version is per block, so that a reader needs no context.
const (
	blockVersion = 2
	blockHeader  = 20
	// blockTarget is the size at which a block is closed. Why not smaller: a header and a CRC per block. Why not larger:
	// damage is reported by block.
	blockTarget = 32 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDelta says that bytes are not a delta as DeltaWriter writes it.
var errDelta = errors.New("damaged delta")

// DeltaWriter collects changes and writes them as one delta. Use it from one goroutine; it does not keep what is passed to
// it.
type DeltaWriter struct {
	blocks []blockBuilder // the open ones, one per stage
	chunks [][]byte       // complete
	chunk  []byte         // the one that is being filled
	n      int
}

// NewDeltaWriter returns an empty writer.
func NewDeltaWriter() *DeltaWriter { return &DeltaWriter{} }

// Add copies one change: the value of a key, or nil when the key was deleted. A key of a stage comes once.
func (w *DeltaWriter) Add(stage dataflow.StageID, key, val []byte) {
	b := w.block(stage)
	if b.entries > 0 && len(b.payload)+len(val)+len(key) > blockTarget {
		w.seal(b)
	}
	b.add(key, val)
	w.n++
}

func (w *DeltaWriter) block(stage dataflow.StageID) *blockBuilder {
	for i := range w.blocks {
		if w.blocks[i].stage == stage {
			return &w.blocks[i]
		}
	}
	w.blocks = append(w.blocks, blockBuilder{stage: stage})
	return &w.blocks[len(w.blocks)-1]
}

// seal moves an open block into a chunk.
func (w *DeltaWriter) seal(b *blockBuilder) {
	if b.entries == 0 {
		return
	}
	if len(w.chunk) > 0 && len(w.chunk)+b.size() > dataflow.MaxDeltaChunkBytes {
		w.chunks, w.chunk = append(w.chunks, w.chunk), nil
	}
	if w.chunk == nil {
		size := b.size()
		if len(w.chunks) > 0 { // there will be more
			size = max(size, dataflow.MaxDeltaChunkBytes)
		}
		w.chunk = make([]byte, 0, size)
	}
	w.chunk = b.appendTo(w.chunk)
}

// Len returns how many changes were added.
func (w *DeltaWriter) Len() int { return w.n }

// Finish passes the delta to emit in chunks of at most dataflow.MaxDeltaChunkBytes (a chunk with a single larger entry
// excepted), numbered from 0, each the receiver's own. It returns how many there were and their digest; both go into the
// delta's end entry. An error of emit ends it. The writer is empty afterwards, and can be used again.
func (w *DeltaWriter) Finish(emit func(chunk int, data []byte) error) (chunks int, digest dataflow.DeltaDigest, err error) {
	for i := range w.blocks {
		w.seal(&w.blocks[i])
	}
	all := w.chunks
	if len(w.chunk) > 0 {
		all = append(all, w.chunk)
	}
	w.chunks, w.chunk, w.n = nil, nil, 0
	for i, c := range all {
		digest = digest.Add(c)
		if err := emit(i, c); err != nil {
			return i, digest, err
		}
	}
	return len(all), digest, nil
}

// blockBuilder builds one block of a stage at a time.
type blockBuilder struct {
	stage   dataflow.StageID
	payload []byte
	entries uint32
}

func (b *blockBuilder) size() int { return blockHeader + len(b.payload) }

func (b *blockBuilder) add(key, val []byte) {
	b.payload = appendEntry(b.payload, key, val)
	b.entries++
}

// appendEntry appends an entry; a nil val is a tombstone.
func appendEntry(p, key, val []byte) []byte {
	p = append(binary.AppendUvarint(p, uint64(len(key))), key...)
	if val == nil {
		return append(p, 0)
	}
	return append(binary.AppendUvarint(p, uint64(len(val))+1), val...)
}

// appendTo appends the block to dst and empties the builder.
func (b *blockBuilder) appendTo(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, blockVersion, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(b.stage))
	dst = binary.LittleEndian.AppendUint32(dst, b.entries)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b.payload)))
	crc := crc32.Update(crc32.Checksum(dst[at:], castagnoli), castagnoli, b.payload)
	dst = binary.LittleEndian.AppendUint32(dst, crc)
	dst = append(dst, b.payload...)
	b.payload, b.entries = b.payload[:0], 0
	return dst
}

// decodeChunk checks a chunk and passes each entry to entry, with its stage and its position in the chunk. All bytes of the
// chunk are used up.
func decodeChunk(chunk []byte, entry func(stage dataflow.StageID, at int, e rawEntry)) error {
	for off := 0; off < len(chunk); {
		head := chunk[off:]
		if len(head) < blockHeader {
			return fmt.Errorf("%w: block header cut off at byte %d", errDelta, off)
		}
		if head[0] != blockVersion || head[1] != 0 || head[2] != 0 || head[3] != 0 {
			return fmt.Errorf("%w: block version %x at byte %d is unknown", errDelta, head[:4], off)
		}
		stage := dataflow.StageID(binary.LittleEndian.Uint32(head[4:]))
		n, size := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
		if int64(size) > int64(len(head)-blockHeader) {
			return fmt.Errorf("%w: block at byte %d is cut off", errDelta, off)
		}
		payload := head[blockHeader:][:size:size]
		crc := crc32.Update(crc32.Checksum(head[:blockHeader-4], castagnoli), castagnoli, payload)
		if crc != binary.LittleEndian.Uint32(head[blockHeader-4:]) {
			return fmt.Errorf("%w: block at byte %d fails its checksum", errDelta, off)
		}
		at := 0
		for ; n > 0 && at < len(payload); n-- {
			e, err := decodeEntry(payload[at:])
			if err != nil {
				return fmt.Errorf("%w in the block at byte %d", err, off)
			}
			entry(stage, off+blockHeader+at, e)
			at += e.size
		}
		if n != 0 || at != len(payload) {
			return fmt.Errorf("%w: block at byte %d has another number of entries than it says", errDelta, off)
		}
		off += blockHeader + int(size)
	}
	return nil
}

// rawEntry is one entry of a block, aliasing it.
type rawEntry struct {
	key  []byte
	val  []byte // nil = tombstone
	size int    // of the whole entry in the block
}

// decodeEntry reads the entry that b starts with.
func decodeEntry(b []byte) (e rawEntry, err error) {
	n, at := uint64(0), 0
	if len(b) > 0 && b[0] < 0x80 { // most are short
		n, at = uint64(b[0]), 1
	} else if n, at = binary.Uvarint(b); at <= 0 {
		return e, fmt.Errorf("%w: entry cut off", errDelta)
	}
	if n > uint64(len(b)-at) {
		return e, fmt.Errorf("%w: key cut off", errDelta)
	}
	e.key = b[at : at+int(n) : at+int(n)]
	at += int(n)
	n, w := binary.Uvarint(b[at:])
	if w <= 0 || n > uint64(len(b)-at-w)+1 {
		return e, fmt.Errorf("%w: value cut off", errDelta)
	}
	at += w
	if n > 0 {
		e.val = b[at : at+int(n)-1 : at+int(n)-1]
		at += int(n) - 1
	}
	e.size = at
	return e, nil
}
