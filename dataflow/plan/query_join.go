package plan

import (
	"fmt"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// joinNode joins two inputs: its rows have the columns of the left one, then those of the right one.
type joinNode struct {
	kind        sql.JoinKind
	left, right node
	// keys are pairs of expressions, over the left and over the right rows, that are equal in rows that belong together.
	keys []joinKey
	// rest are further conditions, over the joined rows.
	rest []*Filter
	// lookups say how the table of the left and of the right side can be looked up by keys; nil: it cannot.
	lookups [2]*joinLookup
}

// joinKey is one equality of a join. Both sides have the same type, which can be part of a key.
type joinKey struct {
	left, right     expr.Expr
	leftAt, rightAt Place
	text            string
}

// joinLookup says that the columns of a side's join keys are the whole key of its table.
type joinLookup struct {
	scan  *scanNode
	parts []int // the join key that each part of the table's key is
}

func (n *joinNode) schema() dataflow.Schema {
	l := n.left.schema()
	return append(l[:len(l):len(l)], n.right.schema()...)
}

// keeps reports whether the join keeps rows of its left (0) or right (1) side that have no partner.
func (n *joinNode) keeps(side int) bool {
	switch n.kind {
	case sql.JoinFull:
		return true
	case sql.JoinLeft:
		return side == 0
	case sql.JoinRight:
		return side == 1
	}
	return false
}

// join binds a join of FROM.
func (b *queryBinder) join(j *sql.Join, ctes *cte) (node, *scope, error) {
	b.depth++
	defer func() { b.depth-- }()
	if b.depth > dataflow.MaxSQLDepth {
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, j.At, "joins and subqueries nest more than %d deep", dataflow.MaxSQLDepth)
	}
	left, ls, err := b.from(j.L, ctes)
	if err != nil {
		return nil, nil, err
	}
	if j.R.Lateral {
		return b.lateral(j, left, ls, ctes)
	}
	right, rs, err := b.from(j.R, ctes)
	if err != nil {
		return nil, nil, err
	}
	if err := b.distinctTables(ls, rs, j); err != nil {
		return nil, nil, err
	}
	n := &joinNode{kind: j.Kind, left: left, right: right}
	if total := len(n.schema()); total > maxColumns {
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, j.At, "a join has at most %d columns, this one has %d", maxColumns, total)
	}
	using := j.Using
	if j.Natural {
		using = commonColumns(ls, rs, j.At)
	}
	sc := joinScopes(ls, rs, len(left.schema()))
	if len(using) > 0 {
		err = b.using(n, sc, ls, rs, using)
	} else if j.On != nil {
		err = b.on(n, sc, j.On)
	}
	if err != nil {
		return nil, nil, err
	}
	return n, sc, nil
}

// distinctTables refuses two tables of one name in FROM.
func (b *queryBinder) distinctTables(l, r *scope, j *sql.Join) error {
	have := make(map[string]string) // qualified, by name
	for _, c := range l.columns {
		if c.table != "" {
			have[c.table] = c.qualified
		}
	}
	for _, c := range r.columns {
		if _, twice := have[c.table]; twice && c.table != "" {
			at := j.R.At
			if j.R.Alias != nil {
				at = j.R.Alias.At
			}
			return b.src.Errorf(dataflow.ReasonSQLType, at, "FROM has two tables called %q: write AS and another name", c.table)
		}
	}
	return nil
}

func commonColumns(l, r *scope, at sql.Span) []sql.Ident {
	var names []sql.Ident
	for _, c := range l.starred("") {
		if r.has(c.name) && !slices.ContainsFunc(names, func(id sql.Ident) bool { return id.Name == c.name }) {
			names = append(names, sql.Ident{Name: c.name, At: at})
		}
	}
	return names
}

// joinScopes returns what names can mean over joined rows; the right columns stand behind the first width ones.
func joinScopes(l, r *scope, width int) *scope {
	sc := &scope{columns: append(slices.Clone(l.columns), r.shifted(-width).columns...)}
	if l.star != nil || r.star != nil {
		sc.star = append(sc.star, l.stars()...)
		for _, at := range r.stars() {
			sc.star = append(sc.star, len(l.columns)+at)
		}
	}
	sc.tellApart()
	return sc
}

// stars returns the positions of the columns that * means.
func (s *scope) stars() []int {
	if s.star != nil {
		return s.star
	}
	all := make([]int, len(s.columns))
	for i := range all {
		all[i] = i
	}
	return all
}

// tellApart gives columns of the same name different texts, since expressions with the same text are taken for equal.
func (s *scope) tellApart() {
	count := make(map[string]int)
	for _, c := range s.columns {
		if c.full != nil {
			continue
		}
		count[c.name]++
		count[c.table+"."+c.name]++
	}
	for i, c := range s.columns {
		col, ok := c.expr.(*expr.Column)
		if !ok || count[c.name] == 1 {
			continue
		}
		text := c.table + "." + c.name
		if c.table == "" || count[text] > 1 {
			text = fmt.Sprintf("%s#%d", c.name, col.Index+1)
		}
		s.columns[i].expr = expr.NewColumn(col.Index, text, c.typ)
	}
}

// shifted returns the scope over rows that begin lo columns further right; a negative lo is further left.
func (s *scope) shifted(lo int) *scope {
	if lo == 0 {
		return s
	}
	out := &scope{columns: slices.Clone(s.columns), star: s.star}
	for i := range out.columns {
		c := &out.columns[i]
		if c.full != nil {
			full := make([]expr.Expr, len(c.full))
			for j, x := range c.full {
				full[j] = shift(x, lo)
			}
			c.full, c.expr = full, coalesced(full)
			continue
		}
		c.expr = shift(c.expr, lo)
	}
	return out
}

// shift moves a column by lo to the left.
func shift(x expr.Expr, lo int) expr.Expr {
	c := x.(*expr.Column) // all that a query's scope has besides what full joins merge
	return expr.NewColumn(c.Index-lo, c.Name, c.Type())
}

// coalesced returns the first of columns that is not NULL. They have been compared, so that they have a common type.
func coalesced(list []expr.Expr) expr.Expr {
	if len(list) == 1 {
		return list[0]
	}
	x, err := expr.NewCall("coalesce", list...)
	if err != nil {
		return list[0]
	}
	return x
}

// using adds the equalities of USING, and makes one column of each pair.
func (b *queryBinder) using(n *joinNode, sc, ls, rs *scope, names []sql.Ident) error {
	var merged []int
	star := make([]int, 0, len(sc.columns))
	for _, id := range names {
		name := &sql.Name{Parts: []sql.Ident{id}, At: id.At}
		l, err := ls.resolve(b.src, name)
		if err != nil {
			return err
		}
		r, err := rs.resolve(b.src, name)
		if err != nil {
			return err
		}
		key, ok, err := b.key(l.expr, r.expr, id.At, id.At)
		if err != nil {
			return err
		}
		if !ok {
			return b.src.Errorf(dataflow.ReasonSQLUnsupported, id.At, "USING cannot compare %s", l.typ)
		}
		li, ri := ls.position(name), rs.position(name)+len(ls.columns)
		key.text = fmt.Sprintf("(%s = %s)", sc.columns[li].expr, sc.columns[ri].expr)
		n.keys = append(n.keys, key)
		of := sc.columns[li].plain()
		switch n.kind {
		case sql.JoinRight:
			of = sc.columns[ri].plain()
		case sql.JoinFull:
			of = append(slices.Clone(of), sc.columns[ri].plain()...)
		}
		m := column{name: id.Name, expr: coalesced(of)}
		if m.typ = m.expr.Type(); len(of) > 1 {
			m.full = of
		}
		sc.columns[li].merged, sc.columns[ri].merged = true, true
		merged = append(merged, li, ri)
		star = append(star, len(sc.columns))
		sc.columns = append(sc.columns, m)
	}
	for _, at := range append(slices.Clone(ls.stars()), shiftAll(rs.stars(), len(ls.columns))...) {
		if !slices.Contains(merged, at) {
			star = append(star, at)
		}
	}
	sc.star = star
	return nil
}

// plain returns the columns of the batch that the column stands for: several where full joins have merged them.
func (c *column) plain() []expr.Expr {
	if c.full != nil {
		return c.full
	}
	return []expr.Expr{c.expr}
}

func shiftAll(list []int, by int) []int {
	out := make([]int, len(list))
	for i, v := range list {
		out[i] = v + by
	}
	return out
}

// key returns the equality of two expressions as one of a join, cast to a common type; ok is false when that cannot be part
// of a key.
func (b *queryBinder) key(l, r expr.Expr, lAt, rAt sql.Span) (k joinKey, ok bool, err error) {
	eq, err := expr.NewCall("=", l, r)
	if err != nil {
		return k, false, b.src.At(err, lAt)
	}
	t, err := common(l.Type(), r.Type())
	if err != nil {
		return k, false, nil
	}
	if !t.Ordered() {
		return k, false, nil
	}
	k = joinKey{left: l, right: r, leftAt: place(b.src, lAt), rightAt: place(b.src, rAt), text: eq.String()}
	for _, side := range []*expr.Expr{&k.left, &k.right} {
		if (*side).Type() != t {
			if *side, err = expr.NewCast(*side, t); err != nil {
				return k, false, nil
			}
		}
	}
	return k, true, nil
}

// on binds the condition of a join: what only one side decides is applied to that side, equalities between the sides become
// the join's keys.
func (b *queryBinder) on(n *joinNode, sc *scope, e sql.Expr) error {
	bind := &binder{src: b.src, scope: sc, noAggregate: "ON sees rows, not groups", noWindow: "ON sees rows before window functions are computed"}
	if q := firstSubquery(e); q != nil {
		return b.src.Errorf(dataflow.ReasonSQLUnsupported, q.At, "a subquery in ON is not there yet: write it in WHERE, or join the subquery itself, JOIN (SELECT …) AS q ON …")
	}
	if _, err := bind.bindBool(e, "ON"); err != nil {
		return err
	}
	p := &pusher{b: b, scope: sc}
	for _, c := range conjuncts(e) {
		x, err := bind.bindBool(c, "ON")
		if err != nil {
			return err
		}
		if c, ok := x.(*expr.Const); ok && !c.Value().Null && c.Value().Int != 0 {
			continue // ON true
		}
		if !p.condition(n, 0, condition{ast: c, x: x, on: true}) {
			n.rest = append(n.rest, &Filter{Cond: x, At: place(b.src, c.Span())})
		}
	}
	return nil
}
