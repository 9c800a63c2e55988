package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// quickElection is the election timeout of groups whose nodes die or move. It is not shorter: beside other tests a leader that lives may be
// silent for 200 ms, and elections that nobody expects move leads.
const quickElection = 500 * time.Millisecond

// five is a group of five nodes that are quick to elect and to repair.
func five(t *testing.T) *nodetest.Group {
	return nodetest.OpenGroup(t, 5, nodetest.Options{Shards: 5, Tuning: node.Tuning{ElectionTimeout: quickElection, RepairAfter: 2 * time.Second}})
}

// votes is who votes and leads, as a node knows it.
type votes struct {
	meta   []string
	shards [][]string
	leads  map[string]int
	states map[string]string
}

func (v votes) of(node string) int {
	n := 0
	for _, voters := range v.shards {
		if slices.Contains(voters, node) {
			n++
		}
	}
	return n
}

func (v votes) String() string {
	return fmt.Sprintf("meta %s, shards %s, leads %v, states %v", v.meta, v.shards, v.leads, v.states)
}

// wantVotes asks a node until what it says is as wanted.
func wantVotes(t *testing.T, n *nodetest.Node, what string, ok func(votes) bool) votes {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var v votes
	for {
		r, err := n.Cluster().GetStatus(ctx, &weirv1.GetStatusRequest{})
		if err == nil {
			v = votes{meta: r.GetMeta().GetVoters(), leads: make(map[string]int), states: make(map[string]string)}
			for _, l := range r.GetShardLogs() {
				v.shards = append(v.shards, slices.Sorted(slices.Values(l.GetVoters())))
				v.leads[l.GetLeader()]++
			}
			for _, s := range r.GetNodes() {
				v.states[s.GetNode()] = s.GetState()
			}
			if ok(v) {
				return v
			}
		}
		if pause.For(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("%s: %s, %v", what, v, err)
		}
	}
}

// spread reports whether each shard has three voters, and each of the nodes its share of votes and leads.
func spread(nodes ...string) func(votes) bool {
	return func(v votes) bool {
		least, most := 99, 0
		for _, n := range nodes {
			least, most = min(least, v.of(n)), max(most, v.of(n))
			if v.leads[n] == 0 {
				return false
			}
		}
		for _, voters := range v.shards {
			if len(voters) != 3 || slices.ContainsFunc(voters, func(id string) bool { return !slices.Contains(nodes, id) }) {
				return false
			}
		}
		return most-least <= 1
	}
}

// TestEachShardOfFiveNodesHasThreeVoters founds a group, loses a node with what it had not synced, has others vote in its place,
// and takes it back.
func TestEachShardOfFiveNodesHasThreeVoters(t *testing.T) {
	t.Parallel()
	g := five(t)
	v := wantVotes(t, g.Node(1), "after the founding", spread("n1", "n2", "n3", "n4", "n5"))
	if len(v.meta) != 5 {
		t.Errorf("%s vote in the meta log", v.meta)
	}
	g.Node(2).Deploy("wc", groupSQL)
	token := flow(t, g.Node(5), "", 20)
	for _, n := range g.Nodes() {
		wantRounds(t, n, token, 20)
	}

	g.Kill(nodetest.LoseUnsynced, 3)
	token = flow(t, g.Node(1), token, 20)
	wantRounds(t, g.Node(4), token, 40)
	wantVotes(t, g.Node(1), "after a node died", func(v votes) bool {
		for _, voters := range v.shards {
			if len(voters) != 3 || slices.Contains(voters, "n3") {
				return false
			}
		}
		return true
	})
	// The votes have moved: now another node may die.
	g.Kill(nodetest.LoseUnsynced, 4)
	token = flow(t, g.Node(1), token, 20)
	for _, i := range []int{1, 2, 5} {
		wantRounds(t, g.Node(i), token, 60)
	}
	g.Start(3, 4)
	token = flow(t, g.Node(3), token, 10)
	for _, n := range g.Nodes() {
		wantRounds(t, n, token, 70)
	}
	wantVotes(t, g.Node(4), "after they are back", func(v votes) bool {
		for _, n := range []string{"n1", "n2", "n3", "n4", "n5"} {
			if v.of(n) != 3 {
				return false
			}
		}
		return true
	})
	wantEqual(t, g.Node(2))
}

// TestAGroupOfFiveIsDrainedShrunkAndGrown drains a node, has another leave, and changes how many vote.
func TestAGroupOfFiveIsDrainedShrunkAndGrown(t *testing.T) {
	t.Parallel()
	g := five(t)
	wantVotes(t, g.Node(1), "after the founding", spread("n1", "n2", "n3", "n4", "n5"))
	g.Node(1).Deploy("wc", groupSQL)
	token := flow(t, g.Node(1), "", 10)
	if _, err := g.Node(2).Cluster().DrainNode(t.Context(), &weirv1.DrainNodeRequest{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	wantVotes(t, g.Node(2), "drained", func(v votes) bool { return v.of("n1") == 0 && v.leads["n1"] == 0 && spread("n2", "n3", "n4", "n5")(v) })
	token = flow(t, g.Node(1), token, 10)
	g.Remove(3, 2)
	if err := g.Node(2).Ended(); dataflow.ReasonOf(err) != dataflow.ReasonNodeConflict {
		t.Errorf("the removed node ended with %v, want NODE_CONFLICT", err)
	}
	token = flow(t, g.Node(1), token, 10)
	wantVotes(t, g.Node(3), "three are left, one of them drained", func(v votes) bool { return v.of("n2") == 0 && v.of("n3") == 5 })
	wantRounds(t, g.Node(5), token, 30)
	if _, err := g.Node(4).Cluster().DrainNode(t.Context(), &weirv1.DrainNodeRequest{Node: "n1", Undo: true}); err != nil {
		t.Fatal(err)
	}
	g.Join(3)
	if _, err := g.Node(4).Cluster().SetReplicas(t.Context(), &weirv1.SetReplicasRequest{Replicas: 4}); nodetest.Reason(err) != dataflow.ReasonRequestInvalid {
		t.Errorf("four replicas: %v", err)
	}
	if _, err := g.Node(4).Cluster().SetReplicas(t.Context(), &weirv1.SetReplicasRequest{Replicas: 5}); err != nil {
		t.Fatal(err)
	}
	wantVotes(t, g.Node(6), "all five vote", func(v votes) bool {
		return !slices.ContainsFunc(v.shards, func(voters []string) bool { return len(voters) != 5 })
	})
	token = flow(t, g.Node(6), token, 10)
	for _, i := range []int{1, 3, 4, 5, 6} {
		wantRounds(t, g.Node(i), token, 40)
	}
	wantEqual(t, g.Node(6))
}

// TestLeadsMoveRightBehindACheckpoint drains, removes or stops a node under a pipeline that makes no checkpoints by itself: what it had read
// when its tasks moved is committed, so it is not read again.
func TestLeadsMoveRightBehindACheckpoint(t *testing.T) {
	t.Parallel()
	for what, move := range map[string]func(t *testing.T, g *nodetest.Group){
		"drain": func(t *testing.T, g *nodetest.Group) {
			if _, err := g.Node(2).Cluster().DrainNode(t.Context(), &weirv1.DrainNodeRequest{Node: "n1"}); err != nil {
				t.Fatal(err)
			}
		},
		"stop": func(_ *testing.T, g *nodetest.Group) { g.Stop(1) },
		"remove": func(t *testing.T, g *nodetest.Group) {
			g.Remove(2, 1)
			if err := g.Node(1).Ended(); dataflow.ReasonOf(err) != dataflow.ReasonNodeConflict {
				t.Errorf("the removed node ended with %v, want NODE_CONFLICT", err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			leadsMoveBehindACheckpoint(t, move)
		})
	}
}

func leadsMoveBehindACheckpoint(t *testing.T, move func(t *testing.T, g *nodetest.Group)) {
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 3, Tuning: node.Tuning{ElectionTimeout: quickElection, GiveLeads: 5 * time.Second}})
	n := g.Node(2)
	wantVotes(t, n, "after the founding", spread("n1", "n2", "n3"))
	n.Deploy("wc", strings.Replace(groupSQL, "'100 ms'", "'off'", 1))
	token := flow(t, n, "", 20)
	n.WaitProcessed(token)
	before := n.Pipeline("wc").GetIncarnation()
	move(t, g)
	wantVotes(t, n, "moved", func(v votes) bool { return v.leads["n1"] == 0 && v.leads["n2"]+v.leads["n3"] == 3 })
	eventually(t, func() string {
		p, err := n.Pipelines().GetPipeline(t.Context(), &weirv1.GetPipelineRequest{Pipeline: "wc"})
		if err == nil && p.GetPipeline().GetIncarnation() > before {
			return ""
		}
		return fmt.Sprintf("%s, %v; it was incarnation %d", p.GetPipeline(), err, before) // an error: the meta log changes its leader, too
	})
	n.WaitProcessed(token)
	after := n.Pipeline("wc").GetIncarnation()
	// Nobody else has triggered a checkpoint, and the incarnation that runs began from it.
	r := n.Query("SELECT count(*) AS words, sum(n) AS rows FROM wc.counts", nodetest.Committed)
	if got := string(r.GetRows()[0]); got != `{"words":20,"rows":400}` || r.GetCut().GetIncarnation() >= after {
		t.Errorf("the newest cut, of incarnation %d, has %s; incarnation %d runs", r.GetCut().GetIncarnation(), got, after)
	}
}

// TestLiveTablesDoNotStepBackWhenLeadsMove drains a node and gives it leads again, and stops and starts it, while rows come all the time to a pipeline that
// makes no checkpoints by itself: the sources are held from the checkpoint until the leads have moved. Only an election would have
// rows read again, so there is none within a pause of this process.
func TestLiveTablesDoNotStepBackWhenLeadsMove(t *testing.T) {
	t.Parallel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 3, Tuning: node.Tuning{ElectionTimeout: 3 * time.Second, GiveLeads: 5 * time.Second}})
	n := g.Node(2)
	wantVotes(t, n, "after the founding", spread("n1", "n2", "n3"))
	n.Deploy("wc", strings.Replace(groupSQL, "'100 ms'", "'off'", 1))
	n.WaitProcessed(flow(t, n, "", 20))
	ctx, stop := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop()
	var rows []byte // so many that reading some of them again would take long enough to be seen
	for i := range 3000 {
		rows = fmt.Appendf(rows, "{\"word\":\"w%d\"}\n", i)
	}
	beside.Go(func() {
		for ctx.Err() == nil {
			// One that is refused while a lead moves is not asked again: how many there are does not matter.
			_, _ = n.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "words", JsonRows: rows})
		}
	})
	var most int64
	newest := dataflow.Incarnation(n.Pipeline("wc").GetIncarnation())
	look := func() (dataflow.Incarnation, bool) {
		r, err := n.TryQuery("SELECT sum(n) AS rows FROM wc.counts", nodetest.Live)
		if err != nil {
			return 0, false // the tasks are on their way
		}
		var live struct{ Rows int64 }
		if err := json.Unmarshal(r.GetRows()[0], &live); err != nil {
			t.Fatal(err)
		}
		i := dataflow.Incarnation(r.GetCut().GetIncarnation())
		if live.Rows < most {
			t.Errorf("in incarnation %d the live table has %d rows, and had %d", i, live.Rows, most)
		}
		most, newest = live.Rows, i
		return i, true
	}
	untilMoved := func(what string, move func() error) {
		t.Helper()
		patience, cancel := context.WithTimeout(ctx, 60*time.Second)
		defer cancel()
		before := newest
		for err := move(); err != nil; err = move() { // the meta log changes its leader, too
			if pause.For(patience, 20*time.Millisecond) != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		for seen := 0; seen < 20; {
			if i, ok := look(); ok && i > before {
				seen++
			}
			if patience.Err() != nil {
				t.Fatalf("%s, but the live table is of incarnation %d still", what, before)
			}
		}
	}
	rebalance := func() error {
		r, err := n.Cluster().Rebalance(ctx, &weirv1.RebalanceRequest{})
		if err == nil && len(r.GetMoves()) == 0 {
			err = errors.New("nothing has moved") // n1 is not back yet
		}
		return err
	}
	for range 2 {
		untilMoved("drained", func() error {
			_, err := n.Cluster().DrainNode(ctx, &weirv1.DrainNodeRequest{Node: "n1"})
			return err
		})
		untilMoved("taken back and rebalanced", func() error {
			_, err := n.Cluster().DrainNode(ctx, &weirv1.DrainNodeRequest{Node: "n1", Undo: true})
			if err != nil && nodetest.Reason(err) != dataflow.ReasonNodeConflict { // else an earlier try has done it
				return err
			}
			return rebalance()
		})
		untilMoved("stopped", func() error {
			g.Stop(1)
			return nil
		})
		g.Start(1)
		untilMoved("started and rebalanced", rebalance)
	}
}

// TestAnyNodeRebalances asks one that does not lead the meta log.
func TestAnyNodeRebalances(t *testing.T) {
	t.Parallel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 3, Tuning: node.Tuning{ElectionTimeout: quickElection}})
	wantVotes(t, g.Node(1), "after the founding", spread("n1", "n2", "n3"))
	g.Node(1).Deploy("wc", groupSQL) // or leads would be spread at once
	token := flow(t, g.Node(1), "", 5)
	g.Kill(nodetest.LoseUnsynced, 1)
	token = flow(t, g.Node(2), token, 5)
	g.Start(1)
	wantRounds(t, g.Node(1), token, 10)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, i := range []int{1, 2, 3} {
		for {
			_, err := g.Node(i).Cluster().Rebalance(ctx, &weirv1.RebalanceRequest{})
			if err == nil {
				break
			}
			if pause.For(ctx, 50*time.Millisecond) != nil {
				t.Fatalf("node %d: %v", i, err)
			}
		}
	}
	wantVotes(t, g.Node(3), "rebalanced", spread("n1", "n2", "n3"))
	wantRounds(t, g.Node(2), flow(t, g.Node(3), token, 5), 15)
}
