package statequery

import (
	"context"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
)

const (
	// pageLease is how long the cut of a scan is kept for the next page, at least.
	pageLease = time.Minute
	// leaseTime is how long a lease is taken for. Twice pageLease, so that it is renewed once a minute however many
	// pages are read meanwhile; not longer, because a scan that nobody goes on with keeps its cut for so long.
	leaseTime = 2 * pageLease
)

// cutKey names a cut of a pipeline.
type cutKey struct {
	pipeline dataflow.PipelineUID
	cut      dataflow.CheckpointID
}

// sharedLeases holds one lease per cut for all scans that page through it (Q2): a lease is an entry of the meta log, of
// which a pipeline has room for few, and readers are many. It is safe for concurrent use.
type sharedLeases struct {
	leases Leases
	now    func() int64 // µs since 1970
	mu     struct {
		sync.Mutex
		held map[cutKey]*heldLease
	}
}

// heldLease is a lease on a cut. Its fields are guarded by sharedLeases.mu.
type heldLease struct {
	busy   chan struct{} // closed when the call that takes or renews the lease has ended; nil when none is under way
	id     string
	until  int64 // µs since 1970; from before the call, so that the lease ends no sooner
	shared bool  // by several scans: none of them knows when the others are done, so it is left to end by itself
}

func newSharedLeases(leases Leases, now func() int64) *sharedLeases {
	s := &sharedLeases{leases: leases, now: now}
	s.mu.held = make(map[cutKey]*heldLease)
	return s
}

// join returns a lease on a cut for a scan that has none yet. It is good for pageLease at least.
func (s *sharedLeases) join(ctx context.Context, k cutKey) (string, error) {
	return s.hold(ctx, k, "", true)
}

// keep makes a scan's lease good for pageLease at least, and returns its id; "" when it has ended.
func (s *sharedLeases) keep(ctx context.Context, k cutKey, id string) (string, error) {
	got, err := s.hold(ctx, k, id, false)
	if dataflow.ReasonOf(err) == dataflow.ReasonCheckpointExpired {
		return "", nil
	}
	return got, err
}

// hold returns the lease that is held on a cut, once it is good for long enough. One caller takes or renews it while the
// others wait. known is a lease that the caller has and this process may not; "" = none, then a new one is taken.
func (s *sharedLeases) hold(ctx context.Context, k cutKey, known string, joins bool) (string, error) {
	for {
		s.mu.Lock()
		h := s.mu.held[k]
		switch {
		case h == nil:
			s.forgetEndedLocked()
			// Who else reads on with a lease that this process did not take, or has lost sight of, is not known.
			h = &heldLease{id: known, shared: known != ""}
			s.mu.held[k] = h
		case h.busy != nil:
			busy := h.busy
			s.mu.Unlock()
			select {
			case <-busy:
				continue
			case <-ctx.Done():
				return "", dataflow.Errorf(dataflow.ReasonDeadline, "the cut could not be leased in time: %w", context.Cause(ctx))
			}
		case h.until-s.now() >= pageLease.Microseconds():
			h.shared = h.shared || joins
			id := h.id
			s.mu.Unlock()
			return id, nil
		default:
			h.shared = h.shared || joins
		}
		id := h.id
		h.busy = make(chan struct{})
		s.mu.Unlock()
		return s.take(ctx, k, h, id, joins)
	}
}

// take renews lease id of a cut, or takes one when id is "". When id has ended it takes a new one for a scan that joins.
func (s *sharedLeases) take(ctx context.Context, k cutKey, h *heldLease, id string, joins bool) (string, error) {
	until := s.now() + leaseTime.Microseconds()
	var err error
	if id != "" {
		err = s.leases.Renew(ctx, k.pipeline, id, leaseTime)
	}
	if id == "" || joins && dataflow.ReasonOf(err) == dataflow.ReasonCheckpointExpired {
		id, err = s.leases.Lease(ctx, k.pipeline, k.cut, leaseTime)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(h.busy)
	h.busy = nil
	if err != nil {
		delete(s.mu.held, k) // h is the one held: others wait for the call that h is busy with
		return "", err
	}
	h.id, h.until = id, until
	return id, nil
}

// leave gives a lease back for a scan that has ended, unless others read on with it.
func (s *sharedLeases) leave(ctx context.Context, k cutKey, id string) {
	s.mu.Lock()
	h := s.mu.held[k]
	last := h != nil && h.id == id && !h.shared && h.busy == nil
	if last {
		delete(s.mu.held, k)
	}
	s.mu.Unlock()
	if last {
		_ = s.leases.Release(ctx, k.pipeline, id) // a failure costs nothing: the lease ends by itself
	}
}

// forgetEndedLocked drops what is of no use any more, before the table grows.
func (s *sharedLeases) forgetEndedLocked() {
	now := s.now()
	for k, h := range s.mu.held {
		if h.busy == nil && h.until <= now {
			delete(s.mu.held, k)
		}
	}
}
