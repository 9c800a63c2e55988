package membership_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/node/membership"
	"github.com/weirdb/weir/raftlog/meta"
)

// group is a group of nodes with the members of its shards' logs, which Place, Next and Leads bring to where they are to be:
//
//	group nodes=N shards=N [replicas=N]    is founded: all vote everywhere, the first node leads
//	then [NODE=FIT …] [replicas=N]         something happens: a node is silent, out, new, …
//
// What it prints: who votes in each shard's log, * behind the leader and - behind those that follow; how many votes and leads each
// node has; and how many changes that took.
type group struct {
	replicas int
	fit      map[string]membership.Fit
	voters   [][]string // as decided
	logs     [][]membership.Server
	leaders  []string
	steps    map[membership.Do]int
	mute     map[mutely]int        // for how many more looks a node does not answer a log's leader yet
	watch    func(i int, s string) // looks at a log after a step
}

// mutely is a node that does not answer the leader of a log.
type mutely struct {
	log  int
	node string
}

func newGroup(t *testing.T, d *datadriven.TestData) *group {
	var nodes, shards int
	d.ScanArgs(t, "nodes", &nodes)
	d.ScanArgs(t, "shards", &shards)
	g := found(nodes, shards)
	d.MaybeScanArgs(t, "replicas", &g.replicas)
	return g
}

func found(nodes, shards int) *group {
	g := &group{replicas: 3, fit: make(map[string]membership.Fit), voters: make([][]string, shards), steps: make(map[membership.Do]int), mute: make(map[mutely]int)}
	for i := range nodes {
		g.fit[fmt.Sprintf("n%d", i+1)] = membership.Well
	}
	for range shards {
		var log []membership.Server
		for _, n := range g.nodes() {
			log = append(log, membership.Server{ID: n.ID, Voter: true, CaughtUp: true})
		}
		g.logs = append(g.logs, log)
		g.leaders = append(g.leaders, "n1")
	}
	return g
}

func (g *group) nodes() []membership.Node {
	var out []membership.Node
	for id, fit := range g.fit {
		out = append(out, membership.Node{ID: id, Fit: fit})
	}
	slices.SortFunc(out, func(a, b membership.Node) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func (g *group) members() []meta.Member {
	var out []meta.Member
	for _, n := range g.nodes() {
		m := meta.Member{ID: n.ID, State: meta.MemberActive}
		switch n.Fit {
		case membership.Out:
			m.State = meta.MemberLeaving
		case membership.Drained:
			m.State = meta.MemberDrained
		}
		out = append(out, m)
	}
	return out
}

func (g *group) then(t *testing.T, d *datadriven.TestData) string {
	for _, arg := range d.CmdArgs {
		if arg.Key == "replicas" {
			d.ScanArgs(t, "replicas", &g.replicas)
			continue
		}
		g.fit[arg.Key] = fits(t, arg.Key+":"+arg.Vals[0])[0].Fit
	}
	return g.settle(t)
}

// settle goes on until nothing is left to do, and shows what has come of it.
func (g *group) settle(t *testing.T) string {
	t.Helper()
	clear(g.steps)
	moved := 0
	for range 50 {
		busy := false
		if p := membership.Place(g.nodes(), g.replicas, g.voters, g.leaders); !slices.EqualFunc(p, g.voters, slices.Equal) {
			g.voters, busy = p, true
		}
		for i := range g.logs {
			busy = g.step(t, i) || busy
		}
		for _, m := range membership.Leads(g.nodes(), g.canLead(), g.leaders, !busy) {
			g.leaders[m.Shard] = m.To
			moved++
			busy = true
		}
		if !busy {
			return g.show(moved)
		}
	}
	t.Errorf("it has no end:\n%s", g.show(moved))
	return "no end"
}

// step makes the next change of a log, as its leader does, and checks that the log can go on after it.
func (g *group) step(t *testing.T, i int) bool {
	t.Helper()
	for j := range g.logs[i] {
		s := &g.logs[i][j]
		s.Away = g.fit[s.ID] == membership.Silent || g.mute[mutely{i, s.ID}] > 0
		s.CaughtUp = !s.Away
		g.mute[mutely{i, s.ID}]--
	}
	g.elect(i)
	if g.leaders[i] == "" {
		return false
	}
	s := membership.Next(g.members(), g.voters[i], g.logs[i], g.leaders[i])
	if s.Do == membership.Nothing || s.Do == membership.HandOver {
		return false
	}
	g.steps[s.Do]++
	g.logs[i] = after(g.logs[i], s)
	if voters, there := g.votes(i); 2*there <= voters {
		t.Errorf("shard %d: after %s %s, %d of %d voters are there", i, s.Do, s.Node, there, voters)
	}
	if g.watch != nil {
		g.watch(i, s.Do.String()+" "+s.Node)
	}
	return true
}

// votes returns how many vote in a log, and how many of these are not silent.
func (g *group) votes(i int) (voters, there int) {
	for _, s := range g.logs[i] {
		if s.Voter {
			voters++
			if g.fit[s.ID] != membership.Silent {
				there++
			}
		}
	}
	return voters, there
}

// elect has another node lead a log when its leader is silent and a majority is not.
func (g *group) elect(i int) {
	if g.leaders[i] != "" && g.fit[g.leaders[i]] != membership.Silent {
		return
	}
	g.leaders[i] = ""
	if voters, there := g.votes(i); 2*there <= voters {
		return
	}
	for _, s := range g.logs[i] {
		if s.Voter && g.fit[s.ID] != membership.Silent {
			g.leaders[i] = s.ID
			return
		}
	}
}

func (g *group) canLead() [][]string {
	out := make([][]string, len(g.logs))
	for i, log := range g.logs {
		for _, s := range log {
			if s.Voter && slices.Contains(g.voters[i], s.ID) {
				out[i] = append(out[i], s.ID)
			}
		}
	}
	return out
}

func (g *group) show(moved int) string {
	var out strings.Builder
	votes, leads := make(map[string]int), make(map[string]int)
	for i, log := range g.logs {
		leads[g.leaders[i]]++
		slices.SortFunc(log, func(a, b membership.Server) int { return strings.Compare(a.ID, b.ID) })
		var is []string
		for _, s := range log {
			switch {
			case s.ID == g.leaders[i]:
				is = append(is, s.ID+"*")
			case s.Voter:
				is = append(is, s.ID)
			default:
				is = append(is, s.ID+"-")
			}
			if s.Voter {
				votes[s.ID]++
			}
		}
		fmt.Fprintf(&out, "%d: %s\n", i, strings.Join(is, " "))
	}
	for _, n := range g.nodes() {
		fmt.Fprintf(&out, "%s %s: %d votes, %d leads\n", n.ID, n.Fit, votes[n.ID], leads[n.ID])
	}
	fmt.Fprintf(&out, "%d promoted, %d demoted, %d added, %d removed, %d leads moved\n", g.steps[membership.Promote], g.steps[membership.Demote],
		g.steps[membership.Add], g.steps[membership.Remove], moved)
	return out.String()
}

// TestVotesStayEvenAndAMajorityThere lets anything happen to groups of any size, one thing after the other, and wants that each ends
// with the right number of votes, evenly spread over the nodes that are well, with leads on nodes that vote. That no step costs a
// log its majority is checked by step.
func TestVotesStayEvenAndAMajorityThere(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		g := found(3+rnd.IntN(5), 1+rnd.IntN(9))
		history := []string{fmt.Sprintf("%d nodes, %d shards", len(g.fit), len(g.logs))}
		check := func(what string) {
			history = append(history, what)
			g.settle(t)
			if !g.sound(t) || t.Failed() {
				t.Fatalf("seed %d: %s\n%s", seed, strings.Join(history, ", "), g.show(0))
			}
		}
		check("founded")
		for range 12 {
			nodes := g.nodes()
			n := nodes[rnd.IntN(len(nodes))]
			least := slices.MinFunc(nodes, func(a, b membership.Node) int { return int(a.Fit) - int(b.Fit) })
			switch {
			case n.Fit == membership.Silent:
				g.fit[n.ID] = membership.Returned
				check(n.ID + " returns")
				g.fit[n.ID] = membership.Well
				check(n.ID + " is well")
			case n.Fit == membership.Drained:
				g.fit[n.ID] = membership.Well
				check(n.ID + " is not drained any more")
			case least.Fit < membership.Well: // one at a time
			case rnd.IntN(3) == 0:
				g.fit[n.ID] = membership.Silent
				check(n.ID + " falls silent")
			case rnd.IntN(2) == 0:
				g.fit[n.ID] = membership.Drained
				check(n.ID + " is drained")
			case rnd.IntN(2) == 0 && len(nodes) < meta.MaxMembers:
				id := fmt.Sprintf("m%d", rnd.IntN(1000))
				g.fit[id] = membership.Well
				check(id + " joins")
			case len(nodes) > 3:
				g.fit[n.ID] = membership.Out
				check(n.ID + " leaves")
				delete(g.fit, n.ID)
				check(n.ID + " is gone")
			default:
				g.replicas = []int{3, 5, 7}[rnd.IntN(3)]
				check(fmt.Sprint(g.replicas, " replicas"))
			}
		}
	}
}

// TestAnyNodeMayDieWhileVotesMove looks at the logs after every single step of every change: as long as all nodes are there but those
// that were just added, and whom some leaders do not hear yet, any other node may die at that moment, and a majority of each log is
// left. It was not so: a voter that answered once lost its vote to a new node that did not answer yet.
func TestAnyNodeMayDieWhileVotesMove(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		g := found(3+rnd.IntN(4), 1+rnd.IntN(5))
		g.settle(t)
		history := []string{fmt.Sprintf("%d nodes, %d shards", len(g.fit), len(g.logs))}
		g.watch = func(i int, step string) {
			history = append(history, fmt.Sprintf("shard %d: %s", i, step))
			for _, victim := range g.nodes() {
				voters, left := 0, 0
				for _, s := range g.logs[i] {
					if s.Voter {
						voters++
						if s.ID != victim.ID && g.mute[mutely{i, s.ID}] <= 0 {
							left++
						}
					}
				}
				if 2*left <= voters {
					t.Fatalf("seed %d: were %s to die now, %d of %d voters would be left\n%s\n%s", seed, victim.ID, left, voters, strings.Join(history, "\n"), g.show(0))
				}
			}
		}
		for i := range 10 {
			nodes := g.nodes()
			n := nodes[rnd.IntN(len(nodes))]
			what := ""
			switch k := rnd.IntN(4); {
			case k == 0 && n.Fit == membership.Drained:
				g.fit[n.ID], what = membership.Well, n.ID+" is not drained any more"
			case k == 0:
				g.fit[n.ID], what = membership.Drained, n.ID+" is drained"
			case k == 1 && len(nodes) > 3:
				g.fit[n.ID], what = membership.Out, n.ID+" leaves"
			case k == 2:
				g.replicas = []int{3, 5, 7}[rnd.IntN(3)]
				what = fmt.Sprint(g.replicas, " replicas")
			case len(nodes) < meta.MaxMembers:
				id := fmt.Sprintf("m%d", i)
				g.fit[id], what = membership.Well, id+" joins"
				for log := range g.logs {
					g.mute[mutely{log, id}] = rnd.IntN(8)
				}
			}
			history = append(history, what)
			g.settle(t)
			for _, n := range g.nodes() {
				if n.Fit == membership.Out {
					delete(g.fit, n.ID)
				}
			}
		}
	}
}

// sound reports whether the votes and leads are as they are to be.
func (g *group) sound(t *testing.T) bool {
	votes, leads := make(map[string]int), make(map[string]int)
	var in, well []string
	for _, n := range g.nodes() {
		if n.Fit > membership.Out {
			in = append(in, n.ID)
		}
		if n.Fit == membership.Well {
			well = append(well, n.ID)
		}
	}
	for i, log := range g.logs {
		var voters []string
		for _, s := range log {
			if s.Voter {
				voters = append(voters, s.ID)
				votes[s.ID]++
				if len(well) >= g.replicas && g.fit[s.ID] != membership.Well && g.fit[s.ID] != membership.Returned {
					t.Errorf("%s votes in shard %d and is %s", s.ID, i, g.fit[s.ID])
				}
			}
		}
		if len(voters) != min(g.replicas, len(in)) {
			t.Errorf("%d vote in shard %d", len(voters), i)
		}
		if len(log) != len(in) {
			t.Errorf("shard %d has %d members", i, len(log))
		}
		if l := g.leaders[i]; !slices.Contains(voters, l) || g.fit[l] < membership.Returned {
			t.Errorf("shard %d is led by %q", i, l)
		}
		leads[g.leaders[i]]++
	}
	if len(well) < g.replicas || len(well) < len(in) {
		return !t.Failed()
	}
	for _, n := range well {
		for _, o := range well {
			if votes[n]-votes[o] > 1 {
				t.Errorf("%s has %d votes, %s %d", n, votes[n], o, votes[o])
			}
			if leads[n]-leads[o] > 2 {
				t.Errorf("%s leads %d shards, %s %d", n, leads[n], o, leads[o])
			}
		}
	}
	return !t.Failed()
}
