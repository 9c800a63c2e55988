package node_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// TestARemovedNodeEndsSoon removes a node that has sent rows of all shards to others, and that nobody answers any more: it waits for the
// answers of all shards at once, not of one after the other.
func TestARemovedNodeEndsSoon(t *testing.T) {
	t.Parallel()
	const wait = 3 * time.Second // of each log for its answers
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 8, Tuning: node.Tuning{ElectionTimeout: wait}})
	g.Node(1).Deploy("wc", groupSQL)
	flow(t, g.Node(3), "", 10)
	g.Isolate(3)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var sent sync.WaitGroup
	for i := range 100 {
		sent.Go(func() {
			r, err := g.Node(3).Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "words", JsonRows: fmt.Appendf(nil, `{"word":"w%d"}`, i)})
			if err == nil && r.GetRows() != 1 {
				t.Errorf("an append without an error took %d rows", r.GetRows())
			}
		})
	}
	sent.Wait()
	g.Remove(1, 3)
	g.Net.Heal()
	began := time.Now()
	if err := g.Node(3).Ended(); dataflow.ReasonOf(err) != dataflow.ReasonNodeConflict {
		t.Errorf("the removed node ended with %v, want NODE_CONFLICT", err)
	}
	if took := time.Since(began); took > 4*wait {
		t.Errorf("it ended after %s", took)
	}
}
