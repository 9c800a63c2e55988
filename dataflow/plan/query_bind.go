package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// level is one SELECT of a query. Its steps run in the order of its fields.
type level struct {
	filter *Filter // WHERE; nil: all rows

	grouped bool
	input   *Project   // of a grouping: keys, then arguments of the aggregates
	keys    int        // how many of input's columns are keys
	specs   []agg.Spec // their Arg are columns of input
	row     dataflow.Schema
	having  *Filter

	outputs  *Project // the SELECT list, then what only ORDER BY needs
	visible  int      // length of the SELECT list
	distinct bool
	order    []orderBy
	offset   int64
	limit    int64 // noLimit: all
}

const noLimit = -1

// orderBy is one column of ORDER BY, a position in outputs.
type orderBy struct {
	col              int
	desc, nullsFirst bool
}

// queryBinder builds the levels of a query from the inside out.
type queryBinder struct {
	src     *sql.Source
	cat     TableCatalog
	q       *Query
	depth   int
	checked map[*sql.Select]bool // the queries of WITH that have been checked for errors
}

// BindQuery plans a pull query. It reads one table, named pipeline.table; now is what now() means, in microseconds since
// 1970 UTC. Errors are *dataflow.Error: SQL_TYPE, SQL_UNSUPPORTED, PIPELINE_NOT_FOUND or TABLE_NOT_FOUND, with the place.
func BindQuery(s *sql.Select, cat TableCatalog, now int64) (*Query, error) {
	b := &queryBinder{src: s.Source, cat: cat, q: &Query{src: s.Source, now: now}, checked: map[*sql.Select]bool{}}
	schema, err := b.selectLevel(s, nil)
	if err != nil {
		return nil, err
	}
	b.q.Schema = schema
	return b.q, nil
}

// selectLevel binds s, and what it reads before it, and returns the schema of its result.
func (b *queryBinder) selectLevel(s *sql.Select, ctes *cte) (dataflow.Schema, error) {
	b.depth++
	defer func() { b.depth-- }()
	if b.depth > dataflow.MaxSQLDepth {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "subqueries nest more than %d deep", dataflow.MaxSQLDepth)
	}
	for _, c := range s.With {
		if ctes.defines(c.Name.Name, s) {
			return nil, b.src.Errorf(dataflow.ReasonSQLType, c.Name.At, "WITH names %q twice", c.Name.Name)
		}
		ctes = &cte{name: c.Name.Name, def: c, outer: ctes}
		if err := b.checkCTE(ctes); err != nil {
			return nil, err
		}
	}
	sc, err := b.from(s, ctes)
	if err != nil {
		return nil, err
	}
	blk, err := bindBlock(s, b.src, sc, rules{})
	if err != nil {
		return nil, err
	}
	if len(b.q.levels) == 0 {
		b.q.Access = accessOf(b.src, b.q.Table, sc, s.Where, b.q.now)
	}
	l := &level{filter: blk.filter, having: blk.having, grouped: blk.group != nil, distinct: s.Distinct, visible: len(blk.outputs)}
	if err := b.order(s, sc, blk, l); err != nil {
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
		l.input, l.specs = blk.group.input(b.src)
	}
	return b.finish(l, blk)
}

// checkCTE finds the errors of a query of WITH, once, whether or not anything reads it.
func (b *queryBinder) checkCTE(c *cte) error {
	if b.checked[c.def.Query] {
		return nil
	}
	b.checked[c.def.Query] = true
	scratch := *b
	scratch.q = &Query{src: b.src, now: b.q.now}
	_, err := scratch.cteSchema(c)
	return err
}

// finish lays out the outputs of a level and adds it to the query.
func (b *queryBinder) finish(l *level, blk *block) (dataflow.Schema, error) {
	names, err := b.resultNames(blk.outputs[:l.visible])
	if err != nil {
		return nil, err
	}
	l.outputs = &Project{}
	for i, o := range blk.outputs {
		if l.distinct && i < l.visible {
			if err := checkKeyType(b.src, o.at, o.x.Type(), "DISTINCT"); err != nil {
				return nil, err
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
	b.q.levels = append(b.q.levels, l)
	return l.outputs.Schema[:l.visible:l.visible], nil
}

// from resolves what a SELECT reads: the table, or a subquery, whose levels it adds first.
func (b *queryBinder) from(s *sql.Select, ctes *cte) (*scope, error) {
	f := s.From
	if f == nil {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "a query reads a table: write FROM pipeline.table")
	}
	if len(f.Unnests) > 0 {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, f.Unnests[0].At, "%s in a query is not there yet: write it in a view", strings.ToUpper(f.Unnests[0].Call.Func.Name))
	}
	var schema dataflow.Schema
	var err error
	sc := &scope{}
	table := ""
	of := sql.Ident{Name: "the subquery", At: f.At}
	switch {
	case f.Subquery != nil:
		schema, err = b.selectLevel(f.Subquery, ctes)
	default:
		of = f.Name.Parts[len(f.Name.Parts)-1]
		table = of.Name
		if f.Alias == nil && len(f.Name.Parts) == 2 {
			sc.qualified = f.Name.String()
		}
		schema, err = b.named(f.Name, ctes)
	}
	if err != nil {
		return nil, err
	}
	if f.Alias != nil {
		table, of = f.Alias.Name, *f.Alias
	}
	schema, err = b.rename(schema, f.Columns, of)
	if err != nil {
		return nil, err
	}
	for i, c := range schema {
		sc.columns = append(sc.columns, column{table: table, name: c.Name, typ: c.Type, expr: expr.NewColumn(i, c.Name, c.Type)})
	}
	return sc, nil
}

// rename applies the column names of AS t (a, b).
func (b *queryBinder) rename(schema dataflow.Schema, names []sql.Ident, of sql.Ident) (dataflow.Schema, error) {
	if len(names) > len(schema) {
		return nil, b.src.Errorf(dataflow.ReasonSQLType, names[len(schema)].At, "%s has %s, and here are %d names", of.Name, columns(len(schema)), len(names))
	}
	schema = append(dataflow.Schema(nil), schema...)
	for i, id := range names {
		if at := schema.Index(id.Name); at >= 0 && at != i {
			return nil, b.src.Errorf(dataflow.ReasonSQLType, id.At, "column %q is there twice", id.Name)
		}
		schema[i].Name = id.Name
	}
	return schema, nil
}

// named resolves a name of FROM: a query of WITH, or a table.
func (b *queryBinder) named(n *sql.Name, ctes *cte) (dataflow.Schema, error) {
	if len(n.Parts) == 1 {
		for c := ctes; c != nil; c = c.outer {
			if c.name == n.Parts[0].Name {
				return b.cteSchema(c)
			}
		}
	}
	if len(n.Parts) != 2 {
		return nil, b.src.Errorf(dataflow.ReasonTableNotFound, n.At, "%s is not the name of a table: a query reads pipeline.table%s", n, b.suggest(n)).
			WithHint("the rows of a stream are read with weir stream read, or through a view of it; a plain VIEW keeps none")
	}
	t, err := b.cat.Table(n.Parts[0].Name, n.Parts[1].Name)
	if err != nil {
		e := b.src.At(err, n.At)
		if hint := sql.DidYouMean(n.String(), b.cat.TableNames()); hint != "" && !strings.Contains(e.Message, "did you mean") {
			e = b.src.Errorf(e.Reason, n.At, "there is no table %s%s", n, hint)
		}
		return nil, e
	}
	b.q.Table = t
	return t.Schema, nil
}

// cteSchema adds the levels of a query of WITH and returns the schema of its result.
func (b *queryBinder) cteSchema(c *cte) (dataflow.Schema, error) {
	schema, err := b.selectLevel(c.def.Query, c.outer)
	if err != nil {
		return nil, err
	}
	return b.rename(schema, c.def.Columns, c.def.Name)
}

// suggest names the table that a name without its pipeline most likely means.
func (b *queryBinder) suggest(n *sql.Name) string {
	last := n.Parts[len(n.Parts)-1].Name
	var ends []string
	for _, t := range b.cat.TableNames() {
		if strings.HasSuffix(t, "."+last) {
			ends = append(ends, t)
		}
	}
	if len(ends) > 0 && len(ends) <= 3 {
		return "; did you mean " + strings.Join(ends, " or ") + "?"
	}
	return sql.DidYouMean(n.String(), b.cat.TableNames())
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
func (b *queryBinder) order(s *sql.Select, sc *scope, blk *block, l *level) error {
	bind := &binder{src: b.src, scope: sc, group: blk.group}
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
