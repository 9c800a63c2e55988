package wire

import (
	"context"
	"strconv"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// wireTypes is read only: the wire's name of each column type, by its number here.
var wireTypes = [...]weirv1.Type{
	dataflow.TypeBool: weirv1.Type_TYPE_BOOLEAN, dataflow.TypeBigInt: weirv1.Type_TYPE_BIGINT, dataflow.TypeDouble: weirv1.Type_TYPE_DOUBLE,
	dataflow.TypeText: weirv1.Type_TYPE_TEXT, dataflow.TypeTimestamp: weirv1.Type_TYPE_TIMESTAMPTZ, dataflow.TypeNumeric: weirv1.Type_TYPE_NUMERIC,
	dataflow.TypeJSONB: weirv1.Type_TYPE_JSONB, dataflow.TypeBytea: weirv1.Type_TYPE_BYTEA, dataflow.TypeInterval: weirv1.Type_TYPE_INTERVAL,
	dataflow.TypeDate: weirv1.Type_TYPE_DATE, dataflow.TypeTextArray: weirv1.Type_TYPE_TEXT_ARRAY, dataflow.TypeBigIntArray: weirv1.Type_TYPE_BIGINT_ARRAY,
	dataflow.TypeDoubleArray: weirv1.Type_TYPE_DOUBLE_ARRAY, dataflow.TypeBoolArray: weirv1.Type_TYPE_BOOLEAN_ARRAY,
	dataflow.TypeTimestampArray: weirv1.Type_TYPE_TIMESTAMPTZ_ARRAY, dataflow.TypeNumericArray: weirv1.Type_TYPE_NUMERIC_ARRAY,
	dataflow.TypeDateArray: weirv1.Type_TYPE_DATE_ARRAY, dataflow.TypeJSONBArray: weirv1.Type_TYPE_JSONB_ARRAY,
	dataflow.TypeByteaArray: weirv1.Type_TYPE_BYTEA_ARRAY, dataflow.TypeIntervalArray: weirv1.Type_TYPE_INTERVAL_ARRAY,
}

// TypeOf returns the wire's name of a column type.
func TypeOf(t dataflow.Type) weirv1.Type {
	if int(t) < len(wireTypes) {
		return wireTypes[t]
	}
	return weirv1.Type_TYPE_UNSPECIFIED
}

// TypeFrom is the reverse of TypeOf; TypeUnknown for a type of a newer version.
func TypeFrom(t weirv1.Type) dataflow.Type {
	for i, w := range wireTypes {
		if w == t && t != weirv1.Type_TYPE_UNSPECIFIED {
			return dataflow.Type(i)
		}
	}
	return dataflow.TypeUnknown
}

// Columns returns a schema as messages.
func Columns(s dataflow.Schema) []*weirv1.Column {
	out := make([]*weirv1.Column, len(s))
	for i, c := range s {
		out[i] = &weirv1.Column{Name: c.Name, Type: TypeOf(c.Type), NotNull: c.NotNull}
		if c.Mod != (dataflow.NumericMod{}) {
			precision, scale := uint32(c.Mod.Precision), int32(c.Mod.Scale)
			out[i].Precision, out[i].Scale = &precision, &scale
		}
	}
	return out
}

// Schema is the reverse of Columns.
func Schema(cols []*weirv1.Column) dataflow.Schema {
	out := make(dataflow.Schema, len(cols))
	for i, c := range cols {
		out[i] = dataflow.Column{Name: c.GetName(), Type: TypeFrom(c.GetType()), NotNull: c.GetNotNull(),
			Mod: dataflow.NumericMod{Precision: uint16(c.GetPrecision()), Scale: int16(c.GetScale())}}
	}
	return out
}

// Value returns v as a message. A value of TypeUnknown that is not NULL is a literal: text for the server to parse as
// the column's type; so is one of a type without a kind of its own.
func Value(v dataflow.Value) *weirv1.Value {
	if v.Null {
		return &weirv1.Value{}
	}
	switch v.Type {
	case dataflow.TypeBool:
		return &weirv1.Value{Kind: &weirv1.Value_Boolean{Boolean: v.Int != 0}}
	case dataflow.TypeBigInt:
		return &weirv1.Value{Kind: &weirv1.Value_Bigint{Bigint: v.Int}}
	case dataflow.TypeDouble:
		return &weirv1.Value{Kind: &weirv1.Value_Double{Double: v.Flt}}
	case dataflow.TypeTimestamp:
		return &weirv1.Value{Kind: &weirv1.Value_TimestampMicros{TimestampMicros: v.Int}}
	case dataflow.TypeNumeric:
		return &weirv1.Value{Kind: &weirv1.Value_Numeric{Numeric: v.Dec.Text('f')}}
	case dataflow.TypeText:
		return &weirv1.Value{Kind: &weirv1.Value_Text{Text: v.Str}}
	case dataflow.TypeUnknown:
	default:
		return &weirv1.Value{Kind: &weirv1.Value_Literal{Literal: expr.FormatValue(v)}}
	}
	return &weirv1.Value{Kind: &weirv1.Value_Literal{Literal: v.Str}}
}

// ValueFrom is the reverse of Value: a literal becomes a value of TypeUnknown with Str set, nothing becomes a NULL of
// TypeUnknown. Whether the value fits its column is for the reader of the key to say.
func ValueFrom(m *weirv1.Value) (dataflow.Value, error) {
	switch k := m.GetKind().(type) {
	case nil:
		return dataflow.NullValue(dataflow.TypeUnknown), nil
	case *weirv1.Value_Boolean:
		return dataflow.Bool(k.Boolean), nil
	case *weirv1.Value_Bigint:
		return dataflow.BigInt(k.Bigint), nil
	case *weirv1.Value_Double:
		return dataflow.Double(k.Double), nil
	case *weirv1.Value_Text:
		return dataflow.Text(k.Text), nil
	case *weirv1.Value_TimestampMicros:
		if !timestampInRange(k.TimestampMicros) {
			return dataflow.Value{}, dataflow.Errorf(dataflow.ReasonKeyInvalid, "%s", describeTimestampRange(k.TimestampMicros))
		}
		return dataflow.Timestamp(k.TimestampMicros), nil
	case *weirv1.Value_Numeric:
		d, msg := parseNumeric(k.Numeric)
		if msg != "" {
			return dataflow.Value{}, dataflow.Errorf(dataflow.ReasonKeyInvalid, "%s", msg)
		}
		return dataflow.Numeric(d), nil
	case *weirv1.Value_Literal:
		return dataflow.Value{Type: dataflow.TypeUnknown, Str: k.Literal}, nil
	}
	return dataflow.Value{}, dataflow.Errorf(dataflow.ReasonKeyInvalid, "a value of a kind that this server does not know")
}

// Key returns a key, or its leading parts, as a message.
func Key(row dataflow.Row) *weirv1.Key {
	k := &weirv1.Key{Values: make([]*weirv1.Value, len(row))}
	for i, v := range row {
		k.Values[i] = Value(v)
	}
	return k
}

// KeyColumns returns keys as columns, which costs less than a message per key. ok is false for keys that do not go into
// columns: of different lengths or types, with NULLs, or as texts to be parsed.
func KeyColumns(keys []dataflow.Row) (m *weirv1.ColumnBatch, ok bool) {
	if len(keys) == 0 || len(keys[0]) == 0 {
		return nil, false
	}
	schema := make(dataflow.Schema, len(keys[0]))
	for i, v := range keys[0] {
		schema[i] = dataflow.Column{Name: keyName(i), Type: v.Type}
	}
	for _, k := range keys {
		if len(k) != len(schema) {
			return nil, false
		}
		for i := range k { // not by value: a value is large
			if v := &k[i]; v.Null || v.Type == dataflow.TypeUnknown || v.Type != schema[i].Type {
				return nil, false
			}
		}
	}
	b := &batch.Batch{Schema: schema, N: len(keys), Cols: make([]*batch.Vector, len(schema))}
	for i, c := range schema {
		v := batch.NewVector(c.Type, len(keys))
		for _, k := range keys {
			v.AppendValue(k[i])
		}
		b.Cols[i] = v
	}
	return EncodeColumns(b, 0, b.N), true
}

// maxKeyValues bounds the parts of all keys of a request: as many keys as there may be, of ten parts each.
const maxKeyValues = 10 * dataflow.MaxBatchGetKeys

// KeysFrom is the reverse of KeyColumns: a column per part of the keys. It takes all that DecodeColumns does; a column of NULLs
// has no type, and comes as TEXT. The batch shares memory with m, as DecodeColumns has it.
func KeysFrom(ctx context.Context, m *weirv1.ColumnBatch, field string) (*batch.Batch, error) {
	if n := uint64(m.GetRows()) * uint64(len(m.GetColumns())); n > maxKeyValues {
		return nil, tooLarge(field, "keys of %d parts in all are over the limit of %d", n, maxKeyValues)
	}
	schema := make(dataflow.Schema, len(m.GetColumns()))
	named := make([]*weirv1.ColumnData, len(schema))
	for i, c := range m.GetColumns() {
		schema[i] = dataflow.Column{Name: keyName(i), Type: typeOf(c)}
		named[i] = &weirv1.ColumnData{Name: schema[i].Name, Nulls: c.GetNulls(), Values: c.GetValues()}
	}
	return DecodeColumns(ctx, schema, &weirv1.ColumnBatch{Rows: m.GetRows(), Columns: named}, field)
}

// keyName names the column of a part of a key.
func keyName(part int) string { return "key" + strconv.Itoa(part) }

// typeOf returns the type that a column's values have as they are sent.
func typeOf(c *weirv1.ColumnData) dataflow.Type {
	switch c.GetValues().(type) {
	case *weirv1.ColumnData_Booleans:
		return dataflow.TypeBool
	case *weirv1.ColumnData_Bigints:
		return dataflow.TypeBigInt
	case *weirv1.ColumnData_Doubles:
		return dataflow.TypeDouble
	case *weirv1.ColumnData_Timestamps:
		return dataflow.TypeTimestamp
	case *weirv1.ColumnData_Numerics:
		return dataflow.TypeNumeric
	case *weirv1.ColumnData_Byteas:
		return dataflow.TypeBytea
	}
	return dataflow.TypeText
}

// KeyFrom is the reverse of Key, see ValueFrom.
func KeyFrom(k *weirv1.Key) (dataflow.Row, error) {
	row := make(dataflow.Row, len(k.GetValues()))
	for i, m := range k.GetValues() {
		v, err := ValueFrom(m)
		if err != nil {
			return nil, err
		}
		row[i] = v
	}
	return row, nil
}
