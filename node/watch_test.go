package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const watched = `SET checkpoint.interval = '20 ms'; SET checkpoint.retained = 2;
CREATE STREAM s (k TEXT);
CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW sizes AS SELECT n, count(*) AS words FROM counts GROUP BY n;`

// follower is a watcher's picture of a table, and where it stands.
type follower struct {
	table   string
	rows    map[string]string // by key
	pending []*weirv1.WatchResponse
	token   string
	cuts    int
	resumed int // calls that went on from a token
}

// take applies a message, and at the end of a cut compares the picture with the closed form: every row of the stream counts
// once in what a cut covers.
func (f *follower) take(m *weirv1.WatchResponse) error {
	f.pending = append(f.pending, m)
	if !m.GetEndOfCut() && m.GetCut() == nil {
		return nil
	}
	if m.GetSnapshot() {
		f.rows = make(map[string]string)
	}
	for _, p := range f.pending {
		for _, c := range p.GetChanges() {
			if c.GetDeleted() {
				delete(f.rows, string(c.GetKey()))
			} else {
				f.rows[string(c.GetKey())] = string(c.GetRow())
			}
		}
	}
	f.pending = nil
	if !m.GetEndOfCut() || m.GetCut().GetSpeculative() {
		return nil
	}
	f.cuts++
	f.token = m.GetCut().GetToken()
	var total, want int64
	for _, row := range f.rows {
		r := struct{ N, Words int64 }{Words: 1}
		if err := json.Unmarshal([]byte(row), &r); err != nil {
			return err
		}
		total += r.N * r.Words
	}
	for _, p := range m.GetCut().GetPositions() {
		want += int64(p.GetOffset())
	}
	if total != want {
		return fmt.Errorf("%s at cut %d counts %d rows, its positions are %d", f.table, m.GetCut().GetCheckpointId(), total, want)
	}
	return nil
}

func (f *follower) sorted() []string {
	var out []string
	for _, row := range f.rows {
		out = append(out, row)
	}
	slices.Sort(out)
	return out
}

// follow watches until ctx ends, n cuts have come (0 = no limit) or the watch fails.
func (f *follower) follow(ctx context.Context, q weirv1.QueryServiceClient, cuts int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.pending = nil
	if f.token != "" {
		f.resumed++
	}
	call, err := q.Watch(ctx, &weirv1.WatchRequest{Pipeline: "p", Table: f.table, ResumeToken: f.token})
	for until := f.cuts + cuts; err == nil && (cuts == 0 || f.cuts < until); {
		var m *weirv1.WatchResponse
		if m, err = call.Recv(); err == nil {
			if err := f.take(m); err != nil {
				return err
			}
		}
	}
	switch nodetest.Reason(err) {
	case dataflow.ReasonCheckpointExpired, dataflow.ReasonWatchLagged:
		f.token = ""
		return nil
	case dataflow.ReasonNoCommittedCheckpoint, dataflow.ReasonShuttingDown:
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// TestAWatchIsExactOverRecoveriesRestartsAndCrashes runs watchers that resume at random over a node whose layers are folded
// all the time, and which is restarted and crashed.
func TestAWatchIsExactOverRecoveriesRestartsAndCrashes(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	n := nodetest.Open(t, nodetest.Options{Tuning: nodetest.Restless()})
	n.Deploy("p", watched)
	all := []*follower{{table: "counts"}, {table: "sizes"}, {table: "counts"}, {table: "sizes"}}
	crashes := 0 // in the node's present life
	for range 6 {
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		for i, f := range all {
			watching.Go(func() {
				own := rand.New(rand.NewPCG(seed, uint64(i)))
				for ctx.Err() == nil {
					if err := f.follow(ctx, n.Queries(), own.IntN(6)); err != nil {
						t.Errorf("watcher %d: %v", i, err)
						return
					}
				}
			})
		}
		token := ""
		for range 30 {
			var rows []string
			for range 1 + rng.IntN(40) {
				rows = append(rows, fmt.Sprintf(`{"k":"k%d"}`, rng.IntN(60)))
			}
			token = n.Append("s", rows...)
			// Each recovery waits twice as long as the one before, until the node starts again: a tenth would wait longer than the test does.
			if rng.IntN(10) == 0 && crashes < 4 {
				crashes++
				n.CrashDataflow("p")
			}
			if rng.IntN(3) == 0 {
				n.WaitCommitted(token)
			}
		}
		n.WaitCommitted(token)
		stop()
		watching.Wait()
		if t.Failed() {
			return
		}
		switch rng.IntN(3) {
		case 0:
			n.Restart()
			crashes = 0
		case 1:
			n.Crash(nodetest.LoseUnsynced)
			crashes = 0
		}
	}
	cut := n.Checkpoint("p")
	for _, f := range all {
		for at := uint64(0); at < cut.GetId(); {
			if err := f.follow(t.Context(), n.Queries(), 1); err != nil {
				t.Fatal(err)
			}
			rows, now := n.Scan("p", f.table, weirv1.Read_READ_COMMITTED)
			slices.Sort(rows)
			if at = now.GetCheckpointId(); slices.Equal(rows, f.sorted()) {
				break
			}
		}
		if f.cuts < 5 || f.resumed == 0 {
			t.Errorf("a watcher of %s has seen %d cuts and resumed %d times", f.table, f.cuts, f.resumed)
		}
	}
}

func TestALiveWatchFollowsAndIsToldOfARecovery(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("p", strings.Replace(watched, "'20 ms'", "'off'", 1))
	n.Append("s", `{"k":"a"}`)
	n.Checkpoint("p")
	n.WaitProcessed(n.Append("s", `{"k":"a"}`))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call, err := n.Queries().Watch(ctx, &weirv1.WatchRequest{Pipeline: "p", Table: "sizes", Isolation: weirv1.Read_READ_UNCOMMITTED})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{table: "sizes"}
	rolledBack := false
	until := func(what string, want ...string) {
		t.Helper()
		for !slices.Equal(f.sorted(), want) {
			m, err := call.Recv()
			if err != nil {
				t.Fatalf("%s: %v; has %v, wants %v", what, err, f.sorted(), want)
			}
			rolledBack = rolledBack || m.GetRolledBack()
			if c := m.GetCut(); c != nil && !c.GetSpeculative() {
				t.Errorf("a live event is not speculative: %v", c)
			}
			if err := f.take(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	until("what is not committed", `{"n":2,"words":1}`)
	n.Append("s", `{"k":"b"}`)
	until("a change", `{"n":1,"words":1}`, `{"n":2,"words":1}`)
	n.CrashDataflow("p")
	for !rolledBack {
		m, err := call.Recv()
		if err != nil {
			t.Fatal(err)
		}
		rolledBack = m.GetRolledBack()
		if err := f.take(m); err != nil {
			t.Fatal(err)
		}
	}
	until("the rows again", `{"n":1,"words":1}`, `{"n":2,"words":1}`)
}

func TestAWatchSaysWhenThePipelineOrTheNodeEnds(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("p", watched)
	open := func() weirv1.QueryService_WatchClient {
		t.Helper()
		call, err := n.Queries().Watch(t.Context(), &weirv1.WatchRequest{Pipeline: "p", Table: "counts", ChangesOnly: true})
		if err == nil {
			_, err = call.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		return call
	}
	ends := func(call weirv1.QueryService_WatchClient, want dataflow.Reason) {
		t.Helper()
		for {
			if _, err := call.Recv(); err != nil {
				if nodetest.Reason(err) != want {
					t.Errorf("it ends with %v, want %s", err, want)
				}
				return
			}
		}
	}
	stopped := open()
	if _, err := n.Pipelines().StopPipeline(t.Context(), &weirv1.StopPipelineRequest{Pipeline: "p"}); err != nil {
		t.Fatal(err)
	}
	n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_STOPPED)
	if _, err := n.Pipelines().ResumePipeline(t.Context(), &weirv1.ResumePipelineRequest{Pipeline: "p"}); err != nil {
		t.Fatal(err)
	}
	n.Append("s", `{"k":"a"}`)
	for { // the watch has outlived the stop
		m, err := stopped.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.GetChanges()) > 0 {
			break
		}
	}
	if _, err := n.Pipelines().DeletePipeline(t.Context(), &weirv1.DeletePipelineRequest{Pipeline: "p"}); err != nil {
		t.Fatal(err)
	}
	ends(stopped, dataflow.ReasonPipelineNotFound)

	n.Deploy("p", watched)
	open()
	resp, err := http.Get("http://" + n.HTTPAddr() + "/v1/pipelines/p/tables/counts:watch")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	if lines.Scan(); lines.Text() != "retry: 1000" || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-Accel-Buffering") != "no" || resp.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("the event stream begins with %q, headers %v", lines.Text(), resp.Header)
	}
	n.Close()
	var text strings.Builder
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
	}
	if err := errors.Join(lines.Err(), resp.Body.Close()); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("the event stream breaks off: %v", err)
	}
	if !strings.Contains(text.String(), "event: failed\ndata: {\"op\":\"failed\",\"error\":{\"code\":14,") || !strings.Contains(text.String(), "SHUTTING_DOWN") {
		t.Errorf("the event stream ends without saying why:\n%s", text.String())
	}
}
