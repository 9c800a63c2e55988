package wire

import (
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// AppendRowJSON appends row i of b as a JSON object, columns in the order of the schema. The bytes are stable: equal
// rows give equal bytes. What JSON numbers cannot hold (NaN, Infinity) is a string.
func AppendRowJSON(dst []byte, b *batch.Batch, i int, numbers weirv1.Numbers) []byte {
	dst = append(dst, '{')
	for ci, c := range b.Schema {
		if ci > 0 {
			dst = append(dst, ',')
		}
		dst = AppendStringJSON(dst, c.Name)
		dst = append(dst, ':')
		dst = expr.AppendCellJSON(dst, b.Cols[ci], i, numbers == weirv1.Numbers_NUMBERS_STRING)
	}
	return append(dst, '}')
}

// RowsJSON returns every row of b as a JSON object. The rows share one buffer.
func RowsJSON(b *batch.Batch, numbers weirv1.Numbers) [][]byte {
	if b == nil || b.N == 0 {
		return nil
	}
	out, ends := make([][]byte, b.N), make([]int, b.N)
	var w rowsWriter
	w.begin(b, numbers)
	for i := range b.N {
		w.append(i)
		ends[i] = len(w.buf)
	}
	at := 0
	for i, end := range ends {
		out[i] = w.buf[at:end:end]
		at = end
	}
	return out
}

// PackedRowsJSON returns the rows of b as JSON objects, end to end: one for each key that is found, in order. A key that is not
// has the length 0, which no row has.
func PackedRowsJSON(b *batch.Batch, found []bool, numbers weirv1.Numbers) *weirv1.TextValues {
	m := &weirv1.TextValues{Lengths: make([]uint32, len(found))}
	var w rowsWriter
	if b != nil && b.N > 0 {
		w.begin(b, numbers)
	}
	row := 0
	for i, ok := range found {
		if ok {
			before := len(w.buf)
			w.append(row)
			m.Lengths[i] = uint32(len(w.buf) - before)
			row++
		}
	}
	m.Data = w.buf
	return m
}

// rowsWriter writes rows of a batch as AppendRowJSON does, but the names of the columns only once.
type rowsWriter struct {
	b         *batch.Batch
	asStrings bool     // numbers
	before    [][]byte // what stands before the value of each column
	buf       []byte
}

func (w *rowsWriter) begin(b *batch.Batch, numbers weirv1.Numbers) {
	w.b, w.asStrings, w.before = b, numbers == weirv1.Numbers_NUMBERS_STRING, make([][]byte, len(b.Schema))
	var all []byte
	size := 2
	for i, c := range b.Schema {
		from, mark := len(all), byte(',')
		if i == 0 {
			mark = '{'
		}
		all = append(AppendStringJSON(append(all, mark), c.Name), ':')
		w.before[i] = all[from:len(all):len(all)]
		size += len(w.before[i]) + valueBytes
	}
	w.buf = make([]byte, 0, size*b.N)
}

// valueBytes is about what a value takes as text: the first guess, for many rows to fit in memory that is taken once.
const valueBytes = 12

func (w *rowsWriter) append(i int) {
	if len(w.before) == 0 {
		w.buf = append(w.buf, '{')
	}
	for c, before := range w.before {
		w.buf = expr.AppendCellJSON(append(w.buf, before...), w.b.Cols[c], i, w.asStrings)
	}
	w.buf = append(w.buf, '}')
}

// AppendTimestampJSON appends microseconds since 1970 UTC as an RFC 3339 string.
func AppendTimestampJSON(dst []byte, micros int64) []byte {
	return expr.AppendTimestampJSON(dst, micros)
}

// AppendStringJSON appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendStringJSON(dst []byte, s string) []byte { return expr.AppendTextJSON(dst, s) }
