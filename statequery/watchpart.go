package statequery

import (
	"bytes"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
)

// changePart is some changes of a table by one cut: each key once, in key order, those of one shard. It is immutable and
// shared by all watchers; only rows with numbers as text are encoded for each of them.
type changePart struct {
	keys    [][]byte               // canonical
	changes []dataflow.WatchChange // of the keys, in JSON
	rows    *batch.Batch           // of the keys that are there
	place   []int32                // of the keys' rows; -1 = deleted
	bytes   int64                  // of all that, about
}

// within returns the places [from, to) of the keys with lo ≤ key < hi.
func (c *changePart) within(lo, hi []byte) (from, to int) {
	from, to = 0, len(c.keys)
	if len(lo) > 0 {
		from = searchKeys(c.keys, lo)
	}
	if hi != nil {
		to = searchKeys(c.keys, hi)
	}
	return from, max(from, to)
}

// searchKeys returns the place of the first key that is not less than k.
func searchKeys(keys [][]byte, k []byte) int {
	lo, hi := 0, len(keys)
	for lo < hi {
		if mid := (lo + hi) / 2; bytes.Compare(keys[mid], k) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// changesOf returns the changes at [from, to) with numbers as they are asked for.
func (c *changePart) changesOf(t *Table, from, to int, numbersAsText bool) ([]dataflow.WatchChange, error) {
	if !numbersAsText {
		return c.changes[from:to:to], nil
	}
	keys, err := t.decodeKeys(c.keys[from:to])
	if err != nil {
		return nil, err
	}
	out := make([]dataflow.WatchChange, to-from)
	for i := range out {
		out[i] = dataflow.WatchChange{Key: appendRowJSON(nil, keys, i, true), Checkpoint: c.changes[from+i].Checkpoint}
		if at := c.place[from+i]; at >= 0 {
			out[i].Row = appendRowJSON(nil, c.rows, int(at), true)
		}
	}
	return out, nil
}

// changeOverhead is what a change takes beside its texts, about: slices and its place.
const changeOverhead = 128

// newPart makes the part of what is visible of keys before, nil for unknown, and after; cut goes into the changes. Rows that
// look as they did are left out. It is nil when nothing is left.
func (t *Table) newPart(keys [][]byte, before, after [][]byte, onError dataflow.OnError, cut dataflow.CheckpointID) (*changePart, error) {
	var pieces batch.Pieces
	old, oldPlace, err := t.rowsOf(&pieces, keys, before, onError)
	if err != nil {
		return nil, err
	}
	rows, place, err := t.rowsOf(&pieces, keys, after, onError)
	if err != nil {
		return nil, err
	}
	keyRows, err := t.decodeKeys(keys)
	if err != nil {
		return nil, err
	}
	c := &changePart{rows: rows}
	var was []byte
	for i, k := range keys {
		var row []byte
		if place[i] >= 0 {
			row = appendRowJSON(nil, rows, int(place[i]), false)
		}
		switch {
		case oldPlace[i] < 0 && row == nil:
			continue
		case oldPlace[i] >= 0 && row != nil:
			if was = appendRowJSON(was[:0], old, int(oldPlace[i]), false); bytes.Equal(was, row) {
				continue
			}
		}
		ch := dataflow.WatchChange{Key: appendRowJSON(nil, keyRows, i, false), Row: row, Checkpoint: cut}
		c.keys, c.place, c.changes = append(c.keys, k), append(c.place, place[i]), append(c.changes, ch)
		c.bytes += int64(len(k)+len(ch.Key)+2*len(row)) + changeOverhead
	}
	if len(c.keys) == 0 {
		return nil, nil
	}
	return c, nil
}

// rowsOf returns the rows that are visible of keys and, per key, which it is; -1 = none.
func (t *Table) rowsOf(p *batch.Pieces, keys, accs [][]byte, onError dataflow.OnError) (*batch.Batch, []int32, error) {
	place := make([]int32, len(keys))
	for i := range place {
		place[i] = -1
	}
	out := batch.NewBatch(t.stage.Schema)
	for at := 0; at < len(keys); {
		from, n := int32(out.N), int32(0)
		rows, done, err := t.visible(p, keys[at:], accs[at:], onError, nil, func(i int) {
			place[at+i] = from + n
			n++
		})
		if err != nil {
			return nil, nil, err
		}
		if done == len(keys) {
			return rows, place, nil
		}
		for i := range rows.N {
			for c, v := range out.Cols {
				v.AppendFrom(rows.Cols[c], i)
			}
			out.N++
		}
		at += done
	}
	return out, place, nil
}

// decodeKeys returns the key columns of canonical keys.
func (t *Table) decodeKeys(keys [][]byte) (*batch.Batch, error) {
	b := batch.NewBatch(t.stage.Key)
	for _, k := range keys {
		if err := key.DecodeInto(k, b.Cols); err != nil {
			return nil, dataflow.Errorf(dataflow.ReasonCorrupt, "state of %s: %w", t.stage.Name, err)
		}
		b.N++
	}
	return b, nil
}

// appendRowJSON appends row i of b as a JSON object, as every answer has it.
func appendRowJSON(dst []byte, b *batch.Batch, i int, numbersAsText bool) []byte {
	dst = append(dst, '{')
	for ci, c := range b.Schema {
		if ci > 0 {
			dst = append(dst, ',')
		}
		dst = append(expr.AppendTextJSON(dst, c.Name), ':')
		dst = expr.AppendCellJSON(dst, b.Cols[ci], i, numbersAsText)
	}
	return append(dst, '}')
}
