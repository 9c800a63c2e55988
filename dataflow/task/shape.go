package task

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/state"
)

// Shape returns what the entries of a stage's table are like.
func Shape(st *plan.Stage) state.Shape {
	// Parts of a key as package key encodes them: a byte for the type and a value, or one byte for NULL.
	const (
		fixedPart   = 1 + 8
		textPart    = 16 // a short text
		mostInSlots = 48 // longer keys would make every slot of the table large
	)
	var s state.Shape
	for _, c := range st.Key {
		switch c.Type {
		case dataflow.TypeBool:
			s.KeyBytes += 2
		case dataflow.TypeBigInt, dataflow.TypeTimestamp, dataflow.TypeDate, dataflow.TypeDouble:
			s.KeyBytes += fixedPart
		default:
			s.KeyBytes += textPart
		}
	}
	s.KeyBytes = min(s.KeyBytes, mostInSlots)
	if size, fixed := agg.NewLayout(st.Aggs).Fixed(); fixed {
		s.ValBytes = size
	}
	return s
}

// Merge returns how partial values of a stage's table are merged; nil when its keys must not begin as partials: when a stage
// reads the table, which asks for each value before and after it changes, when rows are taken back, or when the result would
// depend on how the rows were cut.
func Merge(p *plan.Plan, st *plan.Stage) state.Merge {
	for _, in := range st.Inputs {
		if in.FromStage {
			return nil
		}
	}
	for _, other := range p.Stages {
		for _, in := range other.Inputs {
			if in.FromStage && in.From == st.ID {
				return nil
			}
		}
	}
	layout := agg.NewLayout(st.Aggs)
	if !layout.Exact() {
		return nil
	}
	return layout.Merge
}
