package plan

import (
	"fmt"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// explainer prints the nodes of a query, the result first. What a node reads stands below it; where that is more than one
// thing, each is indented.
type explainer struct {
	lines []string
	depth int
}

func (x *explainer) line(format string, args ...any) {
	x.lines = append(x.lines, strings.Repeat("  ", x.depth)+fmt.Sprintf(format, args...))
}

// below prints nodes one step further in, each with a dash before its first line.
func (x *explainer) below(nodes ...node) {
	for _, n := range nodes {
		x.branch(func() { n.explain(x) })
	}
}

// branch prints what print does one step further in, with a dash before the first line.
func (x *explainer) branch(print func()) {
	x.depth++
	first := len(x.lines)
	print()
	x.depth--
	if first < len(x.lines) {
		indent := strings.Repeat("  ", x.depth)
		x.lines[first] = indent + "- " + strings.TrimPrefix(x.lines[first], indent+"  ")
	}
}

// Explain prints how a query is run, for people and for tests: a line per step, the result first. A run may hold maxBytes
// of memory.
func (q *Query) Explain(maxBytes int64) []string {
	x := &explainer{}
	x.line("query of %s at one cut, in at most %s of memory", q.Pipeline, sizeText(maxBytes))
	x.depth++
	q.root.explain(x)
	return x.lines
}

// sizeText prints a number of bytes.
func sizeText(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

func (l *level) explain(x *explainer) {
	switch {
	case l.offset > 0 && l.limit != noLimit:
		x.line("limit %d offset %d", l.limit, l.offset)
	case l.offset > 0:
		x.line("offset %d", l.offset)
	case l.limit != noLimit:
		x.line("limit %d", l.limit)
	}
	if len(l.order) > 0 {
		by := make([]string, len(l.order))
		for i, o := range l.order {
			by[i] = l.outputs.Exprs[o.col].String() + direction(o)
		}
		held := "holding all rows"
		if l.limit != noLimit {
			held = fmt.Sprintf("holding %d rows", l.limit+l.offset)
		}
		x.line("sort by %s, %s", strings.Join(by, ", "), held)
	}
	if l.distinct {
		x.line("distinct rows, holding each once")
	}
	x.line("columns %s", explainOutputs(l.outputs, l.visible))
	if l.windows != nil {
		for _, s := range l.windows.sets {
			for _, c := range s.calls {
				x.line("window %s, holding all rows", l.windows.out[c.at].Name)
			}
		}
	}
	if l.having != nil {
		x.line("having %s", l.having.Cond)
	}
	if l.grouped {
		l.explainGroups(x)
	}
	if l.filter != nil {
		x.line("filter %s", l.filter.Cond)
	}
	for _, s := range l.subqueries {
		s.explain(x)
	}
	l.input.explain(x)
}

// explainOutputs prints a SELECT list: a column that keeps its name by the name alone.
func explainOutputs(p *Project, visible int) string {
	if visible == 0 {
		return "none"
	}
	parts := make([]string, visible)
	for i := range visible {
		parts[i] = p.Exprs[i].String()
		if name := p.Schema[i].Name; name != parts[i] {
			parts[i] += " as " + name
		}
	}
	return strings.Join(parts, ", ")
}

func (l *level) explainGroups(x *explainer) {
	aggs := make([]string, len(l.specs))
	for i, s := range l.specs {
		aggs[i] = aggText(s, l.groupBy)
	}
	what := strings.Join(aggs, ", ")
	if what == "" {
		what = "no aggregates"
	}
	if l.keys == 0 {
		x.line("aggregate %s", what)
		return
	}
	x.line("group by %s: %s, holding a state per group", exprTexts(l.groupBy.Exprs[:l.keys]), what)
}

// aggText prints an aggregate by the expressions that it folds.
func aggText(s agg.Spec, input *Project) string {
	if s.Arg < 0 {
		return "count(*)"
	}
	args := []string{input.Exprs[s.Arg].String()}
	for _, o := range s.Order {
		args = append(args, input.Exprs[o.Col].String())
	}
	distinct := ""
	if s.Distinct {
		distinct = "distinct "
	}
	return fmt.Sprintf("%s(%s%s)", s.Fn, distinct, strings.Join(args, ", "))
}

func direction(o orderBy) string {
	text := ""
	if o.desc {
		text = " desc"
	}
	if o.nullsFirst != o.desc {
		text += map[bool]string{true: " nulls first", false: " nulls last"}[o.nullsFirst]
	}
	return text
}

func (s *subquery) explain(x *explainer) {
	what := [...]string{subqueryScalar: "its value is kept", subqueryMember: "its values are kept in a set", subqueryExists: "whether it has a row is kept"}[s.kind]
	by := s.keys
	if s.kind == subqueryMember {
		by--
	}
	if by > 0 {
		cols := s.node.schema()[:by]
		what = fmt.Sprintf("kept in a table by %s", quoteList(columnNames(cols)))
	}
	x.line("subquery %d, run first; %s", s.index+1, what)
	x.below(s.node)
}

func (n *scanNode) explain(x *explainer) {
	text := n.Access.Text
	if n.Access.whole() {
		text = "scan all rows"
	}
	x.line("%s.%s: %s", n.Table.Pipeline, n.Table.Name, text)
	if n.keysFrom != nil {
		x.line("  instead looked up by what subquery %d gives, if that is at most %d keys", n.keysFrom.index+1, lookupRows)
	}
}

// whole reports whether the access is the whole table.
func (a *Access) whole() bool {
	return !a.Points && len(a.Ranges) == 1 && a.Ranges[0].Lo == nil && a.Ranges[0].Hi == nil
}

func (n *filterNode) explain(x *explainer) {
	for _, f := range n.filters {
		x.line("filter %s", f.Cond)
	}
	n.input.explain(x)
}

func (n *joinNode) explain(x *explainer) {
	kind := strings.ToLower(n.kind.String())
	var on []string
	for _, k := range n.keys {
		on = append(on, k.text)
	}
	if len(on) == 0 {
		x.line("%s join, each row with each, holding the smaller side", kind)
	} else {
		x.line("%s hash join on %s, holding the smaller side", kind, strings.Join(on, " AND "))
	}
	for _, f := range n.rest {
		x.line("  and %s", f.Cond)
	}
	for side, in := range []node{n.left, n.right} {
		x.branch(func() {
			in.explain(x)
			if n.lookups[side] != nil {
				x.line("  instead looked up by its key, if the other side has at most %d rows", lookupRows)
			}
		})
	}
}

func (n *setNode) explain(x *explainer) {
	all := ""
	if n.all {
		all = " all"
	}
	held := ""
	switch {
	case n.kind != sql.SetUnion:
		held = ", holding the rows of the second"
	case !n.all:
		held = ", holding each row once"
	}
	x.line("%s%s%s", strings.ToLower(n.kind.String()), all, held)
	x.below(n.inputs...)
}

func (n *valuesNode) explain(x *explainer) {
	if len(n.cols) > 0 {
		x.line("values: %d rows", len(n.rows))
	}
}

func (n *seriesNode) explain(x *explainer) {
	x.line("generate_series from %s to %s", valueText(n.from), valueText(n.to))
}

func valueText(v dataflow.Value) string { return expr.NewConst(v).String() }
