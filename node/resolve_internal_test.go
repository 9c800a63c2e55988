package node

import (
	"testing"

	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/internal/peernet/peernettest"
	"github.com/weirdb/weir/node/founding"
)

func TestANodeIsFoundWhereItHasBeenMetAndNobodyElseInItsPlace(t *testing.T) {
	n, err := peernet.Open(peernet.Config{Self: peernet.Identity{Node: "n1", Data: "d1", Group: "g"}, Network: peernettest.New().Host("n1"),
		Resolve: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	p := &peers{cfg: &Config{NodeID: "n1"}, net: n}
	p.mu.seen = make(map[string]sighting)
	p.mu.book = []founding.Member{{Node: "n2", Data: "d2", PeerAddr: "old:1"}}
	want := func(what, addr string) {
		t.Helper()
		if got, _ := p.resolve("n2"); got != addr {
			t.Errorf("%s: n2 is said to be at %q, want %q", what, got, addr)
		}
	}
	n2 := peernet.Identity{Node: "n2", Data: "d2", Group: "g"}
	p.sight(peernet.Identity{Node: "n2", Data: "other", Group: "g"}, "wrong:1")
	want("another data directory", "old:1")
	p.sight(peernet.Identity{Node: "n2", Data: "empty"}, "wrong:1")
	want("a node without a group", "old:1")
	p.hear(founding.Member{Node: "n2", Data: "d2", PeerAddr: "told:1"})
	want("as another node says", "told:1")
	p.sight(n2, "new:1")
	p.hear(founding.Member{Node: "n2", Data: "d2", PeerAddr: "told:1"})
	want("met", "new:1")
	p.missed("n2", "told:1")
	want("missed where it was before", "new:1")
	p.missed("n2", "new:1")
	want("missed", "old:1")
	p.sight(n2, "new:1")
	p.mu.book[0].PeerAddr = "newer:1"
	want("recorded anew", "newer:1")
	p.mu.book[0].PeerAddr = "old:1"
	want("recorded as before", "old:1")
}
