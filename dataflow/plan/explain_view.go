package plan

import (
	"fmt"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
)

// ExplainView prints how the table of a stage is kept up to date, for people and for tests: a line per fact, the table first,
// what it is computed from below it, down to the streams.
func ExplainView(p *Plan, s *Stage) []string {
	x := &explainer{}
	x.view(p, s, make(map[dataflow.StageID]bool))
	return x.lines
}

func (x *explainer) view(p *Plan, s *Stage, shown map[dataflow.StageID]bool) {
	x.stage(p, s, shown)
	var readers []string
	for _, r := range p.Stages {
		for _, in := range r.Inputs {
			if in.FromStage && in.From == s.ID {
				readers = append(readers, fmt.Sprintf("%s (stage %d)", stageName(r), r.ID))
			}
		}
	}
	if len(readers) > 0 {
		x.line("  its changes go to %s", quoteList(readers))
	}
}

// ExplainViews prints all tables of a plan as ExplainView does, in the order of the file.
func ExplainViews(p *Plan) []string {
	x := &explainer{}
	shown := make(map[dataflow.StageID]bool)
	for _, s := range p.Tables() {
		x.view(p, s, shown)
	}
	return x.lines
}

// stage prints a stage and what it reads; a stage that has been shown is not shown again.
func (x *explainer) stage(p *Plan, s *Stage, shown map[dataflow.StageID]bool) {
	shown[s.ID] = true
	kind := "one row per " + quoteList(columnNames(s.Key))
	if len(s.Key) == 0 {
		kind = "one row"
	}
	x.line("%s (stage %d): %s", stageName(s), s.ID, kind)
	x.depth++
	defer func() { x.depth-- }()
	columns := make([]string, len(s.Schema))
	for i, c := range s.Schema {
		columns[i] = c.Name + " " + c.Type.String()
		if text := s.Output[i].String(); text != c.Name {
			columns[i] += " = " + text
		}
	}
	x.line("columns %s", strings.Join(columns, ", "))
	if s.Having != nil {
		x.line("rows that are there: %s", s.Having)
	}
	x.line("state per key: %s", stateText(s))
	for _, in := range s.Inputs {
		x.exchange(p, s, in, shown)
	}
}

// stateText says what a stage keeps for a key.
func stateText(s *Stage) string {
	size := 0
	var parts []string
	fixed, ok := agg.NewLayout(s.Aggs).Fixed()
	row := s.Row()[len(s.Key):]
	for i, a := range s.Aggs {
		text := explainAgg(s, a)
		if a.Arg < 0 {
			text = "count(*)"
		}
		parts = append(parts, fmt.Sprintf("%s = %s", row[i].Name, text))
	}
	size += fixed
	bytes := fmt.Sprintf("%d bytes", size)
	if !ok {
		bytes += " and values of varying length"
	}
	if len(parts) == 0 {
		return bytes + ", the number of rows"
	}
	return bytes + ", the number of rows and " + strings.Join(parts, ", ")
}

// exchange prints how rows come to a stage: the exchange, then the chain before it from its end to its start, then the source.
func (x *explainer) exchange(p *Plan, s *Stage, in *Input, shown map[dataflow.StageID]bool) {
	to := "to the shard of the hash of " + quoteList(columnNames(s.Key))
	if len(s.Key) == 0 {
		to = "to the shard of the empty key"
	}
	pre := ""
	if s.Kind == StageAggregate {
		pre = ", combined by key in each batch as long as that saves rows"
	}
	x.line("rows go %s%s", to, pre)
	x.depth++
	defer func() { x.depth-- }()
	for i := len(in.Chain) - 1; i >= 0; i-- {
		switch op := in.Chain[i].(type) {
		case *Filter:
			x.line("filter %s", op.Cond)
		case *Unnest:
			x.line("unnest %s as %s", op.Array, op.Column.Name)
		case *Project:
			x.line("compute %s", explainOutputs(op, len(op.Exprs)))
		}
	}
	if in.FromStage {
		from := p.Stages[in.From]
		if shown[from.ID] {
			x.line("changes of %s (stage %d), above", stageName(from), from.ID)
			return
		}
		x.line("changes of")
		x.depth++
		x.stage(p, from, shown)
		x.depth--
		return
	}
	for _, st := range p.Reads {
		if st.Name == in.Stream {
			schema := st.Schema
			if in.Pseudo {
				schema = append(append(dataflow.Schema{}, schema...), pseudoColumns()...)
			}
			x.line("stream %s %s", st.Name, schema)
		}
	}
}
