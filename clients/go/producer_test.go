package weir

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/key"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// withFake runs a test in a bubble of its own time, with a fake server and a client of it.
func withFake(t *testing.T, f *fakeServer, test func(t *testing.T, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, stop := f.serve(t)
		defer stop()
		test(t, c)
	})
}

func openProducer(t *testing.T, c *Client, cfg ProducerConfig) *Producer {
	t.Helper()
	p, err := c.OpenProducer(t.Context(), "s", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustAppend(t *testing.T, p *Producer, first, n int) {
	t.Helper()
	if err := p.Append(t.Context(), numbered(first, n)); err != nil {
		t.Fatalf("append: %v", err)
	}
}

func mustClose(t *testing.T, p *Producer) {
	t.Helper()
	if err := p.Close(t.Context()); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// checkOnce checks that the logs hold rows 0 to n-1 once each, in rising order per shard.
func checkOnce(t *testing.T, f *fakeServer, n int) {
	t.Helper()
	seen := make([]int, n)
	for shard, rows := range f.rows() {
		last := -1
		for _, r := range rows {
			var row struct{ N int }
			if err := json.Unmarshal([]byte(r), &row); err != nil {
				t.Fatal(err)
			}
			if row.N <= last {
				t.Fatalf("shard %d: row %d comes after row %d", shard, row.N, last)
			}
			last = row.N
			seen[row.N]++
		}
	}
	for i, k := range seen {
		if k != 1 {
			t.Fatalf("row %d is there %d times", i, k)
		}
	}
}

func TestRowsAreSentOnceAndCoveredByTheToken(t *testing.T) {
	f := newFake(8, "k")
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{})
		mustAppend(t, p, 0, 1000)
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := p.Stats(); s.Appended != 1000 || s.Pending != 0 || s.Duplicates != 0 {
			t.Errorf("stats: %+v", s)
		}
		if p.Token() == "" {
			t.Error("no token")
		}
		mustClose(t, p)
	})
	checkOnce(t, f, 1000)
}

func TestRowsLeaveAfterTheLinger(t *testing.T) {
	f := newFake(2)
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{Linger: time.Second})
		mustAppend(t, p, 0, 1)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if s := p.Stats(); s.Appended != 0 {
			t.Errorf("sent before the linger: %+v", s)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if s := p.Stats(); s.Appended != 1 {
			t.Errorf("not sent after the linger: %+v", s)
		}
		mustClose(t, p)
	})
}

func TestRowsWithoutPartitionGoInRunsFromTheNamesShard(t *testing.T) {
	f := newFake(4)
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{Name: "loader"})
		mustAppend(t, p, 0, key.RunRows+10)
		mustClose(t, p)
	})
	start := int(dataflow.HashKey([]byte("loader")) % 4)
	got := f.rows()
	if len(got[start]) != key.RunRows || len(got[(start+1)%4]) != 10 {
		t.Errorf("runs of %d, %d, %d, %d rows; the first should be in shard %d", len(got[0]), len(got[1]), len(got[2]), len(got[3]), start)
	}
}

func TestLostAnswersAreRecognised(t *testing.T) {
	for _, what := range []fault{breakBefore, dropAck, half, overloaded, gap, stopping} {
		t.Run(what.String(), func(t *testing.T) {
			f, calls := newFake(4, "k"), 0
			f.fault = func() fault {
				if calls++; calls%3 == 2 {
					return what
				}
				return noFault
			}
			withFake(t, f, func(t *testing.T, c *Client) {
				p := openProducer(t, c, ProducerConfig{BatchBytes: 400})
				mustAppend(t, p, 0, 500)
				mustClose(t, p)
				if s := p.Stats(); s.Appended+s.Duplicates != 500 {
					t.Errorf("stats: %+v", s)
				}
			})
			checkOnce(t, f, 500)
			if f.mu.seen[what] == 0 {
				t.Errorf("%v never happened", what)
			}
		})
	}
}

func TestTokensAreChainedOverConnections(t *testing.T) {
	f, calls := newFake(1), 0
	f.fault = func() fault {
		if calls++; calls == 2 {
			return breakBefore
		}
		return noFault
	}
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{})
		for i := range 2 {
			mustAppend(t, p, i, 1)
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, p)
	})
	if got := fmt.Sprint(f.mu.chained); got != "[ t1]" {
		t.Errorf("previous tokens: %s, want none and then t1", got)
	}
}

func TestRestartedProcessGoesOnWhereItWas(t *testing.T) {
	for _, partition := range [][]string{nil, {"k"}} {
		f := newFake(4, partition...)
		withFake(t, f, func(t *testing.T, c *Client) {
			p := openProducer(t, c, ProducerConfig{Name: "book", BatchBytes: 300})
			mustAppend(t, p, 0, 6000)
			mustClose(t, p)

			p = openProducer(t, c, ProducerConfig{Name: "book", BatchBytes: 77})
			mustAppend(t, p, 0, 9000)
			mustClose(t, p)
			if s := p.Stats(); s.Skipped != 6000 || s.Appended != 3000 {
				t.Errorf("second run: %+v", s)
			}

			p = openProducer(t, c, ProducerConfig{Name: "book"})
			mustAppend(t, p, 0, 9000)
			mustClose(t, p)
			if s := p.Stats(); s.Skipped != 9000 || s.Appended != 0 || s.Duplicates != 0 {
				t.Errorf("third run: %+v", s)
			}
			if p.Token() == "" {
				t.Error("a run that adds nothing has no token to wait for")
			}
		})
		checkOnce(t, f, 9000)
	}
}

func TestNewerSessionFencesTheOlder(t *testing.T) {
	f := newFake(2)
	withFake(t, f, func(t *testing.T, c *Client) {
		old := openProducer(t, c, ProducerConfig{Name: "n"})
		newer := openProducer(t, c, ProducerConfig{Name: "n"})
		mustAppend(t, newer, 0, 10)
		mustClose(t, newer)
		if err := old.Append(t.Context(), numbered(0, 20)); err != nil {
			t.Fatal(err)
		}
		if err := old.Close(t.Context()); dataflow.ReasonOf(err) != dataflow.ReasonProducerFenced {
			t.Errorf("the older session ended with %v", err)
		}
		if err := old.Append(t.Context(), numbered(0, 1)); dataflow.ReasonOf(err) != dataflow.ReasonProducerFenced {
			t.Errorf("and takes rows again: %v", err)
		}
	})
	checkOnce(t, f, 10)
}

func TestForgottenProducerIsFinal(t *testing.T) {
	f := newFake(1)
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{})
		mustAppend(t, p, 0, 5)
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.mu.last[0] = 0 // as after its expiry
		f.mu.Unlock()
		mustAppend(t, p, 5, 5)
		if err := p.Close(t.Context()); dataflow.ReasonOf(err) != dataflow.ReasonUnknownProducer {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestAnonymousProducerSaysThatItLives(t *testing.T) {
	f := newFake(1)
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{})
		mustAppend(t, p, 0, 5)
		time.Sleep(dataflow.AnonymousProducerTTL)
		f.mu.Lock()
		opened := f.mu.opened
		f.mu.Unlock()
		if want := 1 + int(dataflow.AnonymousProducerTTL/dataflow.AnonymousProducerRenew); opened < want-1 || opened > want {
			t.Errorf("opened %d times in an hour, want about %d", opened, want)
		}
		mustAppend(t, p, 5, 5)
		mustClose(t, p)
	})
	checkOnce(t, f, 10)
}

func TestNamesThatCannotBeAProducersAreRefused(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", dataflow.MaxProducerName+1), dataflow.AnonymousProducer + "mine"} {
		cfg := ProducerConfig{Name: name}
		cfg.EnsureDefaults()
		if err := cfg.Validate(); dataflow.ReasonOf(err) != dataflow.ReasonRequestInvalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestLostAcknowledgedRowsAreFinal(t *testing.T) {
	f := newFake(1)
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{})
		mustAppend(t, p, 0, 5)
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.mu.last[0] = 2 // rows 3 to 5 were acknowledged and are gone
		f.mu.Unlock()
		mustAppend(t, p, 5, 5)
		if err := p.Close(t.Context()); dataflow.ReasonOf(err) != dataflow.ReasonOutOfOrder {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestServerMayBeAwayForRetryFor(t *testing.T) {
	f := newFake(2)
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{RetryFor: time.Minute})
		mustAppend(t, p, 0, 10)
		f.setAway(true)
		mustAppend(t, p, 10, 10)
		time.Sleep(50 * time.Second)
		if s := p.Stats(); s.Trouble == nil {
			t.Error("the producer does not say that the server is away")
		}
		f.setAway(false)
		if err := p.Flush(t.Context()); err != nil {
			t.Fatalf("after 50 s of 60: %v", err)
		}
		if s := p.Stats(); s.Trouble != nil {
			t.Errorf("still troubled: %v", s.Trouble)
		}
		f.setAway(true)
		mustAppend(t, p, 20, 10)
		start := time.Now()
		err := p.Close(t.Context())
		if dataflow.ReasonOf(err) != dataflow.ReasonOutcomeUnknown {
			t.Errorf("gave up with %v", err)
		}
		if took := time.Since(start); took < 55*time.Second || took > time.Minute {
			t.Errorf("gave up after %s", took)
		}
	})
	checkOnce(t, f, 20)
}

func TestIdleProducerOutlivesAnyAbsence(t *testing.T) {
	f := newFake(2)
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{RetryFor: time.Second})
		f.setAway(true)
		time.Sleep(time.Hour)
		f.setAway(false)
		mustAppend(t, p, 0, 10)
		mustClose(t, p)
	})
	checkOnce(t, f, 10)
}

func TestFullBufferHoldsTheCallerBack(t *testing.T) {
	f := newFake(1)
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{BufferBytes: 1000, BatchBytes: 200})
		f.setAway(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Append(ctx, numbered(0, 3*addRows)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("append to a full buffer: %v", err)
		}
		if s := p.Stats(); s.Pending > 1000+addRows*40 {
			t.Errorf("%d bytes pending", s.Pending)
		}
		f.setAway(false)
		mustClose(t, p)
	})
}

func TestRowsThatDoNotFitAreRefusedBeforeTheyAreNumbered(t *testing.T) {
	f := newFake(1)
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{})
		bad := numbered(0, 3)
		bad.Cols[0].Data[0] = 0xff
		for name, err := range map[string]error{
			"bad text":      p.Append(t.Context(), bad),
			"wrong type":    p.AppendRow(t.Context(), dataflow.Row{dataflow.BigInt(1), dataflow.BigInt(1)}),
			"too few":       p.AppendRow(t.Context(), dataflow.Row{dataflow.Text("a")}),
			"not a number":  p.AppendRow(t.Context(), dataflow.Row{dataflow.Text("a"), Literal("x")}),
			"other columns": p.Append(t.Context(), numbered(0, 1).WithCols(nil, nil)),
		} {
			if dataflow.ReasonOf(err) != dataflow.ReasonRowInvalid {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := p.AppendRow(t.Context(), dataflow.Row{dataflow.NullValue(dataflow.TypeUnknown), Literal("0")}); err != nil {
			t.Error(err)
		}
		mustClose(t, p)
	})
	checkOnce(t, f, 1)
}

func TestNoMoreThanInFlightAreUnderWay(t *testing.T) {
	b := numbered(0, 100)
	w := newWindow("p", b.Schema, []int{0}, make([]dataflow.Seq, 4), 50)
	w.add(b, 0, b.N, time.Time{})
	w.sealAll()
	const limit = 3
	next := func() *chunk {
		c, _ := w.next(limit, time.Time{})
		return c
	}
	for range limit {
		if next() == nil {
			t.Fatal("nothing to send")
		}
	}
	if next() != nil {
		t.Error("a fourth is under way")
	}
	c := w.queue[0]
	again, err := w.acknowledge(anyNode, &weirv1.AppendResponse{Shards: []*weirv1.ShardAppended{{Shard: uint32(c.shard)}}})
	if again || err != nil {
		t.Fatal(again, err)
	}
	if next() == nil || next() != nil {
		t.Error("an acknowledgement makes room for one")
	}
}

func TestAnswersThatMakeNoSenseAreFinal(t *testing.T) {
	b := numbered(0, 10)
	for name, s := range map[string]*weirv1.AppendResponse{
		"another shard":      {Shards: []*weirv1.ShardAppended{{Shard: 3}}},
		"no shard":           {},
		"overlap of nothing": {Shards: []*weirv1.ShardAppended{{Overlap: true}}},
		"overlap of all":     {Shards: []*weirv1.ShardAppended{{Overlap: true, LastSeq: 10}}},
	} {
		w := newWindow("p", b.Schema, nil, make([]dataflow.Seq, 1), 1<<20)
		w.add(b, 0, b.N, time.Time{})
		w.sealAll()
		if _, err := w.acknowledge(anyNode, s); err == nil {
			t.Errorf("%s: taken before anything was sent", name)
		}
		w.next(1, time.Time{})
		if _, err := w.acknowledge(anyNode, s); dataflow.ReasonOf(err) != dataflow.ReasonInternal {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCloseEndsAProducerWhoseServerIsAway(t *testing.T) {
	f := newFake(1)
	withFake(t, f, func(t *testing.T, c *Client) {
		p := openProducer(t, c, ProducerConfig{})
		f.setAway(true)
		mustAppend(t, p, 0, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

var seed = flag.Uint64("seed", 0, "seed of the random test; 0 = a new one")

// TestEachRowIsInTheLogOnceWhateverTheFaults sends an input through random faults, with processes that are killed and
// read their input again from the beginning.
func TestEachRowIsInTheLogOnceWhateverTheFaults(t *testing.T) {
	rounds, first := 60, *seed
	if first == 0 {
		first = rand.Uint64()
	} else {
		rounds = 1
	}
	if os.Getenv("WEIR_LONG") != "" {
		rounds *= 20
	}
	seen := make(map[fault]int)
	for i := range rounds {
		s := first + uint64(i)
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) { randomRound(t, s, seen) })
	}
	for _, what := range []fault{breakBefore, dropAck, half, overloaded, gap, stopping} {
		if seen[what] == 0 && rounds > 1 {
			t.Errorf("%v never happened", what)
		}
	}
}

func randomRound(t *testing.T, seed uint64, seen map[fault]int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var partition []string
	if rng.IntN(2) == 0 {
		partition = []string{"k"}
	}
	f := newFake(1+rng.IntN(8), partition...)
	chaos := 1 + rng.IntN(10)
	faults := rand.New(rand.NewPCG(seed, 1)) // used under the server's lock
	f.fault = func() fault {
		if faults.IntN(chaos) != 0 {
			return noFault
		}
		return fault(faults.IntN(7))
	}
	input := 1 + rng.IntN(12_000)
	withFake(t, f, func(t *testing.T, c *Client) {
		for {
			p := openProducer(t, c, ProducerConfig{
				Name: "p", RetryFor: 24 * time.Hour, BatchBytes: 1 + rng.IntN(4000), BufferBytes: 1 + rng.IntN(50_000),
				Linger: time.Duration(rng.IntN(20)) * time.Millisecond, InFlight: 1 + rng.IntN(20),
			})
			killedAt := input
			if rng.IntN(3) > 0 {
				killedAt = rng.IntN(input + 1)
			}
			for at := 0; at < killedAt; {
				n := min(1+rng.IntN(2000), killedAt-at)
				mustAppend(t, p, at, n)
				at += n
			}
			if killedAt == input {
				mustClose(t, p)
				break
			}
			kill(p)
		}
	})
	checkOnce(t, f, input)
	for k, n := range f.mu.seen {
		seen[k] += n
	}
}

// kill ends a producer as a killed process would: nothing is flushed.
func kill(p *Producer) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Close(ctx) // says that ctx has ended
}
