package key

import (
	"bytes"
	"encoding/binary"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// AppendKeys appends the keys of rows one after the other: the key of rows[i], whose parts are cols, ends at ends[i] of the
// result. rows ascend, and ends is as long as rows; dst has less than 4 GiB afterwards. The bytes are those of AppendVector;
// keys of numbers and texts are written column by column, which takes a fraction of the time.
func AppendKeys(dst []byte, ends []uint32, cols []*batch.Vector, rows []int32) []byte {
	if !byColumn(cols, rows) {
		for i, row := range rows {
			for _, v := range cols {
				dst = AppendVector(dst, v, int(row))
			}
			ends[i] = uint32(len(dst))
		}
		return dst
	}
	// First how long each key is, then where it begins; each column moves that to where it ends.
	clear(ends)
	for _, v := range cols {
		addSizes(ends, v, rows)
	}
	at := uint32(len(dst))
	for i, size := range ends {
		ends[i] = at
		at += size
	}
	dst = extend(dst, int(at)-len(dst))
	for _, v := range cols {
		if v.Type.Form() == dataflow.FormBytes {
			putTexts(dst, ends, v, rows)
		} else {
			putInts(dst, ends, v, rows)
		}
	}
	return dst
}

// intPart is the length of a part of a BIGINT, TIMESTAMPTZ or DATE.
const intPart = 1 + 8

// byColumn reports whether AppendKeys has kernels for the columns: numbers, and texts without a zero byte.
func byColumn(cols []*batch.Vector, rows []int32) bool {
	if len(rows) == 0 {
		return false
	}
	first, last := rows[0], rows[len(rows)-1]
	for _, v := range cols {
		switch v.Type {
		case dataflow.TypeBigInt, dataflow.TypeTimestamp, dataflow.TypeDate:
		case dataflow.TypeText, dataflow.TypeBytea:
			if bytes.IndexByte(v.Data[v.Offs[first]:v.Offs[last+1]], 0) >= 0 {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// addSizes adds to sizes how long the parts of v are.
func addSizes(sizes []uint32, v *batch.Vector, rows []int32) {
	texts, offs := v.Type.Form() == dataflow.FormBytes, v.Offs
	switch {
	case v.Nulls != nil:
		for i, row := range rows {
			switch {
			case v.IsNull(int(row)):
				sizes[i]++
			case texts:
				sizes[i] += 2 + offs[row+1] - offs[row]
			default:
				sizes[i] += intPart
			}
		}
	case texts:
		for i, row := range rows {
			sizes[i] += 2 + offs[row+1] - offs[row]
		}
	default:
		for i := range sizes {
			sizes[i] += intPart
		}
	}
}

// putInts writes parts of numbers to dst, that of rows[i] at ends[i], and moves that to its end.
func putInts(dst []byte, ends []uint32, v *batch.Vector, rows []int32) {
	tag, ends := tagBase+byte(v.Type), ends[:len(rows)]
	for i, row := range rows {
		at := ends[i]
		if v.IsNull(int(row)) {
			dst[at] = tagNull
			ends[i] = at + 1
			continue
		}
		part := dst[at : at+intPart]
		part[0] = tag
		binary.BigEndian.PutUint64(part[1:], uint64(v.Ints[row])^1<<63)
		ends[i] = at + intPart
	}
}

// putTexts writes parts of texts as putInts does those of numbers.
func putTexts(dst []byte, ends []uint32, v *batch.Vector, rows []int32) {
	tag, data, offs := tagBase+byte(v.Type), v.Data, v.Offs
	for i, row := range rows {
		at := ends[i]
		if v.IsNull(int(row)) {
			dst[at] = tagNull
			ends[i] = at + 1
			continue
		}
		text := data[offs[row]:offs[row+1]]
		part := dst[at:][:len(text)+2]
		part[0] = tag
		copy(part[1:], text)
		part[len(text)+1] = textEnd
		ends[i] = at + uint32(len(part))
	}
}

// extend returns b with n more bytes, whatever they hold.
func extend(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b[:len(b)+n]
	}
	return append(b, make([]byte, n)...)
}
