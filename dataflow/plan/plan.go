// Package plan turns parsed SQL into the plans that Weir runs: a DAG of keyed stages for the views of a pipeline, and a
// Query for a pull query over tables of one pipeline, a tree of nodes. It is pure: the same text and catalog give the same
// plan on every node, which is why the meta log stores the text alone.
package plan

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
)

// Plan is what a pipeline runs.
type Plan struct {
	// Declared holds the CREATE STREAM statements of the file, in order.
	Declared []Stream
	// Reads holds the streams that stages read, by name, each once.
	Reads []Stream
	// Stages are in topological order; Stages[i].ID == i. A stage's number is part of its stored keys.
	Stages []*Stage
	// Options holds the file's SET statements as written; dataflow.PipelineOptions takes them.
	Options []Option
}

// Option is one SET statement, or one option of CREATE STREAM … WITH.
type Option = dataflow.Option

// Place is where an expression stands in the text, from 1. Failures of rows name it (on_error).
type Place struct{ Line, Column int }

// Stream describes a stream as a plan sees it.
type Stream struct {
	Name        string
	Schema      dataflow.Schema // declared columns
	PartitionBy []int           // columns whose hash places a row in a shard; empty = spread in runs
	Options     []Option        // WITH (…), as written
}

// StageKind says how a stage folds its input. The list is append-only.
type StageKind uint8

const (
	// StageAggregate groups rows by key and folds them with Aggs.
	StageAggregate StageKind = 0
	// StageUpsert keeps one row per key: a view over a table that keeps the table's key. Its Aggs are all agg.Any.
	StageUpsert StageKind = 1
)

// Stage is one keyed fold: it receives rows by hash of Key and owns one table of state.
type Stage struct {
	ID   dataflow.StageID
	Name string // the table's name; "" for an internal stage (a subquery that aggregates)
	Kind StageKind

	Inputs []*Input
	// Key holds the grouping columns. The batch that an Input delivers has them first, then the aggregates' arguments.
	Key  dataflow.Schema
	Aggs []agg.Spec

	// Schema holds the visible columns in SELECT order; Output computes them from a row of [Key..., results of Aggs...].
	Schema dataflow.Schema
	Output []expr.Expr
	// KeyCols says where each key column stands in Schema.
	KeyCols []int
	// Having hides rows for which it is not true; nil admits all. Over the same row as Output.
	Having expr.Expr
	// OutputAt and HavingAt say where Output and Having stand in the text.
	OutputAt []Place
	HavingAt Place
}

// Input feeds a stage from a stream or from another stage's table.
type Input struct {
	Stream string           // when FromStage is false
	From   dataflow.StageID // when FromStage is true: rows are the changes of that stage's visible table, with weights
	// FromStage tells the two apart.
	FromStage bool
	// Pseudo says that the chain reads _append_time, _shard and _offset: the source appends these three columns, in this
	// order, to the declared ones. Only for a stream.
	Pseudo bool
	// Chain is run where the rows are produced, before the exchange. Its result has the stage's key columns, then the
	// aggregates' arguments.
	Chain []Op
}

// Op is one stateless operator of a chain: *Filter, *Project or *Unnest.
type Op interface{ op() }

// Filter keeps the rows for which Cond is true.
type Filter struct {
	Cond expr.Expr
	At   Place
}

// Project replaces the columns.
type Project struct {
	Exprs  []expr.Expr
	Schema dataflow.Schema
	At     []Place // of each of Exprs
}

// Unnest repeats each row once per element of the array, which becomes an additional last column. A NULL or empty array
// gives no row.
type Unnest struct {
	Array  expr.Expr // TEXT[]
	Column dataflow.Column
	At     Place
}

// Table returns the stage that owns the table called name.
func (p *Plan) Table(name string) (*Stage, bool) {
	for _, s := range p.Stages {
		if s.Name == name && name != "" {
			return s, true
		}
	}
	return nil, false
}

// Tables returns the stages that own named tables, in the order of the file.
func (p *Plan) Tables() []*Stage {
	var tables []*Stage
	for _, s := range p.Stages {
		if s.Name != "" {
			tables = append(tables, s)
		}
	}
	return tables
}

// Row returns the schema that Output and Having read: the key columns, then the results of the aggregates.
func (s *Stage) Row() dataflow.Schema {
	row := append(dataflow.Schema(nil), s.Key...)
	for i, a := range s.Aggs {
		row = append(row, dataflow.Column{Name: fmt.Sprintf("agg%d", i+1), Type: a.Out})
	}
	return row
}

// AlwaysHasRow reports whether the table has one row whatever its input is: an aggregate without GROUP BY has it before
// any input, a view that keeps the row of another table does not.
func (s *Stage) AlwaysHasRow() bool { return len(s.Key) == 0 && s.Kind == StageAggregate }

func (*Filter) op()  {}
func (*Project) op() {}
func (*Unnest) op()  {}
