package weir

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// fakeQueries answers reads as it is told.
type fakeQueries struct {
	weirv1.UnimplementedQueryServiceServer
	mu       sync.Mutex
	sessions []string
	answer   func(call int) (*weirv1.Cut, error)
	pages    [][][]byte
	wanted   []int64 // at_most of each page that was asked for
}

func (f *fakeQueries) next(session string) (*weirv1.Cut, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions = append(f.sessions, session)
	return f.answer(len(f.sessions))
}

// Get implements weirv1.QueryServiceServer.
func (f *fakeQueries) Get(_ context.Context, r *weirv1.GetRequest) (*weirv1.GetResponse, error) {
	cut, err := f.next(r.GetSessionToken())
	if err != nil {
		return nil, err
	}
	return &weirv1.GetResponse{Row: []byte(`{"n":1}`), Cut: cut}, nil
}

// Query implements weirv1.QueryServiceServer.
func (f *fakeQueries) Query(_ context.Context, r *weirv1.QueryRequest) (*weirv1.QueryResponse, error) {
	cut, err := f.next(r.GetSessionToken())
	if err != nil {
		return nil, err
	}
	return &weirv1.QueryResponse{Cut: cut}, nil
}

// Scan implements weirv1.QueryServiceServer: page tokens count.
func (f *fakeQueries) Scan(_ context.Context, r *weirv1.ScanRequest) (*weirv1.ScanResponse, error) {
	n := len(r.GetPageToken())
	m := &weirv1.ScanResponse{Rows: f.pages[n], Cut: &weirv1.Cut{CheckpointId: 7}}
	f.wanted = append(f.wanted, r.GetAtMost())
	if n < len(f.pages)-1 {
		m.NextPageToken = strings.Repeat("x", n+1)
	}
	return m, nil
}

func cutOf(pipeline string, uid, id uint64, token string) *weirv1.Cut {
	return &weirv1.Cut{Pipeline: pipeline, PipelineUid: uid, Timeline: 1, CheckpointId: id, Token: token}
}

func withQueries(t *testing.T, f *fakeQueries, test func(t *testing.T, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, stop := serve(t, Config{}, func(s *grpc.Server) { weirv1.RegisterQueryServiceServer(s, f) })
		defer stop()
		test(t, c)
	})
}

func TestUnavailableIsTriedAgainAfterTheAskedTime(t *testing.T) {
	f := &fakeQueries{answer: func(call int) (*weirv1.Cut, error) {
		if call < 3 {
			return nil, refused(dataflow.Errorf(dataflow.ReasonPipelineRecovering, "recovering").WithRetry(time.Second))
		}
		return cutOf("p", 1, 1, "a"), nil
	}}
	withQueries(t, f, func(t *testing.T, c *Client) {
		start := time.Now()
		if _, err := c.Get(t.Context(), "p.t", Key("x"), ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 2*time.Second || took > 5*time.Second {
			t.Errorf("two retries of a second each took %s", took)
		}
	})
}

func TestRetriesEndWithTheLastReason(t *testing.T) {
	f := &fakeQueries{answer: func(int) (*weirv1.Cut, error) {
		return nil, refused(dataflow.Errorf(dataflow.ReasonNotLeader, "elsewhere").WithHint("ask n2"))
	}}
	withQueries(t, f, func(t *testing.T, c *Client) {
		start := time.Now()
		_, err := c.Get(t.Context(), "p.t", nil, ReadOptions{})
		var e *dataflow.Error
		if !errors.As(err, &e) || e.Reason != dataflow.ReasonNotLeader || e.Hint != "ask n2" || e.Message != "elsewhere" {
			t.Errorf("got %#v", err)
		}
		if took := time.Since(start); took > DefaultRetryFor {
			t.Errorf("tried for %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = c.Get(ctx, "p.t", nil, ReadOptions{}); dataflow.ReasonOf(err) != dataflow.ReasonNotLeader {
			t.Errorf("with a deadline: %v", err)
		}
	})
}

func TestRefusalsAreNotTriedAgain(t *testing.T) {
	f := &fakeQueries{answer: func(int) (*weirv1.Cut, error) {
		return nil, refused(&dataflow.Error{Reason: dataflow.ReasonKeyInvalid, Message: "no", Violations: []dataflow.Violation{{Field: "key", Description: "no"}}})
	}}
	withQueries(t, f, func(t *testing.T, c *Client) {
		_, err := c.Get(t.Context(), "p.t", nil, ReadOptions{})
		var e *dataflow.Error
		if !errors.As(err, &e) || len(e.Violations) != 1 {
			t.Errorf("got %v", err)
		}
		if len(f.sessions) != 1 {
			t.Errorf("called %d times", len(f.sessions))
		}
	})
}

func TestReadsNeverAskForAnOlderCutThanSeen(t *testing.T) {
	cuts := []*weirv1.Cut{cutOf("p", 1, 5, "five"), cutOf("p", 1, 4, "four"), cutOf("q", 2, 1, "q1"), cutOf("p", 1, 6, "six"), cutOf("p", 1, 6, "six")}
	f := &fakeQueries{answer: func(call int) (*weirv1.Cut, error) { return cuts[call-1], nil }}
	withQueries(t, f, func(t *testing.T, c *Client) {
		for _, read := range []func() error{
			func() error { _, err := c.Get(t.Context(), "p.t", nil, ReadOptions{}); return err },
			func() error { _, err := c.Query(t.Context(), "SELECT 1 FROM p.t", ReadOptions{}); return err },
			func() error { _, err := c.Get(t.Context(), "q.t", nil, ReadOptions{}); return err },
			func() error { _, err := c.Get(t.Context(), "p.t", nil, ReadOptions{}); return err },
			func() error { _, err := c.Get(t.Context(), "p.t", nil, ReadOptions{}); return err },
		} {
			if err := read(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got := strings.Join(f.sessions, ","); got != ",five,,five,six" {
		t.Errorf("session tokens: %s", got)
	}
}

func TestChosenCutIsOutsideTheSession(t *testing.T) {
	f := &fakeQueries{answer: func(call int) (*weirv1.Cut, error) { return cutOf("p", 1, uint64(10-call), "t"), nil }}
	withQueries(t, f, func(t *testing.T, c *Client) {
		id := dataflow.CheckpointID(3)
		for _, o := range []ReadOptions{{}, {Checkpoint: &id}, {}} {
			if _, err := c.Get(t.Context(), "p.t", nil, o); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got := strings.Join(f.sessions, ","); got != ",,t" {
		t.Errorf("session tokens: %s", got)
	}
}

func TestRewindIsReportedOnce(t *testing.T) {
	f := &fakeQueries{answer: func(call int) (*weirv1.Cut, error) {
		if call == 2 {
			return nil, refused(dataflow.Errorf(dataflow.ReasonTimelineChanged, "rewound"))
		}
		return cutOf("p", 1, 9, "t"), nil
	}}
	withQueries(t, f, func(t *testing.T, c *Client) {
		for i, want := range []dataflow.Reason{"", dataflow.ReasonTimelineChanged, ""} {
			if _, err := c.Get(t.Context(), "p.t", nil, ReadOptions{}); dataflow.ReasonOf(err) != want {
				t.Errorf("read %d: %v", i+1, err)
			}
		}
	})
}

func TestAbsentRowComesWithItsCut(t *testing.T) {
	f := &fakeQueries{answer: func(int) (*weirv1.Cut, error) {
		return nil, statusWithCut(dataflow.Errorf(dataflow.ReasonRowNotFound, "none"), cutOf("p", 1, 42, "t42"))
	}}
	withQueries(t, f, func(t *testing.T, c *Client) {
		_, err := c.Get(t.Context(), "p.t", nil, ReadOptions{})
		if dataflow.ReasonOf(err) != dataflow.ReasonRowNotFound || CutOf(err).GetCheckpointId() != 42 {
			t.Errorf("got %v with cut %v", err, CutOf(err))
		}
		if got := c.sessions.token("p"); got != "t42" {
			t.Errorf("the session did not see the cut: %q", got)
		}
	})
}

func TestNobodyThereIsUnreachable(t *testing.T) {
	c, err := Open(Config{Addrs: []string{"127.0.0.1:1"}, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, err = c.Status(t.Context())
	if dataflow.ReasonOf(err) != dataflow.ReasonUnreachable || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestScanFetchesPagesUntilTheEndOrTheLimit(t *testing.T) {
	row := func(s ...string) (out [][]byte) {
		for _, s := range s {
			out = append(out, []byte(s))
		}
		return out
	}
	f := &fakeQueries{pages: [][][]byte{row("1", "2"), nil, row("3"), row("4")}}
	withQueries(t, f, func(t *testing.T, c *Client) {
		wanted := map[int][]int64{0: {0, 0, 0, 0}, 3: {3, 1, 1}, 9: {9, 7, 7, 6}}
		for limit, want := range map[int]string{0: "1 2 3 4", 3: "1 2 3", 9: "1 2 3 4"} {
			f.wanted = nil
			r, err := c.Scan(t.Context(), "p.t", ScanRange{Limit: limit}, ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for x := range r.All() {
				got = append(got, string(x))
			}
			if r.Err() != nil || strings.Join(got, " ") != want || r.Cut().GetCheckpointId() != 7 {
				t.Errorf("limit %d: %v %v %v", limit, got, r.Err(), r.Cut())
			}
			if !slices.Equal(f.wanted, wanted[limit]) {
				t.Errorf("limit %d: the pages were asked for with at_most %v, want %v", limit, f.wanted, wanted[limit])
			}
		}
	})
}

func TestBadAddressesAreRefused(t *testing.T) {
	if _, err := Dial("localhost"); dataflow.ReasonOf(err) != dataflow.ReasonRequestInvalid {
		t.Errorf("got %v", err)
	}
	if got := strings.Join(ParseAddrs(" a:1, ,b:2 "), "|"); got != "a:1|b:2" {
		t.Errorf("got %s", got)
	}
}

func TestPipelineOfAQueryIsFound(t *testing.T) {
	for sql, want := range map[string]string{
		"SELECT * FROM p.t":                             "p",
		"select 'from x.y' from\n p . t":                "p",
		"SELECT a -- from x.y\n/* from z.z */ FROM P.t": "p",
		`SELECT 1 FROM "p"."t"`:                         "p",
		"SELECT 1 FROM (SELECT 2 FROM q.t) AS s":        "q",
		"SELECT from_a FROM t":                          "",
		"SELECT 'unclosed FROM p.t":                     "",
		"":                                              "",
		"FROM":                                          "",
		"WITH c AS (SELECT 1) SELECT * FROM c JOIN p.t ON true":        "p",
		"SELECT * FROM generate_series(1, 2) AS g JOIN p.t ON g = t.n": "p",
	} {
		if got := pipelineOf(sql); got != want {
			t.Errorf("%q: %q, want %q", sql, got, want)
		}
	}
}

func FuzzPipelineOf(f *testing.F) {
	f.Add("SELECT 1 FROM p.t")
	f.Add(`"'--/*`)
	f.Fuzz(func(_ *testing.T, sql string) { pipelineOf(sql) })
}

func TestKeyPartsAreTyped(t *testing.T) {
	k := Key("a", 1, int64(2), 1.5, true, nil, dataflow.Text("x"), time.UnixMicro(9))
	want := []dataflow.Type{dataflow.TypeUnknown, dataflow.TypeBigInt, dataflow.TypeBigInt, dataflow.TypeDouble, dataflow.TypeBool,
		dataflow.TypeUnknown, dataflow.TypeText, dataflow.TypeTimestamp}
	for i, v := range k {
		if v.Type != want[i] || v.Null != (i == 5) {
			t.Errorf("part %d: %+v", i, v)
		}
	}
}
