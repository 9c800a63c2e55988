package membership_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/node/membership"
	"github.com/weirdb/weir/raftlog/meta"
)

// TestScenarios runs the transcripts in testdata/scenarios:
//
//	next self=NODE [want=(NODE,…)]    the next change of a log's members; first line the group's nodes as NAME[:STATE], second
//	                      the log's members as NAME, NAME- for one without a vote, with ! for one that lags and ? for one that
//	                      is away. All nodes that are in the group are to vote unless want says otherwise
//	run self=NODE …       the same until nothing is left to do; who lags catches up as soon as it is asked
//	held self=NODE …      which node leaves and is in the log still, and why, by the same two lines
//	leads [even]          the moves of leads; first line the nodes as NAME[:FIT][?], second the leaders of the shards in order, - for
//	                      none; then the voters of each shard, a line each, or nothing: all
//	place replicas=N      who is to vote; first line the nodes as NAME[:FIT], then the voters of each log as they are, a line each,
//	                      - for none, * behind the one that leads
//	group …               see group_test.go
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		var g *group
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			lines := strings.Split(d.Input, "\n")
			switch d.Cmd {
			case "leads":
				return leads(t, d, lines)
			case "place":
				return place(t, d, lines)
			case "next", "run":
				return next(t, d, members(t, lines[0]), servers(lines[1]))
			case "held":
				return held(t, d, members(t, lines[0]), servers(lines[1]))
			case "group":
				g = newGroup(t, d)
				return g.settle(t)
			case "then":
				return g.then(t, d)
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

// looker returns who leads a log, and who is to vote in it.
func looker(t *testing.T, d *datadriven.TestData, members []meta.Member) (self string, want []string) {
	d.ScanArgs(t, "self", &self)
	if arg, ok := d.Arg("want"); ok {
		return self, slices.DeleteFunc(arg.Vals, func(id string) bool { return id == "" })
	}
	for _, m := range members {
		if m.In() {
			want = append(want, m.ID)
		}
	}
	return self, want
}

func held(t *testing.T, d *datadriven.TestData, members []meta.Member, servers []membership.Server) string {
	self, want := looker(t, d, members)
	h := membership.Stays(members, want, servers, self)
	if h == nil {
		return "nobody"
	}
	return fmt.Sprintf("%s: %s; for %v", h.Node, h.Why, h.For)
}

func next(t *testing.T, d *datadriven.TestData, members []meta.Member, servers []membership.Server) string {
	self, want := looker(t, d, members)
	var out strings.Builder
	for range 20 {
		s := membership.Next(members, want, servers, self)
		fmt.Fprintln(&out, strings.TrimSpace(s.Do.String()+" "+s.Node))
		if d.Cmd == "next" || s.Do == membership.Nothing {
			return out.String()
		}
		if s.Do == membership.HandOver {
			self = s.Node
		}
		servers = after(servers, s)
	}
	return out.String() + "no end\n"
}

// after returns the members of a log after a step. Who is there has caught up by then.
func after(servers []membership.Server, s membership.Step) []membership.Server {
	var out []membership.Server
	for _, v := range servers {
		v.CaughtUp = !v.Away
		if v.ID == s.Node && s.Do == membership.Promote {
			v.Voter = true
		}
		if v.ID == s.Node && s.Do == membership.Demote {
			v.Voter = false
		}
		if v.ID != s.Node || s.Do != membership.Remove {
			out = append(out, v)
		}
	}
	if s.Do == membership.Add {
		out = append(out, membership.Server{ID: s.Node, CaughtUp: true})
	}
	return out
}

func leads(t *testing.T, d *datadriven.TestData, lines []string) string {
	nodes := fits(t, lines[0])
	leaders := strings.Fields(lines[1])
	var all []string
	for _, n := range nodes {
		all = append(all, n.ID)
	}
	voters := make([][]string, len(leaders))
	for i, l := range leaders {
		leaders[i] = strings.TrimPrefix(l, "-")
		voters[i] = all
		if len(lines) > 2 {
			voters[i] = strings.Fields(lines[2+i])
		}
	}
	var out strings.Builder
	for _, m := range membership.Leads(nodes, voters, leaders, d.HasArg("even")) {
		fmt.Fprintf(&out, "shard %d from %s to %s\n", m.Shard, m.From, m.To)
	}
	return out.String()
}

func place(t *testing.T, d *datadriven.TestData, lines []string) string {
	var replicas int
	d.ScanArgs(t, "replicas", &replicas)
	var now [][]string
	var leaders []string
	for _, line := range lines[1:] {
		var voters []string
		leader := ""
		for f := range strings.FieldsSeq(strings.TrimPrefix(line, "-")) {
			id, leads := strings.CutSuffix(f, "*")
			if leads {
				leader = id
			}
			voters = append(voters, id)
		}
		now, leaders = append(now, voters), append(leaders, leader)
	}
	var out strings.Builder
	for i, voters := range membership.Place(fits(t, lines[0]), replicas, now, leaders) {
		fmt.Fprint(&out, strings.Join(voters, " "))
		if !slices.Equal(voters, now[i]) {
			fmt.Fprint(&out, "  changed")
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

// fits reads NAME[:FIT][?] …, ? for one that is away.
func fits(t *testing.T, line string) []membership.Node {
	var out []membership.Node
	for f := range strings.FieldsSeq(line) {
		f, away := strings.CutSuffix(f, "?")
		id, fit, said := strings.Cut(f, ":")
		n := membership.Node{ID: id, Fit: membership.Well, Away: away}
		if said {
			for n.Fit = membership.Out; n.Fit.String() != fit; n.Fit++ {
				if n.Fit == membership.Well {
					t.Fatalf("what is %q?", fit)
				}
			}
		}
		out = append(out, n)
	}
	return out
}

func members(t *testing.T, line string) []meta.Member {
	var out []meta.Member
	for f := range strings.FieldsSeq(line) {
		id, state, _ := strings.Cut(f, ":")
		m := meta.Member{ID: id, State: meta.MemberActive}
		if state != "" {
			m.State = 0
			for s := meta.MemberJoining; s <= meta.MemberGone; s++ {
				if s.String() == state {
					m.State = s
				}
			}
			if m.State == 0 {
				t.Fatalf("what is %q?", state)
			}
		}
		out = append(out, m)
	}
	return out
}

func servers(line string) []membership.Server {
	var out []membership.Server
	for f := range strings.FieldsSeq(line) {
		s := membership.Server{}
		f, s.Away = strings.CutSuffix(f, "?")
		f, lags := strings.CutSuffix(f, "!")
		s.CaughtUp = !lags
		id, reads := strings.CutSuffix(f, "-")
		s.ID, s.Voter = id, !reads
		out = append(out, s)
	}
	return out
}
