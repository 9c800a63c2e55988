package raftlog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/hashicorp/raft"
)

// TestSuccession runs testdata/succession.txt: what members think of their leader, and what each says to the others.
//
//	members leader=NODE term=N (NAME=TERM/INDEX[!] ...)   members of one group with the ends of their logs; ! = does not vote
//	starts MEMBER ...           members begin
//	gone MEMBER node=NODE       MEMBER found that nobody listens any more where NODE was
//	heard MEMBER                MEMBER has heard its leader
//	learns MEMBER leader=NODE term=N       "-" = no leader is known
//	grows MEMBER log=TERM/INDEX            it takes what the leader sent before
//	votes MEMBER term=N         MEMBER has come to a newer term
//	wait D                      time passes
//	ask MEMBER                  what MEMBER would do, and what the others say to its pre-vote
func TestSuccession(t *testing.T) {
	type member struct {
		s succession
		o outlook
	}
	var members map[string]*member
	var names []string
	now := time.Unix(1000, 0)
	observe := func() {
		for _, m := range members {
			m.s.observe(m.o, now)
		}
	}
	datadriven.RunTest(t, "testdata/succession.txt", func(t *testing.T, d *datadriven.TestData) string {
		arg := func(i int) string { return d.CmdArgs[i].Key }
		node := func(name string) string {
			var v string
			d.ScanArgs(t, name, &v)
			return strings.TrimPrefix(v, "-")
		}
		term := func() (n uint64) {
			d.ScanArgs(t, "term", &n)
			return n
		}
		switch d.Cmd {
		case "members":
			members, names = map[string]*member{}, nil
			for _, a := range d.CmdArgs[2:] {
				m := &member{s: succession{group: "g", self: a.Key, silence: 2 * time.Second, patience: 2 * time.Second, courtesy: 100 * time.Millisecond}}
				m.o = outlook{leadership: leadership{node("leader"), term()}, follower: true, contact: now}
				end, nonvoter := strings.CutSuffix(a.Vals[0], "!")
				m.o.voter = !nonvoter
				if _, err := fmt.Sscanf(end, "%d/%d", &m.o.last.term, &m.o.last.index); err != nil {
					return err.Error()
				}
				members[a.Key], names = m, append(names, a.Key)
			}
			return ""
		case "starts":
			for i := range d.CmdArgs {
				m := members[arg(i)]
				m.s.starts(m.o, now)
			}
		case "gone":
			m := members[arg(0)]
			m.s.gone(m.o, node("node"), now)
		case "heard":
			members[arg(0)].o.contact = now
		case "learns":
			m := members[arg(0)]
			m.o.leadership = leadership{node("leader"), term()}
			m.o.follower = m.o.node != ""
		case "grows":
			var end string
			d.ScanArgs(t, "log", &end)
			if _, err := fmt.Sscanf(end, "%d/%d", &members[arg(0)].o.last.term, &members[arg(0)].o.last.index); err != nil {
				return err.Error()
			}
		case "votes":
			members[arg(0)].o.term = term()
		case "wait":
			by, err := time.ParseDuration(arg(0))
			if err != nil {
				return err.Error()
			}
			now = now.Add(by)
		case "ask":
			m := members[arg(0)]
			var b strings.Builder
			fmt.Fprintf(&b, "stands: %v\n", m.s.stands(m.o, now))
			req := &raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte(arg(0))}, Term: m.o.term + 1,
				LastLogTerm: m.o.last.term, LastLogIndex: m.o.last.index}
			for _, name := range names {
				if name == arg(0) {
					continue
				}
				other := members[name]
				switch resp := other.s.judge(other.o, req, now); {
				case resp == nil:
					fmt.Fprintf(&b, "%s: asks Raft\n", name)
				case resp.Granted:
					fmt.Fprintf(&b, "%s: agrees\n", name)
				default:
					fmt.Fprintf(&b, "%s: refuses\n", name)
				}
			}
			return b.String()
		default:
			d.Fatalf(t, "unknown command")
		}
		observe()
		return ""
	})
}
