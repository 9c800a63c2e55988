package statequery

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// leaseBook keeps leases until they are released. Renewals fail with fail while that is set.
type leaseBook struct {
	last int
	live map[string]bool
	fail error
}

func (b *leaseBook) Lease(context.Context, dataflow.PipelineUID, dataflow.CheckpointID, time.Duration) (string, error) {
	b.last++
	id := strconv.Itoa(b.last)
	b.live[id] = true
	return id, nil
}

func (b *leaseBook) Renew(_ context.Context, _ dataflow.PipelineUID, id string, _ time.Duration) error {
	if b.fail == nil && !b.live[id] {
		return dataflow.Errorf(dataflow.ReasonCheckpointExpired, "lease %s has ended", id)
	}
	return b.fail
}

func (b *leaseBook) Release(_ context.Context, _ dataflow.PipelineUID, id string) error {
	delete(b.live, id)
	return nil
}

func TestALeaseWhoseRenewalFailedOnceIsNotTakenFromTheOtherScan(t *testing.T) {
	book, now := &leaseBook{live: map[string]bool{}}, int64(0)
	s := newSharedLeases(book, func() int64 { return now })
	cut := cutKey{1, 1}
	must := func(id string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first, second := must(s.join(t.Context(), cut)), must(s.join(t.Context(), cut))
	now += (leaseTime - pageLease/2).Microseconds()
	book.fail = dataflow.Errorf(dataflow.ReasonDeadline, "the caller of this page went away")
	if _, err := s.keep(t.Context(), cut, first); err == nil {
		t.Fatal("the renewal went well")
	}
	book.fail = nil
	must(s.keep(t.Context(), cut, first))
	must(s.keep(t.Context(), cut, second))
	s.leave(t.Context(), cut, first)
	if !book.live[second] {
		t.Fatal("the first scan's end released the lease that the second reads on with")
	}
}
