package task

import (
	"context"
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/exchange"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/state"
)

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
	return k.fold(hashes, encode, func(from, to int) error { return k.foldRowsPart(b, hashes, from, to) })
}

// foldRowsPart folds rows from to to-1 of a batch.
func (k *keyed) foldRowsPart(b *batch.Batch, hashes []uint64, from, to int) error {
	for at := from; at < to; at += len(k.keys.ends) {
		n := k.keys.encode(b.Cols[:len(k.stage.Key)], at, to)
		for i := range n {
			row := at + i
			s, val := k.change(row-from, hashes[row], k.keys.key(i))
			val, err := k.layout.Update(val, b, row, b.Weight(row))
			if err != nil {
				return k.foldFailure(b, row, err)
			}
			k.put(s, val)
		}
	}
	return nil
}

// foldPartials folds partial accumulators into the table.
func (k *keyed) foldPartials(p *exchange.Partials) error {
	return k.fold(p.Hashes, func(i int) []byte { return p.Keys[i] }, func(from, to int) error { return k.foldPartialsPart(p, from, to) })
}

// foldPartialsPart folds partials from to to-1 of a message.
func (k *keyed) foldPartialsPart(p *exchange.Partials, from, to int) error {
	for i := from; i < to; i++ {
		s, val := k.change(i-from, p.Hashes[i], p.Keys[i])
		val, err := k.layout.Merge(val, p.Accs[i])
		if err != nil {
			return &RowFailure{View: k.name(), Text: k.keyText(p.Keys[i]), Err: asError(err)}
		}
		k.put(s, val)
	}
	return nil
}

// fold folds a message's entries, those with these hashes and keys, in order: part folds from to to-1. It holds the table's lock
// for the whole message, unless keys are looked up: then for as many as are looked up at a time.
func (k *keyed) fold(hashes []uint64, key func(i int) []byte, part func(from, to int) error) error {
	for from := 0; from < len(hashes); {
		n, err := k.lookUp(hashes[from:], func(i int) []byte { return key(from + i) })
		if err != nil {
			return err
		}
		if err := k.foldLocked(hashes, from, from+n, part); err != nil {
			return err
		}
		from += n
	}
	return nil
}

func (k *keyed) foldLocked(hashes []uint64, from, to int, part func(from, to int) error) error {
	k.table.Lock()
	defer k.table.Unlock()
	k.table.Prefetch(hashes[from:to])
	return part(from, to)
}

// keyRows is how many rows' keys a task encodes at a time: few enough for the nearest cache, and to take little memory where keys
// are long.
const keyRows = 256

// rowKeys holds the encoded keys of rows that follow each other.
type rowKeys struct {
	bytes []byte
	ends  [keyRows]uint32
	rows  [keyRows]int32 // scratch
}

// encode makes r the keys, whose parts are cols, of rows from from on, up to to-1, and returns how many: keyRows at most.
func (r *rowKeys) encode(cols []*batch.Vector, from, to int) (n int) {
	n = min(to-from, keyRows)
	for i := range n {
		r.rows[i] = int32(from + i)
	}
	r.bytes = key.AppendKeys(r.bytes[:0], r.ends[:n], cols, r.rows[:n])
	return n
}

// key returns the key of the i-th of the rows, until the next call of encode.
func (r *rowKeys) key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.bytes[from:r.ends[i]]
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
