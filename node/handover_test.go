package node_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
)

// records keeps the messages of all nodes.
type records struct {
	slog.Handler
	mu   sync.Mutex
	list []string
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }

func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, rec.Message)
	return nil
}

func (r *records) WithAttrs([]slog.Attr) slog.Handler { return r }
func (r *records) WithGroup(string) slog.Handler      { return r }

// count returns how many messages have some words in them.
func (r *records) count(words string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.list {
		if strings.Contains(m, words) {
			n++
		}
	}
	return n
}

// TestANodeThatIsStoppedHandsItsLeadsOver stops all nodes but one after the other, as a rolling restart does: every lead is
// handed over, and no other node finds a leader gone.
func TestANodeThatIsStoppedHandsItsLeadsOver(t *testing.T) {
	t.Parallel()
	log := &records{}
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 4, Logger: slog.New(log)})
	g.Node(1).Deploy("wc", groupSQL)
	for _, i := range []int{1, 2, 3} {
		g.Stop(i)
		other := i%3 + 1
		token := g.Node(other).Append("words", `{"word":"whale"}`)
		g.Node(other).WaitCommitted(token)
		g.Start(i)
	}
	if n := log.count("the leader is lost"); n > 0 {
		t.Errorf("a leader was found lost %d times", n)
	}
	if n := log.count("a lead is not handed over"); n > 0 {
		t.Errorf("a lead was not handed over %d times", n)
	}
}

// TestNodesThatStopTogetherAreGivenNoLeads stops all nodes at once: each would have the others take its leads.
func TestNodesThatStopTogetherAreGivenNoLeads(t *testing.T) {
	t.Parallel()
	log := &records{}
	const shards = 6
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: shards, Logger: slog.New(log), Tuning: node.Tuning{GiveLeads: 2 * time.Second}})
	g.Node(1).Deploy("wc", groupSQL)
	g.Close()
	if n := log.count("move the lead of a shard"); n > 2*shards { // a node that is not known to stop may be tried
		t.Errorf("%d leads were given in vain", n)
	}
}
