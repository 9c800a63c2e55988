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
	changes, can := agg.CanBeDistinct(name)
	if c.Distinct && !can {
		return nil, b.refuse(c.At, "%s(DISTINCT …) is not there yet: write a subquery, SELECT k, %s(…) FROM (SELECT DISTINCT k, x FROM …) AS d GROUP BY k", name, name)
	}
	if want := agg.Arity(name); !c.Star && len(c.Args) != want {
		return nil, b.errorf(c.At, "%s takes %s, here are %d%s", name, arguments(want), len(c.Args), arityHint(name, len(c.Args)))
	}
	inner := *b
	inner.group, inner.noAggregate = nil, "aggregates cannot nest: write the inner one in a subquery"
	inner.noNow = b.group.noNowInside
	a := aggregate{at: c.At, spec: agg.Spec{Arg: -1, Distinct: c.Distinct && changes}}
	if !c.Star {
		a.at = c.Args[0].Span()
		args := make([]expr.Expr, len(c.Args))
		for i, ast := range c.Args {
			x, err := inner.bind(ast)
			if err != nil {
				return nil, err
			}
			if args[i], err = settle(x); err != nil {
				return nil, b.at(err, ast.Span())
			}
		}
		a.arg, a.order = args[0], args[1:]
	}
	if err := b.arrival(c, &a); err != nil {
		return nil, err
	}
	if c.Filter != nil {
		cond, err := inner.bindBool(c.Filter, "FILTER (WHERE …)")
		if err != nil {
			return nil, err
		}
		// What a NULL of leaves the row out: the argument, or what the rows are ordered by.
		of := &a.arg
		if len(a.order) > 0 {
			of = &a.order[0]
		}
		if *of, err = filtered(cond, *of); err != nil {
			return nil, b.at(err, c.Filter.Span())
		}
	}
	return b.group.add(b, c, a)
}

// arrival appends the order in which rows arrived to what the aggregate goes by: rows that its arguments do not tell apart
// are told apart by it, where rows have it.
func (b *binder) arrival(c *sql.Call, a *aggregate) error {
	name := c.Func.Name
	if !agg.ByArrival(name) && agg.Arity(name) < 2 {
		return nil
	}
	var by []expr.Expr
	for _, col := range pseudoColumns() {
		n := &sql.Name{Parts: []sql.Ident{{Name: col.Name, At: c.At}}, At: c.At}
		at := b.scope.position(n)
		if at < 0 || b.scope.columns[at].typ != col.Type || !b.scope.columns[at].hidden && !agg.ByArrival(name) {
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
		a.order = append(a.order, by...)
	case b.scope.dropped:
		*b.scope.pseudo = true // the view is built again, with them
	case agg.ByArrival(name):
		other := map[string]string{"first": "min_by", "last": "max_by"}[name]
		return b.refuse(c.At, "%s(…) goes by the order in which the rows of a stream arrived, and these rows have none: write %s(x, y) with a column y to go by", name, other)
	}
	return nil
}

func arguments(n int) string {
	if n == 2 {
		return "two arguments"
	}
	return "one argument"
}

func arityHint(name string, args int) string {
	switch {
	case name == "count" && args == 0:
		return ": write count(*)"
	case agg.Arity(name) == 2:
		return ": write " + name + "(x, y) for the x of the row with the y"
	}
	return ""
}

// filtered returns CASE WHEN cond THEN arg END: the aggregates leave NULL out, so that is what FILTER means. For
// count(*) the argument is a constant.
func filtered(cond, arg expr.Expr) (expr.Expr, error) {
	if arg == nil {
		arg = expr.NewConst(dataflow.Bool(true))
	}
	return expr.NewCase([]expr.When{{Cond: cond, Then: arg}}, nil)
}
