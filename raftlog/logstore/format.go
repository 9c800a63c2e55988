package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Layout of a segment file. Numbers are little-endian.
//
//	0     header: magic (8) | sequence (8) | nonce (8) | CRC32C (4)
//	2048  the header again: with both damaged, a full segment would look like one that was never begun
//	4096  seal:   magic (8) | offset of the index batch (8) | CRC32C with nonce (4)
//	6144  follower: magic (8) | sequence of the segment that came next (8) | CRC32C with nonce (4)
//	8192  batches, each: head (24) | records | zeros up to a multiple of 8
//
// The header and the seal have a block of their own, so that writing the seal cannot tear anything else.
//
//	batch head: magic (4) | bytes of records and padding (4) | offset of the batch (8) | records (4) | CRC32C with nonce (4)
//	record:     CRC32C with nonce (4) | bytes of payload (4) | kind (1) | entry type (1) | flags (2) | group (4) |
//	            index (8) | term (8) | appended at, ns (8) | payload
const (
	headerMagic = "WEIRSEG1"
	sealMagic   = "WEIRSEAL"
	nextMagic   = "WEIRNEXT"
	batchMagic  = 0x48435442 // "BTCH"

	headerSize = 28
	sealOffset = 4096
	sealSize   = 20
	nextOffset = 6144
	nextSize   = 20
	dataOffset = 8192
	batchHead  = 24
	recordHead = 40
)

// kind says what a record is. Kinds are stored: append only.
type kind uint8

const (
	kindEntry    kind = 1 // a Raft entry; flagExtensions says that its payload begins with extensions
	kindState    kind = 2 // the state of all groups (state.go)
	kindTruncate kind = 3 // Raft's range of a group is now [index, term]; flagForget: and nothing that was there is retained
	kindStable   kind = 4 // stable values of a group: the payload is pairs
	kindIndex    kind = 5 // where the segment's entries are (index.go)
	kindSegments kind = 6 // which segments there are, and what of them counts (segments.go); goes with a state
	kindCopy     kind = 7 // a retained entry from an older segment (copy.go), or from another node (install.go)
	kindCopies   kind = 8 // where the segment's copies are; beside the index, and like it
)

const (
	flagExtensions = 1 << 0 // payload = length of extensions (4) | extensions | data
	flagForget     = 1 << 0
)

// errInvalid says that bytes are not a valid header, batch or record: torn, stale, or damaged.
var errInvalid = errors.New("logstore: invalid bytes")

// record is one record, decoded. Payload shares the decoded buffer.
type record struct {
	kind     kind
	logType  uint8
	flags    uint16
	group    uint32
	index    uint64
	term     uint64
	appended int64
	payload  []byte
}

// crc returns the CRC32C of the nonce followed by the parts.
func crc(nonce uint64, parts ...[]byte) uint32 {
	t := crc32.MakeTable(crc32.Castagnoli)
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], nonce)
	c := crc32.Update(0, t, n[:])
	for _, p := range parts {
		c = crc32.Update(c, t, p)
	}
	return c
}

// appendHeader appends a segment's header.
func appendHeader(dst []byte, seq, nonce uint64) []byte {
	start := len(dst)
	dst = append(dst, headerMagic...)
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	dst = binary.LittleEndian.AppendUint64(dst, nonce)
	return binary.LittleEndian.AppendUint32(dst, crc(0, dst[start:]))
}

// headerOffsets are the places of the header's copies: in different sectors.
var headerOffsets = [...]int64{0, 2048}

// decodeHeader decodes a segment's header.
func decodeHeader(b []byte) (seq, nonce uint64, err error) {
	if len(b) < headerSize || string(b[:8]) != headerMagic || crc(0, b[:24]) != binary.LittleEndian.Uint32(b[24:]) {
		return 0, 0, fmt.Errorf("segment header: %w", errInvalid)
	}
	return binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:]), nil
}

// appendSeal appends the seal that points at the index batch.
func appendSeal(dst []byte, nonce uint64, at int64) []byte {
	start := len(dst)
	dst = append(dst, sealMagic...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(at))
	return binary.LittleEndian.AppendUint32(dst, crc(nonce, dst[start:]))
}

// decodeSeal decodes a seal.
func decodeSeal(b []byte, nonce uint64) (at int64, err error) {
	if len(b) < sealSize || string(b[:8]) != sealMagic || crc(nonce, b[:16]) != binary.LittleEndian.Uint32(b[16:]) {
		return 0, fmt.Errorf("seal: %w", errInvalid)
	}
	at = int64(binary.LittleEndian.Uint64(b[8:]))
	if at < dataOffset {
		return 0, fmt.Errorf("seal: %w", errInvalid)
	}
	return at, nil
}

// appendNext appends the mark that names the segment which came next.
func appendNext(dst []byte, nonce, seq uint64) []byte {
	start := len(dst)
	dst = append(dst, nextMagic...)
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	return binary.LittleEndian.AppendUint32(dst, crc(nonce, dst[start:]))
}

// decodeNext decodes the mark.
func decodeNext(b []byte, nonce uint64) (seq uint64, err error) {
	if len(b) < nextSize || string(b[:8]) != nextMagic || crc(nonce, b[:16]) != binary.LittleEndian.Uint32(b[16:]) {
		return 0, fmt.Errorf("follower: %w", errInvalid)
	}
	return binary.LittleEndian.Uint64(b[8:]), nil
}

// batchWriter builds a batch in a buffer that is reused.
type batchWriter struct {
	buf     []byte
	nonce   uint64
	at      int64 // offset of the batch in the file
	records uint32
}

// reset begins a batch at offset at.
func (w *batchWriter) reset(nonce uint64, at int64) {
	w.buf = append(w.buf[:0], make([]byte, batchHead)...)
	w.nonce, w.at, w.records = nonce, at, 0
}

// add appends a record whose payload is the concatenation of parts, and returns its offset in the file and its size.
func (w *batchWriter) add(r *record, parts ...[]byte) (offset int64, size int) {
	start := len(w.buf)
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	w.buf = binary.LittleEndian.AppendUint32(w.buf, 0)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(n))
	w.buf = append(w.buf, byte(r.kind), r.logType, byte(r.flags), byte(r.flags>>8))
	w.buf = binary.LittleEndian.AppendUint32(w.buf, r.group)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, r.index)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, r.term)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(r.appended))
	for _, p := range parts {
		w.buf = append(w.buf, p...)
	}
	binary.LittleEndian.PutUint32(w.buf[start:], crc(w.nonce, w.buf[start+4:]))
	w.records++
	return w.at + int64(start), len(w.buf) - start
}

// finish completes the batch and returns its bytes, which are valid until reset.
func (w *batchWriter) finish() []byte {
	for len(w.buf)%8 != 0 {
		w.buf = append(w.buf, 0)
	}
	h := w.buf[:0:batchHead]
	h = binary.LittleEndian.AppendUint32(h, batchMagic)
	h = binary.LittleEndian.AppendUint32(h, uint32(len(w.buf)-batchHead))
	h = binary.LittleEndian.AppendUint64(h, uint64(w.at))
	h = binary.LittleEndian.AppendUint32(h, w.records)
	binary.LittleEndian.AppendUint32(h, crc(w.nonce, h))
	return w.buf
}

// decodeBatchHead decodes the head of the batch at offset at and returns the size of the whole batch.
func decodeBatchHead(b []byte, nonce uint64, at int64) (size int64, records uint32, err error) {
	if len(b) < batchHead || binary.LittleEndian.Uint32(b) != batchMagic ||
		binary.LittleEndian.Uint64(b[8:]) != uint64(at) || crc(nonce, b[:20]) != binary.LittleEndian.Uint32(b[20:]) {
		return 0, 0, errInvalid
	}
	return batchHead + int64(binary.LittleEndian.Uint32(b[4:])), binary.LittleEndian.Uint32(b[16:]), nil
}

// decodeRecord decodes the record at the start of b and returns its size. The payload shares b.
func decodeRecord(b []byte, nonce uint64) (r record, size int, err error) {
	if len(b) < recordHead {
		return r, 0, errInvalid
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if uint64(n) > uint64(len(b)-recordHead) {
		return r, 0, errInvalid
	}
	size = recordHead + int(n)
	if crc(nonce, b[4:size]) != binary.LittleEndian.Uint32(b) {
		return r, 0, errInvalid
	}
	r = record{
		kind:     kind(b[8]),
		logType:  b[9],
		flags:    binary.LittleEndian.Uint16(b[10:]),
		group:    binary.LittleEndian.Uint32(b[12:]),
		index:    binary.LittleEndian.Uint64(b[16:]),
		term:     binary.LittleEndian.Uint64(b[24:]),
		appended: int64(binary.LittleEndian.Uint64(b[32:])),
		payload:  b[recordHead:size:size],
	}
	return r, size, nil
}

// placed is a record with its place in the file.
type placed struct {
	record
	offset int64
	size   int
}

// decodeBatch decodes and checks the whole batch at the start of b, which lies at offset at of the file, and returns its
// records and its size. Payloads share b.
func decodeBatch(b []byte, nonce uint64, at int64) ([]placed, int64, error) {
	size, count, err := decodeBatchHead(b, nonce, at)
	if err != nil {
		return nil, 0, err
	}
	if size > int64(len(b)) || size%8 != 0 || int64(count)*recordHead > size {
		return nil, 0, errInvalid
	}
	recs := make([]placed, 0, count)
	pos := int64(batchHead)
	for range count {
		r, n, err := decodeRecord(b[pos:size], nonce)
		if err != nil {
			return nil, 0, err
		}
		recs = append(recs, placed{r, at + pos, n})
		pos += int64(n)
	}
	if size-pos >= 8 {
		return nil, 0, errInvalid
	}
	for _, c := range b[pos:size] {
		if c != 0 {
			return nil, 0, errInvalid
		}
	}
	return recs, size, nil
}

// decoder reads variable-length fields from bytes whose checksum was right, but which are not trusted all the same.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// splitExtensions splits an entry's payload.
func splitExtensions(r *record) (ext, data []byte, err error) {
	if r.flags&flagExtensions == 0 {
		return nil, r.payload, nil
	}
	if len(r.payload) < 4 {
		return nil, nil, errInvalid
	}
	n := binary.LittleEndian.Uint32(r.payload)
	rest := r.payload[4:]
	if uint64(n) > uint64(len(rest)) {
		return nil, nil, errInvalid
	}
	return rest[:n:n], rest[n:], nil
}
