package fleet

import (
	"testing"

	"github.com/weirdb/weir/raftlog/meta"
)

// TestTasksAreOverWhenAnotherNodeLeadsTheirShard is about what a coordinator that takes over need not wait for.
func TestTasksAreOverWhenAnotherNodeLeadsTheirShard(t *testing.T) {
	owner := meta.Owner{Shard: 1, Node: "n1", Term: 5}
	for _, c := range []struct {
		what   string
		term   uint64
		leader string
		want   bool
	}{
		{"it leads", 5, "n1", false},
		{"nobody leads yet", 6, "", false},
		{"it leads again", 7, "n1", false},
		{"another leads", 6, "n2", true},
		{"this node has not heard yet that it leads", 4, "n2", false},
	} {
		if got := superseded(owner, c.term, c.leader); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
