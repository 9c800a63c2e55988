package grouptest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/node/nodetest"
)

const tallySQL = `
SET checkpoint.interval = '100 ms';
CREATE STREAM votes (who BIGINT, n BIGINT);
CREATE MATERIALIZED VIEW tally AS SELECT who, count(*) AS rows, sum(n) AS total FROM votes GROUP BY who;
`

// tally is what one key of the table must be.
type tally struct {
	Who   int64
	Rows  int64
	Total int64
}

const (
	voters = 50
	votes  = 20_000
)

func expected() map[int64]tally {
	want := make(map[int64]tally)
	for i := range int64(votes) {
		t := want[i%voters]
		want[i%voters] = tally{Who: i % voters, Rows: t.Rows + 1, Total: t.Total + i}
	}
	return want
}

// openClient returns a client that was told of one node.
func openClient(t *testing.T, addr string) *weir.Client {
	t.Helper()
	c, err := weir.Open(weir.Config{Addrs: []string{addr}, RetryFor: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// knows waits until a client has been told where the nodes of the group are.
func knows(ctx context.Context, t *testing.T, c *weir.Client, nodes int) {
	t.Helper()
	list, err := c.ListNodes(ctx)
	if err != nil || len(list) != nodes {
		t.Fatalf("the client knows %v: %v", list, err)
	}
}

// TestAClientThatWasToldOfOneNodeOutlivesIt stops the node that a producer, a watch and a reader are connected to, in the middle of
// all that, and then, when it is back at another address, the next one.
func TestAClientThatWasToldOfOneNodeOutlivesIt(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 3})
	g.Node(1).Deploy("p", tallySQL)
	addr := g.Node(1).GRPCAddr()
	sender, watcher, reader := openClient(t, addr), openClient(t, addr), openClient(t, addr)
	for _, c := range []*weir.Client{sender, watcher, reader} {
		knows(ctx, t, c, 3)
	}

	var group sync.WaitGroup
	defer group.Wait()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	done := make(chan struct{}) // the watch has told of all votes
	var restarts int
	group.Go(func() {
		defer close(done)
		restarts = follow(watching, t, watcher)
	})
	group.Go(func() { readOn(watching, t, reader) })

	p, err := sender.OpenProducer(ctx, "votes", weir.ProducerConfig{Name: "sender", BatchBytes: 4 << 10, RetryFor: patience})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(votes) {
		switch i {
		case votes / 3:
			g.Stop(1)
		case votes / 2:
			g.Start(1)
		case votes * 2 / 3:
			for _, c := range []*weir.Client{sender, watcher, reader} {
				knows(ctx, t, c, 3) // node 1 is somewhere else now
			}
			g.Stop(2)
		}
		if err := p.AppendRow(ctx, dataflow.Row{dataflow.BigInt(i % voters), dataflow.BigInt(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Appended+s.Duplicates != votes {
		t.Errorf("%d rows appended and %d known, of %d", s.Appended, s.Duplicates, votes)
	}
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("the watch does not come to the end")
	}
	stopWatching()
	// Who has just been told of a node, and not asked it for anything, reads what the producer has sent.
	fresh := openClient(t, g.Node(3).GRPCAddr())
	for who, want := range expected() {
		a, err := fresh.Get(ctx, "p.tally", weir.Key(who), weir.ReadOptions{MinToken: p.Token(), SessionToken: watcher.SessionToken("p")})
		if err != nil {
			t.Fatal(err)
		}
		if got := parse(t, a.Row); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	t.Logf("the watch was resumed within a cut %d times", restarts)
}

// follow puts the table together from a watch until it has all votes, and checks each cut: a row's sum is one that its number of
// rows can have.
func follow(ctx context.Context, t *testing.T, c *weir.Client) (restarts int) {
	want := expected()
	table, next := map[int64]tally{}, map[int64]tally{}
	var cut uint64
	for ev, err := range c.Watch(ctx, "p.tally", weir.WatchOptions{}) {
		if err != nil {
			t.Errorf("watch: %v", err)
			return restarts
		}
		if ev.Restart {
			restarts++
			clear(next)
			continue
		}
		for _, ch := range ev.Changes {
			if ch.GetDeleted() {
				t.Errorf("a row was deleted: %s", ch.GetKey())
				continue
			}
			row := parse(t, ch.GetRow())
			next[row.Who] = row
		}
		if !ev.EndOfCut {
			continue
		}
		if id := ev.Cut.GetCheckpointId(); id < cut {
			t.Errorf("cut %d after cut %d", id, cut)
		} else {
			cut = id
		}
		for who, row := range next {
			if old := table[who]; row.Rows < old.Rows {
				t.Errorf("%+v after %+v", row, old)
			}
			table[who] = row
		}
		clear(next)
		equal := len(table) == len(want)
		for who, row := range table {
			equal = equal && row == want[who]
		}
		if equal {
			return restarts
		}
	}
	return restarts
}

// readOn reads one row again and again: what it says never goes back, whichever node says it.
func readOn(ctx context.Context, t *testing.T, c *weir.Client) {
	var last tally
	var cut uint64
	for ctx.Err() == nil {
		a, err := c.Get(ctx, "p.tally", weir.Key(7), weir.ReadOptions{})
		switch {
		case ctx.Err() != nil:
			return
		case dataflow.ReasonOf(err) == dataflow.ReasonRowNotFound:
			if last.Rows > 0 {
				t.Errorf("the row was there, and is not: %v", err)
			}
			continue
		case err != nil:
			t.Errorf("get: %v", err)
			return
		}
		row := parse(t, a.Row)
		if id := a.Cut.GetCheckpointId(); id < cut || row.Rows < last.Rows {
			t.Errorf("%+v of cut %d, after %+v of cut %d", row, id, last, cut)
		}
		last, cut = row, a.Cut.GetCheckpointId()
		_ = pause.For(ctx, time.Millisecond) // the loop looks at ctx
	}
}

func parse(t *testing.T, row []byte) tally {
	var r tally
	if err := json.Unmarshal(row, &r); err != nil {
		t.Error(fmt.Errorf("row %s: %w", row, err))
	}
	return r
}
