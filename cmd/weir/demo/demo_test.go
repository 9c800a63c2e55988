package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLostAndDoubledDoNotMakeUpForEachOther(t *testing.T) {
	at := func(m map[string]uint64) *counts {
		c := &counts{byPage: m, cut: &weirv1.Cut{}}
		for _, n := range m {
			c.total += n
		}
		return c
	}
	type table = map[string]uint64
	for _, c := range []struct {
		truth, before, now table
		want               Result
		exact              bool
	}{
		{table{"/": 5, "/a": 2}, nil, table{"/": 5, "/a": 2}, Result{Sent: 7, Counted: 7}, true},
		{table{"/": 5, "/a": 2}, nil, table{"/": 4, "/a": 3}, Result{Sent: 7, Counted: 7, Lost: 1, Doubled: 1}, false},
		{table{"/": 5}, table{"/": 10, "/b": 1}, table{"/": 15, "/b": 1}, Result{Sent: 5, Counted: 5}, true},
		{table{"/": 5}, nil, nil, Result{Sent: 5, Lost: 5}, false},
		{nil, nil, table{"/": 1}, Result{Counted: 1, Doubled: 1}, false},
		{table{"/": 1}, table{"/b": 4}, table{"/": 1}, Result{Sent: 1, Lost: 4}, false},
	} {
		var sent uint64
		for _, n := range c.truth {
			sent += n
		}
		r := compare(c.truth, sent, at(c.before), at(c.now))
		if r != c.want || r.Exact() != c.exact {
			t.Errorf("truth %v over %v, table %v: %v, want %v", c.truth, c.before, c.now, r, c.want)
		}
	}
	if got := (Result{Sent: 3, Counted: 2, Lost: 1, Crashes: 4}).String(); got != "sent 3 rows, counted 2, lost 1, doubled 0, crashes 4" {
		t.Error(got)
	}
}

func TestGeneratorKnowsWhatItHasHandedOver(t *testing.T) {
	g := newGenerator(1, dataflow.Schema{{Name: "page", Type: dataflow.TypeText}, {Name: "country", Type: dataflow.TypeText}, {Name: "ms", Type: dataflow.TypeBigInt}})
	var total uint64
	for range 10 {
		b := g.batch(100)
		if g.total != total {
			t.Fatal("rows count before they are handed over")
		}
		g.add(b)
		total += 100
	}
	var sum uint64
	for _, p := range pages {
		sum += g.truth[p]
	}
	if sum != 1000 || g.total != 1000 || g.truth["/"] < g.truth["/contact"] {
		t.Errorf("truth: %v", g.truth)
	}
}

func TestPrintedArgumentsReadBackInAShell(t *testing.T) {
	for in, want := range map[string]string{
		"/usr/bin/weir": "/usr/bin/weir", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "SELECT *": "'SELECT *'",
		"http://h:1/%2Fa%20b": "http://h:1/%2Fa%20b", "a&b": "'a&b'", "~/weir": "'~/weir'",
	} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// watchedBuffer is an output that can be waited on.
type watchedBuffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

func (w *watchedBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
	return w.b.Write(p)
}

func (w *watchedBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// await waits until the output matches, and returns the submatches of the last match.
func (w *watchedBuffer) await(t *testing.T, re string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		w.mu.Lock()
		all, changed := regexp.MustCompile(re).FindAllStringSubmatch(w.b.String(), -1), w.changed
		w.mu.Unlock()
		if len(all) > 0 {
			return all[len(all)-1]
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("no %q in:\n%s", re, w.String())
		}
	}
}

// TestKeysCrashPauseAndQuit plays a person at a terminal, over a node in this process.
func TestKeysCrashPauseAndQuit(t *testing.T) {
	out := &watchedBuffer{changed: make(chan struct{})}
	press := make(chan byte)
	type end struct {
		r   Result
		err error
	}
	ended := make(chan end, 1)
	go func() {
		r, err := Run(t.Context(), Config{Dir: t.TempDir(), Rate: 2000, Keys: press, Screen: true, Out: out, Program: "/opt/my weir/weir"})
		ended <- end{r, err}
	}()
	out.await(t, `live: +incarnation 1;`)
	if s := out.String(); !strings.Contains(s, "  '/opt/my weir/weir' get demo.by_page '/blog/exactly once' --addr ") {
		t.Errorf("no command to paste in:\n%s", s)
	}
	out.await(t, `committed: cut [1-9]\d*, .* it never steps back`)
	checkURL(t, out.await(t, `curl '(\S+rows/[^?']+)'\r\n`)[1])
	checkURL(t, out.await(t, `curl '(\S+\?isolation=READ_UNCOMMITTED)'\r\n`)[1])
	press <- 'c'
	out.await(t, `crash 1: incarnation 2 goes on from the last cut`)
	press <- 'p'
	out.await(t, `paused: `)
	press <- 'p'
	press <- 'x' // means nothing
	press <- 'q'
	e := <-ended
	if e.err != nil || !e.r.Exact() || e.r.Crashes != 1 || e.r.Sent == 0 {
		t.Errorf("ended with %v, %v", e.r, e.err)
	}
	if strings.Count(out.String(), "\n") != strings.Count(out.String(), "\r\n") {
		t.Error("a line ends without a carriage return, which a terminal in raw mode shows as stairs")
	}
}

// checkURL fetches what the demo says can be fetched.
func checkURL(t *testing.T, url string) {
	t.Helper()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		t.Errorf("get %s: %v", url, err)
		return
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(body), `"page":"/blog/exactly once"`) {
		t.Errorf("get %s: %d %s %v", url, r.StatusCode, body, err)
	}
}

func TestInterruptedDemoStillAccountsForEveryRow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &watchedBuffer{changed: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		r, err := Run(ctx, Config{Dir: t.TempDir(), Rate: 500, Out: out, Program: "weir"})
		if err == nil && (!r.Exact() || r.Sent == 0) {
			err = fmt.Errorf("inexact: %v", r)
		}
		done <- err
	}()
	out.await(t, `sent [1-9]`)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestShortRunsCrashTwiceAndAccountForEveryRow(t *testing.T) {
	for _, c := range []Config{{Rate: 1, Duration: 100 * time.Millisecond}, {Rate: 50_000, Duration: 200 * time.Millisecond}} {
		c.Dir, c.Once, c.Out, c.Program = t.TempDir(), true, io.Discard, "weir"
		if r, err := Run(t.Context(), c); err != nil || !r.Exact() || r.Sent == 0 || r.Crashes != onceCrash {
			t.Errorf("%d rows per second for %s: %v, %v", c.Rate, c.Duration, r, err)
		}
	}
}

// brokenPipe fails like an output whose reader has gone.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestNothingIsLeftWhenTheOutputIsGone(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	if _, err := Run(t.Context(), Config{Rate: 1, Out: brokenPipe{}, Program: "weir"}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
