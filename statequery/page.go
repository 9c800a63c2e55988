package statequery

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/dataflow"
)

const (
	// defaultPage is how many rows a page has when the request does not say.
	defaultPage = 1000
	// pageBytes ends a page early, so that its rows as JSON stay below the 4 MiB that gRPC clients accept by default.
	pageBytes = 2 << 20
	// repeatPage is how long after the last page a caller may ask for it again, because its answer was lost. Half of what a
	// superseded cut is kept for in any case.
	repeatPage = 5 * time.Second
)

// page is a request's place in the pages of a scan or query (Q2).
type page struct {
	e       *Engine
	request uint64              // hash of what all pages have in common
	token   *dataflow.PageToken // of the page before; nil for the first page
	lease   string              // on the cut that the pages are of; "" = none, or it has ended
}

// page reads the token that a request continues, and refuses that of another request.
func (e *Engine) page(token string, request uint64) (*page, error) {
	pg := &page{e: e, request: request}
	if token == "" {
		return pg, nil
	}
	t, err := dataflow.ParsePageToken(token, e.cfg.Group)
	if err != nil {
		return nil, err
	}
	if t.Request != request {
		return nil, dataflow.Errorf(dataflow.ReasonTokenInvalid, "page_token: it continues another request").
			WithHint("send the parameters of the first page again; only limit and at_most may change")
	}
	pg.token, pg.lease = &t, t.Lease
	return pg, nil
}

// open opens what the page reads: the cut of the page before, or as the request says.
func (pg *page) open(ctx context.Context, p *Pipeline, o dataflow.ReadOptions) (*reading, error) {
	t := pg.token
	if t == nil {
		return pg.e.open(ctx, p, o)
	}
	if t.Pipeline != p.UID {
		return nil, dataflow.Errorf(dataflow.ReasonTokenInvalid, "page_token: pipeline %s was deleted and deployed again since the page before", p.Name)
	}
	o.Min, o.Session, o.MaxStaleness = nil, nil, 0 // the first page has seen to them
	if t.Lease == "" {                             // only pages of live tables have none
		return pg.e.open(ctx, p, o)
	}
	var err error
	// When the lease has ended, perhaps with an answer that was lost, the cut may still be there.
	if pg.lease, err = pg.e.leases.keep(ctx, cutKey{t.Pipeline, t.Checkpoint}, t.Lease); err != nil {
		return nil, err
	}
	// A live read of a pipeline that did not run is of a cut too, and stays on it.
	o.Isolation, o.Checkpoint = dataflow.ReadCommitted, &t.Checkpoint
	return pg.e.open(ctx, p, o)
}

// next makes the token of the page that follows, with a lease on the reading's cut. after says where this page ends.
func (pg *page) next(ctx context.Context, r *reading, after []byte) (string, error) {
	if r.live == nil && pg.lease == "" {
		var err error
		if pg.lease, err = pg.e.leases.join(ctx, cutKey{r.pipeline.UID, r.cut.ID}); err != nil {
			return "", err
		}
	}
	return dataflow.PageToken{
		Group: pg.e.cfg.Group, Pipeline: r.pipeline.UID, Timeline: r.cut.Timeline, Checkpoint: r.cut.ID,
		Lease: pg.lease, Request: pg.request, After: after,
	}.String(), nil
}

// end gives the lease back after the last page, unless the cut would go with it and the page could not be asked for again.
func (pg *page) end(ctx context.Context, r *reading) {
	if pg.lease != "" && r.staysReadable(pg.e.cfg.Now()) {
		pg.e.leases.leave(ctx, cutKey{r.pipeline.UID, r.cut.ID}, pg.lease)
	}
}

// staysReadable reports whether the cut of a reading is kept for a while without a lease.
func (r *reading) staysReadable(now int64) bool {
	cuts := r.pipeline.Cuts
	i := slices.IndexFunc(cuts, func(c *dataflow.CheckpointCommit) bool { return c.ID == r.cut.ID })
	return i >= 0 && (i == len(cuts)-1 || now-cuts[i+1].CommittedAt < repeatPage.Microseconds())
}

// pageLimit returns how many rows a page may have.
func pageLimit(p dataflow.Page, unsaid int) (int, error) {
	switch {
	case p.Limit < 0:
		return 0, dataflow.Errorf(dataflow.ReasonRequestInvalid, "limit: %d is negative", p.Limit)
	case p.AtMost < 0:
		return 0, dataflow.Errorf(dataflow.ReasonRequestInvalid, "at_most: %d is negative", p.AtMost)
	case p.Limit == 0:
		return unsaid, nil
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
