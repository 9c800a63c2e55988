package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// slowLog is an Ingest whose appends begin at once and are answered when the test says so.
type slowLog struct {
	api.Ingest
	began  chan struct{} // one for each append
	answer chan struct{} // closed: answer
}

type slowPending struct {
	api.Pending
	answer chan struct{}
}

func (l *slowLog) Begin(ctx context.Context, a api.Append) (api.Pending, error) {
	p, err := l.Ingest.Begin(ctx, a)
	l.began <- struct{}{}
	return slowPending{p, l.answer}, err
}

func (p slowPending) Wait(ctx context.Context) ([]api.ShardAppended, error) {
	select {
	case <-p.answer:
		return p.Pending.Wait(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// openStream opens a call that ends with the test, and soon if the server does not end it.
func openStream(t *testing.T, h *harness) weirv1.IngestService_AppendStreamClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	call, err := h.ingest.AppendStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return call
}

func appendOf(line string) *weirv1.AppendStreamRequest {
	return &weirv1.AppendStreamRequest{Append: &weirv1.AppendRequest{Stream: "lines", Batch: lines(line)}}
}

func sendLine(t *testing.T, call weirv1.IngestService_AppendStreamClient, line string) {
	t.Helper()
	if err := call.Send(appendOf(line)); err != nil {
		t.Fatal(err)
	}
}

func TestAStoppingServerWaitsForNoSenderThatHasNothingToSend(t *testing.T) {
	h := start(t, nil)
	call := openStream(t, h)
	sendLine(t, call, "a")
	if _, err := call.Recv(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(stopped)
		h.server.Stop(ctx) // ctx is not done before the call has ended
	}()
	_, err := call.Recv()
	wantReason(t, err, dataflow.ReasonShuttingDown, "sent again")
	cancel()
	<-stopped
}

func TestAStoppingServerAnswersWhatItHasTakenAndTakesNothingMore(t *testing.T) {
	for _, n := range []int{1, 3, 66} { // 66: as many as may be under way, one that is being answered, and one that waits for a place
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			slow := &slowLog{began: make(chan struct{}, 100), answer: make(chan struct{})}
			h := startOver(t, nil, func(b *api.Backends) { slow.Ingest, b.Ingest = b.Ingest, slow })
			call := openStream(t, h)
			for i := range n {
				sendLine(t, call, fmt.Sprint("taken ", i))
			}
			for range n {
				<-slow.began
			}
			h.server.EndAppends()
			sendLine(t, call, "late")
			close(slow.answer)
			for i := range n {
				if m, err := call.Recv(); err != nil || m.GetAppended().GetRows() != 1 {
					t.Fatalf("answer %d: %v, %v", i, m, err)
				}
			}
			_, err := call.Recv()
			wantReason(t, err, dataflow.ReasonShuttingDown, "sent again")
			// Nor does it take anything of a call that comes now, as from a sender that knows no other server.
			again := openStream(t, h)
			// It may have ended already, which Send calls EOF, and Recv says why.
			if err := again.Send(appendOf("later")); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			_, err = again.Recv()
			wantReason(t, err, dataflow.ReasonShuttingDown, "sent again")
			if got := h.fake.Count("lines"); got != n {
				t.Errorf("%d rows are stored, want %d", got, n)
			}
		})
	}
}
