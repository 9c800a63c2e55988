package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func threeNodes(leaders ...string) (*group, *weirv1.GetStatusResponse) {
	g, st := &group{}, &weirv1.GetStatusResponse{Meta: &weirv1.RaftLog{Group: "meta", Leader: "n3"}}
	var logs []*weirv1.RaftLog
	for i, l := range leaders {
		logs = append(logs, &weirv1.RaftLog{Group: string(rune('a' + i)), Leader: l, LastIndex: 7})
	}
	st.ShardLogs = logs
	for _, id := range []string{"n1", "n2", "n3"} {
		g.flags = append(g.flags, NodeFlags{NodeID: id, GRPCAddr: id})
		n := &weirv1.NodeStatus{Node: id, Reachable: true}
		for _, l := range logs {
			n.ShardLogs = append(n.ShardLogs, &weirv1.RaftLog{Group: l.Group, Leader: l.Leader, LastIndex: 7})
		}
		st.Nodes = append(st.Nodes, n)
	}
	return g, st
}

func TestTheVictimIsWhoLeads(t *testing.T) {
	g, st := threeNodes("n1", "n2", "n2", "n3")
	if i := leadsShards(g, st); i != 1 {
		t.Errorf("node %d leads the most shards", i)
	}
	if i := leadsMeta(g, st); i != 2 {
		t.Errorf("node %d leads the meta log", i)
	}
	if a := g.addrs(1); len(a) != 2 || a[0] != "n1" || a[1] != "n3" {
		t.Errorf("the others are %v", a)
	}
}

func TestAGroupIsWholeWhenEveryNodeHasWhatTheOthersHad(t *testing.T) {
	last := map[string]uint64{"a": 7}
	for _, c := range []struct {
		name  string
		spoil func(*weirv1.GetStatusResponse)
		want  bool
	}{
		{"whole", func(*weirv1.GetStatusResponse) {}, true},
		{"no answer", func(st *weirv1.GetStatusResponse) { st.Nodes[1].Reachable = false }, false},
		{"behind", func(st *weirv1.GetStatusResponse) { st.Nodes[1].ShardLogs[0].LastIndex = 6 }, false},
		{"another leader", func(st *weirv1.GetStatusResponse) { st.Nodes[1].ShardLogs[0].Leader = "n2" }, false},
		{"no leader", func(st *weirv1.GetStatusResponse) { st.Meta.Leader = "" }, false},
		{"a node too few", func(st *weirv1.GetStatusResponse) { st.Nodes = st.Nodes[:2] }, false},
	} {
		_, st := threeNodes("n1")
		c.spoil(st)
		if got := isWhole(st, last); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestLostShardsAreBackWhenAllOfThemHaveNewRows(t *testing.T) {
	killed := time.Unix(100, 0)
	before, after := killed.Add(-1), killed.Add(1)
	for _, c := range []struct {
		due  []time.Time
		lost int
		want bool
	}{
		{[]time.Time{after, before, after}, 1, false},
		{[]time.Time{before, after, before}, 1, true},
		{[]time.Time{before, after, after}, 0, false},
		{[]time.Time{after, after, before}, 2, false}, // led none: all count
		{[]time.Time{after, after, after}, 2, true},
	} {
		if got := everyLost(c.due, []int{0, 1, 0}, c.lost, killed); got != c.want {
			t.Errorf("%v of node %d: %t", c.due, c.lost, got)
		}
	}
}

func TestTheDiskUsageIsThatOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "a/two", "a/b/three"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 64<<10), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := diskUsage(dir); err != nil || n < 3*64<<10 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := diskUsage(filepath.Join(dir, "absent")); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
}
