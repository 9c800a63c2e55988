package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

var (
	errShort   = errors.New("it ends too early")
	errLong    = errors.New("bytes are left over")
	errCRC     = errors.New("the checksum does not match")
	errVersion = errors.New("the version is not known")
	errRows    = errors.New("too many rows")
	errColumns = errors.New("it has other columns")
	errForm    = errors.New("malformed values")
	errText    = errors.New("TEXT or JSONB is not valid UTF-8, or holds a zero byte")
	errNotNull = errors.New("NULL in a NOT NULL column")
)

// Decode decodes what Encode appended, from untrusted bytes: what it takes is well-formed, fits the schema and has valid
// TEXT. The batch shares memory with data. The error is CORRUPT.
func Decode(schema dataflow.Schema, data []byte) (*Batch, error) {
	b, err := decode(schema, data)
	if err != nil {
		return nil, dataflow.Errorf(dataflow.ReasonCorrupt, "batch of rows: %w", err)
	}
	return b, nil
}

// ValidText reports whether b can be a TEXT value: valid UTF-8 without a zero byte.
func ValidText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

func decode(schema dataflow.Schema, data []byte) (*Batch, error) {
	if len(data) < codecHeader {
		return nil, errShort
	}
	if data[0] != codecVersion {
		return nil, fmt.Errorf("version %d: %w", data[0], errVersion)
	}
	if crc32.Checksum(data[codecHeader:], castagnoli) != binary.LittleEndian.Uint32(data[1:]) {
		return nil, errCRC
	}
	d := decoder{data[codecHeader:]}
	rows, err := d.uvarint()
	if err != nil {
		return nil, err
	}
	if rows > dataflow.MaxBatchRows {
		return nil, errRows
	}
	cols, err := d.uvarint()
	if err != nil {
		return nil, err
	}
	if cols != uint64(len(schema)) {
		return nil, errColumns
	}
	b := &Batch{Schema: schema, N: int(rows), Cols: make([]*Vector, len(schema))}
	for i, c := range schema {
		t, err := d.take(1)
		if err != nil {
			return nil, err
		}
		if t[0] != byte(c.Type) {
			return nil, fmt.Errorf("column %s: %w", c.Name, errColumns)
		}
		v, err := d.column(c.Type, b.N)
		if err == nil && c.NotNull && v.Nulls != nil {
			err = errNotNull
		}
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		b.Cols[i] = v
	}
	if len(d.rest) != 0 {
		return nil, errLong
	}
	return b, nil
}

// decoder reads from the front of rest.
type decoder struct{ rest []byte }

func (d *decoder) take(n int) ([]byte, error) {
	if n > len(d.rest) {
		return nil, errShort
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b, nil
}

func (d *decoder) uvarint() (uint64, error) {
	v, k := binary.Uvarint(d.rest)
	if k <= 0 {
		return 0, errShort
	}
	d.rest = d.rest[k:]
	return v, nil
}

func (d *decoder) column(t dataflow.Type, n int) (*Vector, error) {
	v := &Vector{Type: t}
	flag, err := d.take(1)
	if err != nil {
		return nil, err
	}
	switch flag[0] {
	case noNulls:
	case hasNulls:
		if v.Nulls, err = d.bitmap(n); err != nil {
			return nil, err
		}
		if !v.Nulls.Any() {
			return nil, errForm
		}
	default:
		return nil, errForm
	}
	switch t.Form() {
	case dataflow.FormInt:
		if t == dataflow.TypeBool {
			err = d.bools(v, n)
			break
		}
		v.Ints, err = d.ints(n)
	case dataflow.FormInterval:
		err = d.intervals(v, n)
	case dataflow.FormFloat:
		err = d.floats(v, n)
	case dataflow.FormBytes:
		err = d.text(v, n)
	case dataflow.FormDecimal:
		v.Decs = make([]decimal, n)
		for i := range v.Decs {
			if d.rest, err = ReadDecimal(d.rest, &v.Decs[i]); err != nil {
				break
			}
		}
	case dataflow.FormList:
		err = d.lists(v, n)
	default:
		err = errColumns
	}
	if err != nil {
		return nil, err
	}
	return v, v.checkNulls(n)
}

func (d *decoder) bitmap(n int) (Bitmap, error) {
	b, err := d.take((n + 7) / 8)
	if err != nil {
		return nil, err
	}
	m := NewBitmap(n)
	for i, c := range b {
		m[i/8] |= uint64(c) << (i % 8 * 8)
	}
	if n%64 != 0 && m[len(m)-1]>>(n%64) != 0 {
		return nil, errForm
	}
	return m, nil
}

func (d *decoder) bools(v *Vector, n int) error {
	m, err := d.bitmap(n)
	if err != nil {
		return err
	}
	v.Ints = make([]int64, n)
	for i := range v.Ints {
		if m.Get(i) {
			v.Ints[i] = 1
		}
	}
	return nil
}

func (d *decoder) floats(v *Vector, n int) error {
	b, err := d.take(8 * n)
	if err != nil {
		return err
	}
	v.Floats = make([]float64, n)
	for i := range v.Floats {
		v.Floats[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return nil
}

// ints reads n integers.
func (d *decoder) ints(n int) ([]int64, error) {
	base, k := binary.Varint(d.rest)
	if k <= 0 {
		return nil, errShort
	}
	d.rest = d.rest[k:]
	w, err := d.take(1)
	if err != nil {
		return nil, err
	}
	width := int(w[0])
	b, err := d.take(width * n)
	if err != nil {
		return nil, err
	}
	out := make([]int64, n)
	switch width {
	case 0:
		for i := range out {
			out[i] = base
		}
	case 1:
		for i := range out {
			out[i] = base + int64(b[i])
		}
	case 2:
		for i := range out {
			out[i] = base + int64(binary.LittleEndian.Uint16(b[2*i:]))
		}
	case 4:
		for i := range out {
			out[i] = base + int64(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case 8:
		for i := range out {
			out[i] = base + int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
	default:
		return nil, errForm
	}
	return out, nil
}

// offsets reads n lengths and returns where each begins, and their sum last. limit bounds the sum.
func (d *decoder) offsets(n int, limit int64) ([]uint32, error) {
	lens, err := d.ints(n)
	if err != nil {
		return nil, err
	}
	offs := make([]uint32, n+1)
	sum := int64(0)
	for i, l := range lens {
		if l < 0 || l > limit-sum {
			return nil, errForm
		}
		sum += l
		offs[i+1] = uint32(sum)
	}
	return offs, nil
}

func (d *decoder) text(v *Vector, n int) error {
	offs, err := d.offsets(n, min(int64(len(d.rest)), math.MaxUint32))
	if err != nil {
		return err
	}
	if v.Data, err = d.take(int(offs[n])); err != nil {
		return err
	}
	v.Offs = offs
	if v.Type == dataflow.TypeBytea {
		return nil
	}
	// Valid as a whole and cut only where a character begins means that every row is valid.
	if !ValidText(v.Data) {
		return errText
	}
	for _, o := range offs {
		if int(o) < len(v.Data) && !utf8.RuneStart(v.Data[o]) {
			return errText
		}
	}
	return nil
}

// intervals reads the three parts of n intervals.
func (d *decoder) intervals(v *Vector, n int) error {
	var parts [3][]int64
	for k := range parts {
		var err error
		if parts[k], err = d.ints(n); err != nil {
			return err
		}
	}
	v.Ivls = make([]dataflow.Interval, n)
	for i := range v.Ivls {
		m, days := parts[0][i], parts[1][i]
		if m != int64(int32(m)) || days != int64(int32(days)) {
			return errForm
		}
		v.Ivls[i] = dataflow.Interval{Months: int32(m), Days: int32(days), Micros: parts[2][i]}
		if !v.Ivls[i].Valid() {
			return errForm
		}
	}
	return nil
}

// maxElems bounds the elements of a column of arrays: equal lengths are stored once, so that few bytes can ask for many.
const maxElems = 1 << 20

// lists reads the rows of a vector of arrays.
func (d *decoder) lists(v *Vector, n int) error {
	offs, err := d.offsets(n, maxElems)
	if err != nil {
		return err
	}
	count, err := d.uvarint()
	if err != nil {
		return err
	}
	if count != uint64(offs[n]) {
		return errForm
	}
	v.Lists = offs
	v.Elems, err = d.column(v.Type.Elem(), int(count))
	return err
}

// checkNulls refuses values under a NULL: the vector's invariant is that they are zero.
func (v *Vector) checkNulls(n int) error {
	if v.Nulls == nil {
		return nil
	}
	for i := range n {
		if !v.Nulls.Get(i) {
			continue
		}
		zero := false
		switch v.Type.Form() {
		case dataflow.FormFloat:
			zero = math.Float64bits(v.Floats[i]) == 0
		case dataflow.FormBytes:
			zero = v.Offs[i] == v.Offs[i+1]
		case dataflow.FormList:
			zero = v.Lists[i] == v.Lists[i+1]
		case dataflow.FormInterval:
			zero = v.Ivls[i] == dataflow.Interval{}
		case dataflow.FormDecimal:
			d := &v.Decs[i]
			zero = d.Form == 0 && d.Exponent == 0 && !d.Negative && d.Coeff.Sign() == 0
		default:
			zero = v.Ints[i] == 0
		}
		if !zero {
			return errForm
		}
	}
	return nil
}
