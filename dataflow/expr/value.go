package expr

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// ParseValue reads the text form of a value of type t, in the spellings that PostgreSQL accepts (and RFC 3339 for
// times). The error is a *dataflow.Error with PostgreSQL's message.
func ParseValue(t dataflow.Type, s string) (dataflow.Value, error) {
	return dataflow.Value{}, dataflow.Errorf(dataflow.ReasonInternal, "values are not parsed")
}

// FormatValue returns the text form of a value, as PostgreSQL prints it. NULL gives the empty string: callers that must
// tell it from empty text look at v.Null.
func FormatValue(v dataflow.Value) string { return "" }

type patternCache struct{}

func appendVector(dst []byte, v *batch.Vector, i int) []byte { return dst }

func castFor(from, to dataflow.Type) castFunc { return nil }
