package plan

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// node is one node of a query's plan. It is immutable once the query is bound.
type node interface {
	// schema describes the rows that it gives. Names may repeat.
	schema() dataflow.Schema
	// start returns what gives them in a run.
	start(r *run) operator
	// explain prints the node and what it reads.
	explain(x *explainer)
}

var (
	_ node = (*scanNode)(nil)
	_ node = (*filterNode)(nil)
	_ node = (*level)(nil)
	_ node = (*joinNode)(nil)
	_ node = (*setNode)(nil)
	_ node = (*valuesNode)(nil)
	_ node = (*seriesNode)(nil)
	_ node = (*unnestNode)(nil)
)

// scanNode reads a table.
type scanNode struct {
	*Scan
	conditions []sql.Expr // that have been pushed down to it
	keysFrom   *subquery  // that gives the keys to look up, if they are few; nil: none
}

func (n *scanNode) schema() dataflow.Schema { return n.Table.Schema }

// filterNode keeps the rows for which all conditions are true: conditions of a WHERE that have been pushed below a join.
type filterNode struct {
	input   node
	filters []*Filter
}

func (n *filterNode) schema() dataflow.Schema { return n.input.schema() }

// valuesNode gives rows of constants: VALUES, or the one row without columns that a SELECT without FROM reads.
type valuesNode struct {
	src  *sql.Source
	rows []valuesRow
	cols dataflow.Schema
}

// valuesRow is one row of VALUES. Its places are spans, not lines and columns, because there may be very many.
type valuesRow struct {
	exprs []expr.Expr
	at    []sql.Span
}

func (n *valuesNode) schema() dataflow.Schema { return n.cols }

// seriesNode gives the values of generate_series.
type seriesNode struct {
	from, to, step dataflow.Value
	plus           expr.Expr // column 1 plus column 2, for the next value
	way            int       // 1 up, -1 down, 0: there is one value at most
	column         dataflow.Schema
	at             sql.Span
	src            *sql.Source
}

func (n *seriesNode) schema() dataflow.Schema { return n.column }

// cast returns rows of n converted to the types of want, under its names; n itself when they have them.
func cast(src *sql.Source, n node, want dataflow.Schema, at sql.Span) (node, error) {
	have := n.schema()
	same := true
	l := &level{input: n, visible: len(want), limit: noLimit, outputs: &Project{Schema: want}}
	for i, c := range have {
		same = same && c.Type == want[i].Type
		x, err := expr.NewCast(expr.NewColumn(i, c.Name, c.Type), want[i].Type)
		if err != nil {
			return nil, src.At(err, at)
		}
		if c.Type == want[i].Type {
			x = expr.NewColumn(i, c.Name, c.Type)
		}
		l.outputs.Exprs = append(l.outputs.Exprs, x)
		l.outputs.At = append(l.outputs.At, place(src, at))
	}
	if same {
		return n, nil
	}
	return l, nil
}

// common returns the type that values of two types are compared as, or shown under each other as.
func common(a, b dataflow.Type) (dataflow.Type, error) {
	switch {
	case a == b || b == dataflow.TypeUnknown:
		return a, nil
	case a == dataflow.TypeUnknown:
		return b, nil
	}
	x, err := expr.NewCall("coalesce", expr.NewColumn(0, "left", a), expr.NewColumn(1, "right", b))
	if err != nil {
		return 0, err
	}
	return x.Type(), nil
}
