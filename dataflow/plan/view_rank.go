package plan

import (
	"slices"
	"strconv"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// This file is the first k rows of each group in a view, as PostgreSQL's users write them:
//
//	SELECT … FROM (SELECT …, row_number() OVER (PARTITION BY g ORDER BY x DESC) AS n FROM s) AS t WHERE n <= k
//
// The inner SELECT becomes a ranking, which the SELECT around it bounds. It is one stage per PARTITION BY that keeps the
// first k rows, each packed into one value, by agg.TopK; its rows are then taken apart. So the state of a group is bounded over
// a stream, and rows that a table takes back are followed by those behind them.

// ranking is a SELECT with row_number() whose bound is not known yet.
type ranking struct {
	call *sql.Call
	// group has the keys of PARTITION BY and one aggregate, which packs fields and lacks its Limit.
	group  *grouping
	fields []expr.Expr
	// columns says what each column of the SELECT is, the hidden ones included.
	columns []rankedColumn
}

// rankedColumn is a key of the ranking, a field of its rows, or, when both are -1, the row number.
type rankedColumn struct{ key, field int }

// rankText is the text of the aggregate of a ranking, which no other has.
const rankText = "row_number()"

const rankNotBound = "row_number() in a view says which rows of a group are kept: name it in a subquery, and write the condition around it, SELECT … FROM (SELECT …, row_number() OVER (…) AS n FROM …) AS t WHERE n <= 10"

// rankedItem returns which item of a SELECT list is row_number() OVER (…); -1 if there is none.
func rankedItem(items []sql.Item) int {
	return slices.IndexFunc(items, func(it sql.Item) bool {
		c, ok := it.Expr.(*sql.Call)
		return ok && c.Over != nil && c.Func.Name == "row_number" && len(c.Args) == 0 && !c.Star && c.Filter == nil
	})
}

// rank builds the rows of a SELECT with row_number() OVER (…), over rows that it reads.
func (b *builder) rank(s *sql.Select, in *rows, sc *scope) (*rows, error) {
	items, err := expandStars(s, b.src, sc)
	if err != nil {
		return nil, err
	}
	n := rankedItem(items)
	if s.Distinct {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.DistinctAt, "rows with a row number are distinct as they are: leave DISTINCT out, or write it in a subquery in FROM")
	}
	rules := b.rulesFor(in)
	bind := &binder{src: b.src, scope: sc, noNow: rules.noNow, noAggregate: "WHERE sees rows, not groups: write HAVING"}
	if s.Where != nil {
		cond, err := bind.bindBool(s.Where, "WHERE")
		if err != nil {
			return nil, err
		}
		in.chain = append(in.chain, &Filter{Cond: cond, At: place(b.src, s.Where.Span())})
	}
	call := items[n].Expr.(*sql.Call)
	rk := &ranking{call: call, group: &grouping{table: in.stage != nil}}
	a := aggregate{at: call.At, text: rankText, spec: agg.Spec{Fn: agg.TopK, ArgType: dataflow.TypeBytea, Out: dataflow.TypeByteaArray, Retract: in.stage != nil}}
	for i, e := range call.Over.PartitionBy {
		x, err := bind.keyed(e, "PARTITION BY")
		if err != nil {
			return nil, err
		}
		rk.group.keys = append(rk.group.keys, groupKey{ast: e, x: x, name: "key" + strconv.Itoa(i+1)})
	}
	for _, o := range call.Over.OrderBy {
		x, err := bind.keyed(o.Expr, "ORDER BY")
		if err != nil {
			return nil, err
		}
		a.order, a.spec.Order = append(a.order, x), append(a.spec.Order, agg.Order{Desc: o.Desc, NullsFirst: o.NullsFirst})
	}
	// Rows that ORDER BY does not tell apart: in the order of their arrival, or of the table's key.
	if err := bind.arrival(call, agg.Signature{Name: "row_number", Arrival: true}, &a); err != nil {
		return nil, err
	}
	for _, k := range in.key {
		a.order, a.spec.Order = append(a.order, sc.columns[k].expr), append(a.spec.Order, agg.Order{})
	}
	blk := &block{}
	if err := bindOutputs(bind, blk, slices.Delete(slices.Clone(items), n, n+1)); err != nil {
		return nil, err
	}
	out := &rows{stream: in.stream, stage: in.stage, chain: in.chain, ranked: rk}
	for i, o := range blk.outputs {
		if i == n {
			out.rankColumn(rk, items[n])
		}
		c := rankedColumn{key: slices.IndexFunc(rk.group.keys, func(k groupKey) bool { return k.x.String() == o.x.String() }), field: -1}
		if c.key < 0 {
			c.field = len(rk.fields)
			rk.fields = append(rk.fields, o.x)
		}
		rk.columns = append(rk.columns, c)
		out.cols = append(out.cols, rowColumn{name: o.name, typ: o.x.Type(), at: o.at})
	}
	if n == len(blk.outputs) {
		out.rankColumn(rk, items[n])
	}
	a.arg = expr.NewPacked(rk.fields...)
	rk.group.aggs = []aggregate{a}
	return out, nil
}

// rankColumn appends the column of the row number.
func (r *rows) rankColumn(rk *ranking, it sql.Item) {
	c := rowColumn{name: columnName(it.Expr), typ: dataflow.TypeBigInt, at: it.At}
	if it.Alias != nil {
		c.name, c.at = it.Alias.Name, it.Alias.At
	}
	r.cols = append(r.cols, c)
	rk.columns = append(rk.columns, rankedColumn{-1, -1})
}

// rankGroups builds the rows of a SELECT with row_number() that groups: the groups first, with what the numbers go by as
// additional columns, then their numbers.
func (b *builder) rankGroups(s *sql.Select, ctes *cte, n int) (*rows, error) {
	grouped, item := *s, s.Items[n]
	grouped.With, grouped.Items = nil, slices.Delete(slices.Clone(s.Items), n, n+1)
	visible := len(grouped.Items)
	// column returns the name of a column of the groups: its number, for the same name may be there twice.
	column := func(i int, at sql.Span) *sql.Name {
		return &sql.Name{Parts: []sql.Ident{{Name: "?" + strconv.Itoa(i), At: at}}, At: at}
	}
	by := func(e sql.Expr) sql.Expr {
		i := slices.IndexFunc(grouped.Items, func(it sql.Item) bool { return b.src.Text(it.Expr.Span()) == b.src.Text(e.Span()) })
		if i < 0 {
			i = len(grouped.Items)
			id := sql.Ident{Name: "by" + strconv.Itoa(i), At: e.Span()}
			grouped.Items = append(grouped.Items, sql.Item{Expr: e, Alias: &id, At: e.Span()})
		}
		return column(i, e.Span())
	}
	call := *item.Expr.(*sql.Call)
	over := sql.Window{At: call.Over.At}
	for _, e := range call.Over.PartitionBy {
		over.PartitionBy = append(over.PartitionBy, by(e))
	}
	for _, o := range call.Over.OrderBy {
		o.Expr = by(o.Expr)
		over.OrderBy = append(over.OrderBy, o)
	}
	call.Over, item.Expr = &over, &call
	in, err := b.selectRows(&grouped, ctes)
	if err == nil {
		in, err = b.closed(in)
	}
	if err != nil {
		return nil, err
	}
	sc := b.scopeOf(in, "")
	var outer []sql.Item
	for i := range sc.columns {
		at := in.cols[i].at
		name := column(i, at)
		sc.columns[i].name = name.Parts[0].Name
		if i < visible {
			outer = append(outer, sql.Item{Expr: name, Alias: &sql.Ident{Name: in.cols[i].name, At: at}, At: at})
		}
	}
	return b.rank(&sql.Select{Items: slices.Insert(outer, n, item), At: s.At}, in, sc)
}

// bound makes rows of a ranking: as many of each group as the WHERE of the SELECT s around it asks for.
func (b *builder) bound(s *sql.Select, in *rows, table string) (*rows, error) {
	rk := in.ranked
	number := slices.Index(rk.columns, rankedColumn{-1, -1})
	limit := rankLimit{}
	if s.Where != nil {
		limit.read(s.Where, func(e sql.Expr) bool {
			name, ok := e.(*sql.Name)
			if !ok || name.Parts[len(name.Parts)-1].Name != in.cols[number].name {
				return false
			}
			return len(name.Parts) == 1 || name.Parts[len(name.Parts)-2].Name == table
		})
	}
	switch {
	case !limit.found:
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, rk.call.At, "%s", rankNotBound)
	case limit.most < 1:
		return nil, b.src.Errorf(dataflow.ReasonSQLType, s.Where.Span(), "row numbers begin at 1: this admits no row")
	case limit.most > agg.MaxTopK:
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.Where.Span(), "a view keeps at most the first %d rows of a group", agg.MaxTopK)
	}
	rk.group.aggs[0].spec.Limit = limit.most
	in.ranked = nil
	var err error
	if limit.most == 1 && len(rk.group.keys) > 0 {
		err = b.firstRows(in, rk)
	} else {
		in, err = b.numberedRows(in, rk, number, limit.one)
	}
	return in, err
}

// top is the aggregate of a ranking, as a column of the groups' rows.
func (rk *ranking) top() *expr.Column {
	return expr.NewColumn(len(rk.group.keys), "top", dataflow.TypeByteaArray)
}

// outputs returns the columns of a ranking over the rows of its groups, when its row is the one with the given number.
func (rk *ranking) outputs(src *sql.Source, cols []rowColumn, number expr.Expr) ([]output, error) {
	row, err := expr.NewCall("[]", rk.top(), number)
	if err != nil {
		return nil, src.At(err, rk.call.At)
	}
	var out []output
	for i, c := range rk.columns {
		o := output{name: cols[i].name, at: cols[i].at}
		switch {
		case c.key >= 0:
			o.x = expr.NewColumn(c.key, rk.group.keys[c.key].x.String(), cols[i].typ)
		case c.field >= 0:
			o.x = expr.NewField(row, c.field, rk.fields[c.field].String(), cols[i].typ)
		default:
			o.x = number
		}
		out = append(out, o)
	}
	return out, nil
}

// firstRows makes one row of each group of a ranking: it is the group's row, an open grouping.
func (b *builder) firstRows(in *rows, rk *ranking) error {
	outputs, err := rk.outputs(b.src, in.cols, expr.NewConst(dataflow.BigInt(1)))
	if err != nil {
		return err
	}
	in.setOpen(&block{group: rk.group, outputs: outputs})
	return nil
}

// numberedRows makes a row of each row that the groups of a ranking keep. Its key is what PARTITION BY names, and the row
// number if one is not all that there can be.
func (b *builder) numberedRows(in *rows, rk *ranking, number int, one bool) (*rows, error) {
	keys, cols := rk.group.keys, in.cols
	groups := &block{group: rk.group}
	for i, k := range keys {
		groups.outputs = append(groups.outputs, output{name: k.name, x: expr.NewColumn(i, k.x.String(), k.x.Type()), at: k.ast.Span()})
	}
	groups.outputs = append(groups.outputs, output{name: "top", x: rk.top(), at: rk.call.At})
	in.setOpen(groups)
	out, err := b.closed(in)
	if err != nil {
		return nil, err
	}
	numbers, err := expr.NewCall("generate_subscripts", rk.top(), expr.NewConst(dataflow.BigInt(1)))
	if err != nil {
		return nil, b.src.At(err, rk.call.At)
	}
	column := dataflow.Column{Name: cols[number].name, Type: dataflow.TypeBigInt}
	out.chain = append(out.chain, &Unnest{Array: numbers, Column: column, At: place(b.src, rk.call.At)})
	outputs, err := rk.outputs(b.src, cols, expr.NewColumn(len(keys)+1, column.Name, column.Type))
	if err != nil {
		return nil, err
	}
	out.project(b.src, outputs, false)
	out.cols, out.key = cols, []int{}
	for k, key := range keys {
		i := slices.IndexFunc(rk.columns, func(c rankedColumn) bool { return c.key == k })
		if i < 0 {
			out.key, out.lostKey = nil, b.src.Text(key.ast.Span())+" of PARTITION BY is not in the SELECT list"
			return out, nil
		}
		out.key = append(out.key, i)
	}
	if !one {
		out.key = append(out.key, number)
	}
	return out, nil
}

// rankLimit is what a condition says about row numbers.
type rankLimit struct {
	found bool
	most  int64 // the largest number that it admits
	one   bool  // it admits one number
}

// read takes in the parts of a condition that bound the row number, as isNumber knows it. The condition is still checked as a
// whole: what it says beyond that does not matter here.
func (l *rankLimit) read(e sql.Expr, isNumber func(sql.Expr) bool) {
	bound := func(limit sql.Expr, less int64, one bool) {
		if n, ok := integerLiteral(limit); ok && (!l.found || n-less < l.most) {
			l.found, l.most = true, n-less
			l.one = l.one || one || l.most == 1
		}
	}
	switch e := e.(type) {
	case *sql.Binary:
		of, limit, op := e.L, e.R, e.Op
		if isNumber(e.R) {
			of, limit = e.R, e.L
			op = map[string]string{">": "<", ">=": "<=", "=": "="}[op]
		}
		switch {
		case op == "AND":
			l.read(e.L, isNumber)
			l.read(e.R, isNumber)
		case !isNumber(of):
		case op == "<":
			bound(limit, 1, false)
		case op == "<=":
			bound(limit, 0, false)
		case op == "=":
			bound(limit, 0, true)
		}
	case *sql.Between:
		if !e.Not && !e.Symmetric && isNumber(e.X) {
			bound(e.Hi, 0, false)
		}
	case *sql.In:
		if e.Not || !isNumber(e.X) {
			return
		}
		var most sql.Expr
		for _, x := range e.List {
			n, ok := integerLiteral(x)
			if !ok {
				return
			}
			if have, _ := integerLiteral(most); most == nil || n > have {
				most = x
			}
		}
		bound(most, 0, len(e.List) == 1)
	}
}

// integerLiteral returns the value of a whole number in the text.
func integerLiteral(e sql.Expr) (int64, bool) {
	lit, ok := e.(*sql.Literal)
	if !ok || lit.Kind != sql.LiteralInteger {
		return 0, false
	}
	n, err := strconv.ParseInt(lit.Text, 10, 64)
	return n, err == nil
}
