package plan

import (
	"fmt"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
)

// Explain prints a plan for people and for tests. Two plans with the same text are equal.
func Explain(p *Plan) string {
	var b strings.Builder
	for _, o := range p.Options {
		fmt.Fprintf(&b, "set %s = %s\n", o.Name, quoted(o.Value))
	}
	return b.String() + explainProgram(p)
}

// explainProgram is Explain without the options, which a pipeline can change while it runs.
func explainProgram(p *Plan) string {
	var b strings.Builder
	for _, s := range p.Declared {
		b.WriteString("declare " + explainStream(s) + "\n")
	}
	for _, s := range p.Reads {
		b.WriteString("read " + explainStream(s) + "\n")
	}
	for _, s := range p.Stages {
		explainStage(&b, p, s)
	}
	return b.String()
}

func explainStream(s Stream) string {
	text := s.Name + " " + s.Schema.String()
	if len(s.PartitionBy) > 0 {
		names := make([]string, len(s.PartitionBy))
		for i, c := range s.PartitionBy {
			names[i] = s.Schema[c].Name
		}
		text += " partition by " + quoteList(names)
	}
	for _, o := range s.Options {
		text += " " + o.Name + "=" + quoted(o.Value)
	}
	return text
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func explainStage(b *strings.Builder, p *Plan, s *Stage) {
	kind := "aggregate"
	if s.Kind == StageUpsert {
		kind = "upsert"
	}
	fmt.Fprintf(b, "stage %d %s: %s by %s\n", s.ID, stageName(s), kind, s.Key)
	for _, in := range s.Inputs {
		explainInput(b, p, in)
	}
	row := s.Row()
	for i, a := range s.Aggs {
		fmt.Fprintf(b, "  %s = %s\n", row[len(s.Key)+i].Name, explainAgg(s, a))
	}
	if s.Having != nil {
		fmt.Fprintf(b, "  having %s\n", s.Having)
	}
	for i, c := range s.Schema {
		keyPart := ""
		for k, at := range s.KeyCols {
			if at == i {
				keyPart = fmt.Sprintf(" (key %d)", k+1)
			}
		}
		fmt.Fprintf(b, "  column %s %s = %s%s\n", c.Name, c.Type, s.Output[i], keyPart)
	}
}

// explainAgg names an aggregate by the expressions that it folds.
func explainAgg(s *Stage, a agg.Spec) string {
	if a.Arg < 0 {
		return "count(*)"
	}
	text := a.Fn.String() + "("
	if a.Distinct {
		text += "distinct "
	}
	text += explainArg(s, a.Arg)
	for _, o := range a.Order {
		text += ", " + explainArg(s, o.Col) + o.String()
	}
	text += a.Options() + ") "
	if a.Filtered {
		text += "where " + explainArg(s, a.Filter) + " "
	}
	text += a.Out.String()
	if a.KeepsAll() && !a.Bounded() {
		text += ", keeps all values"
	}
	return text
}

func explainArg(s *Stage, col int) string {
	for _, in := range s.Inputs {
		if p, ok := lastOp(in).(*Project); ok && col < len(p.Exprs) {
			return p.Exprs[col].String()
		}
	}
	return fmt.Sprintf("#%d", col)
}

func lastOp(in *Input) Op {
	if len(in.Chain) == 0 {
		return nil
	}
	return in.Chain[len(in.Chain)-1]
}

func stageName(s *Stage) string {
	if s.Name == "" {
		return "(internal)"
	}
	return s.Name
}

func explainInput(b *strings.Builder, p *Plan, in *Input) {
	switch {
	case in.FromStage:
		fmt.Fprintf(b, "  from stage %d %s\n", in.From, stageName(p.Stages[in.From]))
	case in.Pseudo:
		fmt.Fprintf(b, "  from stream %s with _append_time, _shard, _offset\n", in.Stream)
	default:
		fmt.Fprintf(b, "  from stream %s\n", in.Stream)
	}
	for _, op := range in.Chain {
		switch op := op.(type) {
		case *Filter:
			fmt.Fprintf(b, "    filter %s\n", op.Cond)
		case *Unnest:
			fmt.Fprintf(b, "    unnest %s as %s\n", op.Array, op.Column.Name)
		case *Project:
			fmt.Fprintf(b, "    project %s\n", explainProject(op))
		}
	}
}

func explainProject(p *Project) string {
	if len(p.Exprs) == 0 {
		return "nothing"
	}
	parts := make([]string, len(p.Exprs))
	for i, x := range p.Exprs {
		parts[i] = explainColumn(x, p.Schema[i])
	}
	return quoteList(parts)
}

// explainColumn prints an expression and the name it gets. A column of the input that keeps its name is printed with its
// position, since names may repeat.
func explainColumn(x expr.Expr, c dataflow.Column) string {
	text := x.String()
	if i := isColumn(x); i >= 0 {
		text = fmt.Sprintf("#%d", i+1)
	}
	return text + " as " + c.Name
}
