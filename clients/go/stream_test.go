package weir

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// fakeStream answers ReadStream with messages, and an error at their end.
type fakeStream struct {
	weirv1.UnimplementedIngestServiceServer
	messages []*weirv1.ReadStreamResponse
	err      error
}

// ReadStream implements weirv1.IngestServiceServer.
func (f *fakeStream) ReadStream(r *weirv1.ReadStreamRequest, call weirv1.IngestService_ReadStreamServer) error {
	for _, m := range f.messages {
		if err := call.Send(m); err != nil {
			return err
		}
	}
	if r.GetFollow() {
		<-call.Context().Done()
		return call.Context().Err()
	}
	return f.err
}

func streamRows(offsets ...uint64) (rows []*weirv1.StreamRow) {
	for _, o := range offsets {
		rows = append(rows, &weirv1.StreamRow{Offset: o})
	}
	return rows
}

func TestReadingsEndWithTheirEndMarkOrAnError(t *testing.T) {
	whole := []*weirv1.ReadStreamResponse{{Rows: streamRows(0, 1)}, {Rows: streamRows(2), End: true}}
	for name, c := range map[string]struct {
		f      *fakeStream
		follow bool
		stopAt int
		rows   int
		reason dataflow.Reason
	}{
		"complete":           {f: &fakeStream{messages: whole}, rows: 3},
		"without its end":    {f: &fakeStream{messages: whole[:1]}, rows: 2, reason: dataflow.ReasonUnreachable},
		"broken":             {f: &fakeStream{messages: whole[:1], err: refused(dataflow.Errorf(dataflow.ReasonShuttingDown, "stopping"))}, rows: 2, reason: dataflow.ReasonShuttingDown},
		"refused":            {f: &fakeStream{err: refused(dataflow.Errorf(dataflow.ReasonStreamNotFound, "none"))}, reason: dataflow.ReasonStreamNotFound},
		"left in the middle": {f: &fakeStream{messages: whole[:1]}, follow: true, stopAt: 1, rows: 1},
		"empty":              {f: &fakeStream{messages: []*weirv1.ReadStreamResponse{{End: true}}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, stop := serve(t, Config{RetryFor: -1}, func(s *grpc.Server) { weirv1.RegisterIngestServiceServer(s, c.f) })
				defer stop()
				rows, reason := 0, dataflow.Reason("")
				for row, err := range w.ReadStream(t.Context(), ReadStream{Stream: "s", Follow: c.follow}) {
					if err != nil {
						reason = dataflow.ReasonOf(err)
						break
					}
					if row.GetOffset() != uint64(rows) {
						t.Errorf("row %d has offset %d", rows, row.GetOffset())
					}
					if rows++; rows == c.stopAt {
						break
					}
				}
				if rows != c.rows || reason != c.reason {
					t.Errorf("%d rows, then %q; want %d, %q", rows, reason, c.rows, c.reason)
				}
			})
		})
	}
}

// fakeCluster says which node it is.
type fakeCluster struct {
	weirv1.UnimplementedClusterServiceServer
	node string
}

// GetStatus implements weirv1.ClusterServiceServer.
func (f *fakeCluster) GetStatus(context.Context, *weirv1.GetStatusRequest) (*weirv1.GetStatusResponse, error) {
	return &weirv1.GetStatusResponse{Node: f.node}, nil
}

func TestAnotherAddressIsTriedWhenOneIsDead(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	weirv1.RegisterClusterServiceServer(srv, &fakeCluster{node: "n2"})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(lis) }()
	c, err := Dial("127.0.0.1:1", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.Status(t.Context()); err != nil || s.GetNode() != "n2" {
		t.Errorf("got %v, %v", s, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	srv.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// fakePipelines answers token waits with NOT_REACHED until a pipeline has failed, or the rows are committed.
type fakePipelines struct {
	weirv1.UnimplementedPipelineServiceServer
	calls, commitAt, failAt int
}

// WaitToken implements weirv1.PipelineServiceServer.
func (f *fakePipelines) WaitToken(_ context.Context, r *weirv1.WaitTokenRequest) (*weirv1.WaitTokenResponse, error) {
	if f.calls++; f.calls == f.commitAt {
		return &weirv1.WaitTokenResponse{Cuts: []*weirv1.Cut{cutOf("p", 1, 3, "t")}}, nil
	}
	return nil, refused(dataflow.Errorf(dataflow.ReasonTokenNotReached, "not yet").WithMeta("pipeline", "p"))
}

// GetPipeline implements weirv1.PipelineServiceServer.
func (f *fakePipelines) GetPipeline(context.Context, *weirv1.GetPipelineRequest) (*weirv1.GetPipelineResponse, error) {
	p := &weirv1.Pipeline{Name: "p", State: weirv1.PipelineState_PIPELINE_STATE_RUNNING}
	if f.calls >= f.failAt && f.failAt > 0 {
		p.State, p.Failure = weirv1.PipelineState_PIPELINE_STATE_FAILED, &weirv1.PipelineFailure{Message: "division by zero"}
	}
	return &weirv1.GetPipelineResponse{Pipeline: p}, nil
}

func TestWaitForATokenEndsWhenItIsCoveredOrCannotBe(t *testing.T) {
	for _, c := range []struct {
		f      *fakePipelines
		reason dataflow.Reason
	}{
		{&fakePipelines{commitAt: 4}, ""},
		{&fakePipelines{failAt: 3}, dataflow.ReasonPipelineState},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, stop := serve(t, Config{}, func(s *grpc.Server) { weirv1.RegisterPipelineServiceServer(s, c.f) })
			defer stop()
			_, err := w.WaitCommitted(t.Context(), "t")
			if dataflow.ReasonOf(err) != c.reason {
				t.Errorf("got %v", err)
			}
			if c.reason == "" && w.sessions.token("p") != "t" {
				t.Error("the session did not see the cut")
			}
		})
	}
}

// heldPipelines never commit, and say why when a wait ends.
type heldPipelines struct{ fakePipelines }

// WaitToken implements weirv1.PipelineServiceServer.
func (f *heldPipelines) WaitToken(ctx context.Context, r *weirv1.WaitTokenRequest) (*weirv1.WaitTokenResponse, error) {
	if err := pause.For(ctx, r.GetMaxWait().AsDuration()); err != nil {
		return nil, err
	}
	return nil, refused(dataflow.Errorf(dataflow.ReasonTokenNotReached, "not yet").WithMeta("pipeline", "p").WithHint("checkpoints are off"))
}

func TestWaitForATokenEndsWithWhatHoldsItUp(t *testing.T) {
	for _, d := range []time.Duration{time.Second, 5 * time.Second} { // within the first call, and after some
		synctest.Test(t, func(t *testing.T) {
			w, stop := serve(t, Config{}, func(s *grpc.Server) { weirv1.RegisterPipelineServiceServer(s, &heldPipelines{}) })
			defer stop()
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err := w.WaitCommitted(ctx, "t")
			var e *dataflow.Error
			if !errors.As(err, &e) || e.Reason != dataflow.ReasonTokenNotReached || e.Hint != "checkpoints are off" {
				t.Errorf("after %s: %v", d, err)
			}
		})
	}
}

// fakeAppend takes plain appends, or loses the answer of the first.
type fakeAppend struct {
	weirv1.UnimplementedIngestServiceServer
	calls  int
	reason dataflow.Reason
}

// Append implements weirv1.IngestServiceServer.
func (f *fakeAppend) Append(_ context.Context, r *weirv1.AppendRequest) (*weirv1.AppendResponse, error) {
	if f.calls++; f.calls == 1 {
		return nil, refused(dataflow.Errorf(f.reason, "first call"))
	}
	return &weirv1.AppendResponse{Rows: uint64(r.GetBatch().GetRows())}, nil
}

func TestPlainAppendsAreMadeAgainOnlyWhereThatIsSafe(t *testing.T) {
	for _, c := range []struct {
		key    string
		reason dataflow.Reason
		calls  int
	}{
		{"", dataflow.ReasonOutcomeUnknown, 1},
		{"k", dataflow.ReasonOutcomeUnknown, 2},
		{"", dataflow.ReasonOverloaded, 2},
		{"", dataflow.ReasonRowInvalid, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeAppend{reason: c.reason}
			w, stop := serve(t, Config{}, func(s *grpc.Server) { weirv1.RegisterIngestServiceServer(s, f) })
			defer stop()
			r, err := w.Append(t.Context(), Append{Stream: "s", Rows: numbered(0, 3), IdempotencyKey: c.key})
			if f.calls != c.calls || c.calls == 2 && (err != nil || r.GetRows() != 3) || c.calls == 1 && dataflow.ReasonOf(err) != c.reason {
				t.Errorf("key %q, %s: %d calls, %v, %v", c.key, c.reason, f.calls, r, err)
			}
		})
	}
}
