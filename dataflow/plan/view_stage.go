package plan

import (
	"fmt"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// closed makes a stage of an open grouping, so that its rows can be read as those of a table.
func (b *builder) closed(r *rows) (*rows, error) {
	if r.open == nil {
		return r, nil
	}
	s, err := b.aggregateStage("", r)
	if err != nil {
		return nil, err
	}
	return stageRows(s), nil
}

// newStage adds a stage with one input: the rows, then the operators that prepare them.
func (b *builder) newStage(name string, kind StageKind, r *rows, ops ...Op) *Stage {
	in := &Input{Stream: r.stream, Chain: append(r.chain[:len(r.chain):len(r.chain)], ops...)}
	if r.stage != nil {
		in.FromStage, in.From = true, r.stage.ID
	} else {
		in.Pseudo = b.pseudo
	}
	s := &Stage{ID: dataflow.StageID(len(b.plan.Stages) + len(b.stages)), Name: name, Kind: kind, Inputs: []*Input{in}}
	b.stages = append(b.stages, s)
	return s
}

// aggregateStage makes a stage of an open grouping. Keys that the SELECT list leaves out become additional columns, which
// a stage with a name has none of.
func (b *builder) aggregateStage(name string, r *rows) (*Stage, error) {
	blk := r.open
	project, specs := blk.group.input(b.src)
	if err := checkTopK(specs); err != nil {
		return nil, b.src.At(err, blk.group.aggs[0].at)
	}
	s := b.newStage(name, StageAggregate, r, project)
	s.Aggs = specs
	if blk.having != nil {
		s.Having, s.HavingAt = blk.having.Cond, blk.having.At
	}
	outputs := blk.outputs
	for _, k := range blk.missingKeys() {
		key := blk.group.keys[k]
		outputs = append(outputs, output{name: fmt.Sprintf("key%d", k+1), x: expr.NewColumn(k, key.x.String(), key.x.Type()), at: key.ast.Span()})
	}
	for _, o := range outputs {
		s.Output = append(s.Output, o.x)
		s.OutputAt = append(s.OutputAt, place(b.src, o.span()))
		s.Schema = append(s.Schema, dataflow.Column{Name: o.name, Type: o.x.Type()})
	}
	for i, k := range blk.group.keys {
		at := slices.IndexFunc(s.Output, func(x expr.Expr) bool { return isColumn(x) == i })
		s.KeyCols = append(s.KeyCols, at)
		s.Key = append(s.Key, dataflow.Column{Name: s.Schema[at].Name, Type: k.x.Type()})
	}
	return s, nil
}

// checkTopK refuses aggregates that keep more rows than there is room for.
func checkTopK(specs []agg.Spec) error {
	room := agg.NewLayout(specs).MaxArgBytes()
	if room >= agg.MinTopKArg || !slices.ContainsFunc(specs, agg.Spec.Bounded) {
		return nil
	}
	return dataflow.Errorf(dataflow.ReasonSQLUnsupported, "so many rows, ordered by so many columns, have no room in the %d bytes of a row of state", dataflow.MaxRowBytes).
		WithHint("keep fewer rows of a group, or order them by fewer columns")
}

// missingKeys returns the keys that are not among the outputs as they are.
func (blk *block) missingKeys() []int {
	var missing []int
	for i := range blk.group.keys {
		if !slices.ContainsFunc(blk.outputs, func(o output) bool { return isColumn(o.x) == i }) {
			missing = append(missing, i)
		}
	}
	return missing
}

// materialize makes the stage that owns the table of a materialized view.
func (b *builder) materialize(v *sql.CreateView, r *rows) (*Stage, error) {
	if r.ranked != nil {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, r.ranked.call.At, "%s", rankNotBound)
	}
	if err := b.checkTableColumns(r); err != nil {
		return nil, err
	}
	if r.open == nil {
		return b.upsertStage(v, r)
	}
	if missing := r.open.missingKeys(); len(missing) > 0 {
		key := r.open.group.keys[missing[0]]
		clause, are := "GROUP BY", "the GROUP BY columns are"
		if slices.ContainsFunc(r.open.group.aggs, func(a aggregate) bool { return a.text == rankText }) {
			clause, are = "PARTITION BY", "the PARTITION BY columns are"
		}
		return nil, b.src.Errorf(dataflow.ReasonSQLType, key.ast.Span(), "%s is in %s but not in the SELECT list: %s the key of the table %s, so all of them must be in it; add it to the SELECT list",
			b.src.Text(key.ast.Span()), clause, are, v.Name.Name)
	}
	return b.aggregateStage(v.Name.Name, r)
}

// checkTableColumns checks what a table's columns must be: named and distinct.
func (b *builder) checkTableColumns(r *rows) error {
	seen := make(map[string]bool)
	for _, c := range r.cols {
		switch {
		case c.hidden:
			continue
		case c.name == unnamed:
			return b.src.Errorf(dataflow.ReasonSQLType, c.at, "this column needs a name: write AS name behind it")
		case seen[c.name]:
			return b.src.Errorf(dataflow.ReasonSQLType, c.at, "two columns of the table are called %q: write AS and another name", c.name)
		case !dataflow.ValidName(c.name):
			return b.src.Errorf(dataflow.ReasonSQLType, c.at, "%q cannot name a column of a table: names are lower-case letters a to z, digits and _, up to %d of them", c.name, dataflow.MaxNameLen)
		}
		seen[c.name] = true
	}
	return nil
}

// upsertStage makes a stage that keeps one row per key: a view over a table that keeps the table's key.
func (b *builder) upsertStage(v *sql.CreateView, r *rows) (*Stage, error) {
	if r.stage == nil {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, v.At, "the materialized view %s has no key: add GROUP BY (its columns become the key of the table), keep the newest row of each key by row_number() OVER (PARTITION BY … ORDER BY …) in a subquery and = 1 around it, or write CREATE VIEW if %s is only a step of other views", v.Name.Name, v.Name.Name)
	}
	if r.key == nil {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, v.At, "the materialized view %s has no key: it reads a table, but %s; keep the table's key columns in the SELECT list, add GROUP BY, or write CREATE VIEW if %s is only a step of other views", v.Name.Name, r.lostKey, v.Name.Name)
	}
	p := &Project{}
	s := &Stage{}
	take := func(i int) int {
		c := r.cols[i]
		p.Exprs = append(p.Exprs, expr.NewColumn(i, c.name, c.typ))
		p.Schema = append(p.Schema, dataflow.Column{Name: c.name, Type: c.typ})
		p.At = append(p.At, place(b.src, c.at))
		return len(p.Exprs) - 1
	}
	at := make([]int, len(r.cols)) // where each column stands in the stage's input, and so in its row
	for i := range at {
		at[i] = -1
	}
	for _, k := range r.key {
		at[k] = take(k)
		s.Key = append(s.Key, p.Schema[at[k]])
	}
	for i, c := range r.cols {
		if at[i] < 0 {
			at[i] = take(i)
			s.Aggs = append(s.Aggs, agg.Spec{Fn: agg.Any, Arg: at[i], ArgType: c.typ, Out: c.typ})
		}
		s.Schema = append(s.Schema, dataflow.Column{Name: c.name, Type: c.typ})
		s.Output = append(s.Output, expr.NewColumn(at[i], c.name, c.typ))
		s.OutputAt = append(s.OutputAt, place(b.src, c.at))
	}
	s.KeyCols = append([]int{}, r.key...)
	built := b.newStage(v.Name.Name, StageUpsert, r, p)
	built.Key, built.Aggs, built.Schema, built.Output, built.OutputAt, built.KeyCols = s.Key, s.Aggs, s.Schema, s.Output, s.OutputAt, s.KeyCols
	return built, nil
}
