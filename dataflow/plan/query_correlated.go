package plan

import (
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// correlation is what ties a subquery to the query around it.
type correlation struct {
	outer  []expr.Expr // over the rows around; equal to the first columns of the subquery
	absent node
	// instead is an expression over the rows around that gives the same; then there is no node.
	instead sql.Expr
}

// bind binds the query of a subquery. Names that it does not know and the query around it does make it correlated.
func (ql *queryLevel) bind(b *binder, s *sql.Select, exists bool) (node, correlation, error) {
	undo := *ql.b.q
	n, err := ql.b.query(s, ql.ctes)
	if err == nil {
		return n, correlation{}, nil
	}
	*ql.b.q = undo
	d := &decorrelator{ql: ql, around: b}
	n, c, found, derr := d.bind(s, exists)
	switch {
	case derr != nil:
		*ql.b.q = undo
		return nil, correlation{}, derr
	case !found:
		*ql.b.q = undo
		return nil, correlation{}, err // what is wrong has nothing to do with the query around it
	}
	return n, c, nil
}

// decorrelator turns a correlated subquery into one that is looked up: from its WHERE it takes the conditions
// column = outer column, and gives the columns as additional ones of the result.
type decorrelator struct {
	ql     *queryLevel
	around *binder
	inner  *scope
}

// isOuter reports whether a name means a column of the query around the subquery.
func (d *decorrelator) isOuter(n *sql.Name) bool {
	return !d.inner.knows(n) && d.around.scope.position(n) >= 0
}

// outerName returns a column of the query around that e names, or nil.
func (d *decorrelator) outerName(e sql.Expr) (found *sql.Name) {
	sql.Walk(e, func(e sql.Expr) bool {
		if n, ok := e.(*sql.Name); ok && d.isOuter(n) {
			found = n
		}
		return found == nil
	})
	return found
}

// onlyOuter reports whether all columns that e names are of the query around, and there is one.
func (d *decorrelator) onlyOuter(e sql.Expr) bool {
	all, any := true, false
	sql.Walk(e, func(e sql.Expr) bool {
		if n, ok := e.(*sql.Name); ok {
			any = true
			all = all && d.isOuter(n)
		}
		return true
	})
	return all && any && firstSubquery(e) == nil
}

// refuse says which column makes a subquery one that cannot be looked up.
func (d *decorrelator) refuse(n *sql.Name, why string) error {
	return d.ql.b.src.Errorf(dataflow.ReasonSQLUnsupported, n.At, "%s is a column of the query around this subquery, which is looked up, not run again for each row: it can stand only in the subquery's WHERE, as column = %s%s; write a join", n, n, why)
}

// bind returns the subquery without what ties it to the query around; found is false when nothing does.
func (d *decorrelator) bind(s *sql.Select, exists bool) (node, correlation, bool, error) {
	b := d.ql.b
	var none correlation
	if s.Set != nil || s.Values != nil || s.From == nil {
		return nil, none, false, nil
	}
	ctes, err := b.with(s, d.ql.ctes)
	if err != nil {
		return nil, none, false, nil
	}
	undo := *b.q
	_, d.inner, err = b.from(s.From, ctes)
	*b.q = undo
	if err != nil {
		return nil, none, false, nil
	}
	inner := *s
	inner.Where = nil
	var keys []sql.Expr
	var c correlation
	for i, cond := range conjuncts(s.Where) {
		outer := d.outerName(cond)
		if outer == nil {
			inner.Where = both(inner.Where, cond)
			continue
		}
		eq, ok := cond.(*sql.Binary)
		if ok && exists && isOrder(eq.Op) {
			instead, err := d.extremes(s, i)
			return nil, correlation{instead: instead}, true, err
		}
		if !ok || eq.Op != "=" {
			return nil, none, true, d.refuse(outer, ", not in another comparison")
		}
		mine, theirs, ok := d.sides(eq)
		if !ok {
			return nil, none, true, d.refuse(outer, ", alone on its side")
		}
		key, x, err := d.key(mine, theirs, eq)
		if err != nil {
			return nil, none, true, err
		}
		keys, c.outer = append(keys, key), append(c.outer, x)
	}
	if n := d.elsewhere(s); n != nil {
		return nil, none, true, d.refuse(n, "")
	}
	if len(keys) == 0 {
		return nil, none, false, nil
	}
	n, absent, err := d.rewritten(&inner, keys, exists)
	c.absent = absent
	return n, c, true, err
}

// sides returns the side of a comparison that is the subquery's, and the one that is the query around's alone.
func (d *decorrelator) sides(c *sql.Binary) (mine, theirs sql.Expr, ok bool) {
	mine, theirs = c.L, c.R
	if d.onlyOuter(mine) {
		mine, theirs = theirs, mine
	}
	return mine, theirs, d.onlyOuter(theirs) && d.outerName(mine) == nil && firstName(mine) != nil
}

// both returns the condition that two conditions make; a may be nil.
func both(a, b sql.Expr) sql.Expr {
	if a == nil {
		return b
	}
	return &sql.Binary{Op: "AND", OpAt: b.Span(), L: a, R: b, At: a.Span().Join(b.Span())}
}

// elsewhere returns a column of the query around that stands in s outside of its WHERE, or nil.
func (d *decorrelator) elsewhere(s *sql.Select) *sql.Name {
	list := append([]sql.Expr{s.Having}, s.GroupBy...)
	for _, it := range s.Items {
		list = append(list, it.Expr)
	}
	for _, o := range s.OrderBy {
		list = append(list, o.Expr)
	}
	for _, e := range list {
		if e != nil {
			if n := d.outerName(e); n != nil {
				return n
			}
		}
	}
	return nil
}

// key binds the two sides of an equality to a common type: the subquery's as text of the query, the other one as an
// expression.
func (d *decorrelator) key(mine, theirs sql.Expr, eq *sql.Binary) (sql.Expr, expr.Expr, error) {
	b := d.around
	outer, err := b.bind(theirs)
	if err != nil {
		return nil, nil, err
	}
	bind := &binder{src: b.src, scope: d.inner, noAggregate: "WHERE sees rows, not groups"}
	own, err := bind.bind(mine)
	if err != nil {
		return nil, nil, err
	}
	if _, err := expr.NewCall("=", own, outer); err != nil {
		return nil, nil, b.at(err, eq.OpAt)
	}
	t, err := common(own.Type(), outer.Type())
	if err != nil {
		return nil, nil, b.at(err, eq.OpAt)
	}
	if err := checkKeyType(b.src, eq.OpAt, t, "="); err != nil {
		return nil, nil, err
	}
	if outer.Type() != t {
		if outer, err = expr.NewCast(outer, t); err != nil {
			return nil, nil, b.at(err, theirs.Span())
		}
	}
	if own.Type() != t {
		mine = &sql.Cast{X: mine, Type: sql.TypeName{Name: t.String(), At: mine.Span()}, At: mine.Span()}
	}
	return mine, outer, nil
}

// rewritten binds the subquery with its keys as first columns. One that aggregates does so per key; absent is then what it
// gives over no rows.
func (d *decorrelator) rewritten(s *sql.Select, keys []sql.Expr, exists bool) (n, absent node, err error) {
	b := d.ql.b
	items, err := expandStars(s, b.src, d.inner)
	if err != nil {
		return nil, nil, err
	}
	grouped := groups(s, items)
	bounded := s.Limit != nil && !exists || s.Offset != nil
	switch {
	case hasWindow(items):
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "window functions in a subquery that names columns of the query around it are not there yet: join the subquery, JOIN (SELECT …) AS q ON …")
	case s.Having != nil && len(s.GroupBy) == 0:
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.HavingAt, "HAVING without GROUP BY in a subquery that names columns of the query around it is not there yet: compare the aggregate outside of the subquery")
	case bounded && (grouped || s.Distinct):
		at := s.LimitAt
		if s.Limit == nil {
			at = s.OffsetAt
		}
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, at, "LIMIT and OFFSET of groups in a subquery that names columns of the query around it are not there yet: write min, max or another aggregate, or a join")
	case bounded:
		n, err = d.bounded(s, items, keys)
		return n, nil, err
	}
	distinct := s.Distinct
	s.OrderBy, s.Limit, s.Distinct = nil, nil, false
	if grouped && len(s.GroupBy) == 0 {
		none := *s
		none.Where = &sql.Literal{Kind: sql.LiteralFalse, At: s.At}
		undo := len(b.q.Scans)
		if absent, err = b.query(&none, d.ql.ctes); err != nil {
			return nil, nil, err
		}
		for _, scan := range b.q.Scans[undo:] { // nothing needs to be read
			scan.Access = Access{Points: true, Text: "look up nothing"}
		}
	}
	list := make([]sql.Item, 0, len(keys)+len(items))
	for _, k := range keys {
		list = append(list, sql.Item{Expr: k, At: k.Span()})
	}
	if exists && absent != nil {
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "EXISTS over an aggregate is always true: leave the aggregate out")
	}
	if !exists {
		list = append(list, items...)
	}
	s.Items = list
	if grouped {
		by := slices.Clone(keys)
		for _, e := range s.GroupBy {
			e, err := groupExpr(&binder{src: b.src, scope: d.inner}, e, items)
			if err != nil {
				return nil, nil, err
			}
			by = append(by, e)
		}
		s.GroupBy = by
	}
	s.Distinct = exists || distinct
	n, err = b.query(s, d.ql.ctes)
	return n, absent, err
}

// placeColumn numbers the rows of a subquery with LIMIT; no name can mean it.
const placeColumn = "place in the subquery"

// bounded binds a subquery with ORDER BY, LIMIT and OFFSET: per key, the rows whose number among those of the key is
// within.
func (d *decorrelator) bounded(s *sql.Select, items []sql.Item, keys []sql.Expr) (node, error) {
	b := d.ql.b
	limit, err := b.count(s.Limit, "LIMIT", noLimit)
	if err != nil {
		return nil, err
	}
	offset, err := b.count(s.Offset, "OFFSET", 0)
	if err != nil {
		return nil, err
	}
	order := slices.Clone(s.OrderBy)
	for i, o := range order {
		if order[i].Expr, err = orderExpr(b, o.Expr, items); err != nil {
			return nil, err
		}
	}
	list := make([]sql.Item, 0, len(keys)+len(items)+1)
	for _, k := range keys {
		list = append(list, sql.Item{Expr: k, At: k.Span()})
	}
	list = append(list, items...)
	number := &sql.Call{Func: sql.Ident{Name: "row_number", At: s.At}, Over: &sql.Window{PartitionBy: keys, OrderBy: order, At: s.At}, At: s.At}
	list = append(list, sql.Item{Expr: number, Alias: &sql.Ident{Name: placeColumn, At: s.At}, At: s.At})
	s.Items, s.OrderBy, s.Limit, s.Offset = list, nil, nil, nil
	n, err := b.query(s, d.ql.ctes)
	if err != nil {
		return nil, err
	}
	schema := n.schema()
	last := len(schema) - 1
	place := place(b.src, s.At)
	number1 := expr.NewColumn(last, placeColumn, dataflow.TypeBigInt)
	filter := func(op string, than int64) error {
		cond, err := expr.NewCall(op, number1, expr.NewConst(dataflow.BigInt(than)))
		if err == nil {
			n = &filterNode{input: n, filters: []*Filter{{Cond: cond, At: place}}}
		}
		return err
	}
	if offset > 0 {
		if err := filter(">", offset); err != nil {
			return nil, err
		}
	}
	if limit != noLimit && limit+offset >= 0 { // the sum may overflow
		if err := filter("<=", limit+offset); err != nil {
			return nil, err
		}
	}
	return firstColumns(n, last, place), nil
}

// firstColumns returns rows of n without the columns from the given one on.
func firstColumns(n node, count int, at Place) node {
	schema := n.schema()[:count:count]
	l := &level{input: n, visible: count, limit: noLimit, outputs: &Project{Schema: schema}}
	for i, c := range schema {
		l.outputs.Exprs = append(l.outputs.Exprs, expr.NewColumn(i, c.Name, c.Type))
		l.outputs.At = append(l.outputs.At, at)
	}
	return l
}

// orderExpr returns what an expression of ORDER BY means: a position or a name of the SELECT list, or itself.
func orderExpr(b *queryBinder, e sql.Expr, items []sql.Item) (sql.Expr, error) {
	switch e := e.(type) {
	case *sql.Literal:
		if e.Kind == sql.LiteralInteger {
			return ordinal(&binder{src: b.src}, "ORDER BY", e, items)
		}
	case *sql.Name:
		for _, it := range items {
			if it.Alias != nil && len(e.Parts) == 1 && it.Alias.Name == e.Parts[0].Name {
				return it.Expr, nil
			}
		}
	}
	return e, nil
}
