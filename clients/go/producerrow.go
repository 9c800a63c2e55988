package weir

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

// rowBatch returns one row as a batch of the schema.
func rowBatch(schema dataflow.Schema, row dataflow.Row) (*batch.Batch, error) {
	if len(row) != len(schema) {
		return nil, dataflow.Errorf(dataflow.ReasonRowInvalid, "the row has %d values, the stream has %s", len(row), schema)
	}
	b := batch.NewBatch(schema)
	typed := make(dataflow.Row, len(row))
	for i, v := range row {
		c := schema[i]
		switch {
		case v.Null:
			v = dataflow.NullValue(c.Type)
		case v.Type == dataflow.TypeUnknown:
			parsed, err := expr.ParseValue(c.Type, v.Str)
			if err != nil {
				return nil, dataflow.Errorf(dataflow.ReasonRowInvalid, "column %s: %w", c.Name, err)
			}
			v = parsed
		case v.Type != c.Type:
			return nil, dataflow.Errorf(dataflow.ReasonRowInvalid, "column %s is %s, the value is %s", c.Name, c.Type, v.Type)
		}
		typed[i] = v
	}
	b.AppendRow(typed)
	return b, nil
}
