package exchange

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// The encoding of a message between nodes, kind first. Integers are uvarints unless they say otherwise:
//
//	rows      n, flags; the stream, the shard and the first offset; with flagOrigin the least offset, a width of 4 or 8 and n
//	          distances from it; with flagWeights n bytes, 1 or 255 (= -1); n hashes of 8 bytes; batch.Encode to the end
//	partials  n; n hashes of 8 bytes; n times a key's length, the key, an accumulator's length, the accumulator
//	barrier   the attempt
//	marker    the marker's number; n; n times a stream, a shard, an offset
//
// Fixed widths are little-endian. Append times are not sent: the chain before the edge was the last to ask for them. Nothing
// here is stored: both ends speak the version that they agreed on when they met.
const (
	flagOrigin  = 1
	flagWeights = 2
)

// MaxMessageBytes bounds an encoded message. Split keeps messages far below it; what is left is a single row, whose values
// may take expr.MaxRowMemory, 64 MiB.
const MaxMessageBytes = 80 << 20

// What Split aims at. Messages are held whole at both ends, Credits of them per edge: larger ones take more memory, smaller
// ones cost more credits. maxRows and maxElems are what batch.Decode takes.
const (
	splitBytes = 1 << 20
	maxRows    = dataflow.MaxBatchRows
	maxElems   = 1 << 20
)

var (
	errShort = errors.New("it ends too early")
	errLong  = errors.New("bytes are left over")
	errForm  = errors.New("malformed values")
	errKind  = errors.New("the kind is not known")
	errSize  = errors.New("it is too large")
)

// Split calls fn for messages that together say what m says and that can be sent between nodes, in order. Most messages are
// passed on as they are.
func Split(m Message, fn func(Message) error) error {
	switch m.Kind {
	case KindRows:
		if rows := m.Rows.N; rows > 1 && !fits(m.Rows) {
			for _, part := range [][2]int{{0, rows / 2}, {rows / 2, rows}} {
				from, to := part[0], part[1]
				half := Message{Kind: KindRows, Rows: m.Rows.Slice(from, to), Hashes: m.Hashes[from:to]}
				if err := Split(half, fn); err != nil {
					return err
				}
			}
			return nil
		}
	case KindPartials:
		p := m.Partials
		size, from := 0, 0
		for i := range p.Keys {
			if size += 16 + len(p.Keys[i]) + len(p.Accs[i]); size < splitBytes || i+1 == len(p.Keys) {
				continue
			}
			part := &Partials{Hashes: p.Hashes[from : i+1], Keys: p.Keys[from : i+1], Accs: p.Accs[from : i+1]}
			if err := fn(Message{Kind: KindPartials, Partials: part}); err != nil {
				return err
			}
			size, from = 0, i+1
		}
		if from > 0 {
			m.Partials = &Partials{Hashes: p.Hashes[from:], Keys: p.Keys[from:], Accs: p.Accs[from:]}
		}
	}
	return fn(m)
}

// fits reports whether rows are few enough for a message.
func fits(b *batch.Batch) bool {
	if b.N > maxRows {
		return false
	}
	size := 16 * b.N
	for _, v := range b.Cols {
		bytes, elems := vectorSize(v, b.N)
		if elems > maxElems {
			return false
		}
		size += bytes
	}
	return size <= splitBytes
}

// vectorSize returns about how many bytes a column takes, and how many elements its arrays have.
func vectorSize(v *batch.Vector, n int) (bytes, elems int) {
	switch v.Type.Form() {
	case dataflow.FormBytes:
		return int(v.Offs[n]-v.Offs[0]) + 4*n, 0
	case dataflow.FormList:
		elems = int(v.Lists[n] - v.Lists[0])
		bytes, _ = vectorSize(v.Elems.Slice(int(v.Lists[0]), int(v.Lists[n])), elems)
		return bytes + 4*n, elems
	case dataflow.FormDecimal:
		for i := range v.Decs[:n] {
			bytes += 8 + v.Decs[i].Coeff.BitLen()/8
		}
		return bytes, 0
	case dataflow.FormInterval:
		return 16 * n, 0
	}
	return 8 * n, 0
}

// AppendMessage appends the encoding of m to dst. The columns of rows have the types of the schema, or are all NULL. The
// result shares nothing with m.
func AppendMessage(dst []byte, schema dataflow.Schema, m Message) ([]byte, error) {
	at := len(dst)
	dst = append(dst, byte(m.Kind))
	switch m.Kind {
	case KindRows:
		var err error
		if dst, err = appendRows(dst, schema, m.Rows, m.Hashes); err != nil {
			return nil, err
		}
	case KindPartials:
		p := m.Partials
		dst = binary.AppendUvarint(dst, uint64(len(p.Keys)))
		dst = appendHashes(dst, p.Hashes)
		for i := range p.Keys {
			dst = append(binary.AppendUvarint(dst, uint64(len(p.Keys[i]))), p.Keys[i]...)
			dst = append(binary.AppendUvarint(dst, uint64(len(p.Accs[i]))), p.Accs[i]...)
		}
	case KindBarrier:
		dst = binary.AppendUvarint(dst, uint64(m.Barrier))
	case KindMarker:
		dst = binary.AppendUvarint(dst, m.Marker)
		dst = binary.AppendUvarint(dst, uint64(len(m.Positions)))
		for _, k := range m.Positions.Sorted() {
			dst = binary.AppendUvarint(dst, uint64(k.Stream))
			dst = binary.AppendUvarint(dst, uint64(k.Shard))
			dst = binary.AppendUvarint(dst, uint64(m.Positions[k]))
		}
	default:
		return nil, dataflow.Errorf(dataflow.ReasonInternal, "encode %s: %w", m, errKind)
	}
	if len(dst)-at > MaxMessageBytes {
		return nil, dataflow.Errorf(dataflow.ReasonTooLarge, "a row of %d bytes cannot be sent to another node; %d can", len(dst)-at, MaxMessageBytes)
	}
	return dst, nil
}

func appendHashes(dst []byte, hashes []uint64) []byte {
	at := len(dst)
	dst = slices.Grow(dst, 8*len(hashes))[:at+8*len(hashes)]
	for i, h := range hashes {
		binary.LittleEndian.PutUint64(dst[at+8*i:], h)
	}
	return dst
}

func appendRows(dst []byte, schema dataflow.Schema, b *batch.Batch, hashes []uint64) ([]byte, error) {
	typed, err := withTypes(b, schema)
	if err != nil {
		return nil, err
	}
	flags := byte(0)
	if b.Origin != nil {
		flags |= flagOrigin
	}
	if b.Weights != nil {
		flags |= flagWeights
	}
	dst = append(binary.AppendUvarint(dst, uint64(b.N)), flags)
	dst = binary.AppendUvarint(dst, uint64(b.Stream))
	dst = binary.AppendUvarint(dst, uint64(b.Shard))
	dst = binary.AppendUvarint(dst, uint64(b.FirstOffset))
	if b.Origin != nil {
		dst = appendOffsets(dst, b.Origin[:b.N])
	}
	if b.Weights != nil {
		for _, w := range b.Weights[:b.N] {
			dst = append(dst, byte(w))
		}
	}
	dst = appendHashes(dst, hashes[:b.N])
	return batch.Encode(dst, typed), nil
}

// withTypes returns b with the types of the schema, and without the columns that have none: an expression that is NULL for
// every row may be of no type.
func withTypes(b *batch.Batch, schema dataflow.Schema) (*batch.Batch, error) {
	if len(b.Cols) != len(schema) {
		return nil, dataflow.Errorf(dataflow.ReasonInternal, "rows of %d columns on an edge of %d", len(b.Cols), len(schema))
	}
	typed := &batch.Batch{N: b.N, Cols: make([]*batch.Vector, 0, len(schema))}
	for i, v := range b.Cols {
		t := schema[i].Type
		switch {
		case t == dataflow.TypeUnknown:
			continue
		case v.Type == dataflow.TypeUnknown:
			v = batch.NewVector(t, b.N)
			for range b.N {
				v.AppendNull()
			}
		case v.Type != t:
			return nil, dataflow.Errorf(dataflow.ReasonInternal, "column %s is %s on an edge where it is %s", schema[i].Name, v.Type, t)
		}
		if _, elems := vectorSize(v, b.N); elems > maxElems {
			return nil, dataflow.Errorf(dataflow.ReasonTooLarge, "an array of %d elements cannot be sent to another node; %d can", elems, maxElems)
		}
		typed.Cols = append(typed.Cols, v)
	}
	return typed, nil
}

// decodeRows decodes what batch.Encode made of withTypes.
func decodeRows(schema dataflow.Schema, data []byte) (*batch.Batch, error) {
	typed := make(dataflow.Schema, 0, len(schema))
	for _, c := range schema {
		if c.Type != dataflow.TypeUnknown {
			typed = append(typed, dataflow.Column{Name: c.Name, Type: c.Type}) // what an expression gives may be NULL
		}
	}
	b, err := batch.Decode(typed, data)
	if err != nil {
		return nil, err
	}
	if b.Schema = schema; len(typed) == len(schema) {
		return b, nil
	}
	cols := make([]*batch.Vector, 0, len(schema))
	for _, c := range schema {
		if c.Type == dataflow.TypeUnknown {
			cols = append(cols, batch.NewVectorLen(c.Type, b.N))
			continue
		}
		cols, b.Cols = append(cols, b.Cols[0]), b.Cols[1:]
	}
	b.Cols = cols
	return b, nil
}

func appendOffsets(dst []byte, offs []dataflow.Offset) []byte {
	lo, hi := dataflow.Offset(math.MaxUint64), dataflow.Offset(0)
	for _, o := range offs {
		lo, hi = min(lo, o), max(hi, o)
	}
	dst = binary.AppendUvarint(dst, uint64(lo))
	if len(offs) == 0 || uint64(hi-lo) <= math.MaxUint32 {
		dst = append(dst, 4)
		for _, o := range offs {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(o-lo))
		}
		return dst
	}
	dst = append(dst, 8)
	for _, o := range offs {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(o-lo))
	}
	return dst
}

// DecodeMessage decodes what AppendMessage has appended for the schema. Whatever the bytes are, it returns a message that is
// well-formed or an error, which is CORRUPT, and takes memory in proportion to them; accumulators are not looked into. The
// message shares memory with data.
func DecodeMessage(schema dataflow.Schema, data []byte) (Message, error) {
	m, err := decodeMessage(schema, data)
	if err != nil {
		return Message{}, dataflow.Errorf(dataflow.ReasonCorrupt, "message of an edge: %w", err)
	}
	return m, nil
}

func decodeMessage(schema dataflow.Schema, data []byte) (Message, error) {
	if len(data) > MaxMessageBytes {
		return Message{}, errSize
	}
	if len(data) == 0 {
		return Message{}, errShort
	}
	d := decoder{rest: data[1:]}
	m := Message{Kind: Kind(data[0])}
	switch m.Kind {
	case KindRows:
		d.rows(schema, &m)
	case KindPartials:
		d.partials(&m)
	case KindBarrier:
		if m.Barrier = dataflow.CheckpointID(d.uvarint()); m.Barrier == 0 {
			d.fail(errForm) // no attempt has the number of cut 0
		}
	case KindMarker:
		m.Marker = d.uvarint()
		n := d.count(3)
		m.Positions = make(dataflow.Positions, n)
		for range n {
			k := dataflow.StreamShard{Stream: dataflow.StreamID(d.uvarint()), Shard: d.shard()}
			m.Positions[k] = dataflow.Offset(d.uvarint())
		}
	default:
		return Message{}, errKind
	}
	if d.err == nil && len(d.rest) > 0 {
		d.err = errLong
	}
	return m, d.err
}

// decoder reads from the front of rest. After an error it returns zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err, d.rest = err, nil
	}
}

func (d *decoder) uvarint() uint64 {
	v, k := binary.Uvarint(d.rest)
	if k <= 0 {
		d.fail(errShort)
		return 0
	}
	d.rest = d.rest[k:]
	return v
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.fail(errShort)
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) shard() dataflow.ShardID {
	s := d.uvarint()
	if s >= dataflow.MaxShards {
		d.fail(errForm)
		return 0
	}
	return dataflow.ShardID(s)
}

// count reads how many items follow, each of size bytes at least.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.rest)/size) {
		d.fail(errShort)
		return 0
	}
	return int(n)
}

func (d *decoder) hashes(n int) []uint64 {
	b := d.take(uint64(n) * 8)
	if d.err != nil {
		return nil
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return out
}

func (d *decoder) partials(m *Message) {
	const least = 8 + 1 + 1 // the hash and two lengths
	n := d.count(least)
	slices := make([][]byte, 2*n)
	p := &Partials{Hashes: d.hashes(n), Keys: slices[:n:n], Accs: slices[n:]}
	for i := range n {
		p.Keys[i] = d.take(d.uvarint())
		p.Accs[i] = d.take(d.uvarint())
	}
	m.Partials = p
}

func (d *decoder) rows(schema dataflow.Schema, m *Message) {
	n := d.count(8)
	var flags byte
	if f := d.take(1); len(f) == 1 {
		flags = f[0]
	}
	if flags&^(flagOrigin|flagWeights) != 0 {
		d.fail(errForm)
	}
	stream, shard, first := dataflow.StreamID(d.uvarint()), d.shard(), dataflow.Offset(d.uvarint())
	var origin []dataflow.Offset
	if flags&flagOrigin != 0 {
		origin = d.offsets(n)
	}
	var weights []int8
	if flags&flagWeights != 0 {
		weights = d.weights(n)
	}
	m.Hashes = d.hashes(n)
	if d.err != nil {
		return
	}
	b, err := decodeRows(schema, d.rest)
	if err == nil && b.N != n {
		err = errForm
	}
	if err != nil {
		d.fail(err)
		return
	}
	d.rest = nil
	b.Stream, b.Shard, b.FirstOffset, b.Origin, b.Weights = stream, shard, first, origin, weights
	m.Rows = b
}

func (d *decoder) offsets(n int) []dataflow.Offset {
	lo := d.uvarint()
	var width uint64
	if w := d.take(1); len(w) == 1 {
		width = uint64(w[0])
	}
	if width != 4 && width != 8 {
		d.fail(errForm)
	}
	b := d.take(uint64(n) * width)
	if d.err != nil {
		return nil
	}
	out := make([]dataflow.Offset, n)
	for i := range out {
		if width == 4 {
			out[i] = dataflow.Offset(lo + uint64(binary.LittleEndian.Uint32(b[4*i:])))
		} else {
			out[i] = dataflow.Offset(lo + binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	return out
}

func (d *decoder) weights(n int) []int8 {
	b := d.take(uint64(n))
	if d.err != nil {
		return nil
	}
	out := make([]int8, n)
	for i, w := range b {
		if out[i] = int8(w); out[i] != 1 && out[i] != -1 {
			d.fail(errForm)
			return nil
		}
	}
	return out
}
