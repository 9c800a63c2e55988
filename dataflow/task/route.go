package task

import (
	"context"
	"errors"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/exchange"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

// route is the way from a producing task to the keyed tasks of one stage: the stage's chain, pre-aggregation, and the
// split by key group over the edges, one per shard.
type route struct {
	run    *Run
	stage  *plan.Stage
	chain  *operator.ChainRunner
	env    expr.Env
	edges  []exchange.Sender // by shard
	pseudo bool              // the chain reads _append_time, _shard or _offset
	pre    *operator.PreAgg  // nil when the stage's aggregates cannot be pre-combined
	keyBuf []byte
	pieces batch.Pieces // of what a keyed task sends; a source cuts for all its routes
	hashes []uint64
	sel    [][]int32 // scratch: rows per shard
}

func newRoute(r *Run, st *plan.Stage, in *plan.Input, _ dataflow.ShardID, edges []exchange.Sender) *route {
	rt := &route{run: r, stage: st, chain: operator.NewChainRunner(st, in), edges: edges, pseudo: in.Pseudo, sel: make([][]int32, len(edges))}
	rt.env.Interrupt = r.ending
	if !in.FromStage {
		rt.pre = operator.NewPreAgg(st)
	}
	return rt
}

func (rt *route) viewName() string {
	if rt.stage.Name != "" {
		return rt.stage.Name
	}
	return "a subquery"
}

func (rt *route) broadcast(ctx context.Context, m exchange.Message) error {
	for _, e := range rt.edges {
		if err := e.Send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// compute runs the chain over b without the rows of skip, and says for which rows it failed. fits is false when b is too
// large to be computed at once. The error says that the run ends.
func (rt *route) compute(b *batch.Batch, skip batch.Bitmap) (out *batch.Batch, failed []operator.RowError, fits bool, err error) {
	out, failed, fits = rt.chain.Run(b, skip, &rt.env)
	return out, failed, fits, rt.env.Interrupted()
}

// send sends each shard its part of a batch that the chain has computed: partial accumulators where combining pays, else
// rows. Their append times stay behind: the chain was the last to ask for them, and the source uses their memory again.
func (rt *route) send(ctx context.Context, b *batch.Batch) error {
	b = b.WithCols(b.Schema, b.Cols)
	b.AppendTime = nil
	if rt.pre != nil && rt.pre.Enabled() {
		return rt.sendPartials(ctx, b)
	}
	return rt.sendRows(ctx, b)
}

func (rt *route) sendRows(ctx context.Context, b *batch.Batch) error {
	rt.hashes, rt.keyBuf = operator.HashKeys(rt.hashes[:0], rt.keyBuf, b, len(rt.stage.Key))
	rt.split(rt.hashes)
	for s, sel := range rt.sel {
		if len(sel) == 0 {
			continue
		}
		part := b
		if len(sel) < b.N {
			part = b.Select(sel)
		}
		m := exchange.Message{Kind: exchange.KindRows, Rows: part, Hashes: gather(rt.hashes, sel)}
		if err := rt.edges[s].Send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (rt *route) sendPartials(ctx context.Context, b *batch.Batch) error {
	partials, err := rt.pre.Fold(b)
	if err != nil {
		return err
	}
	defer partials.Release()
	rt.split(partials.Hashes)
	for s, sel := range rt.sel {
		if len(sel) == 0 {
			continue
		}
		if err := rt.edges[s].Send(ctx, exchange.Message{Kind: exchange.KindPartials, Partials: pack(partials, sel)}); err != nil {
			return err
		}
	}
	return nil
}

// split lists in sel, by shard, the numbers of the keys that have these hashes.
func (rt *route) split(hashes []uint64) {
	for i := range rt.sel {
		rt.sel[i] = rt.sel[i][:0]
	}
	for i, h := range hashes {
		s := dataflow.ShardOf(dataflow.KeyGroupOf(h), len(rt.edges))
		rt.sel[s] = append(rt.sel[s], int32(i))
	}
}

// gather returns a copy of the hashes that sel lists.
func gather(hashes []uint64, sel []int32) []uint64 {
	out := make([]uint64, len(sel))
	for i, n := range sel {
		out[i] = hashes[n]
	}
	return out
}

// pack returns copies of the partials that sel lists. They lie one behind the other, each accumulator behind its key: the
// receiver goes through them in that order.
func pack(from *operator.Partials, sel []int32) *exchange.Partials {
	size := 0
	for _, n := range sel {
		size += len(from.Key(int(n))) + len(from.Acc(int(n)))
	}
	bytes, slices := make([]byte, 0, size), make([][]byte, 2*len(sel))
	p := &exchange.Partials{Hashes: gather(from.Hashes, sel), Keys: slices[:len(sel):len(sel)], Accs: slices[len(sel):]}
	for i, n := range sel {
		at := len(bytes)
		bytes = append(bytes, from.Key(int(n))...)
		end := len(bytes)
		bytes = append(bytes, from.Acc(int(n))...)
		p.Keys[i], p.Accs[i] = bytes[at:end:end], bytes[end:len(bytes):len(bytes)]
	}
	return p
}

// asError returns err as a *dataflow.Error, wrapping it when it is none.
func asError(err error) *dataflow.Error {
	var e *dataflow.Error
	if errors.As(err, &e) {
		return e
	}
	return dataflow.Errorf(dataflow.ReasonExpressionFailed, "%w", err)
}
