package statequery

import (
	"context"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Get returns the row with the key: a batch of one row, or of none when there is no such row. A key value of TypeUnknown
// is text, to be parsed as the key column's type.
func (e *Engine) Get(ctx context.Context, pipeline, table string, k dataflow.Row, o dataflow.ReadOptions) (*batch.Batch, dataflow.Cut, error) {
	p, t, err := e.table(pipeline, table)
	if err != nil {
		return nil, dataflow.Cut{}, err
	}
	encoded, err := encodeKey(t.stage, k)
	if err != nil {
		return nil, dataflow.Cut{}, err
	}
	r, err := e.open(ctx, p, o)
	if err != nil {
		return nil, dataflow.Cut{}, err
	}
	defer r.close()
	rows, err := r.row(ctx, t, encoded, &rowMemory{})
	if err != nil {
		return nil, dataflow.Cut{}, err
	}
	if rows == nil {
		rows = batch.NewBatch(t.stage.Schema)
	}
	return rows, r.describe(), nil
}

// BatchGet returns the rows that exist, in the order of keys, and which of the keys have one. All come from one cut.
func (e *Engine) BatchGet(ctx context.Context, pipeline, table string, keys []dataflow.Row, o dataflow.ReadOptions) (*batch.Batch, []bool, dataflow.Cut, error) {
	fail := func(err error) (*batch.Batch, []bool, dataflow.Cut, error) { return nil, nil, dataflow.Cut{}, err }
	if len(keys) > dataflow.MaxBatchGetKeys {
		return fail(dataflow.Errorf(dataflow.ReasonTooLarge, "keys: %d given; the limit is %d", len(keys), dataflow.MaxBatchGetKeys))
	}
	p, t, err := e.table(pipeline, table)
	if err != nil {
		return fail(err)
	}
	encoded, err := encodeKeys(t.stage, keys)
	if err != nil {
		return fail(err)
	}
	open := func(p *Pipeline) (*reading, error) { return e.open(ctx, p, o) }
	var r *reading
	if len(keys) > 1 {
		if r, err = e.admit(ctx, e.batches, p, open); err == nil {
			defer e.batches.leave()
		}
	} else {
		r, err = open(p)
	}
	if err != nil {
		return fail(err)
	}
	defer r.close()
	rows, found, err := r.lookUp(ctx, t, encoded)
	if err != nil {
		return fail(err)
	}
	return rows, found, r.describe(), nil
}

// table resolves the names of a request.
func (e *Engine) table(pipeline, table string) (*Pipeline, *Table, error) {
	p, err := e.cfg.Catalog.Pipeline(pipeline)
	if err != nil {
		return nil, nil, err
	}
	t, err := e.cfg.Catalog.Table(p, table)
	return p, t, err
}

// lookUp returns the visible rows of keys, in their order, and which of the keys have one. What it holds is bounded (Q3).
func (r *reading) lookUp(ctx context.Context, t *Table, keys [][]byte) (*batch.Batch, []bool, error) {
	accs, err := r.accumulators(ctx, t, keys)
	if err != nil {
		return nil, nil, err
	}
	found := make([]bool, len(keys))
	var out *batch.Batch
	var pieces batch.Pieces
	size := int64(0)
	for at := 0; at < len(keys); {
		if ctx.Err() != nil {
			return nil, nil, deadline(ctx)
		}
		rows, n, err := r.visible(ctx, t, &pieces, keys[at:], accs[at:], func(i int) { found[at+i] = true })
		if err != nil {
			return nil, nil, err
		}
		if n == len(keys) {
			return rows, found, nil
		}
		if out == nil {
			out = batch.NewBatch(t.stage.Schema)
		}
		at += n
		for i := range rows.N {
			if size += int64(rows.RowBytes(i)); size > r.e.cfg.MaxBytes {
				return nil, nil, r.tooManyKeys(at)
			}
			for c, v := range out.Cols {
				v.AppendFrom(rows.Cols[c], i)
			}
			out.N++
		}
	}
	if out == nil {
		out = batch.NewBatch(t.stage.Schema)
	}
	return out, found, nil
}

// tooManyKeys is the error of a batch of look-ups n of whose keys are over the limit already.
func (r *reading) tooManyKeys(n int) error {
	return dataflow.Errorf(dataflow.ReasonScanLimit, "the rows of %d of the keys take more than %d bytes", n, r.e.cfg.MaxBytes).
		WithHint("ask for fewer keys at once").WithMeta("limit", "bytes")
}

// accumulators returns what the table holds for keys, nil for none. It asks for the keys of each shard together.
func (r *reading) accumulators(ctx context.Context, t *Table, keys [][]byte) ([][]byte, error) {
	accs := make([][]byte, len(keys))
	hashes, order, ends := r.e.byShard(keys)
	var l dataflow.Lookups
	room := r.e.cfg.MaxBytes
	seen := 0
	for shard, end := range ends {
		for seen < end {
			if ctx.Err() != nil {
				return nil, deadline(ctx)
			}
			part := order[seen:min(end, seen+dataflow.LookupsAtOnce)]
			l.Begin(room)
			for _, k := range part {
				l.Add(hashes[k], keys[k])
			}
			if err := r.findAll(ctx, t, dataflow.ShardID(shard), &l); err != nil {
				return nil, err
			}
			if l.Full() {
				return nil, r.tooManyKeys(seen + len(part))
			}
			room = l.Room()
			for i, k := range part {
				if val, found := l.Value(int32(i)); found {
					accs[k] = val
				} else {
					accs[k] = t.unfed
				}
			}
			seen += len(part)
		}
	}
	return accs, nil
}

// byShard returns the hashes of keys, the numbers of the keys by their shard, and where the numbers of each shard end.
func (e *Engine) byShard(keys [][]byte) (hashes []uint64, order []int32, ends []int) {
	hashes, order, ends = make([]uint64, len(keys)), make([]int32, len(keys)), make([]int, e.cfg.Shards)
	for i, k := range keys {
		hashes[i] = dataflow.HashKey(k)
		ends[e.shardOfHash(hashes[i])]++
	}
	at := 0
	for s, n := range ends {
		ends[s] = at
		at += n
	}
	for i, h := range hashes {
		s := e.shardOfHash(h)
		order[ends[s]] = int32(i)
		ends[s]++
	}
	return hashes, order, ends
}
