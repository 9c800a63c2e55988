package node

import (
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// TestANodeRefusesToWaitWhereAnotherGroupIs says when it is clear that the node, and not those that it meets, is wrong.
func TestANodeRefusesToWaitWhereAnotherGroupIs(t *testing.T) {
	own := answer{Addr: "n2:7712", Node: "n2"}
	away := answer{Addr: "n2:7712", Node: "n2", Problem: "connection refused"}
	theirs := func(node string) answer {
		return answer{Addr: node + ":7712", Node: node, Group: "b", Problem: "another group"}
	}
	for _, c := range []struct {
		name    string
		join    []string
		heard   []answer
		refuses bool
	}{
		{"nobody has answered", []string{"n2:7712", "n3:7712"}, nil, false},
		{"one is of another group, the other away", []string{"n2:7712", "n3:7712"}, []answer{away, theirs("n3")}, false},
		{"one is of another group, the other of its own", []string{"n2:7712", "n3:7712"}, []answer{own, theirs("n3")}, false},
		{"all are of another group", []string{"n2:7712", "n3:7712"}, []answer{theirs("n2"), theirs("n3")}, true},
		{"the one address is of another group", []string{"n3:7712"}, []answer{away, theirs("n3")}, true},
		{"an address that --join does not name is of another group", []string{"n2:7712"}, []answer{away, theirs("n3")}, false},
		{"three of four are of another group", []string{"n2:7712", "n3:7712", "n4:7712", "n5:7712"}, []answer{away, theirs("n3"), theirs("n4"), theirs("n5")}, true},
		{"two of four are of another group", []string{"n2:7712", "n3:7712", "n4:7712", "n5:7712"}, []answer{away, theirs("n3"), theirs("n4")}, false},
	} {
		err := foreign("/data", "a", c.join, c.heard)
		if (err != nil) != c.refuses {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			continue
		}
		if dataflow.ReasonOf(err) != dataflow.ReasonNodeConflict || !strings.Contains(err.Error(), "belongs to group a") || !strings.Contains(err.Error(), "another group, b") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
