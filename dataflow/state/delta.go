package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// A delta is a run of entries sorted by (stage, key), each key once. It is cut into blocks, and chunks of whole blocks:
//
//	chunk = block…
//	block = version u8, 0 u8 ×3, entries u32, payload length u32, CRC32C u32 of all of the block but this field, payload
//	entry = stage u32 big-endian, key length uvarint, key, value length + 1 uvarint (0 = tombstone), value
//
// Integers are little-endian unless said otherwise. The version is per block, so that a reader needs no context.
const (
	blockVersion = 1
	blockHeader  = 16
	// blockTarget is the size at which a block is closed. Why not smaller: a header and a CRC per block. Why not larger:
	// damage is reported by block.
	blockTarget = 32 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDelta says that bytes are not a delta as DeltaWriter writes it.
var errDelta = errors.New("damaged delta")

// DeltaWriter collects changes in any order and writes them as one delta. Use it from one goroutine; it does not keep
// what is passed to it.
type DeltaWriter struct {
	arena   []byte
	entries []deltaEntry
	order   []deltaOrder
}

// deltaEntry finds one entry in the arena.
type deltaEntry struct {
	at     int // of the key; the value follows
	keyLen int32
	valLen int32 // −1 = tombstone
}

// deltaOrder sorts one entry: by stage, then by prefix (the eight bytes of the key after what all keys have in common,
// zero filled), then by the whole key, then the newest first. It is small because sorting moves it around.
type deltaOrder struct {
	prefix uint64
	stage  dataflow.StageID
	entry  uint32
}

// NewDeltaWriter returns an empty writer.
func NewDeltaWriter() *DeltaWriter { return &DeltaWriter{} }

// Grow makes room for so many more changes with so many bytes of keys and values. Without it the writer grows by copying.
func (w *DeltaWriter) Grow(changes, bytes int) {
	w.arena = slices.Grow(w.arena, bytes)
	w.entries = slices.Grow(w.entries, changes)
	w.order = slices.Grow(w.order, changes)
}

// Add copies one change: the value of a key, or nil when the key was deleted. A key may come again: the last value
// counts.
func (w *DeltaWriter) Add(stage dataflow.StageID, key, val []byte) {
	e := deltaEntry{at: len(w.arena), keyLen: int32(len(key)), valLen: int32(len(val))}
	if val == nil {
		e.valLen = -1
	}
	w.order = append(w.order, deltaOrder{stage: stage, entry: uint32(len(w.entries))})
	w.arena = append(append(w.arena, key...), val...)
	w.entries = append(w.entries, e)
}

// Len returns how many changes were added.
func (w *DeltaWriter) Len() int { return len(w.entries) }

// Bytes returns how many bytes of keys and values were added.
func (w *DeltaWriter) Bytes() int { return len(w.arena) }

func (w *DeltaWriter) key(i uint32) []byte {
	e := &w.entries[i]
	return w.arena[e.at : e.at+int(e.keyLen)]
}

// value returns nil for a tombstone.
func (w *DeltaWriter) value(i uint32) []byte {
	e := &w.entries[i]
	if e.valLen < 0 {
		return nil
	}
	at := e.at + int(e.keyLen)
	return w.arena[at : at+int(e.valLen) : at+int(e.valLen)]
}

// sort brings w.order into the order of the delta.
func (w *DeltaWriter) sort() {
	if len(w.entries) == 0 {
		return
	}
	common := w.key(0)
	for i := range w.entries {
		key := w.key(uint32(i))
		common = common[:min(len(common), len(key))]
		for !bytes.HasPrefix(key, common) {
			common = common[:len(common)-1]
		}
	}
	for i := range w.order {
		var p [8]byte
		copy(p[:], w.key(uint32(i))[len(common):])
		w.order[i].prefix = binary.BigEndian.Uint64(p[:])
	}
	slices.SortFunc(w.order, func(a, b deltaOrder) int {
		if a.stage != b.stage {
			return cmp.Compare(a.stage, b.stage)
		}
		if a.prefix != b.prefix {
			if a.prefix < b.prefix {
				return -1
			}
			return 1
		}
		if c := bytes.Compare(w.key(a.entry), w.key(b.entry)); c != 0 {
			return c
		}
		return cmp.Compare(b.entry, a.entry)
	})
}

// Finish sorts the changes and passes the delta to emit in chunks of at most dataflow.MaxDeltaChunkBytes (a chunk with a
// single larger entry excepted), numbered from 0, each the receiver's own. It returns how many there were and their
// digest; both go into the delta's end entry. An error of emit ends it. It takes a few tenths of a microsecond per
// change, most of it sorting: call it off the task's goroutine. The writer is empty afterwards, and can be used again.
func (w *DeltaWriter) Finish(emit func(chunk int, data []byte) error) (chunks int, digest dataflow.DeltaDigest, err error) {
	defer func() { w.arena, w.entries, w.order = w.arena[:0], w.entries[:0], w.order[:0] }()
	w.sort()
	var chunk []byte
	var block blockBuilder
	flush := func() error {
		if len(chunk) == 0 {
			return nil
		}
		digest = digest.Add(chunk)
		chunks++
		out := chunk
		chunk = nil
		return emit(chunks-1, out)
	}
	seal := func() error {
		if block.entries == 0 {
			return nil
		}
		if len(chunk) > 0 && len(chunk)+block.size() > dataflow.MaxDeltaChunkBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		if chunk == nil {
			chunk = make([]byte, 0, max(dataflow.MaxDeltaChunkBytes/4, block.size()))
		}
		chunk = block.appendTo(chunk)
		return nil
	}
	for i, o := range w.order {
		key, val := w.key(o.entry), w.value(o.entry)
		if i > 0 && w.order[i-1].stage == o.stage && bytes.Equal(w.key(w.order[i-1].entry), key) {
			continue // an older value of the same key
		}
		if block.entries > 0 && len(block.payload)+len(val)+len(key) > blockTarget {
			if err := seal(); err != nil {
				return chunks, digest, err
			}
		}
		block.add(o.stage, key, val)
	}
	if err := seal(); err != nil {
		return chunks, digest, err
	}
	if err := flush(); err != nil {
		return chunks, digest, err
	}
	return chunks, digest, nil
}

// blockBuilder builds one block at a time.
type blockBuilder struct {
	payload []byte
	entries uint32
}

func (b *blockBuilder) size() int { return blockHeader + len(b.payload) }

func (b *blockBuilder) add(stage dataflow.StageID, key, val []byte) {
	p := binary.BigEndian.AppendUint32(b.payload, uint32(stage))
	p = append(binary.AppendUvarint(p, uint64(len(key))), key...)
	if val == nil {
		p = append(p, 0)
	} else {
		p = append(binary.AppendUvarint(p, uint64(len(val))+1), val...)
	}
	b.payload = p
	b.entries++
}

// appendTo appends the block to dst and empties the builder.
func (b *blockBuilder) appendTo(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, blockVersion, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, b.entries)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b.payload)))
	crc := crc32.Update(crc32.Checksum(dst[at:at+12], castagnoli), castagnoli, b.payload)
	dst = binary.LittleEndian.AppendUint32(dst, crc)
	dst = append(dst, b.payload...)
	b.payload, b.entries = b.payload[:0], 0
	return dst
}

// decodeChunk checks a chunk and passes each entry's position in it to entry: of its stage and key, and of its value
// (valAt −1 = tombstone). All bytes of the chunk are used up. The order of the entries is the caller's to check.
func decodeChunk(chunk []byte, entry func(at int, e rawEntry) error) error {
	for off := 0; off < len(chunk); {
		head := chunk[off:]
		if len(head) < blockHeader {
			return fmt.Errorf("%w: block header cut off at byte %d", errDelta, off)
		}
		if head[0] != blockVersion || head[1] != 0 || head[2] != 0 || head[3] != 0 {
			return fmt.Errorf("%w: block version %x at byte %d is unknown", errDelta, head[:4], off)
		}
		n, size := binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[8:])
		if int64(size) > int64(len(head)-blockHeader) {
			return fmt.Errorf("%w: block at byte %d is cut off", errDelta, off)
		}
		payload := head[blockHeader:][:size:size]
		crc := crc32.Update(crc32.Checksum(head[:12], castagnoli), castagnoli, payload)
		if crc != binary.LittleEndian.Uint32(head[12:]) {
			return fmt.Errorf("%w: block at byte %d fails its checksum", errDelta, off)
		}
		at := 0
		for ; n > 0 && at < len(payload); n-- {
			e, err := decodeEntry(payload[at:])
			if err != nil {
				return fmt.Errorf("%w in the block at byte %d", err, off)
			}
			if err := entry(off+blockHeader+at, e); err != nil {
				return err
			}
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
	stageKey stageKey
	val      []byte // nil = tombstone
	size     int    // of the whole entry in the block
}

// stageKey names a key of a shard's state within a pipeline.
type stageKey struct {
	stage dataflow.StageID
	key   []byte
}

func (k stageKey) compare(other stageKey) int {
	if k.stage != other.stage {
		return cmp.Compare(k.stage, other.stage)
	}
	return bytes.Compare(k.key, other.key)
}

// decodeEntry reads the entry that b starts with.
func decodeEntry(b []byte) (rawEntry, error) {
	if len(b) < 6 {
		return rawEntry{}, fmt.Errorf("%w: entry cut off", errDelta)
	}
	e := rawEntry{stageKey: stageKey{stage: dataflow.StageID(binary.BigEndian.Uint32(b))}}
	at := 4
	n, w := binary.Uvarint(b[at:])
	if w <= 0 || n > uint64(len(b)-at-w) {
		return rawEntry{}, fmt.Errorf("%w: key cut off", errDelta)
	}
	at += w
	e.stageKey.key = b[at : at+int(n) : at+int(n)]
	at += int(n)
	n, w = binary.Uvarint(b[at:])
	if w <= 0 || n > uint64(len(b)-at-w)+1 {
		return rawEntry{}, fmt.Errorf("%w: value cut off", errDelta)
	}
	at += w
	if n > 0 {
		e.val = b[at : at+int(n)-1 : at+int(n)-1]
		at += int(n) - 1
	}
	e.size = at
	return e, nil
}
