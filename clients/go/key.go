package weir

import (
	"fmt"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// Key makes a key, or its leading parts, from Go values: nil is NULL; bool, int, int64, float64, string and time.Time are
// what they look like; a dataflow.Value is itself. A string is text for the server to parse as the column's type, so
// Key("NZ", "2026-11-29") also fits a TEXT and a TIMESTAMPTZ column. Anything else panics: it is a programmer's mistake.
func Key(parts ...any) dataflow.Row {
	row := make(dataflow.Row, len(parts))
	for i, p := range parts {
		switch p := p.(type) {
		case nil:
			row[i] = dataflow.NullValue(dataflow.TypeUnknown)
		case dataflow.Value:
			row[i] = p
		case string:
			row[i] = Literal(p)
		case int:
			row[i] = dataflow.BigInt(int64(p))
		case int64:
			row[i] = dataflow.BigInt(p)
		case float64:
			row[i] = dataflow.Double(p)
		case bool:
			row[i] = dataflow.Bool(p)
		case time.Time:
			row[i] = dataflow.Timestamp(p.UnixMicro())
		default:
			panic(fmt.Sprintf("weir.Key: a key part cannot be a %T", p))
		}
	}
	return row
}

// Literal is a key part as text, which the server parses as the column's type.
func Literal(s string) dataflow.Value { return dataflow.Value{Type: dataflow.TypeUnknown, Str: s} }
