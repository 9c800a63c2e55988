package dataflow

import "github.com/cockroachdb/apd/v3"

// Value is one scalar at the edges of the system, where rows are handled one at a time: keys of a request, results of a
// query, constants of a plan. The hot path uses the vectors of package batch.
//
// Exactly one payload field is meaningful, chosen by Type; none when Null is set.
type Value struct {
	Type Type
	Null bool
	Int  int64        // TypeBigInt; TypeTimestamp in microseconds and TypeDate in days since 1970 UTC; TypeBool as 0 or 1
	Flt  float64      // TypeDouble
	Str  string       // TypeText; TypeJSONB in normal form; TypeBytea, the bytes themselves
	Dec  *apd.Decimal // TypeNumeric; never modified once set
	Arr  []Value      // arrays: the elements
	Ivl  Interval     // TypeInterval
}

// Interval is PostgreSQL's interval: three parts that do not convert into each other.
type Interval struct {
	Months int32
	Days   int32
	Micros int64
}

// NullValue returns the NULL of type t.
func NullValue(t Type) Value { return Value{Type: t, Null: true} }

// BigInt returns a BIGINT value.
func BigInt(v int64) Value { return Value{Type: TypeBigInt, Int: v} }

// Text returns a TEXT value.
func Text(s string) Value { return Value{Type: TypeText, Str: s} }

// Double returns a DOUBLE PRECISION value.
func Double(f float64) Value { return Value{Type: TypeDouble, Flt: f} }

// Bool returns a BOOLEAN value.
func Bool(b bool) Value {
	v := Value{Type: TypeBool}
	if b {
		v.Int = 1
	}
	return v
}

// Timestamp returns a TIMESTAMPTZ value from microseconds since 1970 UTC.
func Timestamp(micros int64) Value { return Value{Type: TypeTimestamp, Int: micros} }

// Numeric returns a NUMERIC value. The decimal must not be modified afterwards.
func Numeric(d *apd.Decimal) Value { return Value{Type: TypeNumeric, Dec: d} }

// Row is one row at the edges: a value per column of its schema.
type Row []Value
