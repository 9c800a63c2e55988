package api

import (
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// What the messages of a cut have in common is made once, and is never that of another cut.
func TestTheMessageOfACutHasItsPositionsAndToken(t *testing.T) {
	asked := 0
	n := newNamer(func(dataflow.StreamID) string { asked++; return "lines" })
	cut := func(id dataflow.CheckpointID, at dataflow.Offset, live bool) *dataflow.Cut {
		return &dataflow.Cut{
			Pipeline: "p", UID: 3, Timeline: 1, Checkpoint: id, Speculative: live,
			Positions: dataflow.Positions{{Stream: 1, Shard: 0}: at, {Stream: 1, Shard: 1}: at + 1},
			Session:   dataflow.SessionToken{Group: dataflow.GroupID{7}, Pipeline: 3, Timeline: 1, Checkpoint: id},
		}
	}
	for i, c := range []*dataflow.Cut{cut(4, 10, false), cut(4, 10, false), cut(4, 90, true), cut(5, 20, false), cut(4, 10, false), cut(5, 70, true)} {
		m := n.cut(c)
		for _, p := range m.GetPositions() {
			want := c.Positions[dataflow.StreamShard{Stream: 1, Shard: dataflow.ShardID(p.GetShard())}]
			if p.GetStream() != "lines" || p.GetOffset() != uint64(want) {
				t.Errorf("message %d: position %v, want %d", i, p, want)
			}
		}
		if len(m.GetPositions()) != 2 || m.GetToken() != c.Session.String() {
			t.Errorf("message %d: %v", i, m)
		}
	}
	if asked != 5 {
		t.Errorf("the stream's name was asked for %d times; the second message of a cut needs nothing", asked)
	}
}
