package plan

import (
	"slices"

	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// pusher moves conditions below joins, so that what a table's rows alone decide is decided when they are read, and what
// compares the sides of a join finds partners by hash. Conditions that it takes are evaluated there only.
type pusher struct {
	b     *queryBinder
	scope *scope // over the rows of the outermost join
	above *scope // over the rows that WHERE sees, which may have more columns; nil: scope
}

// condition is one condition that AND connects.
type condition struct {
	ast sql.Expr
	x   expr.Expr // over the rows of the outermost join
	on  bool      // of the join's own ON, not of a WHERE above it
}

// where pushes conditions of a WHERE and returns what is left of it. What does not bind stays, for its error to be told.
func (p *pusher) where(n *joinNode, where sql.Expr) (rest sql.Expr) {
	bind := &binder{src: p.b.src, scope: p.scope, noAggregate: "not here", noWindow: "not here"}
	for _, c := range conjuncts(where) {
		if firstSubquery(c) == nil && p.plain(c) {
			if x, err := bind.bindBool(c, "WHERE"); err == nil && p.condition(n, 0, condition{ast: c, x: x}) {
				continue
			}
		}
		if rest == nil {
			rest = c
			continue
		}
		rest = &sql.Binary{Op: "AND", OpAt: c.Span(), L: rest, R: c, At: rest.Span().Join(c.Span())}
	}
	return rest
}

// plain reports whether what a condition names is the same to the join as to WHERE: a column of UNNEST may have the name of
// one of the join.
func (p *pusher) plain(c sql.Expr) bool {
	same := true
	sql.Walk(c, func(e sql.Expr) bool {
		if n, ok := e.(*sql.Name); ok && p.above != nil {
			same = same && p.above.position(n) == p.scope.position(n)
		}
		return same
	})
	return same
}

// condition takes a condition over the join's rows, which begin at column lo, if the join does not need it above it.
func (p *pusher) condition(n *joinNode, lo int, c condition) bool {
	mid := lo + len(n.left.schema())
	cols := expr.Columns(c.x)
	isLeft := func(i int) bool { return i < mid }
	switch {
	case len(cols) == 0:
		return false
	case !slices.ContainsFunc(cols, func(i int) bool { return !isLeft(i) }):
		return p.side(&n.left, lo, c, n.takes(0, c.on))
	case !slices.ContainsFunc(cols, isLeft):
		return p.side(&n.right, mid, c, n.takes(1, c.on))
	}
	inner := n.kind == sql.JoinInner || n.kind == sql.JoinCross
	if !inner && !c.on {
		return false
	}
	if k, ok := p.equality(lo, mid, c); ok {
		n.keys = append(n.keys, k)
	} else if c.on {
		return false
	} else {
		sc := p.scope.shifted(lo)
		bind := &binder{src: p.b.src, scope: sc, noAggregate: "not here"}
		x, err := bind.bindBool(c.ast, "WHERE")
		if err != nil {
			return false
		}
		n.rest = append(n.rest, &Filter{Cond: x, At: place(p.b.src, c.ast.Span())})
	}
	if n.kind == sql.JoinCross {
		n.kind = sql.JoinInner
	}
	return true
}

// takes reports whether a condition on one side alone can be applied to it before the join. A WHERE can where each joined
// row has a row of the side, an ON where rows of the side are not kept without a partner.
func (n *joinNode) takes(side int, on bool) bool {
	if on {
		return !n.keeps(side)
	}
	return !n.keeps(1 - side)
}

// side applies a condition to one side of a join.
func (p *pusher) side(n *node, lo int, c condition, can bool) bool {
	if !can {
		return false
	}
	c.on = false
	if j, ok := (*n).(*joinNode); ok && p.condition(j, lo, c) {
		return true
	}
	bind := &binder{src: p.b.src, scope: p.scope.shifted(lo), noAggregate: "not here"}
	x, err := bind.bindBool(c.ast, "WHERE")
	if err != nil {
		return false
	}
	f, ok := (*n).(*filterNode)
	if !ok {
		f = &filterNode{input: *n}
		*n = f
	}
	f.filters = append(f.filters, &Filter{Cond: x, At: place(p.b.src, c.ast.Span())})
	if scan, ok := f.input.(*scanNode); ok {
		scan.conditions = append(scan.conditions, c.ast)
		scan.Access = accessOf(p.b.src, scan.Table, p.scope.shifted(lo), scan.conditions, p.b.q.now)
	}
	return true
}

// equality returns c as a key of the join whose left rows begin at lo and whose right rows begin at mid.
func (p *pusher) equality(lo, mid int, c condition) (joinKey, bool) {
	eq, ok := c.ast.(*sql.Binary)
	if !ok || eq.Op != "=" {
		return joinKey{}, false
	}
	bind := func(e sql.Expr, lo int) (expr.Expr, bool) {
		b := &binder{src: p.b.src, scope: p.scope.shifted(lo), noAggregate: "not here"}
		x, err := b.bind(e)
		return x, err == nil
	}
	sideOf := func(e sql.Expr) int { // 0 left, 1 right, -1 neither or both
		x, ok := bind(e, 0)
		cols := expr.Columns(x)
		if !ok || len(cols) == 0 {
			return -1
		}
		switch {
		case cols[len(cols)-1] < mid:
			return 0
		case cols[0] >= mid:
			return 1
		}
		return -1
	}
	l, r := eq.L, eq.R
	if sideOf(l) == 1 && sideOf(r) == 0 {
		l, r = r, l
	}
	if sideOf(l) != 0 || sideOf(r) != 1 {
		return joinKey{}, false
	}
	lx, ok := bind(l, lo)
	if !ok {
		return joinKey{}, false
	}
	rx, ok := bind(r, mid)
	if !ok {
		return joinKey{}, false
	}
	k, ok, err := p.b.key(lx, rx, l.Span(), r.Span())
	return k, ok && err == nil
}

// settle finds, once all conditions are in place, which sides of a join and of the joins in it can be looked up by key.
func (p *pusher) settle(n *joinNode) {
	for side, in := range []node{n.left, n.right} {
		if j, ok := in.(*joinNode); ok {
			p.settle(j)
		}
		if f, ok := in.(*filterNode); ok {
			in = f.input
			if j, ok := in.(*joinNode); ok {
				p.settle(j)
			}
		}
		if scan, ok := in.(*scanNode); ok && !n.keeps(side) {
			n.lookups[side] = n.lookup(scan, side)
		}
	}
}

// lookup returns how the table of a side is looked up by the join's keys, nil when they are not its whole key.
func (n *joinNode) lookup(scan *scanNode, side int) *joinLookup {
	l := &joinLookup{scan: scan}
	if scan.Access.Points {
		return nil
	}
	for _, c := range scan.Table.KeyCols {
		part := slices.IndexFunc(n.keys, func(k joinKey) bool {
			x := k.left
			if side == 1 {
				x = k.right
			}
			return isColumn(x) == c
		})
		if part < 0 {
			return nil
		}
		l.parts = append(l.parts, part)
	}
	if len(l.parts) == 0 {
		return nil
	}
	return l
}
