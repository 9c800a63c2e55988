package wire

import (
	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// TypeOf returns the wire's name of a column type.
func TypeOf(t dataflow.Type) weirv1.Type {
	switch t {
	case dataflow.TypeBool:
		return weirv1.Type_TYPE_BOOLEAN
	case dataflow.TypeBigInt:
		return weirv1.Type_TYPE_BIGINT
	case dataflow.TypeDouble:
		return weirv1.Type_TYPE_DOUBLE
	case dataflow.TypeText:
		return weirv1.Type_TYPE_TEXT
	case dataflow.TypeTimestamp:
		return weirv1.Type_TYPE_TIMESTAMPTZ
	case dataflow.TypeNumeric:
		return weirv1.Type_TYPE_NUMERIC
	}
	return weirv1.Type_TYPE_UNSPECIFIED
}

// TypeFrom is the reverse of TypeOf; TypeUnknown for a type of a newer version.
func TypeFrom(t weirv1.Type) dataflow.Type {
	switch t {
	case weirv1.Type_TYPE_BOOLEAN:
		return dataflow.TypeBool
	case weirv1.Type_TYPE_BIGINT:
		return dataflow.TypeBigInt
	case weirv1.Type_TYPE_DOUBLE:
		return dataflow.TypeDouble
	case weirv1.Type_TYPE_TEXT:
		return dataflow.TypeText
	case weirv1.Type_TYPE_TIMESTAMPTZ:
		return dataflow.TypeTimestamp
	case weirv1.Type_TYPE_NUMERIC:
		return dataflow.TypeNumeric
	}
	return dataflow.TypeUnknown
}

// Columns returns a schema as messages.
func Columns(s dataflow.Schema) []*weirv1.Column {
	out := make([]*weirv1.Column, len(s))
	for i, c := range s {
		out[i] = &weirv1.Column{Name: c.Name, Type: TypeOf(c.Type), NotNull: c.NotNull}
	}
	return out
}

// Schema is the reverse of Columns.
func Schema(cols []*weirv1.Column) dataflow.Schema {
	out := make(dataflow.Schema, len(cols))
	for i, c := range cols {
		out[i] = dataflow.Column{Name: c.GetName(), Type: TypeFrom(c.GetType()), NotNull: c.GetNotNull()}
	}
	return out
}

// Value returns v as a message. A value of TypeUnknown that is not NULL is a literal: text for the server to parse as
// the column's type.
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
