package resp

import (
	"bytes"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

// A key is [live:]pipeline.table:part|part…, one part per key column in order. In a part \\ is a backslash, \| a bar, and \N
// alone is NULL; a part is parsed as its column's type, as in a URL. A table without key columns has the key that ends with
// the colon.
const (
	livePrefix = "live:"
	separator  = '|'
	escape     = '\\'
)

// splitKey takes the isolation and the table's name off a key. database is the isolation that the connection has selected.
func splitKey(key []byte, database dataflow.Isolation) (isolation dataflow.Isolation, table, parts []byte, err error) {
	isolation, rest := database, key
	if len(key) > len(livePrefix) && string(key[:len(livePrefix)]) == livePrefix {
		isolation, rest = dataflow.ReadUncommitted, key[len(livePrefix):]
	}
	table, parts, found := bytes.Cut(rest, []byte{':'})
	if !found || bytes.IndexByte(table, '.') < 0 {
		return isolation, nil, nil, dataflow.Errorf(dataflow.ReasonKeyInvalid, "'%s' does not name a row", abridge(key)).
			WithHint("write pipeline.table:key, the parts of a key separated by |")
	}
	return isolation, table, parts, nil
}

// appendParts appends the values of a key's parts to dst. n is how many columns the table's key has: an empty text is one
// part of one column, and no part of none.
func appendParts(dst dataflow.Row, text []byte, n int) (dataflow.Row, error) {
	if n == 0 && len(text) == 0 {
		return dst, nil
	}
	if bytes.IndexByte(text, escape) < 0 {
		for {
			part, rest, more := bytes.Cut(text, []byte{separator})
			dst = append(dst, dataflow.Value{Str: string(part)})
			if !more {
				return dst, nil
			}
			text = rest
		}
	}
	var part strings.Builder
	null := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == separator:
			dst = append(dst, dataflow.Value{Str: part.String(), Null: null})
			part.Reset()
			null = false
			continue
		case null:
			return dst, badEscape(text, `\N stands alone in its part`)
		case c != escape:
			part.WriteByte(c)
			continue
		}
		i++
		switch {
		case i < len(text) && (text[i] == escape || text[i] == separator):
			part.WriteByte(text[i])
		case i < len(text) && text[i] == 'N' && part.Len() == 0:
			null = true
		default:
			return dst, badEscape(text, `a \ is followed by \, | or, alone in its part, N`)
		}
	}
	return append(dst, dataflow.Value{Str: part.String(), Null: null}), nil
}

func badEscape(text []byte, rule string) error {
	return dataflow.Errorf(dataflow.ReasonKeyInvalid, "the key '%s' is not escaped rightly: %s", abridge(text), rule).
		WithHint(`write a \ of a value as \\, a | as \|, NULL as \N`)
}

// appendKeyOf appends the parts of the key of row i, as appendParts reads them.
func appendKeyOf(dst []byte, b *batch.Batch, keyCols []int, i int) []byte {
	var text []byte
	for n, c := range keyCols {
		if n > 0 {
			dst = append(dst, separator)
		}
		v := b.Cols[c]
		if v.IsNull(i) {
			dst = append(dst, escape, 'N')
			continue
		}
		text = expr.AppendCellText(text[:0], v, i)
		for _, c := range text {
			if c == escape || c == separator {
				dst = append(dst, escape)
			}
			dst = append(dst, c)
		}
	}
	return dst
}

// abridge cuts what a client sent to a length that an error can show.
func abridge(b []byte) []byte {
	const most = 80
	if len(b) > most {
		return append(bytes.Clone(b[:most]), "…"...)
	}
	return b
}
