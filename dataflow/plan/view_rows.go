package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// rows is what a FROM item or a subquery of a view gives: the rows of a stream, or the changes of a stage's table, after
// stateless operators; and perhaps a grouping of them that is not a stage yet.
type rows struct {
	stream string // when stage is nil
	stage  *Stage
	chain  []Op
	cols   []rowColumn
	// key says where the key columns of stage's table stand in cols; nil when they do not all do, and lostKey says why.
	key     []int
	lostKey string
	// open is a grouping of the rows that chain gives. cols are its outputs then. It stays open as long as it can take up
	// the SELECT around it, which saves a stage.
	open   *block
	merged bool // open has taken up a SELECT
	// ranked is a SELECT with row_number() whose rows are not made yet: the SELECT around it says how many of them.
	ranked *ranking
	// dropped says that the pseudo columns of a stream were left out, and would be there if something named them.
	dropped bool
}

type rowColumn struct {
	name   string
	typ    dataflow.Type
	hidden bool
	at     sql.Span // where its expression stands; zero for columns of streams and tables
}

// cte is one query of WITH, innermost first.
type cte struct {
	name  string
	def   sql.CTE
	outer *cte // what def can see, and what else can be seen
}

// selectRows builds the rows of a SELECT of a view.
func (b *builder) selectRows(s *sql.Select, ctes *cte) (*rows, error) {
	b.depth++
	defer func() { b.depth-- }()
	if b.depth > dataflow.MaxSQLDepth {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "views and subqueries nest more than %d deep", dataflow.MaxSQLDepth)
	}
	if b.selects++; b.selects > maxSelects {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "the file's views expand to more than %d SELECTs: split it into several pipelines", maxSelects)
	}
	if err := b.refuseInView(s); err != nil {
		return nil, err
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
	if s.From == nil {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "a view reads something: write FROM and a stream or view")
	}
	if n := rankedItem(s.Items); n >= 0 && groups(s, s.Items) {
		return b.rankGroups(s, ctes, n)
	}
	in, table, err := b.from(s.From, ctes)
	if err == nil && in.ranked != nil {
		in, err = b.bound(s, in, table)
	}
	if err != nil {
		return nil, err
	}
	if in.open != nil && canMerge(s, in) {
		return b.merge(s, in, table)
	}
	if in, err = b.closed(in); err != nil {
		return nil, err
	}
	sc := b.scopeOf(in, table)
	base, before := *sc, len(in.chain)
	if err := b.unnests(s.From, in, sc); err != nil {
		return nil, err
	}
	if len(s.From.Unnests) > 0 {
		var early []*Filter
		s, early = frontFilters(s, b.src, &base, sc, b.rulesFor(in))
		for i, f := range early {
			in.chain = slices.Insert(in.chain, before+i, Op(f))
		}
	}
	if rankedItem(s.Items) >= 0 {
		return b.rank(s, in, sc)
	}
	blk, err := bindBlock(s, b.src, sc, b.rulesFor(in))
	if err != nil {
		return nil, err
	}
	if blk.filter != nil {
		in.chain = append(in.chain, blk.filter)
	}
	return b.finish(s, in, blk)
}

// finish applies the SELECT list, grouping and DISTINCT to rows whose WHERE has been applied.
func (b *builder) finish(s *sql.Select, in *rows, blk *block) (*rows, error) {
	switch {
	case blk.group == nil && !s.Distinct:
		in.project(b.src, blk.outputs, b.pseudo)
		return in, nil
	case blk.group == nil: // SELECT DISTINCT a, b is GROUP BY a, b
		return b.distinct(in, blk.outputs)
	}
	in.setOpen(blk)
	if !s.Distinct || len(blk.missingKeys()) == 0 { // rows with all keys are distinct as they are
		return in, nil
	}
	closed, err := b.closed(in)
	if err != nil {
		return nil, err
	}
	var outputs []output
	texts := columnTexts(closed.cols)
	for i, o := range blk.outputs {
		o.x = expr.NewColumn(i, texts[i], o.x.Type())
		outputs = append(outputs, o)
	}
	return b.distinct(closed, outputs)
}

// distinct groups rows by all outputs.
func (b *builder) distinct(in *rows, outputs []output) (*rows, error) {
	g := &grouping{table: in.stage != nil}
	blk := &block{group: g}
	for _, o := range outputs {
		if err := checkKeyType(b.src, o.at, o.x.Type(), "DISTINCT"); err != nil {
			return nil, err
		}
		at := -1
		for i, k := range g.keys {
			if k.x.String() == o.x.String() {
				at = i
			}
		}
		if at < 0 {
			at = len(g.keys)
			g.keys = append(g.keys, groupKey{ast: o.ast, x: o.x, name: o.name})
		}
		o.x = expr.NewColumn(at, o.x.String(), o.x.Type())
		blk.outputs = append(blk.outputs, o)
	}
	in.setOpen(blk)
	return in, nil
}

func (r *rows) setOpen(blk *block) {
	r.open, r.merged, r.key, r.cols = blk, false, nil, nil
	for _, o := range blk.outputs {
		r.cols = append(r.cols, rowColumn{name: o.name, typ: o.x.Type(), at: o.at})
	}
}

// project replaces the columns. It follows where the key columns go. The pseudo columns of a stream are handed on, so that
// an aggregate further out can go by them; delivered says that the source has them.
func (r *rows) project(src *sql.Source, outputs []output, delivered bool) {
	p := &Project{}
	var cols []rowColumn
	for _, o := range outputs {
		p.Exprs = append(p.Exprs, o.x)
		p.Schema = append(p.Schema, dataflow.Column{Name: o.name, Type: o.x.Type()})
		p.At = append(p.At, place(src, o.span()))
		cols = append(cols, rowColumn{name: o.name, typ: o.x.Type(), at: o.at})
	}
	for i, c := range r.cols {
		if !c.hidden || slices.ContainsFunc(outputs, func(o output) bool { return o.name == c.name }) {
			continue
		}
		cols = append(cols, c)
		if delivered {
			p.Exprs = append(p.Exprs, expr.NewColumn(i, c.name, c.typ))
			p.Schema = append(p.Schema, dataflow.Column{Name: c.name, Type: c.typ})
			p.At = append(p.At, Place{})
		}
	}
	var key []int
	for _, k := range r.key {
		to := slices.IndexFunc(outputs, func(o output) bool { return isColumn(o.x) == k })
		if to < 0 {
			key, r.lostKey = nil, "column "+r.cols[k].name+" of its key is not in the SELECT list"
			break
		}
		key = append(key, to)
	}
	if r.key != nil && len(r.key) == 0 {
		key = []int{} // a table of one row: any SELECT of it keeps its empty key
	}
	r.chain = append(r.chain, p)
	r.key, r.cols = key, cols
}

// canMerge reports whether the SELECT around an open grouping only filters and computes, so that the grouping can take
// it up. The outputs must be short: an expression is repeated wherever its name is used.
func canMerge(s *sql.Select, in *rows) bool {
	const short = 200
	if in.merged || s.Distinct || rankedItem(s.Items) >= 0 || len(s.From.Unnests) > 0 || groups(s, s.Items) {
		return false
	}
	for _, o := range in.open.outputs {
		if len(o.x.String()) > short {
			return false
		}
	}
	return true
}

// merge takes a SELECT up into the open grouping that it reads: WHERE becomes HAVING.
func (b *builder) merge(s *sql.Select, in *rows, table string) (*rows, error) {
	sc := &scope{}
	for i, c := range in.cols {
		sc.columns = append(sc.columns, column{table: table, name: c.name, typ: c.typ, expr: in.open.outputs[i].x})
	}
	blk, err := bindBlock(s, b.src, sc, rules{noNow: noNowGrouped})
	if err != nil {
		return nil, err
	}
	merged := &block{group: in.open.group, having: in.open.having, outputs: blk.outputs}
	if blk.filter != nil {
		merged.having = blk.filter
		if in.open.having != nil {
			cond, err := expr.NewCall("and", in.open.having.Cond, blk.filter.Cond)
			if err != nil {
				return nil, b.src.At(err, s.Where.Span())
			}
			merged.having = &Filter{Cond: cond, At: blk.filter.At}
		}
	}
	in.setOpen(merged)
	in.merged = true
	return in, nil
}

// The reasons why now() is refused.
const (
	noNowGrouped = "now() in a view is the append time of a row, and a group has many: use it in GROUP BY, in WHERE or inside an aggregate"
	noNowTable   = "now() in a view is the append time of a row of a stream, and a table's rows have none: use it in the view that reads the stream"
)

func (b *builder) rulesFor(in *rows) rules {
	if in.stage != nil {
		return rules{table: true, noNow: noNowTable, noNowGrouped: noNowTable}
	}
	return rules{noNowGrouped: noNowGrouped}
}

// scopeOf returns what names can mean over rows, under the name of their table.
func (b *builder) scopeOf(in *rows, table string) *scope {
	sc := &scope{pseudo: &b.wantPseudo, dropped: in.dropped}
	texts := columnTexts(in.cols)
	for i, c := range in.cols {
		sc.columns = append(sc.columns, column{table: table, name: c.name, typ: c.typ, hidden: c.hidden, expr: expr.NewColumn(i, texts[i], c.typ)})
	}
	return sc
}

// columnTexts returns how expressions print the columns: by name, or by name and number where a name is there twice.
// Expressions with the same text are taken for equal.
func columnTexts(cols []rowColumn) []string {
	count := make(map[string]int)
	for _, c := range cols {
		count[c.name]++
	}
	texts := make([]string, len(cols))
	for i, c := range cols {
		texts[i] = c.name
		if count[c.name] > 1 {
			texts[i] = fmt.Sprintf("%s#%d", c.name, i+1)
		}
	}
	return texts
}

// rename applies the column names of CREATE VIEW v (a, b) or AS t (a, b).
func (r *rows) rename(src *sql.Source, names []sql.Ident, of sql.Ident) error {
	visible := 0
	for _, c := range r.cols {
		if !c.hidden {
			visible++
		}
	}
	if len(names) > visible {
		return src.Errorf(dataflow.ReasonSQLType, names[visible].At, "%s has %s, and here are %d names", of.Name, columns(visible), len(names))
	}
	for i, id := range names {
		r.cols[i].name, r.cols[i].at = id.Name, id.At
		if r.open != nil {
			r.open.outputs[i].name, r.open.outputs[i].named, r.open.outputs[i].at = id.Name, true, id.At
		}
	}
	return nil
}

// refuseInView refuses what only queries can have.
func (b *builder) refuseInView(s *sql.Select) error {
	switch {
	case s.Set != nil:
		instead := map[sql.SetKind]string{sql.SetUnion: "write one view per SELECT, or OR in one WHERE", sql.SetIntersect: "write AND in one WHERE", sql.SetExcept: "write AND NOT in one WHERE"}
		return b.src.Errorf(dataflow.ReasonSQLUnsupported, s.Set.At, "%s in a view is not there yet: %s; a query that reads the tables can have it", s.Set.Kind, instead[s.Set.Kind])
	case s.Values != nil:
		return b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "VALUES in a view is not there yet: a view reads a stream or view")
	case len(s.OrderBy) > 0:
		return b.src.Errorf(dataflow.ReasonSQLUnsupported, s.OrderAt, "ORDER BY in a view orders nothing: a table is ordered by its key; write ORDER BY in the query that reads it")
	case s.Limit != nil:
		return b.src.Errorf(dataflow.ReasonSQLUnsupported, s.LimitAt, "LIMIT in a view is not there yet: write ORDER BY and LIMIT in the query that reads the table")
	case s.Offset != nil:
		return b.src.Errorf(dataflow.ReasonSQLUnsupported, s.OffsetAt, "OFFSET in a view is not there yet: write ORDER BY and OFFSET in the query that reads the table")
	}
	return nil
}

// defines reports whether the same WITH has named a query already.
func (c *cte) defines(name string, s *sql.Select) bool {
	for ; c != nil; c = c.outer {
		if c.name == name && slices.ContainsFunc(s.With, func(w sql.CTE) bool { return w.Name == c.def.Name }) {
			return true
		}
	}
	return false
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
