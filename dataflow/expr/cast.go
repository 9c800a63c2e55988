package expr

import (
	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Cast converts its argument to another type, row by row.
type Cast struct {
	arg Expr
	typ dataflow.Type
	mod dataflow.NumericMod
	fn  castFunc
}

// Arg returns the expression that is converted.
func (c *Cast) Arg() Expr { return c.arg }

// castFunc converts the rows of a frame with one argument.
type castFunc func(f *frame)

// NewCast returns CAST(e AS t). Every type converts to and from TEXT; numbers convert among each other, rounding as
// PostgreSQL does; BIGINT and BOOLEAN convert. Other pairs are a *dataflow.Error, as is a constant that does not
// convert.
func NewCast(e Expr, t dataflow.Type) (Expr, error) {
	if k, ok := e.(*Const); ok && k.literal {
		return literalAs(k, t)
	}
	if e.Type() == t {
		return e, nil
	}
	fn := castFor(e.Type(), t)
	if fn == nil {
		return nil, dataflow.Errorf(dataflow.ReasonSQLType, "cannot cast type %s to %s", typeName(e.Type()), typeName(t))
	}
	return fold(&Cast{arg: e, typ: t, fn: fn}), nil
}

// NewNumericCast returns CAST(e AS NUMERIC(precision, scale)).
func NewNumericCast(e Expr, mod dataflow.NumericMod) (Expr, error) {
	x, err := NewCast(e, tNum)
	if err != nil || mod == (dataflow.NumericMod{}) {
		return x, err
	}
	c := &Cast{arg: x, typ: tNum, mod: mod, fn: func(f *frame) {
		a := f.args[0]
		f.each(func(i int) *dataflow.Error {
			var d apd.Decimal
			d.Set(a.dec(i))
			if err := fitNumeric(mod, &d); err != nil {
				return err
			}
			f.out.Decs[i].Set(&d)
			return nil
		})
	}}
	return fold(c), nil
}

// Coerce returns e as a t where SQL converts without being asked: literals to any type, BIGINT to NUMERIC and DOUBLE
// PRECISION, NUMERIC to DOUBLE PRECISION.
func Coerce(e Expr, t dataflow.Type) (Expr, error) {
	if isLiteral(e) || e.Type() == t || implicit(e.Type(), t) {
		return NewCast(e, t)
	}
	return nil, dataflow.Errorf(dataflow.ReasonSQLType, "%s is of type %s where %s is expected", e, typeName(e.Type()), typeName(t)).
		WithHint("cast it: (%s)::%s", e, typeName(t))
}

// literalAs gives a quoted literal its type.
func literalAs(k *Const, t dataflow.Type) (Expr, error) {
	if k.value.Null || t == dataflow.TypeUnknown {
		return newTyped(dataflow.NullValue(t)), nil
	}
	v, err := parseValue(t, k.value.Str)
	if err != nil {
		e := *err
		if e.Reason == dataflow.ReasonExpressionFailed {
			e.Reason = dataflow.ReasonSQLType // the text is wrong, not a row
		}
		return nil, &e
	}
	return newTyped(v), nil
}

// Type implements Expr.
func (c *Cast) Type() dataflow.Type { return c.typ }

// String implements Expr.
func (c *Cast) String() string { return c.arg.String() + "::" + typeName(c.typ) + c.mod.String() }

// Eval implements Expr.
func (c *Cast) Eval(env *Env, b *batch.Batch, sel Sel) *batch.Vector {
	arg := evalOperand(c.arg, env, b, sel)
	if !env.Take(int64(b.N) * width(c.typ)) {
		return env.nothing(c.typ, b.N)
	}
	f := frame{env: env, b: b, n: b.N, sel: sel, args: []operand{arg}, out: newVector(c.typ, b.N)}
	if f.args[0].constant() {
		if f.args[0].v.IsNull(0) {
			return nullVector(c.typ, b.N)
		}
	} else {
		f.nulls = f.args[0].v.Nulls
	}
	c.fn(&f)
	env.Take(f.grown())
	fillTo(f.out, b.N)
	f.out.Nulls = orNulls(f.out.Nulls, f.nulls)
	return f.out
}
