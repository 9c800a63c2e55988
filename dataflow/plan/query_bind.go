package plan

import (
	"fmt"
	"strconv"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// level is one SELECT of a query, over its input. Its steps run in the order of its fields.
type level struct {
	input      node
	subqueries []*subquery // of its expressions, which run first
	filter     *Filter     // WHERE; nil: all rows

	grouped bool
	groupBy *Project   // of a grouping: keys, then arguments of the aggregates
	keys    int        // how many of groupBy's columns are keys
	specs   []agg.Spec // their Arg are columns of groupBy
	row     dataflow.Schema
	having  *Filter

	windows *windowPlan // nil: no window functions

	outputs  *Project // the SELECT list, then what only ORDER BY needs
	visible  int      // length of the SELECT list
	distinct bool
	order    []orderBy
	offset   int64
	limit    int64 // noLimit: all
}

func (l *level) schema() dataflow.Schema { return l.outputs.Schema[:l.visible:l.visible] }

const noLimit = -1

// orderBy is one column of ORDER BY, a position in outputs.
type orderBy struct {
	col              int
	desc, nullsFirst bool
}

// queryBinder builds the plan of a query.
type queryBinder struct {
	src     *sql.Source
	cat     TableCatalog
	q       *Query
	depth   int
	selects *int                 // bound so far
	checked map[*sql.Select]bool // the queries of WITH that have been checked for errors
}

const (
	// maxQuerySelects bounds what WITH expands to: each use of its queries is bound again.
	maxQuerySelects = 20_000
	// maxQueryScans bounds how often a query reads tables: each may hold an iterator per shard.
	maxQueryScans = 100
)

// BindQuery plans a pull query over tables of one pipeline, named pipeline.table; now is what now() means, in microseconds
// since 1970 UTC. Errors are *dataflow.Error: SQL_TYPE, SQL_UNSUPPORTED, PIPELINE_NOT_FOUND or TABLE_NOT_FOUND, with the
// place.
func BindQuery(s *sql.Select, cat TableCatalog, now int64) (*Query, error) {
	b := &queryBinder{src: s.Source, cat: cat, q: &Query{src: s.Source, now: now}, selects: new(int), checked: map[*sql.Select]bool{}}
	root, err := b.query(s, nil)
	if err != nil {
		return nil, err
	}
	if len(b.q.Scans) == 0 {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "a query reads a table: write FROM pipeline.table")
	}
	b.q.root, b.q.Schema = root, root.schema()
	return b.q, nil
}

// query binds a query with its WITH.
func (b *queryBinder) query(s *sql.Select, ctes *cte) (node, error) {
	b.depth++
	defer func() { b.depth-- }()
	if b.depth > dataflow.MaxSQLDepth {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "subqueries nest more than %d deep", dataflow.MaxSQLDepth)
	}
	if *b.selects++; *b.selects > maxQuerySelects {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "the query expands to more than %d SELECTs: read what WITH names less often", maxQuerySelects)
	}
	ctes, err := b.with(s, ctes)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Set != nil:
		n, err := b.setOperation(s.Set, ctes)
		return b.ordered(s, n, err)
	case s.Values != nil:
		n, err := b.values(s)
		return b.ordered(s, n, err)
	}
	s, in, sc, err := b.fromClause(s, ctes)
	if err != nil {
		return nil, err
	}
	return b.selectLevel(s, in, sc, ctes)
}

// with adds the queries of WITH to those that can be named.
func (b *queryBinder) with(s *sql.Select, ctes *cte) (*cte, error) {
	for _, c := range s.With {
		if ctes.defines(c.Name.Name, s) {
			return nil, b.src.Errorf(dataflow.ReasonSQLType, c.Name.At, "WITH names %q twice", c.Name.Name)
		}
		ctes = &cte{name: c.Name.Name, def: c, outer: ctes}
		if err := b.checkCTE(ctes); err != nil {
			return nil, err
		}
	}
	return ctes, nil
}

// ordered applies the ORDER BY and LIMIT of s to the rows of n, which UNION or VALUES gives.
func (b *queryBinder) ordered(s *sql.Select, n node, err error) (node, error) {
	if err != nil || !s.Ordered() {
		return n, err
	}
	all := &sql.Select{Source: s.Source, At: s.At, Items: []sql.Item{{Star: true, At: s.At}}, OrderBy: s.OrderBy, OrderAt: s.OrderAt, Limit: s.Limit, Offset: s.Offset}
	sc := scopeOfRows("", n.schema())
	for _, o := range s.OrderBy {
		if name := firstName(o.Expr); name != nil && sc.position(name) < 0 {
			return nil, b.src.Errorf(dataflow.ReasonSQLType, name.At, "ORDER BY behind %s orders by the columns of the result: %s%s", kindOf(s), quoteList(columnNames(n.schema())), dataflow.DidYouMean(name.String(), columnNames(n.schema())))
		}
	}
	return b.selectLevel(all, n, sc, nil)
}

func kindOf(s *sql.Select) string {
	if s.Set != nil {
		return s.Set.Kind.String()
	}
	return "VALUES"
}

// selectLevel binds what a SELECT computes over the rows of its FROM.
func (b *queryBinder) selectLevel(s *sql.Select, in node, sc *scope, ctes *cte) (node, error) {
	ql := &queryLevel{b: b, ctes: ctes, level: &level{input: in}, width: len(in.schema()), bound: make(map[sql.Expr]*subquery)}
	l := ql.level
	blk, err := bindBlock(s, b.src, sc, rules{queries: ql})
	if err != nil {
		return nil, err
	}
	l.filter, l.having, l.grouped, l.distinct, l.visible = blk.filter, blk.having, blk.group != nil, s.Distinct, len(blk.outputs)
	if scan, ok := in.(*scanNode); ok {
		scan.Access = accessOf(b.src, scan.Table, sc, conjuncts(s.Where), b.q.now)
		scan.keysFrom = ql.keysFrom(scan, sc, s.Where)
	}
	if err := b.order(s, blk, l); err != nil {
		return nil, err
	}
	if l.limit, err = b.count(s.Limit, "LIMIT", noLimit); err != nil {
		return nil, err
	}
	if l.offset, err = b.count(s.Offset, "OFFSET", 0); err != nil {
		return nil, err
	}
	if blk.group != nil {
		l.keys, l.row = len(blk.group.keys), blk.group.row()
		l.groupBy, l.specs = blk.group.input(b.src)
	}
	if blk.windows != nil {
		row := in.schema()
		if l.grouped {
			row = l.row
		}
		l.windows = blk.windows.plan(b.src, row)
	}
	if err := b.finish(l, blk); err != nil {
		return nil, err
	}
	return l, nil
}

// checkCTE finds the errors of a query of WITH, once, whether or not anything reads it.
func (b *queryBinder) checkCTE(c *cte) error {
	if b.checked[c.def.Query] {
		return nil
	}
	b.checked[c.def.Query] = true
	scratch := *b
	scratch.q = &Query{src: b.src, now: b.q.now, Pipeline: b.q.Pipeline}
	_, _, err := scratch.cteRows(c)
	return err
}

// finish lays out the outputs of a level.
func (b *queryBinder) finish(l *level, blk *block) error {
	names, err := b.resultNames(blk.outputs[:l.visible])
	if err != nil {
		return err
	}
	l.outputs = &Project{}
	for i, o := range blk.outputs {
		if l.distinct && i < l.visible {
			if err := checkKeyType(b.src, o.at, o.x.Type(), "DISTINCT"); err != nil {
				return err
			}
		}
		name := o.name
		if i < l.visible {
			name = names[i]
		}
		l.outputs.Exprs = append(l.outputs.Exprs, o.x)
		l.outputs.Schema = append(l.outputs.Schema, dataflow.Column{Name: name, Type: o.x.Type()})
		l.outputs.At = append(l.outputs.At, place(b.src, o.span()))
	}
	return nil
}

// resultNames returns distinct names for the columns of a result, since rows are objects. Two columns that have no AS
// get a number: sum, sum_2.
func (b *queryBinder) resultNames(outputs []output) ([]string, error) {
	taken := make(map[string]bool)
	for _, o := range outputs {
		if o.named {
			if taken[o.name] {
				return nil, b.src.Errorf(dataflow.ReasonSQLType, o.at, "two columns of the result are called %q: write AS and another name", o.name)
			}
			taken[o.name] = true
		}
	}
	names := make([]string, len(outputs))
	for i, o := range outputs {
		names[i] = o.name
		if o.named {
			continue
		}
		for n := 2; taken[names[i]]; n++ {
			names[i] = fmt.Sprintf("%s_%d", o.name, n)
		}
		taken[names[i]] = true
	}
	return names, nil
}

// order binds ORDER BY. A number is a position in the SELECT list; a name is a name of the SELECT list, or else a column of
// the input, as in PostgreSQL.
func (b *queryBinder) order(s *sql.Select, blk *block, l *level) error {
	bind := blk.bind
	for _, o := range s.OrderBy {
		col, err := b.orderColumn(o.Expr, bind, blk, l)
		if err != nil {
			return err
		}
		if err := checkKeyType(b.src, o.Expr.Span(), blk.outputs[col].x.Type(), "ORDER BY"); err != nil {
			return err
		}
		l.order = append(l.order, orderBy{col: col, desc: o.Desc, nullsFirst: o.NullsFirst})
	}
	return nil
}

func (b *queryBinder) orderColumn(e sql.Expr, bind *binder, blk *block, l *level) (int, error) {
	switch e := e.(type) {
	case *sql.Literal:
		i, err := strconv.Atoi(e.Text)
		if e.Kind != sql.LiteralInteger {
			return 0, bind.errorf(e.At, "ORDER BY a constant orders nothing: write a column")
		}
		if err != nil || i < 1 || i > l.visible {
			return 0, bind.errorf(e.At, "ORDER BY position %s is not in the SELECT list, which has %s", e.Text, columns(l.visible))
		}
		return i - 1, nil
	case *sql.Name:
		if len(e.Parts) > 1 {
			break
		}
		found := -1
		for i, o := range blk.outputs[:l.visible] {
			if o.name != e.Parts[0].Name {
				continue
			}
			if found >= 0 && blk.outputs[found].x.String() != o.x.String() {
				return 0, bind.errorf(e.At, "%q is the name of two columns of the SELECT list: write the position as a number", o.name)
			}
			found = i
		}
		if found >= 0 {
			return found, nil
		}
	}
	x, err := bind.bind(e)
	if err != nil {
		return 0, err
	}
	if x, err = settle(x); err != nil {
		return 0, bind.at(err, e.Span())
	}
	for i, o := range blk.outputs {
		if o.x.String() == x.String() && o.x.Type() == x.Type() {
			return i, nil
		}
	}
	if l.distinct {
		return 0, bind.errorf(e.Span(), "with SELECT DISTINCT, what ORDER BY orders by must be in the SELECT list")
	}
	blk.outputs = append(blk.outputs, output{name: unnamed, x: x, ast: e, at: e.Span()})
	return len(blk.outputs) - 1, nil
}

// count binds the number of LIMIT and OFFSET: a constant; NULL means none.
func (b *queryBinder) count(e sql.Expr, clause string, none int64) (int64, error) {
	if e == nil {
		return none, nil
	}
	if n := firstName(e); n != nil {
		return 0, b.src.Errorf(dataflow.ReasonSQLType, n.At, "%s takes a constant number, not a column", clause)
	}
	if q := firstSubquery(e); q != nil {
		return 0, b.src.Errorf(dataflow.ReasonSQLUnsupported, q.At, "%s takes a constant number, not a subquery", clause)
	}
	bind := &binder{src: b.src, scope: &scope{}, noAggregate: clause + " takes a constant number"}
	x, err := bind.bind(e)
	if err != nil {
		return 0, err
	}
	if x, err = expr.NewCast(x, dataflow.TypeBigInt); err != nil {
		return 0, bind.at(err, e.Span())
	}
	v, err := expr.EvalRow(x, nil, nil, b.q.now)
	switch {
	case err != nil:
		return 0, bind.at(err, e.Span())
	case v.Null:
		return none, nil
	case v.Int < 0:
		return 0, bind.errorf(e.Span(), "%s must not be negative", clause)
	}
	return v.Int, nil
}

// firstName returns a column that e names, or nil.
func firstName(e sql.Expr) (found *sql.Name) {
	sql.Walk(e, func(e sql.Expr) bool {
		if n, ok := e.(*sql.Name); ok {
			found = n
		}
		return found == nil
	})
	return found
}

// firstSubquery returns a subquery that stands in e, or nil.
func firstSubquery(e sql.Expr) (found *sql.Subquery) {
	sql.Walk(e, func(e sql.Expr) bool {
		switch e := e.(type) {
		case *sql.Subquery:
			found = e
		case *sql.In:
			if e.Query != nil {
				found = &sql.Subquery{Query: e.Query, At: e.At}
			}
		}
		return found == nil
	})
	return found
}
