package task

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/exchange"
)

// check says whether what came from another node is the task's to fold. A node of another build, or a defect there, must cost
// this node an incarnation and neither a panic, which fails the pipeline for good, nor a table that is wrong. It is called by
// the goroutines that read the streams of other nodes.
func (k *keyed) check(m exchange.Message) error {
	hashes := m.Hashes
	if m.Kind == exchange.KindPartials {
		hashes = m.Partials.Hashes
		for i, key := range m.Partials.Keys {
			if dataflow.HashKey(key) != hashes[i] {
				return dataflow.Errorf(dataflow.ReasonCorrupt, "key %x of %s does not have the hash %x", key, k.name(), hashes[i])
			}
			if err := k.layout.Check(m.Partials.Accs[i]); err != nil {
				return fmt.Errorf("accumulator of %s: %w", k.name(), err)
			}
		}
	}
	for _, h := range hashes {
		if s := dataflow.ShardOf(dataflow.KeyGroupOf(h), k.run.cfg.Shards); s != k.shard {
			return dataflow.Errorf(dataflow.ReasonCorrupt, "a key of shard %d came to %s on shard %d", s, k.name(), k.shard)
		}
	}
	return nil
}
