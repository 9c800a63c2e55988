package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// events counts messages of the nodes.
type events struct {
	slog.Handler
	installed, brought, aside atomic.Int64
}

func (e *events) Enabled(context.Context, slog.Level) bool { return true }
func (e *events) WithAttrs([]slog.Attr) slog.Handler       { return e }
func (e *events) WithGroup(string) slog.Handler            { return e }
func (e *events) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "a replica that was brought is in its place":
		e.installed.Add(1)
	case "a replica is being brought":
		e.brought.Add(1)
	case "a damaged replica was set aside":
		e.aside.Add(1)
	}
	return nil
}

// restlessGroup is a group whose logs are cut all the time, so that whoever was away must be rebuilt.
func restlessGroup(t *testing.T, tune func(*node.Tuning)) (*nodetest.Group, *events) {
	tuning := nodetest.Restless()
	tuning.ElectionTimeout = quickElection
	if tune != nil {
		tune(&tuning)
	}
	e := &events{}
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 2, Tuning: tuning, Logger: slog.New(e)})
	g.Node(1).Deploy("wc", groupSQL)
	return g, e
}

var flows atomic.Int64

// flow sends rows in rounds of 20 words, each until it is acknowledged, and returns a token that covers them and what previous covers: a
// round's own covers the one shard that the round went to.
func flow(t *testing.T, n *nodetest.Node, previous string, rounds int) (token string) {
	t.Helper()
	var rows []string
	for k := range 20 {
		rows = append(rows, fmt.Sprintf(`{"word":"w%d"}`, k))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	token = previous
	for range rounds {
		req := &weirv1.AppendRequest{
			Stream: "words", JsonRows: []byte(strings.Join(rows, "\n")), IdempotencyKey: fmt.Sprint("round-", flows.Add(1)), PreviousToken: token,
		}
		for {
			try, cancel := context.WithTimeout(ctx, 2*time.Second)
			r, err := n.Ingest().Append(try, req)
			cancel()
			if err == nil {
				token = r.GetToken()
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("append: %v", err)
			}
			_ = pause.For(ctx, 10*time.Millisecond)
		}
	}
	return token
}

// wantRounds asks a node, which may restart itself, until it answers, and wants exactly the rows of so many rounds.
func wantRounds(t *testing.T, n *nodetest.Node, token string, rounds int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	req := &weirv1.QueryRequest{Sql: "SELECT word, n FROM wc.counts", MinToken: token, Limit: 100}
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		r, err := n.Queries().Query(try, req)
		cancel()
		if err != nil && ctx.Err() == nil {
			_ = pause.For(ctx, 20*time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(r.GetRows()) != 20 {
			t.Errorf("%d words at %v, want 20", len(r.GetRows()), r.GetCut())
		}
		for _, row := range r.GetRows() {
			if !strings.HasSuffix(string(row), fmt.Sprintf(`,"n":%d}`, rounds)) {
				t.Fatalf("%s at %v, want %d", row, r.GetCut(), rounds)
			}
		}
		return
	}
}

// wantEqual has the nodes' copies compared.
func wantEqual(t *testing.T, n *nodetest.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var last string
	for ctx.Err() == nil {
		r, err := n.Cluster().VerifyCluster(ctx, &weirv1.VerifyClusterRequest{})
		if err != nil {
			last = err.Error()
		} else {
			var unequal []string
			for _, v := range r.GetVerified() {
				if !v.GetEqual() || !v.GetComplete() {
					unequal = append(unequal, v.String())
				}
			}
			if len(unequal) == 0 {
				return
			}
			last = strings.Join(unequal, "\n")
		}
		_ = pause.For(ctx, 50*time.Millisecond)
	}
	t.Fatalf("the copies are not equal: %s", last)
}

// TestANodeThatWasAwayIsRebuilt cuts the logs behind a node that does not run.
func TestANodeThatWasAwayIsRebuilt(t *testing.T) {
	t.Parallel()
	g, e := restlessGroup(t, nil)
	token := flow(t, g.Node(1), "", 20)
	g.Stop(3)
	token = flow(t, g.Node(1), token, 100)
	g.Start(3)
	token = flow(t, g.Node(2), token, 10)
	for _, n := range g.Nodes() {
		wantRounds(t, n, token, 130)
	}
	if e.installed.Load() == 0 {
		t.Error("nothing was installed")
	}
	wantEqual(t, g.Node(3))
}

// TestANodeThatWasCutOffRestartsItself brings the replicas beside those in use.
func TestANodeThatWasCutOffRestartsItself(t *testing.T) {
	t.Parallel()
	g, e := restlessGroup(t, nil)
	token := flow(t, g.Node(1), "", 20)
	g.Isolate(3)
	token = flow(t, g.Node(1), token, 100)
	g.Net.Heal()
	token = flow(t, g.Node(2), token, 10)
	for _, n := range g.Nodes() {
		wantRounds(t, n, token, 130)
	}
	if e.installed.Load() == 0 || g.Node(3).SelfRestarts() == 0 {
		t.Errorf("%d replicas were installed, %d restarts", e.installed.Load(), g.Node(3).SelfRestarts())
	}
	wantEqual(t, g.Node(3))
}

// TestALostAndADamagedStateAreRebuilt removes a shard's state, and damages another's.
func TestALostAndADamagedStateAreRebuilt(t *testing.T) {
	t.Parallel()
	g, e := restlessGroup(t, nil)
	token := flow(t, g.Node(1), "", 50)
	wantRounds(t, g.Node(3), token, 50)
	g.Stop(3)
	fs := g.Node(3).FS()
	if err := fs.RemoveAll("/data/shards/0000/state"); err != nil {
		t.Fatal(err)
	}
	damageTables(t, fs, "/data/shards/0001/state/db")
	g.Start(3)
	token = flow(t, g.Node(2), token, 10)
	for _, n := range g.Nodes() {
		wantRounds(t, n, token, 60)
	}
	wantEqual(t, g.Node(1))
	wantRounds(t, g.Node(3), token, 60)
	if e.aside.Load() != 1 || e.installed.Load() < 2 {
		t.Errorf("%d replicas were set aside, %d were installed", e.aside.Load(), e.installed.Load())
	}
}

// damageTables flips a bit in the middle of each table.
func damageTables(t *testing.T, fs *vfs.MemFS, dir string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		found = true
		path := fs.PathJoin(dir, name)
		f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, 20); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 4
		if _, err := f.WriteAt(b, 20); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Fatalf("%s has no tables: %v", dir, names)
	}
}

// TestDamageThatIsMetIsMended damages tables under a running node: a comparison meets it.
func TestDamageThatIsMetIsMended(t *testing.T) {
	t.Parallel()
	g, e := restlessGroup(t, nil)
	token := flow(t, g.Node(1), "", 50)
	wantRounds(t, g.Node(2), token, 50)
	g.Stop(2)
	damageTables(t, g.Node(2).FS(), "/data/shards/0000/state/db")
	damageTables(t, g.Node(2).FS(), "/data/shards/0001/state/db")
	g.Start(2)
	wantEqual(t, g.Node(1))
	token = flow(t, g.Node(2), token, 10)
	wantRounds(t, g.Node(2), token, 60)
	if e.aside.Load() == 0 || e.installed.Load() == 0 {
		t.Errorf("%d replicas were set aside, %d installed", e.aside.Load(), e.installed.Load())
	}
}

// TestAPullSurvivesKills kills the node that brings replicas, again and again, and then the one that they come from.
func TestAPullSurvivesKills(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("half a minute")
	}
	g, e := restlessGroup(t, func(tu *node.Tuning) { tu.RebuildRate = 20 << 10 }) // a pull takes a second or so
	token := flow(t, g.Node(1), "", 100)
	g.Stop(3)
	token = flow(t, g.Node(1), token, 100)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 6 {
		before := e.brought.Load()
		n := g.Node(3)
		ctx, cancel := context.WithCancel(t.Context())
		started := make(chan error, 1)
		go func() { started <- n.TryStart(ctx) }()
		for e.brought.Load() == before && len(started) == 0 {
			_ = pause.For(ctx, 5*time.Millisecond)
		}
		_ = pause.For(ctx, time.Duration(rnd.IntN(800))*time.Millisecond)
		after := n.FS().CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * (i % 3), RNG: rnd})
		cancel()
		if err := <-started; err == nil {
			n.Close()
		}
		n.SetFS(after)
	}
	started := make(chan error, 1)
	before := e.brought.Load()
	go func() { started <- g.Node(3).Start() }()
	for e.brought.Load() == before && len(started) == 0 {
		_ = pause.For(t.Context(), 5*time.Millisecond)
	}
	g.Kill(nodetest.LoseUnsynced, 1)
	g.Start(1)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	token = flow(t, g.Node(1), token, 10)
	for _, n := range g.Nodes() {
		wantRounds(t, n, token, 210)
	}
	wantEqual(t, g.Node(2))
	t.Logf("%d pulls, %d installed", e.brought.Load(), e.installed.Load())
}

// TestANewNodeIsFilled adds a node while rows flow, and removes an old one.
func TestANewNodeIsFilled(t *testing.T) {
	t.Parallel()
	g, e := restlessGroup(t, nil)
	token := flow(t, g.Node(1), "", 60)
	n4 := g.Add()
	added := make(chan error, 1)
	go func() { added <- n4.Start() }()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	rounds, asked := 60, false
	for i := 0; ; i++ {
		token = flow(t, g.Node(1+i%3), token, 1)
		rounds++
		if !asked {
			_, err := g.Node(1).Cluster().AddNode(ctx, &weirv1.AddNodeRequest{PeerAddr: "n4:7712", Node: "n4"})
			asked = err == nil
		}
		select {
		case err := <-added:
			if err != nil {
				t.Fatal(err)
			}
			added = nil
		case <-ctx.Done():
			t.Fatal("the node does not come to the group")
		default:
		}
		if added == nil {
			break
		}
	}
	wantRounds(t, n4, token, rounds)
	if e.installed.Load() < 2 {
		t.Errorf("%d replicas were installed", e.installed.Load())
	}
	waitState(t, g.Node(2), "n4", "active")
	if _, err := g.Node(2).Cluster().RemoveNode(ctx, &weirv1.RemoveNodeRequest{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	waitState(t, g.Node(2), "n1", "gone")
	g.Stop(1)
	token = flow(t, g.Node(3), token, 10)
	wantRounds(t, n4, token, rounds+10)
	wantEqual(t, n4)
}

// waitState waits until a node is in a state.
func waitState(t *testing.T, n *nodetest.Node, node, state string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for {
		r, err := n.Cluster().GetStatus(ctx, &weirv1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.GetNodes() {
			if s.GetNode() == node && s.GetState() == state {
				return
			}
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil {
			t.Fatalf("node %s does not become %s: %v", node, state, r.GetNodes())
		}
	}
}
