package plan

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// queryLevel binds what the expressions of one SELECT of a query can have and those of views cannot.
type queryLevel struct {
	b     *queryBinder
	ctes  *cte
	level *level
	width int // columns of the input's rows
	// bound holds the subqueries of IN and the scalar ones that are bound, for looking a table up by them. Correlated ones
	// are not among them, nor those that are compared after a cast.
	bound map[sql.Expr]*subquery
}

// subqueryKind says what an expression makes of the rows of a subquery.
type subqueryKind uint8

const (
	subqueryScalar subqueryKind = iota // the only row's value
	subqueryMember                     // whether a value is among the rows: IN
	subqueryExists                     // whether there is a row
)

// subquery is a query inside of an expression. It runs once, before the SELECT around it reads rows. A correlated one, which
// compares columns of its own with columns of the query around it, has the former as its first columns, and is looked up by
// the latter.
type subquery struct {
	index int
	kind  subqueryKind
	node  node
	keys  int // columns that it is looked up by
	// absent is what a correlated aggregate gives where it has no row: count is 0 then.
	absent node
	at     Place
}

const maxSubqueries = 100

// add registers a subquery and returns the expression that stands for it.
func (ql *queryLevel) add(s *subquery, t dataflow.Type, at sql.Span, args ...expr.Expr) (expr.Expr, error) {
	q := ql.b.q
	if len(q.subqueries) == maxSubqueries {
		return nil, ql.b.src.Errorf(dataflow.ReasonSQLUnsupported, at, "a query has at most %d subqueries in expressions", maxSubqueries)
	}
	s.index, s.at = len(q.subqueries), place(ql.b.src, at)
	q.subqueries = append(q.subqueries, s)
	ql.level.subqueries = append(ql.level.subqueries, s)
	what := [...]string{subqueryScalar: "subquery %d", subqueryMember: "in subquery %d", subqueryExists: "exists subquery %d"}[s.kind]
	return expr.NewSubquery(s.index, fmt.Sprintf(what, s.index+1), t, args...), nil
}

// notInView says what a view, and a place for a constant, cannot have.
func (b *binder) notInView(at sql.Span, what, instead string) error {
	return b.refuse(at, "%s in a view is not there yet: %s; a query that reads the tables can have it", what, instead)
}

// subquery binds (SELECT …) and EXISTS (SELECT …).
func (b *binder) subquery(e *sql.Subquery) (expr.Expr, error) {
	if b.queries == nil {
		if e.Exists {
			return nil, b.notInView(e.At, "EXISTS (SELECT …)", "group first, and compare counts in HAVING")
		}
		return nil, b.notInView(e.At, "a subquery inside an expression", "use a query in FROM")
	}
	n, c, err := b.queries.bind(b, e.Query, e.Exists)
	if err != nil {
		return nil, err
	}
	if c.instead != nil {
		return b.bind(c.instead)
	}
	s := &subquery{kind: subqueryExists, node: n, keys: len(c.outer), absent: c.absent}
	t := dataflow.TypeBool
	if !e.Exists {
		cols := n.schema()[s.keys:]
		if len(cols) != 1 {
			return nil, b.errorf(e.At, "a subquery inside an expression gives one column, this one has %s", columns(len(cols)))
		}
		s.kind, t = subqueryScalar, cols[0].Type
	}
	x, err := b.queries.add(s, t, e.At, c.outer...)
	if err == nil && s.kind == subqueryScalar && s.keys == 0 {
		b.queries.bound[e] = s
	}
	return x, err
}

// inQuery binds X [NOT] IN (SELECT …).
func (b *binder) inQuery(e *sql.In) (expr.Expr, error) {
	if b.queries == nil {
		return nil, b.notInView(e.At, "IN (SELECT …)", "write the values")
	}
	x, err := b.bind(e.X)
	if err != nil {
		return nil, err
	}
	n, c, err := b.queries.bind(b, e.Query, false)
	if err != nil {
		return nil, err
	}
	keys := len(c.outer)
	if have := n.schema()[keys:]; len(have) != 1 {
		return nil, b.errorf(e.At, "the subquery of IN gives one column, this one has %s", columns(len(have)))
	}
	if c.absent != nil {
		return nil, b.refuse(e.At, "IN over an aggregate of rows that belong to the row around is not there: it gives one value; write %s = (SELECT …)", b.src.Text(e.X.Span()))
	}
	col := n.schema()[keys]
	if _, err := expr.NewCall("=", x, expr.NewColumn(0, col.Name, col.Type)); err != nil {
		return nil, b.at(err, e.OpAt)
	}
	t, err := common(x.Type(), col.Type)
	if err != nil {
		return nil, b.at(err, e.OpAt)
	}
	if err := checkKeyType(b.src, e.OpAt, t, "IN"); err != nil {
		return nil, err
	}
	want := append(n.schema()[:keys:keys], dataflow.Column{Name: col.Name, Type: t})
	if n, err = cast(b.src, n, want, e.At); err != nil {
		return nil, err
	}
	s := &subquery{kind: subqueryMember, node: n, keys: keys + 1}
	if x.Type() == t && keys == 0 {
		b.queries.bound[e] = s
	} else if x.Type() != t {
		if x, err = expr.NewCast(x, t); err != nil {
			return nil, b.at(err, e.X.Span())
		}
	}
	in, err := b.queries.add(s, dataflow.TypeBool, e.At, append(c.outer, x)...)
	if err != nil || !e.Not {
		return in, err
	}
	return b.newCall(e.OpAt, "not", in)
}

// keysFrom finds a condition of WHERE that says which values the only key column of a table has by a subquery: k IN
// (SELECT …), k = (SELECT …). The table is then looked up by what the subquery gives, if that is not too much.
func (ql *queryLevel) keysFrom(scan *scanNode, sc *scope, where sql.Expr) *subquery {
	if len(scan.Table.KeyCols) != 1 || scan.Access.Points {
		return nil
	}
	key := scan.Table.KeyCols[0]
	isKey := func(e sql.Expr) bool {
		n, ok := e.(*sql.Name)
		if !ok {
			return false
		}
		at := sc.position(n)
		return at >= 0 && isColumn(sc.columns[at].expr) == key
	}
	for _, c := range conjuncts(where) {
		switch c := c.(type) {
		case *sql.In:
			if s := ql.bound[c]; s != nil && !c.Not && isKey(c.X) {
				return s
			}
		case *sql.Binary:
			value := c.R
			if isKey(c.R) {
				value = c.L
			} else if !isKey(c.L) {
				continue
			}
			if s := ql.bound[value]; s != nil && c.Op == "=" && s.node.schema()[0].Type == scan.Table.Schema[key].Type {
				return s
			}
		}
	}
	return nil
}
