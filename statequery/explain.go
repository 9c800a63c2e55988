package statequery

import (
	"context"
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
)

// explained is the column of an EXPLAIN's answer: a row per line.
var explained = dataflow.Column{Name: "plan", Type: dataflow.TypeText, NotNull: true}

// Explain explains a SELECT, or what EXPLAIN explains, without running it: the plan, a row per line, and where the answer would
// come from, which is nil for a file that is not deployed.
func (e *Engine) Explain(ctx context.Context, text string, o dataflow.ReadOptions) (*batch.Batch, *dataflow.Explanation, dataflow.Cut, error) {
	sel, x, err := sql.ParseStatement(text)
	if err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	if x == nil {
		x = &sql.Explain{Query: sel}
	}
	return e.explain(ctx, x, o)
}

// explain answers EXPLAIN: how a query, a deployed table or the tables of a file are computed. The answer has the cut that a
// query would be answered at; that of a file, which is not deployed, has none. It has one page.
func (e *Engine) explain(ctx context.Context, x *sql.Explain, o dataflow.ReadOptions) (*batch.Batch, *dataflow.Explanation, dataflow.Cut, error) {
	e.hearFor(ctx, o)
	lines, pipeline, err := e.explainLines(x)
	if err == nil && pipeline != nil && ahead(o.Session, pipeline) {
		if err = e.catchUp(ctx, pipeline, o.MaxWait); err == nil {
			lines, pipeline, err = e.explainLines(x)
		}
	}
	if err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	rows := batch.NewBatch(dataflow.Schema{explained})
	size := 0
	for _, l := range lines {
		rows.Cols[0].AppendString(l)
		rows.N++
		size += len(l)
	}
	if size > pageBytes {
		return nil, nil, dataflow.Cut{}, dataflow.Errorf(dataflow.ReasonTooLarge, "the explanation has %d bytes; an answer takes %d", size, pageBytes).
			WithHint("explain one table, EXPLAIN pipeline.table, or a smaller query")
	}
	if pipeline == nil {
		return rows, nil, dataflow.Cut{}, nil
	}
	r, err := e.open(ctx, pipeline, o)
	if err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	defer r.close()
	return rows, r.where(o), r.describe(), nil
}

// where says from where a reading is answered.
func (r *reading) where(o dataflow.ReadOptions) *dataflow.Explanation {
	node, cut := r.e.cfg.Node, r.cut.ID
	x := &dataflow.Explanation{Node: node}
	switch {
	case r.live != nil:
		x.Isolation = dataflow.ReadUncommitted
		x.Why = fmt.Sprintf("incarnation %d runs: its live tables have what was processed since checkpoint %d; any node takes the request and asks the owners of the shards", r.live.Incarnation(), cut)
	case o.Isolation == dataflow.ReadUncommitted:
		x.Why = fmt.Sprintf("the pipeline is %s and has no live tables, so what is committed answers: checkpoint %d", r.pipeline.State, cut)
	case r.named:
		x.Why = fmt.Sprintf("the request names checkpoint %d; every node has a copy of all shards", cut)
	default:
		x.Why = fmt.Sprintf("checkpoint %d is the newest that node %s knows of; every node has a copy of all shards, and the one that was asked answers", cut, node)
	}
	for s := range r.e.cfg.Shards {
		read := dataflow.ShardRead{Shard: dataflow.ShardID(s), Node: node, Source: dataflow.LocalCopy, Why: "this node's copy of the committed state"}
		if r.live != nil {
			read.Source, read.Why = dataflow.LiveHere, "this node owns the shard: it runs its tasks"
			if owner := r.live.Owner(read.Shard); owner != "" && owner != node {
				read.Node, read.Source, read.Why = owner, dataflow.LiveRemote, "node "+owner+" owns the shard, and is asked over the network"
			}
		}
		x.Shards = append(x.Shards, read)
	}
	return x
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
