package plan

import (
	"slices"

	"strconv"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// binder turns expressions of the syntax tree into typed expressions over the columns of a scope.
type binder struct {
	src   *sql.Source
	scope *scope
	// group is set where the rows are groups: key columns and aggregates are all there is. Nil elsewhere.
	group *grouping
	// noAggregate says why an aggregate cannot stand here; "" where group decides.
	noAggregate string
	// noNow says why now() cannot stand here; "" if it can.
	noNow string
	// queries binds what only queries have: nil in views, and where a constant must stand.
	queries *queryLevel
	// windows collects window functions; nil where none can stand, in a query because of noWindow.
	windows  *windows
	noWindow string
}

// errorf makes a SQL_TYPE error that points at a piece of the text.
func (b *binder) errorf(at sql.Span, format string, args ...any) error {
	return b.src.Errorf(dataflow.ReasonSQLType, at, format, args...)
}

// refuse makes a SQL_UNSUPPORTED error that points at a piece of the text.
func (b *binder) refuse(at sql.Span, format string, args ...any) error {
	return b.src.Errorf(dataflow.ReasonSQLUnsupported, at, format, args...)
}

// at gives an error of package expr or agg its place. A constant that does not convert is a mistake in the text.
func (b *binder) at(err error, at sql.Span) error {
	e := b.src.At(err, at)
	if e.Reason == dataflow.ReasonExpressionFailed {
		e.Reason = dataflow.ReasonSQLType
	}
	return e
}

// bind returns e as a typed expression. Errors have a place.
func (b *binder) bind(e sql.Expr) (expr.Expr, error) {
	if b.group != nil {
		if key := b.group.key(b, e); key != nil {
			return key, nil
		}
	}
	switch e := e.(type) {
	case *sql.Name:
		return b.name(e)
	case *sql.Literal:
		return b.literal(e)
	case *sql.Unary:
		return b.call(e.At, unaryName(e.Op), e.X)
	case *sql.Binary:
		return b.binary(e)
	case *sql.Between:
		return b.between(e)
	case *sql.In:
		if e.Query != nil {
			return b.inQuery(e)
		}
		return b.call(e.OpAt, negated("in", e.Not), append([]sql.Expr{e.X}, e.List...)...)
	case *sql.Like:
		return b.like(e)
	case *sql.Is:
		kind := [...]string{sql.IsNull: "null", sql.IsTrue: "true", sql.IsFalse: "false", sql.IsUnknown: "unknown"}[e.Kind]
		return b.call(e.At, "is "+negated(kind, e.Not), e.X)
	case *sql.Distinct:
		return b.call(e.OpAt, "is "+negated("distinct from", e.Not), e.L, e.R)
	case *sql.Case:
		return b.caseExpr(e)
	case *sql.Cast:
		return b.cast(e)
	case *sql.Call:
		return b.function(e)
	case *sql.Subquery:
		return b.subquery(e)
	}
	return nil, b.errorf(e.Span(), "an expression of this kind is not supported")
}

func negated(name string, not bool) string {
	if not {
		return "not " + name
	}
	return name
}

func unaryName(op string) string {
	if op == "NOT" {
		return "not"
	}
	return op
}

// bindBool binds a condition; clause names it in errors.
func (b *binder) bindBool(e sql.Expr, clause string) (expr.Expr, error) {
	x, err := b.bind(e)
	if err != nil {
		return nil, err
	}
	if x.Type() != dataflow.TypeBool && x.Type() != dataflow.TypeUnknown {
		if _, literal := e.(*sql.Literal); !literal {
			return nil, b.errorf(e.Span(), "%s takes a BOOLEAN condition, this is %s", clause, x.Type())
		}
	}
	cond, err := expr.Coerce(x, dataflow.TypeBool)
	if err != nil {
		return nil, b.at(err, e.Span())
	}
	return cond, nil
}

func (b *binder) all(list []sql.Expr) ([]expr.Expr, error) {
	out := make([]expr.Expr, len(list))
	for i, e := range list {
		var err error
		if out[i], err = b.bind(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// call binds the arguments and calls the function or operator called name; at is where its errors point.
func (b *binder) call(at sql.Span, name string, list ...sql.Expr) (expr.Expr, error) {
	args, err := b.all(list)
	if err != nil {
		return nil, err
	}
	return b.newCallOf(at, list, name, args)
}

func (b *binder) newCall(at sql.Span, name string, args ...expr.Expr) (expr.Expr, error) {
	return b.newCallOf(at, nil, name, args)
}

// newCallOf calls name; its errors point at at, or at the one of list that they are about.
func (b *binder) newCallOf(at sql.Span, list []sql.Expr, name string, args []expr.Expr) (expr.Expr, error) {
	x, err := expr.NewCall(name, args...)
	if err != nil {
		if i, ok := expr.ArgumentOf(err); ok && i < len(list) {
			return nil, b.at(err, list[i].Span())
		}
		if name == "&&" && !slices.ContainsFunc(args, func(x expr.Expr) bool { return x.Type().Form() == dataflow.FormList }) {
			return nil, b.refuse(at, "the operator && is of arrays: write AND")
		}
		return nil, b.at(err, at)
	}
	return x, nil
}

func (b *binder) name(n *sql.Name) (expr.Expr, error) {
	c, err := b.scope.resolve(b.src, n)
	if err != nil {
		return nil, err
	}
	if b.group != nil {
		return nil, b.errorf(n.At, "column %q must stand in GROUP BY or inside an aggregate such as max(%s)", c.name, c.name)
	}
	return c.expr, nil
}

func (b *binder) literal(l *sql.Literal) (expr.Expr, error) {
	switch l.Kind {
	case sql.LiteralTrue, sql.LiteralFalse:
		return expr.NewConst(dataflow.Bool(l.Kind == sql.LiteralTrue)), nil
	case sql.LiteralString:
		return expr.NewConst(dataflow.Text(l.Text)), nil
	case sql.LiteralInteger:
		if i, err := strconv.ParseInt(l.Text, 10, 64); err == nil {
			return expr.NewConst(dataflow.BigInt(i)), nil
		}
		fallthrough
	case sql.LiteralDecimal:
		v, err := expr.ParseValue(dataflow.TypeNumeric, l.Text)
		if err != nil {
			return nil, b.at(err, l.At)
		}
		return expr.NewConst(v), nil
	}
	return expr.NewConst(dataflow.NullValue(dataflow.TypeUnknown)), nil
}

// binary binds an operator. A chain of the same AND or OR is one call, so that long conditions do not nest.
func (b *binder) binary(e *sql.Binary) (expr.Expr, error) {
	switch e.Op {
	case "AND", "OR":
		var args []expr.Expr
		for _, part := range flatten(e, e.Op) {
			x, err := b.bindBool(part, e.Op)
			if err != nil {
				return nil, err
			}
			args = append(args, x)
		}
		name := "and"
		if e.Op == "OR" {
			name = "or"
		}
		return b.newCall(e.OpAt, name, args...)
	case "~~", "!~~", "~~*", "!~~*":
		name := map[string]string{"~~": "like", "!~~": "not like", "~~*": "ilike", "!~~*": "not ilike"}[e.Op]
		return b.call(e.OpAt, name, e.L, e.R)
	case "^@":
		return b.call(e.OpAt, "starts_with", e.L, e.R)
	}
	return b.call(e.OpAt, e.Op, e.L, e.R)
}

// flatten returns the parts of a left-deep chain a op b op c, in order.
func flatten(e *sql.Binary, op string) []sql.Expr {
	var reversed []sql.Expr
	for {
		reversed = append(reversed, e.R)
		l, ok := e.L.(*sql.Binary)
		if !ok || l.Op != op {
			reversed = append(reversed, e.L)
			break
		}
		e = l
	}
	parts := make([]sql.Expr, len(reversed))
	for i, p := range reversed {
		parts[len(parts)-1-i] = p
	}
	return parts
}

// between binds BETWEEN as the comparisons that it stands for. SYMMETRIC means either order of the bounds.
func (b *binder) between(e *sql.Between) (expr.Expr, error) {
	args, err := b.all([]sql.Expr{e.X, e.Lo, e.Hi})
	if err != nil {
		return nil, err
	}
	x, lo, hi := args[0], args[1], args[2]
	repeated := []expr.Expr{x}
	if e.Symmetric {
		repeated = args
	}
	if err := b.checkRepeated(e.At, repeated...); err != nil {
		return nil, err
	}
	in, err := b.within(e, x, lo, hi)
	if err != nil || !e.Symmetric {
		return in, err
	}
	turned, err := b.within(e, x, hi, lo)
	if err != nil {
		return nil, err
	}
	if e.Not {
		return b.newCall(e.OpAt, "and", in, turned)
	}
	return b.newCall(e.OpAt, "or", in, turned)
}

// within returns x >= lo AND x <= hi, or x < lo OR x > hi for NOT BETWEEN.
func (b *binder) within(e *sql.Between, x, lo, hi expr.Expr) (expr.Expr, error) {
	low, high, both := ">=", "<=", "and"
	if e.Not {
		low, high, both = "<", ">", "or"
	}
	l, err := b.newCall(e.OpAt, low, x, lo)
	if err != nil {
		return nil, err
	}
	h, err := b.newCall(e.OpAt, high, x, hi)
	if err != nil {
		return nil, err
	}
	return b.newCall(e.OpAt, both, l, h)
}

// maxRepeated bounds an expression that the binder repeats. Without it nested BETWEENs would double at each level.
const maxRepeated = 1000

// checkRepeated refuses to repeat large expressions.
func (b *binder) checkRepeated(at sql.Span, list ...expr.Expr) error {
	size := 0
	for _, x := range list {
		expr.Walk(x, func(expr.Expr) bool { size++; return size <= maxRepeated })
	}
	if size > maxRepeated {
		return b.refuse(at, "this expression is too large: name its parts in a subquery or WITH")
	}
	return nil
}

func (b *binder) like(e *sql.Like) (expr.Expr, error) {
	name := "like"
	if e.Insensitive {
		name = "ilike"
	}
	args := []sql.Expr{e.X, e.Pattern}
	if e.Escape != nil {
		args = append(args, e.Escape)
	}
	return b.call(e.OpAt, negated(name, e.Not), args...)
}

// caseExpr binds both forms of CASE: CASE x WHEN y is CASE WHEN x = y.
func (b *binder) caseExpr(e *sql.Case) (expr.Expr, error) {
	var operand expr.Expr
	if e.Operand != nil {
		var err error
		if operand, err = b.bind(e.Operand); err != nil {
			return nil, err
		}
		if err := b.checkRepeated(e.Operand.Span(), operand); err != nil {
			return nil, err
		}
	}
	whens := make([]expr.When, len(e.Whens))
	for i, w := range e.Whens {
		var cond expr.Expr
		var err error
		if operand == nil {
			cond, err = b.bindBool(w.Cond, "WHEN")
		} else if cond, err = b.bind(w.Cond); err == nil {
			cond, err = b.newCall(w.Cond.Span(), "=", operand, cond)
		}
		if err != nil {
			return nil, err
		}
		then, err := b.bind(w.Result)
		if err != nil {
			return nil, err
		}
		whens[i] = expr.When{Cond: cond, Then: then}
	}
	var els expr.Expr
	if e.Else != nil {
		var err error
		if els, err = b.bind(e.Else); err != nil {
			return nil, err
		}
	}
	x, err := expr.NewCase(whens, els)
	if err != nil {
		at := e.At
		if i, ok := expr.ArgumentOf(err); ok && i < len(e.Whens) {
			at = e.Whens[i].Result.Span()
		} else if ok && e.Else != nil {
			at = e.Else.Span()
		}
		return nil, b.at(err, at)
	}
	return x, nil
}

func (b *binder) cast(e *sql.Cast) (expr.Expr, error) {
	t, err := typeOf(b.src, e.Type)
	if err != nil {
		return nil, err
	}
	x, err := b.bind(e.X)
	if err != nil {
		return nil, err
	}
	var y expr.Expr
	if mod := modOf(e.Type); mod != (dataflow.NumericMod{}) {
		y, err = expr.NewNumericCast(x, mod)
	} else {
		y, err = expr.NewCast(x, t)
	}
	if err != nil {
		return nil, b.at(err, e.At)
	}
	return y, nil
}

// scalarTypes are the types that a name can mean without [].
func scalarTypes() []dataflow.Type {
	return []dataflow.Type{dataflow.TypeBool, dataflow.TypeBigInt, dataflow.TypeDouble, dataflow.TypeText, dataflow.TypeTimestamp, dataflow.TypeNumeric,
		dataflow.TypeInterval, dataflow.TypeJSONB, dataflow.TypeBytea, dataflow.TypeDate}
}

// typeOf returns the type that a name means.
func typeOf(src *sql.Source, n sql.TypeName) (dataflow.Type, error) {
	for _, t := range scalarTypes() {
		if t.String() != n.Name {
			continue
		}
		if n.Array {
			t = dataflow.ArrayOf(t)
		}
		return t, nil
	}
	return 0, src.Errorf(dataflow.ReasonSQLType, n.At, "there is no type %s", n.Name)
}

// modOf returns the precision and scale of a type's name.
func modOf(n sql.TypeName) dataflow.NumericMod {
	return dataflow.NumericMod{Precision: uint16(n.Precision), Scale: int16(n.Scale)}
}

// settle gives a bare literal the type that it has when nothing asks for one: TEXT.
func settle(x expr.Expr) (expr.Expr, error) {
	if isQuoted(x) {
		return expr.NewCast(x, dataflow.TypeText)
	}
	return x, nil
}
