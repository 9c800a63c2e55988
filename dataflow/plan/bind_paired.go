package plan

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// This file is the aggregates of pairs of numbers: corr(y, x), covar_pop(y, x), regr_slope(y, x), … They become expressions
// over the number of the pairs without NULL and the sums of x, y, x², y² and xy as NUMERIC, so that they are exact, the same
// whatever the order of the rows was (P10), and can take rows back. A DOUBLE PRECISION counts with the 15 digits that its cast
// to NUMERIC keeps.

// paired binds an aggregate of pairs of numbers.
func (b *binder) paired(c *sql.Call) (expr.Expr, error) {
	name := c.Func.Name
	switch {
	case b.group == nil:
		why := b.noAggregate
		if why == "" {
			why = "an aggregate cannot stand here"
		}
		return nil, b.errorf(c.At, "%s(…): %s", name, why)
	case c.Distinct:
		return nil, b.refuse(c.At, "%s(DISTINCT …) is not there: write a subquery with SELECT DISTINCT", name)
	case c.Within || len(c.OrderBy) > 0:
		return nil, b.errorf(c.At, "the order of the rows means nothing to %s: leave ORDER BY out", name)
	case c.Star || len(c.Args) != 2:
		return nil, b.errorf(c.At, "%s takes two numbers, here are %d: write %s(y, x)", name, len(c.Args), name)
	}
	inner := *b
	inner.group, inner.noAggregate = nil, "aggregates cannot nest: write the inner one in a subquery"
	inner.noNow = b.group.noNowInside
	for _, a := range c.Args {
		x, err := inner.bind(a)
		if err != nil {
			return nil, err
		}
		switch x.Type() {
		case dataflow.TypeBigInt, dataflow.TypeNumeric, dataflow.TypeDouble, dataflow.TypeUnknown:
		default:
			return nil, b.errorf(a.Span(), "there is no %s of %s: it takes BIGINT, NUMERIC or DOUBLE PRECISION", name, x.Type())
		}
	}
	p := pairs{call: c}
	p.y, p.x = p.numeric(c.Args[0]), p.numeric(c.Args[1])
	p.both = p.binary("AND", &sql.Is{X: c.Args[0], Not: true, At: c.At}, &sql.Is{X: c.Args[1], Not: true, At: c.At})
	if c.Filter != nil {
		p.both = p.binary("AND", p.both, c.Filter)
	}
	result := p.result(name)
	if name != "regr_count" {
		result = &sql.Cast{X: result, Type: sql.TypeName{Name: "DOUBLE PRECISION", At: c.At}, At: c.At}
	}
	return b.bind(result)
}

// pairs builds the expression of a call.
type pairs struct {
	call *sql.Call
	y, x sql.Expr // as NUMERIC
	both sql.Expr // neither is NULL
}

// result returns the value of the aggregate called name. Deviations are sums of products less what they would be if all
// values were the mean, times the number of pairs.
func (p pairs) result(name string) sql.Expr {
	n := p.count()
	xx, yy, xy := p.deviation(p.x, p.x), p.deviation(p.y, p.y), p.deviation(p.y, p.x)
	switch name {
	case "regr_count":
		return n
	case "regr_avgx":
		return p.quotient(p.sum(p.x), n)
	case "regr_avgy":
		return p.quotient(p.sum(p.y), n)
	case "regr_sxx":
		return p.quotient(xx, n)
	case "regr_syy":
		return p.quotient(yy, n)
	case "regr_sxy":
		return p.quotient(xy, n)
	case "covar_pop":
		return p.quotient(xy, p.binary("*", p.numeric(n), n))
	case "covar_samp":
		return p.quotient(xy, p.binary("*", p.numeric(n), p.binary("-", n, p.one())))
	case "regr_slope":
		return p.quotient(xy, xx)
	case "regr_intercept":
		rest := p.binary("-", p.binary("*", p.sum(p.y), xx), p.binary("*", p.sum(p.x), xy))
		return p.quotient(rest, p.binary("*", p.numeric(n), xx))
	case "regr_r2":
		r2 := p.quotient(p.binary("*", xy, xy), p.binary("*", xx, yy))
		zero := &sql.Literal{Kind: sql.LiteralInteger, Text: "0", At: p.call.At}
		return &sql.Case{Whens: []sql.When{
			{Cond: p.binary("=", xx, zero), Result: &sql.Literal{Kind: sql.LiteralNull, At: p.call.At}},
			{Cond: p.binary("=", yy, zero), Result: p.numeric(p.one())},
		}, Else: r2, At: p.call.At}
	}
	return p.quotient(xy, p.function("sqrt", p.binary("*", xx, yy))) // corr
}

func (p pairs) binary(op string, l, r sql.Expr) sql.Expr {
	return &sql.Binary{Op: op, OpAt: p.call.At, L: l, R: r, At: p.call.At}
}

func (p pairs) function(name string, args ...sql.Expr) sql.Expr {
	return &sql.Call{Func: sql.Ident{Name: name, At: p.call.Func.At}, Args: args, At: p.call.At}
}

func (p pairs) numeric(e sql.Expr) sql.Expr {
	return &sql.Cast{X: e, Type: sql.TypeName{Name: "NUMERIC", At: e.Span()}, At: e.Span()}
}

func (p pairs) one() sql.Expr {
	return &sql.Literal{Kind: sql.LiteralInteger, Text: "1", At: p.call.At}
}

// count returns the number of pairs.
func (p pairs) count() sql.Expr {
	return &sql.Call{Func: sql.Ident{Name: "count", At: p.call.Func.At}, Star: true, Filter: p.both, At: p.call.At}
}

func (p pairs) sum(e sql.Expr) sql.Expr {
	return &sql.Call{Func: sql.Ident{Name: "sum", At: p.call.Func.At}, Args: []sql.Expr{e}, Filter: p.both, At: p.call.At}
}

// quotient returns a / b, NULL where b is 0.
func (p pairs) quotient(a, b sql.Expr) sql.Expr {
	zero := &sql.Literal{Kind: sql.LiteralInteger, Text: "0", At: p.call.At}
	return p.binary("/", a, p.function("nullif", p.numeric(b), p.numeric(zero)))
}

// deviation returns n Σab − Σa Σb.
func (p pairs) deviation(a, b sql.Expr) sql.Expr {
	return p.binary("-", p.binary("*", p.count(), p.sum(p.binary("*", a, b))), p.binary("*", p.sum(a), p.sum(b)))
}
