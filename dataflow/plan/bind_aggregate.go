package plan

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// aggregate binds a call of an aggregate: its result is a column of the groups' rows.
func (b *binder) aggregate(c *sql.Call) (expr.Expr, error) {
	name := c.Func.Name
	if b.group == nil {
		why := b.noAggregate
		if why == "" {
			why = "an aggregate cannot stand here"
		}
		return nil, b.errorf(c.At, "%s(…): %s", name, why)
	}
	sig, _ := agg.Lookup(name)
	if err := b.checkForm(c, sig); err != nil {
		return nil, err
	}
	inner := *b
	inner.group, inner.noAggregate = nil, "aggregates cannot nest: write the inner one in a subquery"
	inner.noNow = b.group.noNowInside
	a := aggregate{at: c.At, spec: agg.Spec{Arg: -1, Distinct: c.Distinct && sig.Distinct == agg.DistinctFolds}}
	if !c.Star {
		if err := inner.aggregateArgs(c, sig, &a); err != nil {
			return nil, err
		}
	}
	if err := b.arrival(c, sig, &a); err != nil {
		return nil, err
	}
	if c.Filter != nil {
		if err := inner.aggregateFilter(c, &a); err != nil {
			return nil, err
		}
	}
	return b.group.add(b, c, a)
}

// checkForm checks how an aggregate is written.
func (b *binder) checkForm(c *sql.Call, sig agg.Signature) error {
	name := sig.Name
	if c.Distinct && sig.Distinct == agg.DistinctNot {
		return b.refuse(c.At, "%s(DISTINCT …) is not there yet: write a subquery, SELECT k, %s(…) FROM (SELECT DISTINCT k, x FROM …) AS d GROUP BY k", name, name)
	}
	want := sig.Args
	if sig.Within {
		want = 0
	}
	if sig.Param != dataflow.TypeUnknown {
		want++
	}
	switch {
	case sig.Within && !c.Within:
		return b.errorf(c.At, "%s(…) says what it goes by in WITHIN GROUP: write %s", name, form(sig))
	case c.Within && !sig.Within:
		return b.errorf(c.At, "%s has no WITHIN GROUP", name)
	case sig.Within && len(c.OrderBy) != 1:
		return b.errorf(c.At, "%s goes by one value, and here are %d: write %s", name, len(c.OrderBy), form(sig))
	case !c.Star && len(c.Args) != want:
		return b.errorf(c.At, "%s takes %s, here are %d%s", name, arguments(want), len(c.Args), arityHint(sig, len(c.Args)))
	case len(c.OrderBy) > 0 && !sig.Ordered && !sig.Within:
		return b.errorf(c.OrderBy[0].Expr.Span(), "the order of the rows means nothing to %s: leave ORDER BY out", name)
	case len(c.OrderBy) > maxColumns:
		return b.refuse(c.OrderBy[maxColumns].Expr.Span(), "ORDER BY has at most %d columns", maxColumns)
	}
	return nil
}

// form says how an aggregate is written.
func form(sig agg.Signature) string {
	switch {
	case sig.Within && sig.Param != dataflow.TypeUnknown:
		return sig.Name + "(0.5) WITHIN GROUP (ORDER BY x)"
	case sig.Param == dataflow.TypeBigInt:
		return sig.Name + "(x, y, 10) for the x of the 10 rows with the " + map[bool]string{true: "greatest", false: "least"}[sig.Descending] + " y"
	case sig.Within:
		return sig.Name + "() WITHIN GROUP (ORDER BY x)"
	case sig.Args == 2:
		return sig.Name + "(x, y) for the x of the row with the y"
	case sig.Param == dataflow.TypeText:
		return sig.Name + "(x, ', ')"
	case sig.Param != dataflow.TypeUnknown:
		return sig.Name + "(x, 0.5)"
	}
	return sig.Name + "(x)"
}

// aggregateArgs binds the arguments of an aggregate, its constant and its ORDER BY.
func (b *binder) aggregateArgs(c *sql.Call, sig agg.Signature, a *aggregate) error {
	args := c.Args
	if sig.Param != dataflow.TypeUnknown {
		last := args[len(args)-1]
		args = args[:len(args)-1]
		if err := b.aggregateParam(last, sig, a); err != nil {
			return err
		}
	}
	order := c.OrderBy
	if sig.Within {
		// The value itself is what the rows are ordered by; a direction needs saying.
		args = []sql.Expr{order[0].Expr}
		if !order[0].Desc {
			order = nil
		}
	}
	a.at = args[0].Span()
	for i, ast := range args {
		x, err := b.bind(ast)
		if err != nil {
			return err
		}
		if x, err = settle(x); err != nil {
			return b.at(err, ast.Span())
		}
		if i == 0 {
			if a.arg, err = measured(sig.Name, x); err != nil {
				return b.at(err, ast.Span())
			}
			continue
		}
		if sig.Param == dataflow.TypeBigInt {
			// A row counts where there is something to order it by.
			if a.filter, err = expr.NewCall("is not null", x); err != nil {
				return b.at(err, ast.Span())
			}
		}
		a.order, a.spec.Order = append(a.order, x), append(a.spec.Order, agg.Order{Desc: sig.Descending, NullsFirst: sig.Descending})
	}
	for _, o := range order {
		x, err := b.bind(o.Expr)
		if err != nil {
			return err
		}
		if sig.Within {
			x = a.arg
		}
		if x, err = settle(x); err != nil {
			return b.at(err, o.Expr.Span())
		}
		if a.spec.Distinct && x.String() != a.arg.String() {
			return b.errorf(o.Expr.Span(), "with DISTINCT, ORDER BY in %s must be the argument itself: a value that comes several times has several of these", sig.Name)
		}
		if !x.Type().Ordered() {
			return b.refuse(o.Expr.Span(), "ORDER BY of %s is not there yet", x.Type())
		}
		a.order, a.spec.Order = append(a.order, x), append(a.spec.Order, agg.Order{Desc: o.Desc, NullsFirst: o.NullsFirst})
	}
	return nil
}

// measured returns the argument of an aggregate of measurements, which takes all numbers as DOUBLE PRECISION.
func measured(name string, x expr.Expr) (expr.Expr, error) {
	if name != "approx_percentile" && name != "percentile_cont" {
		return x, nil
	}
	switch x.Type() {
	case dataflow.TypeBigInt, dataflow.TypeNumeric:
		return expr.NewCast(x, dataflow.TypeDouble)
	}
	return x, nil
}

// aggregateParam evaluates the constant of an aggregate.
func (b *binder) aggregateParam(ast sql.Expr, sig agg.Signature, a *aggregate) error {
	if n := firstName(ast); n != nil {
		return b.errorf(n.At, "the last argument of %s is a constant, not a column: write %s", sig.Name, form(sig))
	}
	x, err := b.bind(ast)
	if err != nil {
		return err
	}
	if x, err = expr.Coerce(x, sig.Param); err != nil {
		return b.at(err, ast.Span())
	}
	v, err := expr.EvalRow(x, nil, nil, 0)
	if err != nil {
		return b.at(err, ast.Span())
	}
	switch {
	case sig.Param == dataflow.TypeBigInt && (v.Null || v.Int < 1 || v.Int > agg.MaxTopK):
		return b.errorf(ast.Span(), "%s keeps from 1 to %d values of a group", sig.Name, agg.MaxTopK)
	case sig.Param == dataflow.TypeBigInt:
		a.spec.Limit = v.Int
	case sig.Param == dataflow.TypeText:
		a.spec.Sep = v.Str
	case v.Null || !(v.Flt >= 0 && v.Flt <= 1):
		return b.errorf(ast.Span(), "the fraction of %s is a number from 0 to 1, such as 0.95", sig.Name)
	default:
		a.spec.P = v.Flt
	}
	return nil
}

// aggregateFilter binds FILTER. A row that it leaves out gives a NULL for the argument, or for what the rows are ordered by;
// where NULLs count, the aggregate asks the condition.
func (b *binder) aggregateFilter(c *sql.Call, a *aggregate) error {
	cond, err := b.bindBool(c.Filter, "FILTER (WHERE …)")
	if err != nil {
		return err
	}
	of := &a.arg
	switch c.Func.Name {
	case "array_agg":
		a.filter = cond
		return nil
	case "top_k", "bottom_k":
		if a.filter, err = expr.NewCall("and", a.filter, cond); err != nil {
			return b.at(err, c.Filter.Span())
		}
		return nil
	case "min_by", "max_by", "arg_min", "arg_max", "first", "last":
		if len(a.order) > 0 { // in the first of two builds there may be none
			of = &a.order[0]
		}
	}
	if *of, err = filtered(cond, *of); err != nil {
		return b.at(err, c.Filter.Span())
	}
	return nil
}

// arrival appends the order in which rows arrived to what the aggregate goes by: rows that its arguments do not tell apart
// are told apart by it, where rows have it.
func (b *binder) arrival(c *sql.Call, sig agg.Signature, a *aggregate) error {
	if !sig.Arrival || a.spec.Distinct {
		return nil
	}
	var by []expr.Expr
	for _, col := range pseudoColumns() {
		n := &sql.Name{Parts: []sql.Ident{{Name: col.Name, At: c.At}}, At: c.At}
		at := b.scope.position(n)
		if at < 0 || b.scope.columns[at].typ != col.Type || !b.scope.columns[at].hidden && !sig.NeedsArrival {
			break
		}
		found, err := b.scope.resolve(b.src, n)
		if err != nil {
			return err
		}
		by = append(by, found.expr)
	}
	switch {
	case len(by) == len(pseudoColumns()):
		for _, x := range by {
			a.order, a.spec.Order = append(a.order, x), append(a.spec.Order, agg.Order{})
		}
	case b.scope.dropped:
		*b.scope.pseudo = true // the view is built again, with them
	case sig.NeedsArrival:
		other := map[string]string{"first": "min_by", "last": "max_by"}[sig.Name]
		return b.refuse(c.At, "%s(…) goes by the order in which the rows of a stream arrived, and these rows have none: write %s(x, y) with a column y to go by", sig.Name, other)
	}
	return nil
}

func arguments(n int) string {
	switch n {
	case 0:
		return "no arguments"
	case 2:
		return "two arguments"
	case 3:
		return "three arguments"
	}
	return "one argument"
}

func arityHint(sig agg.Signature, args int) string {
	switch {
	case sig.Name == "count" && args == 0:
		return ": write count(*)"
	case sig.Args == 1 && sig.Param == dataflow.TypeUnknown && !sig.Within:
		return ""
	}
	return ": write " + form(sig)
}

// filtered returns CASE WHEN cond THEN arg END: the aggregates leave NULL out, so that is what FILTER means. For
// count(*) the argument is a constant.
func filtered(cond, arg expr.Expr) (expr.Expr, error) {
	if arg == nil {
		arg = expr.NewConst(dataflow.Bool(true))
	}
	return expr.NewCase([]expr.When{{Cond: cond, Then: arg}}, nil)
}
