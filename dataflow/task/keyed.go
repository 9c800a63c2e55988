package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/checkpoint"
	"github.com/weirdb/weir/dataflow/exchange"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/state"
)

// keyed folds rows into one table of one shard.
type keyed struct {
	run    *Run
	stage  *plan.Stage
	shard  dataflow.ShardID
	inbox  *exchange.Inbox
	table  *state.Table
	layout *agg.Layout
	fixed  bool // every accumulator has the same length
	always bool // the row is there also when its group is empty
	writer *checkpoint.Writer
	routes []*route // to the stages that read this table

	align   *checkpoint.Aligner[exchange.Envelope]
	freezes []freeze // frozen for the writer, oldest first
	markers gathering
	part    checkpoint.Part // scratch of gather
	changes *changes        // nil when no stage reads this table
	keyBuf  []byte
	keys    rowKeys
	looked  looked
}

// freeze is what the table froze for one attempt, still to be handed to the writer.
type freeze struct {
	id     dataflow.CheckpointID
	frozen *state.Frozen
	// patience ends the wait for the filling of a table whose keys may be partials; nil = it does not wait.
	patience <-chan time.Time
}

// gatherRows is how many frozen entries are handed to the writer between two batches: few enough not to delay the next
// batch noticeably, many enough for a large freeze to end soon.
const gatherRows = 8192

// resolveRows is how many partials are made whole between two batches: each costs a microsecond or two.
const resolveRows = 2048

func newKeyed(r *Run, st *plan.Stage, shard dataflow.ShardID, in *exchange.Inbox, table *state.Table, w *checkpoint.Writer) *keyed {
	k := &keyed{
		run: r, stage: st, shard: shard, inbox: in, table: table, writer: w,
		layout: agg.NewLayout(st.Aggs), markers: gathering{edges: in.Edges()},
	}
	_, k.fixed = k.layout.Fixed()
	k.always = st.AlwaysHasRow()
	k.align = checkpoint.NewAligner[exchange.Envelope](in.Edges())
	return k
}

func (k *keyed) loop(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, k.table.EndResolve()) }()
	if len(k.routes) > 0 {
		k.changes = newChanges(k.stage, k.run.ending)
	}
	if err := k.createOnlyRow(ctx); err != nil {
		return err
	}
	for {
		warming, patience := k.patience()
		// With frozen entries left to hand over, take a message if there is one, and hand over a part either way.
		if len(k.freezes) > 0 && warming == nil {
			select {
			case env := <-k.inbox.C():
				if err := k.receive(ctx, env); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			default:
			}
			if err := k.gather(ctx); err != nil {
				return err
			}
			continue
		}
		select {
		case env := <-k.inbox.C():
			if err := k.receive(ctx, env); err != nil {
				return err
			}
		case <-k.table.Wanted(): // what is committed can go, and other tables may need it more
			k.table.Relieve()
		case <-warming:
		case <-patience:
			k.freezes[0].patience = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// patience returns what the oldest freeze waits for, nil when it is to be handed over now: the end of the table's filling, which
// makes its partials whole for a fraction of what looking each of them up costs, or the time up to when that is waited for.
func (k *keyed) patience() (warming <-chan struct{}, over <-chan time.Time) {
	if len(k.freezes) == 0 || k.freezes[0].patience == nil || k.table.FrozenPartials() == 0 {
		return nil, nil
	}
	return k.table.Warming(), k.freezes[0].patience
}

// createOnlyRow makes the row of an aggregate without GROUP BY: it is there before any input is.
func (k *keyed) createOnlyRow(ctx context.Context) error {
	if !k.stage.AlwaysHasRow() {
		return nil
	}
	hash := dataflow.HashKey(nil)
	if dataflow.ShardOf(dataflow.KeyGroupOf(hash), k.run.cfg.Shards) != k.shard {
		return nil
	}
	if k.table.HasPartials() {
		if err := k.resolve(hash, nil); err != nil {
			return err
		}
	} else if _, err := k.lookUp([]uint64{hash}, func(int) []byte { return nil }); err != nil {
		return err
	}
	k.table.Lock()
	_, a := k.table.Append(hash, nil, nil)
	made := a != state.Found
	if made {
		_, val := k.change(0, hash, nil)
		made = k.layout.Rows(val) == 0
	}
	k.table.Unlock()
	if !made {
		return nil
	}
	return k.emit(ctx)
}

func (k *keyed) receive(ctx context.Context, env exchange.Envelope) error {
	var acts checkpoint.Actions[exchange.Envelope]
	var err error
	if env.Kind == exchange.KindBarrier {
		acts, err = k.align.Barrier(env.Edge, env.Barrier)
	} else {
		acts = k.align.Message(env.Edge, env)
	}
	for err == nil {
		for _, d := range acts.Deliver {
			if err := k.process(ctx, d.Msg); err != nil {
				return err
			}
			k.inbox.Release(d.Edge)
		}
		if acts.Aligned == 0 {
			return nil
		}
		if err := k.snapshot(ctx, acts.Aligned); err != nil {
			return err
		}
		for _, e := range acts.Barriers {
			k.inbox.Release(e)
		}
		acts, err = k.align.Resume()
	}
	return fmt.Errorf("align %s on shard %d: %w", k.name(), k.shard, err)
}

// snapshot freezes the table for attempt n and passes the barrier on. Handing the frozen entries over is gather's.
func (k *keyed) snapshot(ctx context.Context, n dataflow.CheckpointID) error {
	f := freeze{id: n, frozen: k.table.Freeze(n)}
	if k.run.cfg.FillPatience > 0 && k.table.FrozenPartials() > 0 && k.table.Warming() != nil {
		f.patience = time.After(k.run.cfg.FillPatience)
	}
	k.freezes = append(k.freezes, f)
	k.run.barrier.passed(n)
	return k.broadcast(ctx, exchange.Message{Kind: exchange.KindBarrier, Barrier: n})
}

// gather hands a part of the oldest freeze to the writer, once it has no partials.
func (k *keyed) gather(ctx context.Context) error {
	f := k.freezes[0]
	if k.table.HasPartials() {
		if done, err := k.table.Resolve(f.frozen, k.stage.ID, resolveRows, k.view); err != nil || !done {
			return k.lookUpFailure(err)
		}
	}
	k.part.Reset()
	done := k.table.Gather(f.frozen, gatherRows, k.part.Add)
	if done {
		k.freezes = k.freezes[1:]
	}
	return k.writer.Add(ctx, f.id, k.stage.ID, &k.part, done)
}

func (k *keyed) process(ctx context.Context, env exchange.Envelope) error {
	switch env.Kind {
	case exchange.KindRows:
		if err := k.foldRows(env.Rows, env.Hashes); err != nil {
			return err
		}
		return k.emit(ctx)
	case exchange.KindPartials:
		if err := k.foldPartials(env.Partials); err != nil {
			return err
		}
		return k.emit(ctx)
	case exchange.KindMarker:
		return k.marker(ctx, env)
	}
	return fmt.Errorf("%s on shard %d received %s", k.name(), k.shard, env.Message)
}

func (k *keyed) marker(ctx context.Context, env exchange.Envelope) error {
	positions, complete := k.markers.arrived(env.Marker, env.Positions)
	if !complete {
		return nil
	}
	k.run.markers.reached(env.Marker, positions)
	return k.broadcast(ctx, exchange.Message{Kind: exchange.KindMarker, Marker: env.Marker, Positions: positions})
}

func (k *keyed) broadcast(ctx context.Context, m exchange.Message) error {
	for _, rt := range k.routes {
		if err := rt.broadcast(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (k *keyed) name() string {
	if k.stage.Name != "" {
		return k.stage.Name
	}
	return fmt.Sprintf("subquery %d", k.stage.ID)
}
