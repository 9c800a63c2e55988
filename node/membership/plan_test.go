package membership_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/node/membership"
	"github.com/weirdb/weir/raftlog/meta"
)

// TestScenarios runs the transcripts in testdata:
//
//	next self=NODE        the next change of a log's members; first line the group's nodes as NAME[:STATE], second the log's
//	                      members as NAME, NAME- for one without a vote, and with ! for one that lags
//	run self=NODE         the same until nothing is left to do; who lags catches up as soon as it is asked
//	balance               the moves; first line the group's nodes, second the leaders of the shards in order, - for none
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			first, second, _ := strings.Cut(d.Input, "\n")
			members := members(t, first)
			switch d.Cmd {
			case "balance":
				leaders := strings.Fields(second)
				for i, l := range leaders {
					leaders[i] = strings.TrimPrefix(l, "-")
				}
				var out strings.Builder
				for _, m := range membership.Balance(members, leaders) {
					fmt.Fprintf(&out, "shard %d from %s to %s\n", m.Shard, m.From, m.To)
				}
				return out.String()
			case "next", "run":
				var self string
				d.ScanArgs(t, "self", &self)
				servers := servers(second)
				var out strings.Builder
				for range 20 {
					s := membership.Next(members, servers, self)
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
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

func after(servers []membership.Server, s membership.Step) []membership.Server {
	var out []membership.Server
	for _, v := range servers {
		v.CaughtUp = true
		if v.ID == s.Node && s.Do == membership.Promote {
			v.Voter = true
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
		s := membership.Server{CaughtUp: !strings.HasSuffix(f, "!")}
		f = strings.TrimSuffix(f, "!")
		s.Voter = !strings.HasSuffix(f, "-")
		s.ID = strings.TrimSuffix(f, "-")
		out = append(out, s)
	}
	return out
}
