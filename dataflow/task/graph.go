package task

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/checkpoint"
	"github.com/weirdb/weir/dataflow/exchange"
	"github.com/weirdb/weir/dataflow/plan"
)

// build makes the tasks of this node and the edges between them and to those of other nodes. Edge order is fixed by the plan:
// inputs in order, shards in order.
func (r *Run) build() error {
	cfg := &r.cfg
	tasks := make([]map[dataflow.ShardID]*keyed, len(cfg.Plan.Stages)) // by stage
	for i := range tasks {
		tasks[i] = make(map[dataflow.ShardID]*keyed)
	}
	for _, shard := range cfg.Local {
		base := cfg.Bases[shard]
		w := checkpoint.NewWriter(checkpoint.WriterConfig{
			Pipeline: cfg.Pipeline, Shard: shard, Incarnation: cfg.Incarnation, Base: base,
			Tables: len(cfg.Plan.Stages), Sources: len(cfg.Plan.Reads),
			Log: cfg.Deltas(shard), Ack: cfg.Ack, Phases: cfg.Phases,
		})
		r.writers[shard] = w
		for i, st := range cfg.Plan.Stages {
			inbox := exchange.NewInbox(len(st.Inputs)*cfg.Shards, exchange.Credits)
			k := newKeyed(r, st, shard, inbox, cfg.Table(st.ID, shard), w)
			tasks[i][shard] = k
			r.keyed = append(r.keyed, k)
		}
	}
	for _, shard := range cfg.Local {
		bySource := make(map[string]*source)
		for _, st := range cfg.Plan.Reads {
			s := newSource(r, st, shard, r.writers[shard])
			bySource[st.Name] = s
			r.sources = append(r.sources, s)
		}
		for _, st := range cfg.Plan.Stages {
			for i, in := range st.Inputs {
				out, err := r.connect(st, i, shard, tasks[st.ID])
				if err != nil {
					return err
				}
				rt := newRoute(r, st, in, shard, out)
				if in.FromStage {
					k := tasks[in.From][shard]
					k.routes = append(k.routes, rt)
				} else {
					bySource[in.Stream].routes = append(bySource[in.Stream].routes, rt)
				}
			}
		}
	}
	return nil
}

// connect returns the ways from a producing shard of this node into every task of the stage by its input in, and opens the ways
// from other nodes into the shard's own task. tasks are those of the stage on this node.
func (r *Run) connect(st *plan.Stage, in int, shard dataflow.ShardID, tasks map[dataflow.ShardID]*keyed) ([]exchange.Sender, error) {
	edge := func(to *keyed, from dataflow.ShardID) *exchange.Edge {
		return to.inbox.Edge(in*r.cfg.Shards + int(from))
	}
	out := make([]exchange.Sender, r.cfg.Shards)
	for s := range out {
		other := dataflow.ShardID(s)
		if k := tasks[other]; k != nil {
			out[s] = edge(k, shard)
			continue
		}
		if r.cfg.Links == nil {
			return nil, fmt.Errorf("shard %d of pipeline %s does not run on this node", s, r.cfg.Name)
		}
		schema := edgeSchema(st.Inputs[in])
		var err error
		if out[s], err = r.cfg.Links.Out(exchange.EdgeID{Stage: st.ID, Input: in, From: shard, To: other}, schema); err != nil {
			return nil, err
		}
		if err := r.cfg.Links.In(exchange.EdgeID{Stage: st.ID, Input: in, From: other, To: shard}, schema, edge(tasks[shard], other), tasks[shard].check); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// edgeSchema returns the columns that the chain of an input gives: every chain ends with a projection to the stage's key and
// the aggregates' arguments.
func edgeSchema(in *plan.Input) dataflow.Schema {
	for _, op := range in.Chain {
		if p, ok := op.(*plan.Project); ok && op == in.Chain[len(in.Chain)-1] {
			return p.Schema
		}
	}
	return nil
}
