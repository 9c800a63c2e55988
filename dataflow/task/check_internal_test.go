package task

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/exchange"
	"github.com/weirdb/weir/dataflow/plan"
)

// What another node's defect may send is refused before the task sees it, with an error that recovers and no panic.
func TestWhatCannotBeFoldedIsRefused(t *testing.T) {
	spec := agg.Spec{Fn: agg.Max, Arg: 0, ArgType: dataflow.TypeText, Out: dataflow.TypeText}
	k := &keyed{run: &Run{cfg: Config{Shards: 4}}, stage: &plan.Stage{Name: "v"}, layout: agg.NewLayout([]agg.Spec{spec})}
	key := []byte("some key")
	hash := dataflow.HashKey(key)
	k.shard = dataflow.ShardOf(dataflow.KeyGroupOf(hash), 4)
	acc := k.layout.New(nil)
	partials := func(hash uint64, key, acc []byte) exchange.Message {
		return exchange.Message{Kind: exchange.KindPartials, Partials: &exchange.Partials{Hashes: []uint64{hash}, Keys: [][]byte{key}, Accs: [][]byte{acc}}}
	}
	elsewhere := key
	for dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(elsewhere)), 4) == k.shard {
		elsewhere = append(slices.Clip(elsewhere), 'x')
	}
	for _, m := range []exchange.Message{
		{Kind: exchange.KindBarrier, Barrier: 1}, {Kind: exchange.KindRows, Hashes: []uint64{hash}}, partials(hash, key, acc),
	} {
		if err := k.check(m); err != nil {
			t.Errorf("kind %d: %v", m.Kind, err)
		}
	}
	long := slices.Clone(acc)
	long[len(long)-1] = 0x7f // a length that is not there
	for _, c := range []struct {
		want string
		m    exchange.Message
	}{
		{"does not have the hash", partials(hash+1, key, acc)},
		{"a key of shard", partials(dataflow.HashKey(elsewhere), elsewhere, acc)},
		{"a key of shard", exchange.Message{Kind: exchange.KindRows, Hashes: []uint64{hash, dataflow.HashKey(elsewhere)}}},
		{"accumulator of v", partials(hash, key, nil)},
		{"accumulator of v", partials(hash, key, acc[:len(acc)-1])},
		{"accumulator of v", partials(hash, key, append(slices.Clip(acc), 0))},
		{"accumulator of v", partials(hash, key, long)},
	} {
		if err := k.check(c.m); dataflow.ReasonOf(err) != dataflow.ReasonCorrupt || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
}
