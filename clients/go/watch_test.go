package weir

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// watchCall is what a fake server says in one call, and the token that it wants to be asked with.
type watchCall struct {
	token string
	says  []*weirv1.WatchResponse
	err   error // nil = it stays open
}

// fakeWatch answers one call after the other.
type fakeWatch struct {
	weirv1.UnimplementedQueryServiceServer
	t     *testing.T
	mu    sync.Mutex
	calls []watchCall
}

// Watch implements weirv1.QueryServiceServer.
func (f *fakeWatch) Watch(r *weirv1.WatchRequest, out weirv1.QueryService_WatchServer) error {
	f.mu.Lock()
	if len(f.calls) == 0 {
		f.mu.Unlock()
		return refused(dataflow.Errorf(dataflow.ReasonInternal, "one call too many"))
	}
	c := f.calls[0]
	f.calls = f.calls[1:]
	f.mu.Unlock()
	if r.GetResumeToken() != c.token {
		f.t.Errorf("asked with token %q, want %q", r.GetResumeToken(), c.token)
	}
	for _, m := range c.says {
		if err := out.Send(m); err != nil {
			return err
		}
	}
	if c.err != nil {
		return c.err
	}
	<-out.Context().Done()
	return out.Context().Err()
}

func said(row string, end int) *weirv1.WatchResponse {
	m := &weirv1.WatchResponse{Changes: []*weirv1.Change{{Key: []byte("k"), Row: []byte(row)}}}
	if end > 0 {
		m.EndOfCut, m.Cut = true, &weirv1.Cut{Pipeline: "p", CheckpointId: uint64(end), Token: fmt.Sprintf("t%d", end)}
	}
	return m
}

func TestAWatchResumesAfterTheLastCompleteCut(t *testing.T) {
	away := refused(dataflow.Errorf(dataflow.ReasonShuttingDown, "stopping"))
	expired := refused(dataflow.Errorf(dataflow.ReasonCheckpointExpired, "gone"))
	for name, c := range map[string]struct {
		o      WatchOptions
		calls  []watchCall
		want   []string
		reason dataflow.Reason
	}{
		"in the middle of a cut": {
			calls: []watchCall{{says: []*weirv1.WatchResponse{said("a", 1), said("b", 0)}, err: away}, {token: "t1", says: []*weirv1.WatchResponse{said("b", 2)}}},
			want:  []string{"a", "cut 1", "b", "restart", "b", "cut 2"},
		},
		"between cuts": {
			calls: []watchCall{{says: []*weirv1.WatchResponse{said("a", 1)}, err: away}, {token: "t1", err: away}, {token: "t1", says: []*weirv1.WatchResponse{said("b", 2)}}},
			want:  []string{"a", "cut 1", "b", "cut 2"},
		},
		"with a new snapshot when it is too old": {
			calls: []watchCall{{says: []*weirv1.WatchResponse{said("a", 1)}, err: away}, {token: "t1", err: expired}, {says: []*weirv1.WatchResponse{said("b", 9)}}},
			want:  []string{"a", "cut 1", "b", "cut 9"},
		},
		"after it was too slow": {
			calls: []watchCall{{says: []*weirv1.WatchResponse{said("a", 1)}, err: refused(dataflow.Errorf(dataflow.ReasonWatchLagged, "slow"))}, {token: "t1", says: []*weirv1.WatchResponse{said("b", 2)}}},
			want:  []string{"a", "cut 1", "b", "cut 2"},
		},
		"but not for changes only": {
			o:     WatchOptions{ChangesOnly: true},
			calls: []watchCall{{says: []*weirv1.WatchResponse{said("a", 1)}, err: away}, {token: "t1", err: expired}},
			want:  []string{"a", "cut 1"}, reason: dataflow.ReasonCheckpointExpired,
		},
		"nor from a token that the caller brought": {
			o:     WatchOptions{Resume: "t0"},
			calls: []watchCall{{token: "t0", err: expired}}, reason: dataflow.ReasonCheckpointExpired,
		},
		"and a live one from the beginning": {
			o:     WatchOptions{Isolation: dataflow.ReadUncommitted},
			calls: []watchCall{{says: []*weirv1.WatchResponse{said("a", 1)}, err: away}, {says: []*weirv1.WatchResponse{said("b", 2)}}},
			want:  []string{"a", "cut 1", "restart", "b", "cut 2"},
		},
		"for as long as it was told": {
			o:     WatchOptions{RetryFor: -1},
			calls: []watchCall{{says: []*weirv1.WatchResponse{said("a", 1)}, err: away}},
			want:  []string{"a", "cut 1"}, reason: dataflow.ReasonShuttingDown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeWatch{t: t, calls: c.calls}
				w, stop := serve(t, Config{}, func(s *grpc.Server) { weirv1.RegisterQueryServiceServer(s, f) })
				defer stop()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var got []string
				var reason dataflow.Reason
				for ev, err := range w.Watch(ctx, "p.t", c.o) {
					if err != nil {
						reason = dataflow.ReasonOf(err)
						break
					}
					if ev.Restart {
						got = append(got, "restart")
					}
					for _, ch := range ev.Changes {
						got = append(got, string(ch.GetRow()))
					}
					if ev.EndOfCut {
						got = append(got, fmt.Sprintf("cut %d", ev.Cut.GetCheckpointId()))
					}
					if c.reason == "" && len(got) == len(c.want) {
						break
					}
				}
				if !slices.Equal(got, c.want) || reason != c.reason {
					t.Errorf("%v, then %s; want %v, then %s", got, reason, c.want, c.reason)
				}
			})
		})
	}
}
