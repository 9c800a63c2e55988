package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// stalled is a call whose reader takes taken messages and then no more; what waits for him ends with the call.
type stalled struct {
	weirv1.QueryService_WatchServer
	ctx   context.Context
	taken int
}

func (s *stalled) Send(*weirv1.WatchResponse) error {
	if s.taken > 0 {
		s.taken--
		return nil
	}
	<-s.ctx.Done()
	return s.ctx.Err()
}

func TestAWatcherThatStopsReadingIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, endCall := context.WithCancel(t.Context())
		var senders readers
		p := newPatientSender(&stalled{ctx: ctx, taken: 2}, &senders)
		for range 2 {
			if err := p.send(ctx, &weirv1.WatchResponse{}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := p.send(ctx, &weirv1.WatchResponse{}); dataflow.ReasonOf(err) != dataflow.ReasonWatchLagged || time.Since(began) != watchSendTimeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		p.close()
		endCall() // the handler has returned
		senders.Wait()
	})
}
