package statequery

import (
	"context"
	"errors"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// How large the answer to a batch of look-ups is shows only when it is there. So a batch is first given memory for as many
// short rows as it has keys (Q5); one that needs more lets go of everything and begins again, with all that a request may
// have. Why not ask for more and wait while holding some: two of them would wait for each other.
const (
	// grantPerKey is what a batch is given for each of its keys.
	grantPerKey = 1 << 10
	// keyOverhead is what a key takes of it besides its bytes: its values as they came, and what the steps note of it.
	keyOverhead = 256
	// shortKeys is how many keys a short batch has at most: what a caller that renders a page asks for.
	shortKeys = 1024
	// shortBytes is what the largest of them is given.
	shortBytes = shortKeys * grantPerKey
)

// overGrant is the error of a batch of look-ups that takes more memory than it was given.
type overGrant struct {
	keys int // that take it, about
}

func (overGrant) Error() string { return "a batch of look-ups takes more memory than it was given" }

// tooManyKeys makes of overGrant what callers are told when there is no more memory to be had.
func (e *Engine) tooManyKeys(err error) error {
	var over overGrant
	if !errors.As(err, &over) {
		return err
	}
	return dataflow.Errorf(dataflow.ReasonScanLimit, "the rows of %d of the keys take more than %d bytes", over.keys, e.cfg.MaxBytes).
		WithHint("ask for fewer keys at once").WithMeta("limit", "bytes")
}

// batchGet looks the keys of m up in the order in which there is memory for it.
func (e *Engine) batchGet(ctx context.Context, p *Pipeline, t *Table, m *lookupMemory, open func(p *Pipeline) (*reading, error)) (*batch.Batch, []bool, dataflow.Cut, error) {
	g, n := e.long, min(int64(len(m.keys)*grantPerKey), e.cfg.MaxBytes)
	if len(m.keys) <= shortKeys {
		g = e.short
	}
	taken := int64(len(m.encoded) + len(m.keys)*keyOverhead)
	if n > e.cfg.MaxBytes/2 || n <= taken { // it would only find out that it needs more
		g, n = e.long, e.cfg.MaxBytes
	}
	for {
		rows, found, cut, err := e.batchGetWithin(ctx, g, n, taken, p, t, m, open)
		if n == e.cfg.MaxBytes || !errors.As(err, new(overGrant)) {
			return rows, found, cut, e.tooManyKeys(err)
		}
		g, n = e.long, e.cfg.MaxBytes
		if p, err = e.current(p); err != nil {
			return nil, nil, dataflow.Cut{}, err
		}
	}
}

// batchGetWithin is batchGet with n bytes of a gate's, of which some are taken. The error is overGrant when they are not enough.
func (e *Engine) batchGetWithin(ctx context.Context, g *gate, n, taken int64, p *Pipeline, t *Table, m *lookupMemory, open func(p *Pipeline) (*reading, error)) (*batch.Batch, []bool, dataflow.Cut, error) {
	r, err := e.admit(ctx, g, n, p, open)
	if err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	defer g.leave(n)
	defer r.close()
	rows, found, err := r.lookUp(ctx, t, m, n-taken, n < e.cfg.MaxBytes)
	if err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	return rows, found, r.describe(), nil
}

// lookUp returns the visible rows of the keys of m, in their order, and which of the keys have one. They share no memory with m. The error is overGrant when their
// state and the rows together take more than most bytes (Q3). In one piece: it is overGrant too when what is computed on the way
// takes more.
func (r *reading) lookUp(ctx context.Context, t *Table, m *lookupMemory, most int64, inOnePiece bool) (*batch.Batch, []bool, error) {
	keys := m.keys
	accs, left, err := r.accumulators(ctx, t, m, keys, most)
	if err != nil {
		return nil, nil, err
	}
	found := make([]bool, len(keys))
	if inOnePiece {
		rows, there, fits, err := t.fin.Until(r.interrupt(ctx)).Within(left).Batch(keys, accs, r.pipeline.OnError)
		if err != nil {
			return nil, nil, err
		}
		if !fits {
			return nil, nil, overGrant{len(keys)}
		}
		rows = shownOf(rows, there, func(i int) { found[i] = true })
		return rows, found, take(rows, &left, len(keys))
	}
	var out *batch.Batch
	var pieces batch.Pieces
	for at := 0; at < len(keys); {
		if ctx.Err() != nil {
			return nil, nil, deadline(ctx)
		}
		rows, n, err := r.visible(ctx, t, &pieces, keys[at:], accs[at:], func(i int) { found[at+i] = true })
		if err != nil {
			return nil, nil, err
		}
		at += n
		if err := take(rows, &left, at); err != nil {
			return nil, nil, err
		}
		if n == len(keys) {
			return rows, found, nil
		}
		if out == nil {
			out = batch.NewBatch(t.stage.Schema)
		}
		for c, v := range out.Cols {
			for i := range rows.N {
				v.AppendFrom(rows.Cols[c], i)
			}
		}
		out.N += rows.N
	}
	if out == nil {
		out = batch.NewBatch(t.stage.Schema)
	}
	return out, found, nil
}

// take counts the bytes of rows, those of the first so many keys. The error is overGrant when there are not so many left.
func take(rows *batch.Batch, left *int64, keys int) error {
	for i := range rows.N {
		if *left -= int64(rows.RowBytes(i)); *left < 0 {
			return overGrant{keys}
		}
	}
	return nil
}

// accumulators returns what the table holds for keys, nil for none: in m. It asks for the keys of each shard together. left is
// what is left of most bytes; the error is overGrant when they are not enough.
func (r *reading) accumulators(ctx context.Context, t *Table, m *lookupMemory, keys [][]byte, most int64) (accs [][]byte, left int64, err error) {
	m.byShard(r.e, keys)
	m.accs = slices.Grow(m.accs[:0], len(keys))[:len(keys)]
	l := &m.lookups
	l.Grow(min(len(keys), dataflow.LookupsAtOnce))
	left = most
	seen := 0
	for shard, end := range m.ends {
		for seen < end {
			if ctx.Err() != nil {
				return nil, 0, deadline(ctx)
			}
			part := m.order[seen:min(end, seen+dataflow.LookupsAtOnce)]
			l.Begin(left)
			for _, k := range part {
				l.Add(m.hashes[k], keys[k])
			}
			if err := r.findAll(ctx, t, dataflow.ShardID(shard), l); err != nil {
				return nil, 0, err
			}
			if l.Full() {
				return nil, 0, overGrant{seen + len(part)}
			}
			left = l.Room()
			for i, k := range part {
				val, found := l.Value(int32(i))
				if !found {
					val = t.unfed
				}
				m.accs[k] = val
			}
			seen += len(part)
		}
	}
	return m.accs, left, nil
}
