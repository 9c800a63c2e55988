package dataflow

import "testing"

func TestACutPrintsOnOneLine(t *testing.T) {
	c := &CheckpointCommit{ID: 7, Incarnation: 2, Timeline: 2, Guarantee: GuaranteeExactlyOnce, CatchingUp: true,
		Positions: Positions{{Stream: 1, Shard: 1}: 4, {Stream: 1, Shard: 0}: 17},
		Shards:    []ShardCommit{{Shard: 0, Seq: 3, Index: 40}, {Shard: 1, Skipped: 2}}}
	want := "cut 7 i2 t2 exactly_once [1/0:17 1/1:4] shards[0:s3@40 1:s0@0(skipped 2)] catching_up"
	if got := c.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if c.Skipped() != 2 || c.Shard(0).Seq != 3 || c.Shard(5) != (ShardCommit{Shard: 5}) {
		t.Errorf("Skipped and Shard: %d, %v, %v", c.Skipped(), c.Shard(0), c.Shard(5))
	}
	d := c.Clone()
	d.Positions[StreamShard{Stream: 1}]++
	d.Shards[0].Seq++
	if c.String() != want {
		t.Error("a clone shares memory with its original")
	}
}
