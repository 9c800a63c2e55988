package expr

import (
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Const is a constant.
type Const struct {
	value dataflow.Value
	// literal marks a quoted literal without a type of its own ('2026-11-29', NULL): it takes the type that its place
	// asks for, as in PostgreSQL.
	literal bool
	vec     *batch.Vector // one row
}

// NewConst returns a constant. A TEXT value is taken for a quoted literal, which becomes whatever type its place in a
// call asks for; NewCast to TEXT makes it plain text. The same goes for the NULL of TypeUnknown.
func NewConst(v dataflow.Value) *Const {
	literal := v.Type == dataflow.TypeUnknown || v.Type == dataflow.TypeText && !v.Null
	return &Const{value: v, literal: literal, vec: singleton(v.Type, v)}
}

// newTyped returns a constant that keeps its type.
func newTyped(v dataflow.Value) *Const {
	return &Const{value: v, vec: singleton(v.Type, v)}
}

// Value returns the constant's value.
func (c *Const) Value() dataflow.Value { return c.value }

// Type implements Expr.
func (c *Const) Type() dataflow.Type { return c.value.Type }

// String implements Expr.
func (c *Const) String() string {
	v := c.value
	if v.Null {
		if v.Type == dataflow.TypeUnknown {
			return "NULL"
		}
		return "NULL::" + typeName(v.Type)
	}
	switch v.Type {
	case dataflow.TypeBigInt:
		return FormatValue(v)
	case dataflow.TypeNumeric:
		if s := FormatValue(v); strings.Contains(s, ".") {
			return s
		}
	case dataflow.TypeBool:
		return FormatValue(v)
	case dataflow.TypeText:
		if c.literal {
			return quote(v.Str)
		}
	}
	return quote(FormatValue(v)) + "::" + typeName(v.Type)
}

// Eval implements Expr.
func (c *Const) Eval(env *Env, b *batch.Batch, _ Sel) *batch.Vector {
	if !env.Take(int64(b.N) * RowMemory(c.vec, 0)) {
		return env.nothing(c.vec.Type, b.N)
	}
	return repeatRow(c.vec, b.N)
}

// Column is a reference to a column of the batch.
type Column struct {
	Index int
	Name  string
	typ   dataflow.Type
}

// NewColumn returns a reference to column i of the batch, of type t. The name is for String only.
func NewColumn(i int, name string, t dataflow.Type) *Column {
	return &Column{Index: i, Name: name, typ: t}
}

// Type implements Expr.
func (c *Column) Type() dataflow.Type { return c.typ }

// String implements Expr.
func (c *Column) String() string { return c.Name }

// Eval implements Expr.
func (c *Column) Eval(_ *Env, b *batch.Batch, _ Sel) *batch.Vector { return b.Cols[c.Index] }

// quote returns s as a SQL string literal.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// typeName returns the name of a type as error messages and canonical text have it.
func typeName(t dataflow.Type) string {
	switch t {
	case typeAny, typeEach:
		return "any"
	case typeList:
		return "anyarray"
	case typeItem:
		return "anyelement"
	}
	return strings.ToLower(t.String())
}
