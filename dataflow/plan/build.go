package plan

import (
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

const (
	// maxStages bounds the stages of a plan: each is a table per shard.
	maxStages = 256
	// maxSelects bounds what views that read views expand to.
	maxSelects = 20_000
	// maxColumns bounds the columns of a stream, a SELECT list and GROUP BY: PostgreSQL's limit for a table.
	maxColumns = 1600
)

// builder collects a plan from the statements of a file.
type builder struct {
	src     *sql.Source
	catalog Catalog
	plan    *Plan
	// streams, views and tables are what FROM can name. All three share one name space.
	streams map[string]Stream
	views   map[string]*sql.CreateView
	tables  map[string]*Stage
	// later holds the names that the file defines further down.
	later map[string]bool

	// The state of the view that is being built.
	view   string
	stages []*Stage // new ones, not yet in the plan
	pseudo bool     // sources deliver the pseudo columns
	// wantPseudo is set when a pseudo column is named.
	wantPseudo bool
	depth      int
	// checked holds the queries of WITH that have been checked for errors.
	checked map[*sql.Select]bool

	selects int // built so far, over the whole file
}

// Build plans a deploy file. It needs the streams that exist; the file's own CREATE STREAM wins over an existing stream of
// the same name (whether the two agree is checked when it is created). Errors are *dataflow.Error: SQL_TYPE,
// SQL_UNSUPPORTED, STREAM_NOT_FOUND or OPTION_INVALID, with the place.
func Build(file *sql.File, cat Catalog) (*Plan, error) {
	b := &builder{
		src: file.Source, catalog: cat, plan: &Plan{},
		streams: map[string]Stream{}, views: map[string]*sql.CreateView{}, tables: map[string]*Stage{}, later: map[string]bool{},
	}
	for _, s := range file.Statements {
		switch s := s.(type) {
		case *sql.CreateStream:
			b.later[s.Name.Name] = true
		case *sql.CreateView:
			b.later[s.Name.Name] = true
		}
	}
	for _, s := range file.Statements {
		if err := b.statement(s); err != nil {
			return nil, err
		}
	}
	return b.plan, nil
}

func (b *builder) statement(s sql.Statement) error {
	switch s := s.(type) {
	case *sql.Set:
		return b.set(s)
	case *sql.CreateStream:
		delete(b.later, s.Name.Name)
		return b.createStream(s)
	case *sql.CreateView:
		return b.createView(s)
	}
	return b.src.Errorf(dataflow.ReasonSQLUnsupported, s.Span(), "this statement is not supported")
}

func (b *builder) set(s *sql.Set) error {
	for _, o := range b.plan.Options {
		if o.Name == s.Option.Name {
			return b.src.Errorf(dataflow.ReasonOptionInvalid, s.Option.At, "option %s is set twice", o.Name)
		}
	}
	o := Option{Name: s.Option.Name, Value: s.Option.Value}
	if _, err := dataflow.DefaultPipelineOptions().With([]Option{o}); err != nil {
		return b.src.At(err, s.Option.At)
	}
	b.plan.Options = append(b.plan.Options, o)
	return nil
}

func (b *builder) createStream(s *sql.CreateStream) error {
	if err := b.checkNew(s.Name); err != nil {
		return err
	}
	st := Stream{Name: s.Name.Name}
	if len(s.Columns) > maxColumns {
		return b.src.Errorf(dataflow.ReasonSQLUnsupported, s.Columns[maxColumns].Name.At, "a stream has at most %d columns", maxColumns)
	}
	for _, c := range s.Columns {
		name := c.Name.Name
		switch {
		case st.Schema.Index(name) >= 0:
			return b.src.Errorf(dataflow.ReasonSQLType, c.Name.At, "column %q is there twice", name)
		case name == dataflow.ColAppendTime || name == dataflow.ColShard || name == dataflow.ColOffset:
			return b.src.Errorf(dataflow.ReasonSQLType, c.Name.At, "every stream has a column %s already: choose another name", name)
		}
		t, err := typeOf(b.src, c.Type)
		if err != nil {
			return err
		}
		st.Schema = append(st.Schema, dataflow.Column{Name: name, Type: t, NotNull: c.NotNull, Mod: modOf(c.Type)})
	}
	for _, id := range s.PartitionBy {
		i := st.Schema.Index(id.Name)
		if i < 0 {
			return b.src.Errorf(dataflow.ReasonSQLType, id.At, "there is no column %q%s", id.Name, dataflow.DidYouMean(id.Name, columnNames(st.Schema)))
		}
		for _, j := range st.PartitionBy {
			if i == j {
				return b.src.Errorf(dataflow.ReasonSQLType, id.At, "column %q is there twice", id.Name)
			}
		}
		if err := checkKeyType(b.src, id.At, st.Schema[i].Type, "PARTITION BY"); err != nil {
			return err
		}
		st.PartitionBy = append(st.PartitionBy, i)
	}
	if err := b.streamOptions(&st, s.Options); err != nil {
		return err
	}
	b.streams[st.Name] = st
	b.plan.Declared = append(b.plan.Declared, st)
	return nil
}

func (b *builder) streamOptions(st *Stream, options []sql.Option) error {
	for _, so := range options {
		o := Option{Name: so.Name, Value: so.Value}
		for _, have := range st.Options {
			if have.Name == o.Name {
				return b.src.Errorf(dataflow.ReasonOptionInvalid, so.At, "option %s is set twice", o.Name)
			}
		}
		if _, err := dataflow.DefaultStreamOptions().With([]Option{o}); err != nil {
			return b.src.At(err, so.At)
		}
		st.Options = append(st.Options, o)
	}
	return nil
}

// checkNew refuses a second thing of the same name in the file.
func (b *builder) checkNew(id sql.Ident) error {
	kind := ""
	if _, ok := b.streams[id.Name]; ok {
		kind = "stream"
	}
	if _, ok := b.views[id.Name]; ok {
		kind = "view"
	}
	if _, ok := b.tables[id.Name]; ok {
		kind = "materialized view"
	}
	if kind != "" {
		return b.src.Errorf(dataflow.ReasonSQLType, id.At, "the file has a %s %q already: choose another name", kind, id.Name)
	}
	return nil
}

// createView builds a view. A plain view only names a subquery: it is built once, to find its errors, and again by each
// view that reads it.
func (b *builder) createView(v *sql.CreateView) error {
	if err := b.checkNew(v.Name); err != nil {
		return err
	}
	b.view = v.Name.Name
	stage, err := b.buildView(v, false)
	if err == nil && b.wantPseudo {
		stage, err = b.buildView(v, true)
	}
	if err != nil {
		return err
	}
	delete(b.later, v.Name.Name)
	if !v.Materialized {
		b.views[v.Name.Name] = v
		return nil
	}
	b.plan.Stages = append(b.plan.Stages, b.stages...)
	if len(b.plan.Stages) > maxStages {
		return b.src.Errorf(dataflow.ReasonSQLUnsupported, v.Name.At, "the file's views need more than %d tables, subqueries included: split it into several pipelines", maxStages)
	}
	b.tables[v.Name.Name] = stage
	for _, s := range b.stages {
		for _, in := range s.Inputs {
			if !in.FromStage {
				b.read(in.Stream)
			}
		}
	}
	return nil
}

// buildView builds the stages of a view into b.stages and returns the last one, which owns the view's table.
func (b *builder) buildView(v *sql.CreateView, pseudo bool) (*Stage, error) {
	b.stages, b.pseudo, b.wantPseudo, b.depth, b.checked = nil, pseudo, false, 0, map[*sql.Select]bool{}
	r, err := b.selectRows(v.Query, nil)
	if err != nil {
		return nil, err
	}
	if err := r.rename(b.src, v.Columns, v.Name); err != nil {
		return nil, err
	}
	if !v.Materialized {
		return nil, nil
	}
	return b.materialize(v, r)
}

func (b *builder) read(name string) {
	for _, s := range b.plan.Reads {
		if s.Name == name {
			return
		}
	}
	s, _ := b.stream(name)
	b.plan.Reads = append(b.plan.Reads, s)
}

// stream returns the stream called name: of the file, or an existing one.
func (b *builder) stream(name string) (Stream, bool) {
	if s, ok := b.streams[name]; ok {
		return s, true
	}
	return b.catalog.Stream(name)
}

func columnNames(s dataflow.Schema) []string {
	names := make([]string, len(s))
	for i, c := range s {
		names[i] = c.Name
	}
	return names
}

// pseudoColumns are what a source appends to a stream's own columns when a view names one of them.
func pseudoColumns() dataflow.Schema {
	return dataflow.Schema{
		{Name: dataflow.ColAppendTime, Type: dataflow.TypeTimestamp, NotNull: true},
		{Name: dataflow.ColShard, Type: dataflow.TypeBigInt, NotNull: true},
		{Name: dataflow.ColOffset, Type: dataflow.TypeBigInt, NotNull: true},
	}
}

// unknownTable describes a name in FROM that nothing has.
func (b *builder) unknownTable(n *sql.Name, ctes *cte) error {
	name := n.Parts[0].Name
	switch {
	case name == b.view:
		return b.src.Errorf(dataflow.ReasonSQLType, n.At, "%s is the view that is defined here: it cannot read itself", name)
	case b.later[name]:
		return b.src.Errorf(dataflow.ReasonSQLType, n.At, "%s is defined further down in the file: move it up", name)
	}
	var near []string
	for c := ctes; c != nil; c = c.outer {
		near = append(near, c.name)
	}
	for _, s := range b.plan.Declared {
		near = append(near, s.Name)
	}
	for _, s := range b.plan.Tables() {
		near = append(near, s.Name)
	}
	near = append(near, sortedNames(b.views)...)
	near = append(near, b.catalog.StreamNames()...)
	hint := dataflow.DidYouMean(name, near)
	if hint == "" {
		hint = "; write CREATE STREAM " + name + " (…), or see weir stream list"
	}
	return b.src.Errorf(dataflow.ReasonStreamNotFound, n.At, "there is no stream or view %q%s", name, hint).WithMeta("stream", name)
}

// isColumn returns the position of the column that x is, or -1.
func isColumn(x expr.Expr) int {
	if c, ok := x.(*expr.Column); ok {
		return c.Index
	}
	return -1
}

// quoteList joins names for an error message: a, b.
func quoteList(names []string) string { return strings.Join(names, ", ") }
