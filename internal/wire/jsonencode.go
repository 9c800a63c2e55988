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
	var buf []byte
	for i := range b.N {
		buf = AppendRowJSON(buf, b, i, numbers)
		ends[i] = len(buf)
	}
	at := 0
	for i, end := range ends {
		out[i] = buf[at:end:end]
		at = end
	}
	return out
}

// AppendTimestampJSON appends microseconds since 1970 UTC as an RFC 3339 string.
func AppendTimestampJSON(dst []byte, micros int64) []byte {
	return expr.AppendTimestampJSON(dst, micros)
}

// AppendStringJSON appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendStringJSON(dst []byte, s string) []byte { return expr.AppendTextJSON(dst, s) }
