package plan

import (
	"slices"
	"strconv"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// grouping collects the keys and aggregates of a SELECT that groups. Expressions over the groups' rows refer to them by
// position: keys first, then aggregates.
type grouping struct {
	keys  []groupKey
	aggs  []aggregate
	table bool // the input is a table: rows are taken back
	// noNowInside says why now() cannot stand inside an aggregate; "" if it can.
	noNowInside string
}

// groupKey is one expression of GROUP BY.
type groupKey struct {
	ast  sql.Expr
	x    expr.Expr // over the input
	name string
}

// aggregate is one aggregate of the SELECT list or HAVING.
type aggregate struct {
	text string // as in the query's result and in the plan
	arg  expr.Expr
	// order is what spec.Order goes by, in its order.
	order  []expr.Expr
	filter expr.Expr // of those that keep NULLs; nil: all rows
	spec   agg.Spec  // Arg and the columns of Order and Filter are set by whoever lays out the input
	at     sql.Span  // of the argument as it is written
}

// key returns the key column that e means, or nil.
func (g *grouping) key(b *binder, e sql.Expr) expr.Expr {
	for i, k := range g.keys {
		if same(b.scope, e, k.ast) {
			return expr.NewColumn(i, k.x.String(), k.x.Type())
		}
	}
	return nil
}

// add registers an aggregate that has its arguments, nil for count(*), and returns the column of its result.
func (g *grouping) add(b *binder, c *sql.Call, a aggregate) (expr.Expr, error) {
	name := c.Func.Name
	t := dataflow.TypeUnknown
	if a.arg != nil {
		t = a.arg.Type()
	}
	fn, out, err := agg.Resolve(name, a.arg == nil, t)
	if err != nil {
		return nil, b.at(err, c.At)
	}
	for _, o := range a.order {
		if !o.Type().Ordered() {
			return nil, b.refuse(c.At, "%s by %s is not there yet", name, o.Type())
		}
	}
	if a.spec.Distinct && !t.Ordered() && t != dataflow.TypeUnknown {
		return nil, b.refuse(c.At, "%s(DISTINCT …) of %s is not there yet", name, t)
	}
	if why := agg.OverTable(fn, t); g.table && why != "" {
		return nil, b.refuse(c.At, "%s(…) over a table is not there yet, because a table's rows change and %s", name, why)
	}
	a.spec.Fn, a.spec.Out, a.spec.Retract = fn, out, g.table
	a.text = "count(*)"
	if a.arg != nil {
		a.spec.ArgType = t
		a.text = name + "(" + a.arg.String()
		if a.spec.Distinct {
			a.text = name + "(DISTINCT " + a.arg.String()
		}
		for i, o := range a.order {
			a.text += ", " + o.String() + a.spec.Order[i].String()
		}
		a.text += a.spec.Options() + ")"
		if a.filter != nil {
			a.text += " FILTER (WHERE " + a.filter.String() + ")"
		}
	}
	for i, have := range g.aggs {
		if have.text == a.text && have.spec.Fn == fn && have.spec.Out == out {
			return expr.NewColumn(len(g.keys)+i, a.text, out), nil
		}
	}
	g.aggs = append(g.aggs, a)
	return expr.NewColumn(len(g.keys)+len(g.aggs)-1, a.text, out), nil
}

// row returns the schema of the groups' rows.
func (g *grouping) row() dataflow.Schema {
	var s dataflow.Schema
	for _, k := range g.keys {
		s = append(s, dataflow.Column{Name: k.name, Type: k.x.Type()})
	}
	for _, a := range g.aggs {
		s = append(s, dataflow.Column{Name: a.text, Type: a.spec.Out})
	}
	return s
}

// input returns what is computed from each input row: the keys, then the arguments of the aggregates, each once; and the
// aggregates with Arg set to the argument's position.
func (g *grouping) input(src *sql.Source) (p *Project, specs []agg.Spec) {
	p = &Project{}
	for _, k := range g.keys {
		p.Exprs = append(p.Exprs, k.x)
		p.Schema = append(p.Schema, dataflow.Column{Name: k.name, Type: k.x.Type()})
		p.At = append(p.At, place(src, k.ast.Span()))
	}
	at := make(map[string]int)
	column := func(x expr.Expr, span sql.Span) int {
		text := x.String()
		i, have := at[text]
		if !have {
			i = len(p.Exprs)
			at[text] = i
			p.Exprs = append(p.Exprs, x)
			p.Schema = append(p.Schema, dataflow.Column{Name: "arg" + strconv.Itoa(len(at)), Type: x.Type()})
			p.At = append(p.At, place(src, span))
		}
		return i
	}
	for _, a := range g.aggs {
		spec := a.spec
		if a.arg != nil {
			spec.Arg = column(a.arg, a.at)
		}
		spec.Order = slices.Clone(spec.Order)
		for i, x := range a.order {
			spec.Order[i].Col, spec.Order[i].Type = column(x, a.at), x.Type()
		}
		if a.filter != nil {
			spec.Filtered, spec.Filter = true, column(a.filter, a.at)
		}
		specs = append(specs, spec)
	}
	return p, specs
}

// same reports whether two expressions of the syntax tree are the same in a scope: names may differ in their
// qualification, all else is compared as written.
func same(s *scope, a, b sql.Expr) bool {
	switch a := a.(type) {
	case *sql.Name:
		b, ok := b.(*sql.Name)
		return ok && s.position(a) == s.position(b) && s.position(a) >= 0
	case *sql.Literal:
		b, ok := b.(*sql.Literal)
		return ok && a.Kind == b.Kind && a.Text == b.Text
	case *sql.Unary:
		b, ok := b.(*sql.Unary)
		return ok && a.Op == b.Op && same(s, a.X, b.X)
	case *sql.Binary:
		b, ok := b.(*sql.Binary)
		return ok && a.Op == b.Op && same(s, a.R, b.R) && same(s, a.L, b.L)
	case *sql.Between:
		b, ok := b.(*sql.Between)
		return ok && a.Not == b.Not && a.Symmetric == b.Symmetric && same(s, a.X, b.X) && same(s, a.Lo, b.Lo) && same(s, a.Hi, b.Hi)
	case *sql.In:
		b, ok := b.(*sql.In)
		return ok && a.Not == b.Not && a.Query == nil && b.Query == nil && same(s, a.X, b.X) && sameList(s, a.List, b.List)
	case *sql.Like:
		b, ok := b.(*sql.Like)
		return ok && a.Not == b.Not && a.Insensitive == b.Insensitive && same(s, a.X, b.X) && same(s, a.Pattern, b.Pattern) && sameOptional(s, a.Escape, b.Escape)
	case *sql.Is:
		b, ok := b.(*sql.Is)
		return ok && a.Kind == b.Kind && a.Not == b.Not && same(s, a.X, b.X)
	case *sql.Distinct:
		b, ok := b.(*sql.Distinct)
		return ok && a.Not == b.Not && same(s, a.L, b.L) && same(s, a.R, b.R)
	case *sql.Case:
		b, ok := b.(*sql.Case)
		if !ok || len(a.Whens) != len(b.Whens) || !sameOptional(s, a.Operand, b.Operand) || !sameOptional(s, a.Else, b.Else) {
			return false
		}
		for i := range a.Whens {
			if !same(s, a.Whens[i].Cond, b.Whens[i].Cond) || !same(s, a.Whens[i].Result, b.Whens[i].Result) {
				return false
			}
		}
		return true
	case *sql.Cast:
		b, ok := b.(*sql.Cast)
		return ok && a.Type.Name == b.Type.Name && a.Type.Array == b.Type.Array && a.Type.Precision == b.Type.Precision && a.Type.Scale == b.Type.Scale && same(s, a.X, b.X)
	case *sql.Call:
		b, ok := b.(*sql.Call)
		return ok && a.Over == nil && b.Over == nil && a.Func.Name == b.Func.Name && a.Star == b.Star && a.Distinct == b.Distinct && sameList(s, a.Args, b.Args) && sameOrder(s, a, b) && sameOptional(s, a.Filter, b.Filter)
	}
	return false
}

func sameOrder(s *scope, a, b *sql.Call) bool {
	if len(a.OrderBy) != len(b.OrderBy) || a.Within != b.Within {
		return false
	}
	for i, o := range a.OrderBy {
		p := b.OrderBy[i]
		if o.Desc != p.Desc || o.NullsFirst != p.NullsFirst || !same(s, o.Expr, p.Expr) {
			return false
		}
	}
	return true
}

func sameOptional(s *scope, a, b sql.Expr) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return same(s, a, b)
}

func sameList(s *scope, a, b []sql.Expr) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !same(s, a[i], b[i]) {
			return false
		}
	}
	return true
}

// position returns where the column that n means stands in the scope, -1 if there is none or more than one.
func (s *scope) position(n *sql.Name) int {
	table, name := "", n.Parts[len(n.Parts)-1].Name
	if len(n.Parts) > 1 {
		table = n.Parts[len(n.Parts)-2].Name
	}
	found := -1
	for i, c := range s.columns {
		if c.means(table, name) {
			if found >= 0 {
				return -1
			}
			found = i
		}
	}
	return found
}
