package expr

import (
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Pseudo types of a function's parameters.
const (
	// typeAny: all arguments of this type are brought to one common type; as a result it is that type.
	typeAny dataflow.Type = 0xff
	// typeEach: an argument of any type, as it is.
	typeEach dataflow.Type = 0xfe
	// typeList: an array of any type, the same in all parameters; as a result it is that type, or the array of the common
	// type of typeAny. typeItem: one of its elements.
	typeList dataflow.Type = 0xfd
	typeItem dataflow.Type = 0xfc
)

// function is one entry of a topic's table: one signature of a function or operator.
type function struct {
	name string
	args []dataflow.Type
	// variadic lets the last parameter take one or more arguments.
	variadic bool
	result   dataflow.Type

	// doc is the description, for the first entry of a name; entries without one belong to the entry above.
	// differs says where PostgreSQL's answer is another.
	doc, example, differs string

	// nullable functions see NULL arguments; the result of any other is NULL where an argument is.
	nullable bool
	// volatile functions may answer differently for the same row (and are refused); stable ones depend on now().
	volatile, stable bool

	// check runs when a call is built, with coerced arguments: it prepares constants (Call.prep) or refuses them.
	check func(c *Call) *dataflow.Error
	// eval computes the rows of a frame. lazy is for those that decide which arguments to evaluate.
	eval func(f *frame)
	lazy func(c *Call, env *Env, b *batch.Batch, sel Sel) *batch.Vector
}

// Call is a function or operator with its arguments.
type Call struct {
	fn   *function
	args []Expr
	typ  dataflow.Type
	prep any // what fn.check has made of constant arguments; read only
}

// Name returns the name of the function or operator, as NewCall takes it.
func (c *Call) Name() string { return c.fn.name }

// Args returns the arguments, with the casts that the call has put around them. The slice must not be modified.
func (c *Call) Args() []Expr { return c.args }

// Type implements Expr.
func (c *Call) Type() dataflow.Type { return c.typ }

// NewCall returns the function or operator called name, applied to args. Names are lower case. Operators go by their
// sign ("+", "||", "=", "~*"; with one argument "-" and "+" are the signs) or by their words:
//
//	and, or, not, is null, is not null, is true, is not true, is false, is not false, is unknown, is not unknown,
//	is distinct from, is not distinct from, in, not in, like, not like, ilike, not ilike (the last four with an optional
//	third argument, the ESCAPE)
//
// Special forms go by their function: extract(f FROM x) is extract('f', x); position(a IN b) is position(a, b);
// trim(BOTH c FROM s) is btrim(s, c); substring(s FROM a FOR b) is substring(s, a, b);
// x BETWEEN a AND b is x >= a AND x <= b.
//
// The function is chosen among those of the name as PostgreSQL does: BIGINT becomes NUMERIC or DOUBLE PRECISION, and a
// quoted literal becomes anything. The error is a *dataflow.Error that names what was looked for and what there is.
// A call with constant arguments becomes a constant, unless it fails: then it fails for each row that reaches it.
func NewCall(name string, args ...Expr) (Expr, error) {
	if name == "!=" {
		name = "<>"
	}
	candidates := registry().byName[name]
	if len(candidates) == 0 {
		return nil, unknownFunction(name, args)
	}
	fn, types, err := resolve(name, candidates, args)
	if err != nil {
		return nil, err
	}
	c := &Call{fn: fn, args: make([]Expr, len(args)), typ: fn.result}
	for i, a := range args {
		want := types[i]
		if want == typeEach {
			c.args[i] = a
			if a.Type() == dataflow.TypeUnknown {
				c.args[i] = newTyped(dataflow.NullValue(dataflow.TypeText))
			}
			continue
		}
		switch p := fn.param(i); {
		case c.typ == typeAny && p == typeAny, c.typ == typeList && p == typeList, c.typ == typeItem && p == typeItem:
			c.typ = want
		case c.typ == typeItem && p == typeList:
			c.typ = want.Elem()
		case c.typ == typeList && p == typeAny:
			if c.typ = dataflow.ArrayOf(want); c.typ == dataflow.TypeUnknown {
				return nil, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "there are no arrays of %s", typeName(want))
			}
		}
		if c.args[i], err = Coerce(a, want); err != nil {
			return nil, &argumentError{i, err}
		}
	}
	if fn.volatile {
		return nil, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "%s is not supported: it answers differently each time, so no result could be repeated after a failure", signature(name, args))
	}
	if fn.check != nil {
		if err := fn.check(c); err != nil {
			return nil, err
		}
	}
	return fold(c), nil
}

// param returns the type of parameter i.
func (fn *function) param(i int) dataflow.Type {
	if i >= len(fn.args) {
		return fn.args[len(fn.args)-1]
	}
	return fn.args[i]
}

// maxFolded bounds a folded constant in bytes: it is copied into every plan and error that prints it.
const maxFolded = 4 << 10

// fold replaces an expression whose parts are constants by its value, if it has one.
func fold(e Expr) Expr {
	constant := true
	Walk(e, func(x Expr) bool {
		switch x := x.(type) {
		case *Column, *Subquery:
			constant = false
		case *Call:
			constant = constant && !x.fn.stable && !x.fn.volatile
		}
		return constant
	})
	if !constant {
		return e
	}
	v, err := EvalRow(e, nil, nil, 0)
	if err != nil || len(v.Str) > maxFolded || len(v.Arr) > maxFolded/64 {
		return e
	}
	return newTyped(v)
}

// String implements Expr.
func (c *Call) String() string {
	var b strings.Builder
	arg := func(i int) { b.WriteString(c.args[i].String()) }
	list := func(from int) {
		for i := from; i < len(c.args); i++ {
			if i > from {
				b.WriteString(", ")
			}
			arg(i)
		}
	}
	name := c.fn.name
	switch {
	case name == "extract" && len(c.args) == 2:
		b.WriteString("extract(")
		if k, ok := c.args[0].(*Const); ok {
			b.WriteString(k.value.Str)
		}
		b.WriteString(" FROM ")
		arg(1)
		b.WriteByte(')')
	case name == "position":
		b.WriteString("position(")
		arg(0)
		b.WriteString(" IN ")
		arg(1)
		b.WriteByte(')')
	case name == "[]":
		arg(0)
		b.WriteByte('[')
		arg(1)
		b.WriteByte(']')
	case name == "[:]":
		arg(0)
		b.WriteByte('[')
		arg(1)
		b.WriteByte(':')
		arg(2)
		b.WriteByte(']')
	case name == "array":
		b.WriteString("ARRAY[")
		list(0)
		b.WriteByte(']')
	case isQuantified(name):
		b.WriteByte('(')
		arg(0)
		b.WriteString(" " + strings.ToUpper(name) + " (")
		arg(1)
		b.WriteString("))")
	case name == "in" || name == "not in":
		b.WriteByte('(')
		arg(0)
		b.WriteString(" " + strings.ToUpper(name) + " (")
		list(1)
		b.WriteString("))")
	case isLike(name):
		b.WriteByte('(')
		arg(0)
		b.WriteString(" " + strings.ToUpper(name) + " ")
		arg(1)
		if len(c.args) == 3 {
			b.WriteString(" ESCAPE ")
			arg(2)
		}
		b.WriteByte(')')
	case strings.HasPrefix(name, "is ") && len(c.args) == 1:
		b.WriteByte('(')
		arg(0)
		b.WriteString(" " + strings.ToUpper(name) + ")")
	case name == "and" || name == "or" || !isWord(name) || strings.HasPrefix(name, "is "):
		b.WriteByte('(')
		if len(c.args) == 1 {
			b.WriteString(name + " ")
			arg(0)
		}
		for i := 0; i < len(c.args) && len(c.args) > 1; i++ {
			if i > 0 {
				b.WriteString(" " + strings.ToUpper(name) + " ")
			}
			arg(i)
		}
		b.WriteByte(')')
	case name == "not":
		b.WriteString("(NOT ")
		arg(0)
		b.WriteByte(')')
	default:
		b.WriteString(name)
		b.WriteByte('(')
		list(0)
		b.WriteByte(')')
	}
	return b.String()
}

// isQuantified reports whether a name is a comparison with the elements of an array: "= any", "< all".
func isQuantified(name string) bool {
	return !isWord(name) && (strings.HasSuffix(name, " any") || strings.HasSuffix(name, " all"))
}

// isWord reports whether a name is spelled in letters, as opposed to an operator's sign.
func isWord(name string) bool { return name[0] == '_' || name[0] >= 'a' && name[0] <= 'z' }

// Eval implements Expr.
func (c *Call) Eval(env *Env, b *batch.Batch, sel Sel) *batch.Vector {
	if !env.look() || !env.Take(int64(b.N)*width(c.typ)) {
		return env.nothing(c.typ, b.N)
	}
	if c.fn.lazy != nil {
		return c.fn.lazy(c, env, b, sel)
	}
	f := frame{call: c, env: env, b: b, n: b.N, sel: sel, args: make([]operand, len(c.args))}
	for i, a := range c.args {
		f.args[i] = evalOperand(a, env, b, sel)
		if c.fn.nullable {
			continue
		}
		if f.args[i].mask == 0 {
			if f.args[i].v.IsNull(0) {
				return nullVector(c.typ, b.N)
			}
			continue
		}
		f.nulls = orNulls(f.nulls, f.args[i].v.Nulls)
	}
	if env.Over() {
		return env.nothing(c.typ, b.N)
	}
	f.out = newVector(c.typ, b.N)
	c.fn.eval(&f)
	env.Take(f.grown())
	fillTo(f.out, b.N)
	f.out.Nulls = orNulls(f.out.Nulls, f.nulls)
	return f.out
}
