package dataflow

import (
	"fmt"
	"strings"
)

// Type is the type of a column or an expression. Values are stored in logs and state: the list is append-only.
type Type uint8

const (
	// TypeUnknown is the type of a bare NULL before the binder has given it one. No stored column has it.
	TypeUnknown Type = 0
	// TypeBool is BOOLEAN.
	TypeBool Type = 1
	// TypeBigInt is BIGINT: a signed 64-bit integer.
	TypeBigInt Type = 2
	// TypeDouble is DOUBLE PRECISION: an IEEE 754 binary64.
	TypeDouble Type = 3
	// TypeText is TEXT: valid UTF-8 without NUL, compared by bytes.
	TypeText Type = 4
	// TypeTimestamp is TIMESTAMPTZ: microseconds since 1970-01-01T00:00:00Z.
	TypeTimestamp Type = 5
	// TypeNumeric is NUMERIC: an exact decimal of arbitrary precision.
	TypeNumeric Type = 6
	// TypeTextArray is TEXT[].
	TypeTextArray Type = 7
	// TypeInterval is INTERVAL: months, days and microseconds.
	TypeInterval Type = 8
	// TypeJSONB is JSONB: a JSON value in PostgreSQL's normal form (package jsonb).
	TypeJSONB Type = 9
	// TypeBytea is BYTEA: any bytes.
	TypeBytea Type = 10
	// TypeDate is DATE: days since 1970-01-01.
	TypeDate Type = 11
	// Arrays of the scalar types.
	TypeBigIntArray    Type = 12
	TypeDoubleArray    Type = 13
	TypeBoolArray      Type = 14
	TypeTimestampArray Type = 15
	TypeNumericArray   Type = 16
	TypeDateArray      Type = 17
	TypeJSONBArray     Type = 18
	TypeByteaArray     Type = 19
	TypeIntervalArray  Type = 20
)

// LastType is the last of the list.
const LastType = TypeIntervalArray

// String returns the SQL name of the type.
func (t Type) String() string {
	switch t {
	case TypeUnknown:
		return "UNKNOWN"
	case TypeBool:
		return "BOOLEAN"
	case TypeBigInt:
		return "BIGINT"
	case TypeDouble:
		return "DOUBLE PRECISION"
	case TypeText:
		return "TEXT"
	case TypeTimestamp:
		return "TIMESTAMPTZ"
	case TypeNumeric:
		return "NUMERIC"
	case TypeInterval:
		return "INTERVAL"
	case TypeJSONB:
		return "JSONB"
	case TypeBytea:
		return "BYTEA"
	case TypeDate:
		return "DATE"
	}
	if e := t.Elem(); e != TypeUnknown {
		return e.String() + "[]"
	}
	return fmt.Sprintf("TYPE(%d)", uint8(t))
}

// NumericMod is the precision and scale of NUMERIC(precision, scale): values are rounded to scale digits after the point
// and have at most precision digits. The zero value is plain NUMERIC, which takes every value as it is.
type NumericMod struct {
	Precision uint16
	Scale     int16
}

// MaxNumericPrecision and MaxNumericScale bound a NumericMod, as in PostgreSQL; a scale may be negative.
const (
	MaxNumericPrecision = 1000
	MaxNumericScale     = 1000
)

// Valid reports whether m can be written in SQL.
func (m NumericMod) Valid() bool {
	return m == NumericMod{} || m.Precision >= 1 && m.Precision <= MaxNumericPrecision && m.Scale >= -MaxNumericScale && m.Scale <= MaxNumericScale
}

// String returns (12,2), or nothing for plain NUMERIC.
func (m NumericMod) String() string {
	if m == (NumericMod{}) {
		return ""
	}
	return fmt.Sprintf("(%d,%d)", m.Precision, m.Scale)
}

// Column is one named, typed column of a stream, a table or a batch.
type Column struct {
	Name    string
	Type    Type
	NotNull bool
	Mod     NumericMod // of a stream's NUMERIC column
}

// Schema is an ordered list of columns.
type Schema []Column

// Index returns the position of the column called name, or -1.
func (s Schema) Index(name string) int {
	for i, c := range s {
		if c.Name == name {
			return i
		}
	}
	return -1
}

// Equal reports whether both schemas have the same names, types and NOT NULL marks in the same order.
func (s Schema) Equal(o Schema) bool {
	if len(s) != len(o) {
		return false
	}
	for i := range s {
		if s[i] != o[i] {
			return false
		}
	}
	return true
}

// String prints the schema as in CREATE STREAM: (line TEXT NOT NULL, n BIGINT).
func (s Schema) String() string {
	var b strings.Builder
	b.WriteByte('(')
	for i, c := range s {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.Name)
		b.WriteByte(' ')
		b.WriteString(c.Type.String())
		b.WriteString(c.Mod.String())
		if c.NotNull {
			b.WriteString(" NOT NULL")
		}
	}
	b.WriteByte(')')
	return b.String()
}

// The columns that every stream has besides its own.
const (
	ColAppendTime = "_append_time" // TIMESTAMPTZ: the leader's time when the row was appended
	ColShard      = "_shard"       // BIGINT
	ColOffset     = "_offset"      // BIGINT
)

// MaxNameLen is the longest identifier in bytes, as in PostgreSQL.
const MaxNameLen = 63

// ValidName reports whether s can name a stream, pipeline, table or column: [a-z_][a-z0-9_]{0,62}.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > MaxNameLen {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '_' || c >= 'a' && c <= 'z' || i > 0 && c >= '0' && c <= '9' {
			continue
		}
		return false
	}
	return true
}
