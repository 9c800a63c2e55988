package plan

import (
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// fromClause binds what a SELECT reads, and pushes as much of its WHERE as possible below joins. It returns the SELECT with
// what is left of it.
func (b *queryBinder) fromClause(s *sql.Select, ctes *cte) (*sql.Select, node, *scope, error) {
	if s.From == nil {
		return s, &valuesNode{src: b.src, rows: []valuesRow{{}}}, &scope{}, nil
	}
	of := *s.From
	of.Unnests = nil
	n, sc, err := b.from(&of, ctes)
	if err != nil {
		return nil, nil, nil, err
	}
	in, base, early := n, sc, &filterNode{input: n}
	if len(s.From.Unnests) > 0 {
		n = early
	}
	if n, sc, err = b.unnests(s.From.Unnests, n, sc); err != nil {
		return nil, nil, nil, err
	}
	switch in := in.(type) {
	case *joinNode:
		p := &pusher{b: b, scope: base, above: sc}
		left := *s
		left.Where = p.where(in, s.Where)
		p.settle(in)
		s = &left
	case *scanNode:
		if len(s.From.Unnests) > 0 {
			in.Access = accessOf(b.src, in.Table, base, conjuncts(s.Where), b.q.now)
		}
	}
	if len(s.From.Unnests) > 0 {
		s, early.filters = frontFilters(s, b.src, base, sc, rules{})
	}
	return s, n, sc, nil
}

// from binds one item of FROM.
func (b *queryBinder) from(f *sql.From, ctes *cte) (node, *scope, error) {
	if len(f.Unnests) > 0 { // inside of a join
		of := *f
		of.Unnests = nil
		n, sc, err := b.from(&of, ctes)
		if err != nil {
			return nil, nil, err
		}
		return b.unnests(f.Unnests, n, sc)
	}
	if f.Lateral {
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLType, f.At, "LATERAL stands behind the table whose columns it names: FROM t, LATERAL (SELECT …) AS x")
	}
	if f.Join != nil {
		return b.join(f.Join, ctes)
	}
	var n node
	var schema dataflow.Schema
	var err error
	table, qualified := "", ""
	of := sql.Ident{Name: "the subquery", At: f.At}
	switch {
	case f.Subquery != nil:
		if n, err = b.query(f.Subquery, ctes); err == nil {
			schema = n.schema()
		}
	case f.Call != nil:
		of, table = f.Call.Func, f.Call.Func.Name
		n, err = b.series(f)
		if err == nil {
			schema = n.schema()
		}
	default:
		of = f.Name.Parts[len(f.Name.Parts)-1]
		table = of.Name
		if f.Alias == nil && len(f.Name.Parts) == 2 {
			qualified = f.Name.String()
		}
		n, schema, err = b.named(f.Name, ctes)
	}
	if err != nil {
		return nil, nil, err
	}
	if f.Alias != nil {
		table, of = f.Alias.Name, *f.Alias
	}
	schema, err = b.rename(schema, f.Columns, of)
	if err != nil {
		return nil, nil, err
	}
	sc := scopeOfRows(table, schema)
	for i := range sc.columns {
		sc.columns[i].qualified = qualified
	}
	return n, sc, nil
}

// scopeOfRows returns what names can mean over rows, under the name of their table.
func scopeOfRows(table string, schema dataflow.Schema) *scope {
	sc := &scope{}
	for i, c := range schema {
		sc.columns = append(sc.columns, column{table: table, name: c.Name, typ: c.Type, expr: expr.NewColumn(i, c.Name, c.Type)})
	}
	return sc
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
func (b *queryBinder) named(n *sql.Name, ctes *cte) (node, dataflow.Schema, error) {
	if len(n.Parts) == 1 {
		for c := ctes; c != nil; c = c.outer {
			if c.name == n.Parts[0].Name {
				return b.cteRows(c)
			}
		}
	}
	if len(n.Parts) != 2 {
		return nil, nil, b.src.Errorf(dataflow.ReasonTableNotFound, n.At, "%s is not the name of a table: a query reads pipeline.table%s", n, b.suggest(n)).
			WithHint("the rows of a stream are read with weir stream read, or through a view of it; a plain VIEW keeps none")
	}
	t, err := b.cat.Table(n.Parts[0].Name, n.Parts[1].Name)
	if err != nil {
		e := b.src.At(err, n.At)
		if hint := dataflow.DidYouMean(n.String(), b.cat.TableNames()); hint != "" && !strings.Contains(e.Message, "did you mean") {
			e = b.src.Errorf(e.Reason, n.At, "there is no table %s%s", n, hint)
		}
		return nil, nil, e
	}
	if b.q.Pipeline == "" {
		b.q.Pipeline = t.Pipeline
	}
	if b.q.Pipeline != t.Pipeline {
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, n.At, "the query reads tables of %s already, and %s is one of %s: each pipeline has cuts of its own, and a query reads one cut; make a view of %s's streams in the pipeline %s, or run two queries",
			b.q.Pipeline, n, t.Pipeline, t.Pipeline, b.q.Pipeline)
	}
	if len(b.q.Scans) == maxQueryScans {
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, n.At, "the query reads tables more than %d times, what WITH names counted at each use: split it into several queries", maxQueryScans)
	}
	scan := &Scan{Table: t, Access: Access{Ranges: []Range{{}}, Text: "scan all"}}
	b.q.Scans = append(b.q.Scans, scan)
	return &scanNode{Scan: scan}, t.Schema, nil
}

// cteRows binds a query of WITH and returns the schema of its result.
func (b *queryBinder) cteRows(c *cte) (node, dataflow.Schema, error) {
	n, err := b.query(c.def.Query, c.outer)
	if err != nil {
		return nil, nil, err
	}
	schema, err := b.rename(n.schema(), c.def.Columns, c.def.Name)
	return n, schema, err
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
	return dataflow.DidYouMean(n.String(), b.cat.TableNames())
}
