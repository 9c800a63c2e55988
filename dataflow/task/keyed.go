package task

import (
	"bytes"
	"context"
	"errors"
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
	looked  looked
}

// freeze is what the table froze for one attempt, still to be handed to the writer.
type freeze struct {
	id     dataflow.CheckpointID
	frozen *state.Frozen
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
		case <-k.table.Wanted(): // what is committed can go, and other tables may need it more
			k.table.Relieve()
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
	k.freezes = append(k.freezes, freeze{id: n, frozen: k.table.Freeze(n)})
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

// foldRows folds a batch into the table.
func (k *keyed) foldRows(b *batch.Batch, hashes []uint64) error {
	cols := b.Cols[:len(k.stage.Key)]
	encode := func(row int) []byte {
		k.keyBuf = k.keyBuf[:0]
		for _, c := range cols {
			k.keyBuf = key.AppendVector(k.keyBuf, c, row)
		}
		return k.keyBuf
	}
	return k.fold(hashes, encode, func(row int, val []byte) ([]byte, error) {
		weight := int64(1)
		if b.Weights != nil {
			weight = int64(b.Weights[row])
		}
		val, err := k.layout.Update(val, b, row, weight)
		if err != nil {
			return nil, k.foldFailure(b, row, err)
		}
		return val, nil
	})
}

// foldPartials folds partial accumulators into the table.
func (k *keyed) foldPartials(p *exchange.Partials) error {
	return k.fold(p.Hashes, func(i int) []byte { return p.Keys[i] }, func(i int, val []byte) ([]byte, error) {
		val, err := k.layout.Merge(val, p.Accs[i])
		if err != nil {
			return nil, &RowFailure{View: k.name(), Text: k.keyText(p.Keys[i]), Err: asError(err)}
		}
		return val, nil
	})
}

// fold calls update for the accumulator of each of a message's keys, in order. It holds the table's lock for the whole message,
// unless keys are looked up: then for as many as are looked up at a time.
func (k *keyed) fold(hashes []uint64, key func(i int) []byte, update func(i int, val []byte) ([]byte, error)) error {
	for from := 0; from < len(hashes); {
		n, err := k.lookUp(hashes[from:], func(i int) []byte { return key(from + i) })
		if err != nil {
			return err
		}
		if err := k.foldPart(from, hashes[from:from+n], key, update); err != nil {
			return err
		}
		from += n
	}
	return nil
}

func (k *keyed) foldPart(from int, hashes []uint64, key func(i int) []byte, update func(i int, val []byte) ([]byte, error)) error {
	k.table.Lock()
	defer k.table.Unlock()
	k.table.Prefetch(hashes)
	for i, h := range hashes {
		s, val := k.change(i, h, key(from+i))
		val, err := update(from+i, val)
		if err != nil {
			return err
		}
		k.put(s, val)
	}
	return nil
}

// lookUp makes room in the table and finds the accumulators of those of a message's keys that the table does not hold: they
// are in the base. It reads the store, so it does not hold the table's lock meanwhile. It returns how many of the keys it has
// seen to: as many as give maxLooked bytes.
func (k *keyed) lookUp(hashes []uint64, key func(i int) []byte) (n int, err error) {
	k.looked.reset()
	if k.table.Relieve(); k.table.Complete() {
		return len(hashes), nil
	}
	k.table.Lock()
	k.looked.rows = k.table.Missing(k.looked.rows, hashes, key)
	k.table.Unlock()
	if len(k.looked.rows) == 0 {
		return len(hashes), nil
	}
	if k.table.HasPartials() { // a few, of those that are frozen
		for _, row := range k.looked.rows {
			if err := k.resolve(hashes[row], key(int(row))); err != nil {
				return 0, err
			}
		}
		k.run.cfg.Memory.CountLookups(len(k.looked.rows))
		k.looked.reset()
		return len(hashes), nil
	}
	view, err := k.base()
	if err != nil {
		return 0, k.lookUpFailure(err)
	}
	defer view.Release()
	for at, row := range k.looked.rows {
		if len(k.looked.arena) > maxLooked {
			k.looked.rows = k.looked.rows[:at]
			k.run.cfg.Memory.CountLookups(at)
			return int(row), nil
		}
		if k.looked.again(hashes, key, int(row)) {
			k.looked.ends = append(k.looked.ends, -1)
			continue
		}
		val, found, err := view.Get(k.stage.ID, key(int(row)), k.looked.arena)
		if err != nil {
			return 0, k.lookUpFailure(err)
		}
		if !found {
			k.looked.ends = append(k.looked.ends, -1)
			continue
		}
		k.looked.arena = val
		k.looked.ends = append(k.looked.ends, len(val))
	}
	k.run.cfg.Memory.CountLookups(len(k.looked.rows))
	return len(hashes), nil
}

// resolve makes the value of a key whole that is a partial, or not in the table.
func (k *keyed) resolve(hash uint64, key []byte) error {
	if k.table.Complete() {
		return nil
	}
	view, err := k.base()
	if err != nil {
		return k.lookUpFailure(err)
	}
	defer view.Release()
	val, found, err := view.Get(k.stage.ID, key, k.looked.arena[:0])
	if err != nil {
		return k.lookUpFailure(err)
	}
	k.looked.arena = val[:0]
	if !found {
		val = nil
	}
	return k.lookUpFailure(k.table.Resolved(hash, key, val))
}

// lookUpFailure says what was being done when err, which may be nil, happened.
func (k *keyed) lookUpFailure(err error) error {
	if merge := (*state.MergeError)(nil); errors.As(err, &merge) {
		return &RowFailure{View: k.name(), Text: k.keyText(merge.Key), Err: asError(merge.Err)}
	}
	if err != nil {
		return fmt.Errorf("look up keys of %s on shard %d: %w", k.name(), k.shard, err)
	}
	return nil
}

// base opens the cut that has what the table does not hold.
func (k *keyed) base() (*state.View, error) { return k.view(k.table.Base()) }

// view opens a cut or, when that has expired, the newer one that the table has for its base meanwhile.
func (k *keyed) view(cut dataflow.CheckpointID) (*state.View, error) {
	for {
		view, err := k.run.cfg.View(k.shard, cut)
		if err == nil {
			return view, nil
		}
		now := k.table.Base()
		if now == cut {
			return nil, err
		}
		cut = now
	}
}

// maxLooked is how many bytes of accumulators are looked up at a time, about: an accumulator has a MiB at most.
const maxLooked = 4 << 20

// looked holds the accumulators that a message's keys have in the base, by row.
type looked struct {
	rows  []int32
	ends  []int // where the accumulator of the row ends in the arena; -1 = there is none, or an earlier row has it
	arena []byte
	next  int // of rows
	from  int // where the next accumulator begins

	seen map[uint64]int32 // the first row with a hash
	key  []byte           // scratch of again
}

func (l *looked) reset() {
	if cap(l.arena) > 2*maxLooked {
		l.arena = nil
	}
	clear(l.seen)
	*l = looked{rows: l.rows[:0], ends: l.ends[:0], arena: l.arena[:0], seen: l.seen, key: l.key}
}

// again reports whether an earlier row has the key of this one: then it is in the table when this one's turn comes.
func (l *looked) again(hashes []uint64, key func(i int) []byte, row int) bool {
	if l.seen == nil {
		l.seen = make(map[uint64]int32)
	}
	first, there := l.seen[hashes[row]]
	if !there {
		l.seen[hashes[row]] = int32(row)
		return false
	}
	l.key = append(l.key[:0], key(int(first))...)
	return bytes.Equal(l.key, key(row))
}

// take returns the accumulator of a row, nil when it was not looked up or is not there. Rows are asked for in order.
func (l *looked) take(row int) []byte {
	if l.next == len(l.rows) || int(l.rows[l.next]) != row {
		return nil
	}
	from, end := l.from, l.ends[l.next]
	l.next++
	if end < 0 {
		return nil
	}
	l.from = end
	return l.arena[from:end]
}

// change returns the slot of the key that a row of a message is about to be folded into, and its accumulator: an empty one
// for a new key.
func (k *keyed) change(row int, hash uint64, key []byte) (state.Slot, []byte) {
	s := k.table.Change(hash, key)
	if val := k.looked.take(row); val != nil && s.Fresh() {
		s.Set(val)
	}
	val := s.Value()
	k.note(hash, key, val)
	if val == nil {
		val = k.create(s)
	}
	return s, val
}

// create gives a new key an empty accumulator, which is zero bytes.
func (k *keyed) create(s state.Slot) []byte {
	size, _ := k.layout.Fixed()
	return s.Create(size)
}

// put stores the accumulator, or removes the row when its group has become empty.
func (k *keyed) put(s state.Slot, val []byte) {
	switch {
	case k.layout.Rows(val) == 0 && !k.always:
		s.Set(nil)
	case !k.fixed: // else the accumulator was changed in place
		s.Set(val)
	}
}

// note remembers the accumulator that a key had before the message, for the stages that read this table.
func (k *keyed) note(hash uint64, key, old []byte) {
	if k.changes != nil {
		k.changes.note(hash, key, old)
	}
}

// emit sends what the last message changed to the stages that read this table.
func (k *keyed) emit(ctx context.Context) error {
	if k.changes == nil || k.changes.empty() {
		return nil
	}
	var sent error // of fn, told apart from an error in computing the changes
	err := k.changes.each(k.table, k.run.cfg.OnError, func(out *batch.Batch) error {
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
