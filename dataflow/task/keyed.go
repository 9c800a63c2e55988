package task

import (
	"context"
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/checkpoint"
	"github.com/weirdb/weir/dataflow/exchange"
	"github.com/weirdb/weir/dataflow/key"
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
	writer *checkpoint.Writer
	routes []*route // to the stages that read this table

	align   *checkpoint.Aligner[exchange.Envelope]
	freezes []freeze // frozen for the writer, oldest first
	markers map[uint64]*gathered
	part    checkpoint.Part // scratch of gather
	changes *changes        // nil when no stage reads this table
	keyBuf  []byte
}

// freeze is what the table froze for one attempt, still to be handed to the writer.
type freeze struct {
	id     dataflow.CheckpointID
	frozen *state.Frozen
}

// gathered counts the edges that have delivered a marker.
type gathered struct {
	edges     int
	positions dataflow.Positions
}

// gatherRows is how many frozen entries are handed to the writer between two batches: few enough not to delay the next
// batch noticeably, many enough for a large freeze to end soon.
const gatherRows = 8192

func newKeyed(r *Run, st *plan.Stage, shard dataflow.ShardID, in *exchange.Inbox, table *state.Table, w *checkpoint.Writer) *keyed {
	k := &keyed{
		run: r, stage: st, shard: shard, inbox: in, table: table, writer: w,
		layout: agg.NewLayout(st.Aggs), markers: make(map[uint64]*gathered),
	}
	k.align = checkpoint.NewAligner[exchange.Envelope](in.Edges())
	return k
}

func (k *keyed) loop(ctx context.Context) error {
	if len(k.routes) > 0 {
		k.changes = newChanges(k.stage, k.run.ending)
	}
	if err := k.createOnlyRow(ctx); err != nil {
		return err
	}
	for {
		// With frozen entries left to hand over, take a message if there is one, and hand over a part either way.
		if len(k.freezes) > 0 {
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
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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
	k.table.Lock()
	s := k.table.Slot(hash, nil)
	absent := s.Val == nil
	if absent {
		k.table.Touch(s)
		k.note(s, nil)
		s.Val = k.layout.New(nil)
	}
	k.table.Unlock()
	if !absent {
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
	k.freezes = append(k.freezes, freeze{id: n, frozen: k.table.Freeze()})
	k.run.barrier.passed(n)
	return k.broadcast(ctx, exchange.Message{Kind: exchange.KindBarrier, Barrier: n})
}

// gather hands a part of the oldest freeze to the writer.
func (k *keyed) gather(ctx context.Context) error {
	f := k.freezes[0]
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

// foldRows folds a batch into the table under one hold of its lock.
func (k *keyed) foldRows(b *batch.Batch, hashes []uint64) error {
	nkeys := len(k.stage.Key)
	k.table.Lock()
	defer k.table.Unlock()
	for row := range b.N {
		k.keyBuf = k.keyBuf[:0]
		for c := range nkeys {
			k.keyBuf = key.AppendVector(k.keyBuf, b.Cols[c], row)
		}
		s := k.table.Slot(hashes[row], k.keyBuf)
		k.note(s, k.keyBuf)
		k.table.Touch(s)
		if s.Val == nil {
			s.Val = k.layout.New(nil)
		}
		weight := int64(1)
		if b.Weights != nil {
			weight = int64(b.Weights[row])
		}
		val, err := k.layout.Update(s.Val, b, row, weight)
		if err != nil {
			return k.foldFailure(b, row, err)
		}
		k.put(s, val)
	}
	return nil
}

func (k *keyed) foldPartials(p *exchange.Partials) error {
	k.table.Lock()
	defer k.table.Unlock()
	for i, acc := range p.Accs {
		s := k.table.Slot(p.Hashes[i], p.Keys[i])
		k.note(s, p.Keys[i])
		k.table.Touch(s)
		if s.Val == nil {
			s.Val = k.layout.New(nil)
		}
		val, err := k.layout.Merge(s.Val, acc)
		if err != nil {
			return &RowFailure{View: k.name(), Text: k.keyText(p.Keys[i]), Err: asError(err)}
		}
		k.put(s, val)
	}
	return nil
}

// put stores the accumulator, or removes the row when its group has become empty.
func (k *keyed) put(s *state.Slot, val []byte) {
	if k.layout.Rows(val) == 0 && !k.stage.AlwaysHasRow() {
		val = nil
	}
	s.Val = val
}

func (k *keyed) note(s *state.Slot, key []byte) {
	if k.changes != nil {
		k.changes.note(s, key)
	}
}

// emit sends what the last message changed to the stages that read this table.
func (k *keyed) emit(ctx context.Context) error {
	if k.changes == nil || k.changes.empty() {
		return nil
	}
	var sent error // of fn, told apart from an error in computing the changes
	err := k.changes.each(k.run.cfg.OnError, func(out *batch.Batch) error {
		sent = k.pass(ctx, out)
		return sent
	})
	switch {
	case err == nil || sent != nil:
		return err
	case dataflow.ReasonOf(err) == dataflow.ReasonExpressionFailed || dataflow.ReasonOf(err) == dataflow.ReasonTooLarge:
		return &RowFailure{View: k.name(), Text: "of one of its groups", Err: asError(err)}
	}
	return fmt.Errorf("compute the rows of %s: %w", k.name(), err)
}

// pass sends visible changes to the stages that read this table.
func (k *keyed) pass(ctx context.Context, out *batch.Batch) error {
	for _, rt := range k.routes {
		if err := rt.pieces.Each(out, func(piece *batch.Batch) (bool, error) { return k.passPiece(ctx, rt, piece) }); err != nil {
			return err
		}
	}
	return nil
}

// passPiece sends changes over one route, or does nothing when that does not fit.
func (k *keyed) passPiece(ctx context.Context, rt *route, out *batch.Batch) (fits bool, err error) {
	b, failed, fits, err := rt.compute(out, nil)
	if err != nil || !fits {
		return false, err
	}
	// A row of a table that a view cannot compute is left out while it is there: its retraction fails as it did. It is not
	// counted, because the count is of rows of streams.
	if len(failed) > 0 && k.run.cfg.OnError == dataflow.OnErrorFail {
		return false, &RowFailure{View: rt.viewName(), Line: failed[0].At.Line, Column: failed[0].At.Column, Text: rowText(out, failed[0].Row), Err: failed[0].Err}
	}
	if b.N == 0 {
		return true, nil
	}
	return true, rt.send(ctx, b)
}

func (k *keyed) marker(ctx context.Context, env exchange.Envelope) error {
	g := k.markers[env.Marker]
	if g == nil {
		g = &gathered{positions: make(dataflow.Positions)}
		k.markers[env.Marker] = g
	}
	g.edges++
	g.positions.Advance(env.Positions)
	if g.edges < k.inbox.Edges() {
		return nil
	}
	delete(k.markers, env.Marker)
	k.run.markers.reached(env.Marker, g.positions)
	return k.broadcast(ctx, exchange.Message{Kind: exchange.KindMarker, Marker: env.Marker, Positions: g.positions})
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

func (k *keyed) keyText(encoded []byte) string {
	types := make([]dataflow.Type, len(k.stage.Key))
	for i, c := range k.stage.Key {
		types[i] = c.Type
	}
	row, err := key.Decode(types, encoded)
	if err != nil {
		return fmt.Sprintf("key %x", encoded)
	}
	b := batch.NewBatch(k.stage.Key)
	b.AppendRow(row)
	return rowText(b, 0)
}

// foldFailure names the row that an aggregate could not take.
func (k *keyed) foldFailure(b *batch.Batch, row int, err error) error {
	f := &RowFailure{View: k.name(), Text: rowText(b, row), Err: asError(err)}
	for name, id := range k.run.cfg.Streams {
		if id == b.Stream && b.Stream != 0 {
			f.Stream, f.Row = name, dataflow.SourceRow{Stream: b.Stream, Shard: b.Shard, Offset: b.OffsetOf(row)}
		}
	}
	return f
}
