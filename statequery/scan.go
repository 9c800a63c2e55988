package statequery

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

const (
	// defaultPage is how many rows a page has when the request does not say.
	defaultPage = 1000
	// pageBytes ends a page early: an answer stays well below what a client accepts.
	pageBytes = 4 << 20
	// pageLease is how long the cut of a scan is kept for the next page.
	pageLease = time.Minute
	// repeatPage is how long after the last page a caller may ask for it again, because its answer was lost. Half of what a
	// superseded cut is kept for in any case.
	repeatPage = 5 * time.Second
)

// pageLimit clamps a page's size.
func pageLimit(p dataflow.Page) (int, error) {
	switch {
	case p.Limit < 0:
		return 0, dataflow.Errorf(dataflow.ReasonRequestInvalid, "limit: %d is negative", p.Limit)
	case p.Limit == 0:
		return defaultPage, nil
	}
	return min(p.Limit, dataflow.MaxPageRows), nil
}

// requestHash hashes the parameters that a page token is bound to.
func requestHash(parts ...string) uint64 {
	d := xxhash.New()
	var n [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		_, _ = d.Write(n[:])    // hashing does not fail
		_, _ = d.WriteString(p) // neither does this
	}
	return d.Sum64()
}

// resume turns the token of the page before into read options that name its cut. It returns the token, nil for a first
// page.
func (e *Engine) resume(ctx context.Context, text string, hash uint64, o *dataflow.ReadOptions) (*dataflow.PageToken, error) {
	if text == "" {
		return nil, nil
	}
	t, err := dataflow.ParsePageToken(text, e.cfg.Group)
	if err != nil {
		return nil, err
	}
	if t.Request != hash {
		return nil, dataflow.Errorf(dataflow.ReasonTokenInvalid, "page_token: it continues another request").
			WithHint("send the parameters of the first page again; only limit may change")
	}
	o.Min, o.Session = nil, nil // the first page has seen to them
	if o.Isolation == dataflow.ReadUncommitted {
		return &t, nil
	}
	if t.Lease != "" {
		switch err := e.cfg.Leases.Renew(ctx, t.Pipeline, t.Lease, pageLease); {
		case dataflow.ReasonOf(err) == dataflow.ReasonCheckpointExpired:
			t.Lease = "" // it has ended, perhaps with an answer that was lost; the cut may still be there
		case err != nil:
			return nil, err
		}
	}
	id := t.Checkpoint
	o.Checkpoint = &id
	return &t, nil
}

// nextToken makes the token of the page that follows after, with a lease on the reading's cut.
func (e *Engine) nextToken(ctx context.Context, r *reading, before *dataflow.PageToken, hash uint64, after []byte) (string, error) {
	t := dataflow.PageToken{Group: e.cfg.Group, Pipeline: r.pipeline.UID, Timeline: r.cut.Timeline, Checkpoint: r.cut.ID, Request: hash, After: after}
	switch {
	case r.live != nil:
	case before != nil && before.Lease != "":
		t.Lease = before.Lease
	default:
		lease, err := e.cfg.Leases.Lease(ctx, r.pipeline.UID, r.cut.ID, pageLease)
		if err != nil {
			return "", err
		}
		t.Lease = lease
	}
	return t.String(), nil
}

// endPages gives the lease back after the last page, unless the cut would go with it and the page could not be asked for
// again. A failure costs nothing: the lease ends by itself.
func (e *Engine) endPages(ctx context.Context, r *reading, before *dataflow.PageToken) {
	if before != nil && before.Lease != "" && r.staysReadable(e.cfg.Now()) {
		_ = e.cfg.Leases.Release(ctx, before.Pipeline, before.Lease) // see above
	}
}

// staysReadable reports whether the cut of a reading is kept for a while without a lease.
func (r *reading) staysReadable(now int64) bool {
	cuts := r.pipeline.Cuts
	i := slices.IndexFunc(cuts, func(c *dataflow.CheckpointCommit) bool { return c.ID == r.cut.ID })
	return i >= 0 && (i == len(cuts)-1 || now-cuts[i+1].CommittedAt < repeatPage.Microseconds())
}

// samePipeline refuses a page token of a pipeline that has been deleted since.
func samePipeline(r *reading, t *dataflow.PageToken) error {
	if t != nil && t.Pipeline != r.pipeline.UID {
		return dataflow.Errorf(dataflow.ReasonTokenInvalid, "page_token: pipeline %s was deleted and deployed again since the page before", r.pipeline.Name)
	}
	return nil
}

// Scan returns a page of rows in key order, and the token of the next page, "" at the end.
func (e *Engine) Scan(ctx context.Context, pipeline, table string, sr dataflow.ScanRange, page dataflow.Page, o dataflow.ReadOptions) (*batch.Batch, string, dataflow.Cut, error) {
	fail := func(err error) (*batch.Batch, string, dataflow.Cut, error) { return nil, "", dataflow.Cut{}, err }
	limit, err := pageLimit(page)
	if err != nil {
		return fail(err)
	}
	p, err := e.cfg.Catalog.Pipeline(pipeline)
	if err != nil {
		return fail(err)
	}
	st, err := e.cfg.Catalog.Stage(p, table)
	if err != nil {
		return fail(err)
	}
	lo, hi, err := keyRange(st, sr)
	if err != nil {
		return fail(err)
	}
	hash := requestHash("scan", pipeline, table, string(lo), string(hi), o.Isolation.String())
	before, err := e.resume(ctx, page.Token, hash, &o)
	if err != nil {
		return fail(err)
	}
	if before != nil {
		lo = append(append([]byte(nil), before.After...), 0)
	}
	r, err := e.open(ctx, pipeline, o)
	if err != nil {
		return fail(err)
	}
	defer r.close()
	if err := samePipeline(r, before); err != nil {
		return fail(err)
	}
	out := batch.NewBatch(st.Schema)
	var last []byte
	bytes, more := 0, false
	err = r.walk(ctx, st, lo, hi, func(rows *batch.Batch, keys [][]byte) (bool, error) {
		for i := range rows.N {
			if out.N == limit || bytes >= pageBytes {
				more = true
				return false, nil
			}
			for c, v := range out.Cols {
				v.AppendFrom(rows.Cols[c], i)
			}
			out.N++
			bytes += rows.RowBytes(i)
			last = keys[i]
		}
		return true, nil
	})
	if err != nil {
		return fail(err)
	}
	next := ""
	if more {
		if next, err = e.nextToken(ctx, r, before, hash, last); err != nil {
			return fail(err)
		}
	} else {
		e.endPages(ctx, r, before)
	}
	return out, next, r.describe(), nil
}
