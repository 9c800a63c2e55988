package plan

import (
	"strconv"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// block is a bound SELECT list with its WHERE, GROUP BY and HAVING.
type block struct {
	filter  *Filter   // nil: all rows
	group   *grouping // nil: a row per row
	outputs []output  // over the input, or over the groups' rows
	having  *Filter   // over the groups' rows; nil: all groups
	windows *windows  // of a query that has window functions
	bind    *binder   // of the outputs, for ORDER BY
}

// output is one column of a SELECT's result.
type output struct {
	name  string
	named bool // by AS, not by us
	x     expr.Expr
	ast   sql.Expr
	at    sql.Span
}

// rules is what differs between views and queries, and between their inputs.
type rules struct {
	table        bool   // the input is a table in a view: aggregates must take rows back
	noNow        string // why now() cannot be used; "" if it can
	noNowGrouped string // the same over groups' rows
	// queries binds what only queries have: subqueries in expressions and window functions. Nil in views.
	queries *queryLevel
}

// bindBlock binds the parts of s that block holds, over the columns of sc.
func bindBlock(s *sql.Select, src *sql.Source, sc *scope, r rules) (*block, error) {
	items, err := expandStars(s, src, sc)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		if it.Alias != nil {
			sc.aliases = append(sc.aliases, it.Alias.Name)
		}
	}
	blk := &block{}
	b := &binder{src: src, scope: sc, noNow: r.noNow, queries: r.queries}
	if s.Where != nil {
		b.noAggregate = "WHERE sees rows, not groups: write HAVING"
		if b.queries != nil {
			b.noAggregate += ", or compare with a subquery of its own, (SELECT …)"
		}
		cond, err := b.bindBool(s.Where, "WHERE")
		if err != nil {
			return nil, err
		}
		blk.filter = &Filter{Cond: cond, At: place(src, s.Where.Span())}
	}
	if groups(s, items) {
		blk.group = &grouping{table: r.table, noNowInside: r.noNow}
		b.noAggregate = "GROUP BY cannot contain an aggregate: group in a subquery first"
		if err := bindKeys(b, blk.group, s, items); err != nil {
			return nil, err
		}
		b.group, b.noNow = blk.group, r.noNowGrouped
	}
	blk.bind = b
	if r.queries != nil {
		if err := bindWindows(b, blk, s, items); err != nil {
			return nil, err
		}
	}
	if err := bindOutputs(b, blk, items); err != nil {
		return nil, err
	}
	if s.Having != nil {
		inner := *b
		inner.windows = nil
		cond, err := inner.bindBool(s.Having, "HAVING")
		if err != nil {
			return nil, err
		}
		blk.having = &Filter{Cond: cond, At: place(src, s.Having.Span())}
	}
	return blk, nil
}

// expandStars replaces * and t.* by the columns that they mean.
func expandStars(s *sql.Select, src *sql.Source, sc *scope) ([]sql.Item, error) {
	var items []sql.Item
	for _, it := range s.Items {
		if len(items) >= maxColumns {
			return nil, src.Errorf(dataflow.ReasonSQLUnsupported, it.At, "a SELECT list has at most %d columns", maxColumns)
		}
		if !it.Star {
			items = append(items, it)
			continue
		}
		found := false
		for _, c := range sc.starred(it.Qualifier) {
			if it.Qualifier != "" && c.table != it.Qualifier || c.hidden {
				continue
			}
			found = true
			n := &sql.Name{At: it.At}
			if c.table != "" {
				n.Parts = append(n.Parts, sql.Ident{Name: c.table, At: it.At})
			}
			n.Parts = append(n.Parts, sql.Ident{Name: c.name, At: it.At})
			items = append(items, sql.Item{Expr: n, At: it.At})
		}
		if !found {
			tables := make([]string, len(sc.columns))
			for i, c := range sc.columns {
				tables[i] = c.table
			}
			return nil, src.Errorf(dataflow.ReasonSQLType, it.At, "there is no table %q in FROM%s", it.Qualifier, amongTables(it.Qualifier, tables))
		}
	}
	return items, nil
}

// starred returns the columns that * means, or those that t.* means and others.
func (s *scope) starred(table string) []column {
	if s.star == nil || table != "" {
		return s.columns
	}
	cols := make([]column, len(s.star))
	for i, at := range s.star {
		cols[i] = s.columns[at]
	}
	return cols
}

// groups reports whether s groups its rows.
func groups(s *sql.Select, items []sql.Item) bool {
	if len(s.GroupBy) > 0 || s.Having != nil {
		return true
	}
	for _, it := range items {
		if hasAggregate(it.Expr) {
			return true
		}
	}
	for _, o := range s.OrderBy {
		if hasAggregate(o.Expr) {
			return true
		}
	}
	return false
}

func hasAggregate(e sql.Expr) bool {
	found := false
	sql.Walk(e, func(e sql.Expr) bool {
		if c, ok := e.(*sql.Call); ok && c.Over == nil && agg.IsAggregate(c.Func.Name) {
			found = true
		}
		return !found
	})
	return found
}

// bindKeys binds GROUP BY. A number is a position in the SELECT list; a name is a column of the input, or else a name of
// the SELECT list, as in PostgreSQL.
func bindKeys(b *binder, g *grouping, s *sql.Select, items []sql.Item) error {
	var keys []groupKey
	if len(s.GroupBy) > maxColumns {
		return b.refuse(s.GroupBy[maxColumns].Span(), "GROUP BY has at most %d columns", maxColumns)
	}
	for _, e := range s.GroupBy {
		ast, err := groupExpr(b, e, items)
		if err != nil {
			return err
		}
		x, err := b.bind(ast)
		if err != nil {
			return err
		}
		if x, err = settle(x); err != nil {
			return b.at(err, e.Span())
		}
		if err := checkKeyType(b.src, e.Span(), x.Type(), "GROUP BY"); err != nil {
			return err
		}
		duplicate := false
		for _, k := range keys {
			duplicate = duplicate || same(b.scope, k.ast, ast)
		}
		if !duplicate { // GROUP BY a, a is GROUP BY a
			keys = append(keys, groupKey{ast: ast, x: x, name: columnName(ast)})
		}
	}
	g.keys = keys
	return nil
}

func groupExpr(b *binder, e sql.Expr, items []sql.Item) (sql.Expr, error) {
	switch e := e.(type) {
	case *sql.Literal:
		if e.Kind != sql.LiteralInteger {
			return nil, b.errorf(e.At, "GROUP BY a constant makes one group: leave it out, or write the position of a column as a number")
		}
		return ordinal(b, "GROUP BY", e, items)
	case *sql.Name:
		if len(e.Parts) > 1 || b.scope.has(e.Parts[0].Name) {
			return e, nil
		}
		for _, it := range items {
			if it.Alias != nil && it.Alias.Name == e.Parts[0].Name {
				return it.Expr, nil
			}
		}
	}
	return e, nil
}

// ordinal returns the expression of the SELECT list that a number means.
func ordinal(b *binder, clause string, n *sql.Literal, items []sql.Item) (sql.Expr, error) {
	i, err := strconv.Atoi(n.Text)
	if err != nil || i < 1 || i > len(items) {
		return nil, b.errorf(n.At, "%s position %s is not in the SELECT list, which has %s", clause, n.Text, columns(len(items)))
	}
	return items[i-1].Expr, nil
}

func (s *scope) has(name string) bool {
	for _, c := range s.columns {
		if c.name == name {
			return true
		}
	}
	return false
}

// span returns where the expression stands, which is where it fails; at is where the column gets its name.
func (o *output) span() sql.Span {
	if o.ast == nil {
		return o.at
	}
	return o.ast.Span()
}

func bindOutputs(b *binder, blk *block, items []sql.Item) error {
	for _, it := range items {
		x, err := b.bind(it.Expr)
		if err != nil {
			return err
		}
		if x, err = settle(x); err != nil {
			return b.at(err, it.At)
		}
		o := output{name: columnName(it.Expr), x: x, ast: it.Expr, at: it.At}
		if it.Alias != nil {
			o.name, o.named, o.at = it.Alias.Name, true, it.Alias.At
		}
		blk.outputs = append(blk.outputs, o)
	}
	return nil
}

// checkKeyType refuses types whose values have no order, for what groups or sorts.
func checkKeyType(src *sql.Source, at sql.Span, t dataflow.Type, what string) error {
	switch {
	case t == dataflow.TypeUnknown || t.Ordered():
		return nil
	case t == dataflow.TypeJSONB:
		return src.Errorf(dataflow.ReasonSQLUnsupported, at, "%s of JSONB is not there, since values that are equal may be written in several ways (1.0, 1.00): take a part of it as text, payload ->> 'user', or cast it", what)
	}
	return src.Errorf(dataflow.ReasonSQLUnsupported, at, "%s of %s is not there yet: write UNNEST for a row per element, or array_to_string", what, t)
}

// unnamed is what PostgreSQL calls a column that has no name.
const unnamed = "?column?"

// columnName returns the name that PostgreSQL gives to an expression without AS.
func columnName(e sql.Expr) string {
	switch e := e.(type) {
	case *sql.Name:
		return e.Parts[len(e.Parts)-1].Name
	case *sql.Call:
		if e.Func.Name == sql.SliceFunction {
			return columnName(e.Args[0])
		}
		return e.Func.Name
	case *sql.Binary:
		if e.Op == "[]" {
			return columnName(e.L)
		}
	case *sql.Cast:
		if name := columnName(e.X); name != unnamed && name != "case" {
			return name
		}
		return typeColumnName(e.Type.Name)
	case *sql.Case:
		if e.Else != nil {
			if name := columnName(e.Else); name != unnamed {
				return name
			}
		}
		return "case"
	case *sql.Subquery:
		if e.Exists {
			return "exists"
		}
		if q := e.Query; len(q.Items) == 1 && !q.Items[0].Star {
			if q.Items[0].Alias != nil {
				return q.Items[0].Alias.Name
			}
			return columnName(q.Items[0].Expr)
		}
	case *sql.Literal:
		if e.Kind == sql.LiteralTrue || e.Kind == sql.LiteralFalse {
			return "bool"
		}
	}
	return unnamed
}

func typeColumnName(t string) string {
	switch t {
	case "BOOLEAN":
		return "bool"
	case "BIGINT":
		return "int8"
	case "DOUBLE PRECISION":
		return "float8"
	case "TEXT":
		return "text"
	case "TIMESTAMPTZ":
		return "timestamptz"
	case "NUMERIC":
		return "numeric"
	}
	return "interval"
}

// columns says a number of columns.
func columns(n int) string {
	if n == 1 {
		return "1 column"
	}
	return strconv.Itoa(n) + " columns"
}
