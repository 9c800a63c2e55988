package node_test

import (
	"fmt"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const groupSQL = `
SET checkpoint.interval = '100 ms';
CREATE STREAM words (word TEXT);
CREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n FROM words GROUP BY word;
CREATE MATERIALIZED VIEW sizes AS SELECT n, count(*) AS words FROM counts GROUP BY n;
`

// TestAnyNodeTakesRowsAndAnswers sends rows through every node of a group, and asks every node.
func TestAnyNodeTakesRowsAndAnswers(t *testing.T) {
	t.Parallel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 4})
	g.Node(2).Deploy("wc", groupSQL)
	var tokens []string // an append goes to one of the shards
	for range 10 {
		for _, n := range g.Nodes() {
			var rows []string
			for k := range 20 {
				rows = append(rows, fmt.Sprintf(`{"word":"w%d"}`, k))
			}
			tokens = append(tokens, n.Append("words", rows...))
		}
	}
	for i, n := range g.Nodes() {
		for _, token := range tokens {
			n.WaitCommitted(token)
			n.WaitProcessed(token)
		}
		for _, isolation := range []nodetest.Isolation{nodetest.Committed, nodetest.Live} {
			for k := range 20 {
				word := fmt.Sprintf("w%d", k)
				row, cut, ok := n.Get("wc", "counts", isolation, word)
				if want := fmt.Sprintf(`{"word":%q,"n":30}`, word); !ok || row != want {
					t.Fatalf("node %d, %s: %s at %v, want %s", i+1, isolation, row, cut, want)
				}
			}
			if rows, _ := n.Scan("wc", "counts", isolation); len(rows) != 20 {
				t.Errorf("node %d, %s: %d rows", i+1, isolation, len(rows))
			}
			if rows, _ := n.Scan("wc", "sizes", isolation); len(rows) != 1 || rows[0] != `{"n":30,"words":20}` {
				t.Errorf("node %d, %s: %s", i+1, isolation, rows)
			}
		}
	}
}

func TestANodeWhoseAddressOrNameCannotBeIsNotAdded(t *testing.T) {
	t.Parallel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 1})
	for _, req := range []*weirv1.AddNodeRequest{{}, {PeerAddr: "n4"}, {PeerAddr: "n4:"}, {PeerAddr: "n4:7712", Node: "N 4"}} {
		if _, err := g.Node(1).Cluster().AddNode(t.Context(), req); nodetest.Reason(err) != dataflow.ReasonRequestInvalid {
			t.Errorf("%v: %v", req, err)
		}
	}
}

// TestAGroupMeetsWhereverItsNodesAreStartedAgain starts nodes at other addresses than the group knows: they can only meet at those of
// --join.
func TestAGroupMeetsWhereverItsNodesAreStartedAgain(t *testing.T) {
	t.Parallel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 2})
	g.Node(1).Deploy("wc", groupSQL)
	token := g.Node(1).Append("words", `{"word":"a"}`, `{"word":"b"}`, `{"word":"a"}`)
	g.Node(1).WaitCommitted(token)
	for _, move := range []struct {
		name  string
		nodes []int
		addrs []string
	}{
		{"all are new", []int{1, 2, 3}, []string{"n1:7722", "n2:7722", "n3:7722"}},
		{"each is another node's", []int{1, 2, 3}, []string{"n2:7722", "n3:7722", "n1:7722"}},
		{"one is new, two are swapped", []int{1, 2, 3}, []string{"n3:7722", "n2:7732", "n2:7722"}},
		{"one is new, and the others serve", []int{2}, []string{"n3:7722", "n2:7742", "n2:7722"}},
		{"two are swapped, and the third serves", []int{1, 3}, []string{"n2:7722", "n2:7742", "n3:7722"}},
	} {
		t.Run(move.name, func(t *testing.T) {
			g.Stop(move.nodes...)
			g.Move(move.addrs...)
			g.Start(move.nodes...)
			for i, n := range g.Nodes() {
				if row, cut, ok := n.Get("wc", "counts", nodetest.Committed, "a"); !ok || row != `{"word":"a","n":2}` {
					t.Errorf("node %d at %v: %s", i+1, cut, row)
				}
			}
			eventually(t, func() string { // the group writes down where its nodes are now
				st, err := g.Node(2).Cluster().GetStatus(t.Context(), &weirv1.GetStatusRequest{})
				if err != nil {
					return err.Error()
				}
				for i, n := range st.GetNodes() {
					if n.GetPeerAddr() != move.addrs[i] {
						return fmt.Sprintf("%s is at %s, the group says %s", n.GetNode(), move.addrs[i], n.GetPeerAddr())
					}
				}
				return ""
			})
		})
	}
}

// TestANodeAtANewAddressFindsAllFromOne starts a node elsewhere after the others have moved: of these it knows one, whichever leads.
func TestANodeAtANewAddressFindsAllFromOne(t *testing.T) {
	t.Parallel()
	for _, known := range []int{1, 3} {
		g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 2})
		addrs := []string{"n1:7722", "n2:7722", "n3:7722"}
		g.Stop(1, 2, 3)
		g.Move(addrs...)
		g.Start(1, 3)
		g.KnowOnly(2, addrs[known-1])
		g.Start(2)
	}
}
