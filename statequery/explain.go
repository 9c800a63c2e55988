package statequery

import (
	"context"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
)

// explained is the column of an EXPLAIN's answer: a row per line.
var explained = dataflow.Column{Name: "plan", Type: dataflow.TypeText, NotNull: true}

// explain answers EXPLAIN: how a query, a deployed table or the tables of a file are computed. The answer has the cut that a
// query would be answered at; that of a file, which is not deployed, has none. It has one page.
func (e *Engine) explain(ctx context.Context, x *sql.Explain, o dataflow.ReadOptions) (*batch.Batch, string, dataflow.Cut, error) {
	lines, pipeline, err := e.explainLines(x)
	if err != nil {
		return nil, "", dataflow.Cut{}, err
	}
	rows := batch.NewBatch(dataflow.Schema{explained})
	size := 0
	for _, l := range lines {
		rows.Cols[0].AppendString(l)
		rows.N++
		size += len(l)
	}
	if size > pageBytes {
		return nil, "", dataflow.Cut{}, dataflow.Errorf(dataflow.ReasonTooLarge, "the explanation has %d bytes; an answer takes %d", size, pageBytes).
			WithHint("explain one table, EXPLAIN pipeline.table, or a smaller query")
	}
	if pipeline == nil {
		return rows, "", dataflow.Cut{}, nil
	}
	r, err := e.open(ctx, pipeline, o)
	if err != nil {
		return nil, "", dataflow.Cut{}, err
	}
	defer r.close()
	return rows, "", r.describe(), nil
}

// explainLines explains x, and returns the pipeline that it is about; nil for a file.
func (e *Engine) explainLines(x *sql.Explain) ([]string, *Pipeline, error) {
	switch {
	case x.File != nil:
		p, err := plan.Build(x.File, e.cfg.Catalog.Streams())
		if err != nil {
			return nil, nil, err
		}
		if len(p.Tables()) == 0 {
			return nil, nil, x.File.Source.Errorf(dataflow.ReasonSQLUnsupported, x.File.Statements[0].Span(), "there is nothing to explain: EXPLAIN shows how the tables of CREATE MATERIALIZED VIEW are kept")
		}
		return plan.ExplainViews(p), nil, nil
	case x.Table != nil:
		return e.explainTable(x.Table, x.Source)
	}
	b := e.binding()
	q, err := plan.BindQuery(x.Query, b, e.cfg.Now())
	if err != nil {
		return nil, nil, err
	}
	return q.Explain(e.cfg.MaxBytes), b.pipelines[q.Pipeline], nil
}

func (e *Engine) explainTable(n *sql.Name, src *sql.Source) ([]string, *Pipeline, error) {
	if len(n.Parts) != 2 {
		return nil, nil, src.Errorf(dataflow.ReasonTableNotFound, n.At, "%s is not the name of a table: write EXPLAIN pipeline.table", n)
	}
	p, err := e.cfg.Catalog.Pipeline(n.Parts[0].Name)
	if err != nil {
		return nil, nil, src.At(err, n.At)
	}
	t, err := e.cfg.Catalog.Table(p, n.Parts[1].Name)
	if err != nil {
		return nil, nil, src.At(err, n.At)
	}
	return plan.ExplainView(t.plan, t.stage), p, nil
}
