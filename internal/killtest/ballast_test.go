package killtest

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

//go:embed testdata/ballast.sql
var ballastSQL string

// ballast fills a table with more keys than the server's memory has room for, so that all tables of the node are evicted from,
// and goes on counting keys of it at random: each is looked up then. What the table must say is known in closed form.
type ballast struct {
	keys     uint64
	rng      *rand.Rand
	client   *weir.Client // of the producer
	producer *weir.Producer
	history  *history

	rows, sum atomic.Uint64 // of what was given to the producer

	counted           uint64 // rows that the last committed answer had
	evicted, lookedUp uint64 // the most that a life of the server has said
}

var ballastSchema = dataflow.Schema{{Name: "k", Type: dataflow.TypeBigInt, NotNull: true}}

func openBallast(addr string, keys, seed uint64, h *history) (*ballast, error) {
	c, err := weir.Open(weir.Config{Addrs: []string{addr}, RetryFor: patience})
	return &ballast{keys: keys, rng: rand.New(rand.NewPCG(seed, 3)), client: c, history: h}, err
}

// fill sends every key once and waits until they are committed.
func (b *ballast) fill(ctx context.Context, httpAddr string) (err error) {
	if b.producer, err = b.client.OpenProducer(ctx, "ballast", weir.ProducerConfig{Name: "ballast"}); err != nil {
		return err
	}
	for from := uint64(0); from < b.keys; {
		ks := make([]int64, 0, 4096)
		for ; from < b.keys && len(ks) < cap(ks); from++ {
			ks = append(ks, int64(from))
		}
		if err := b.send(ctx, ks); err != nil {
			return err
		}
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	return b.readMemory(ctx, httpAddr)
}

func (b *ballast) send(ctx context.Context, ks []int64) error {
	b.rows.Add(uint64(len(ks)))
	for _, k := range ks {
		b.sum.Add(uint64(k))
	}
	return b.producer.Append(ctx, &batch.Batch{Schema: ballastSchema, N: len(ks), Cols: []*batch.Vector{{Type: dataflow.TypeBigInt, Ints: ks}}})
}

// settle waits until what was sent is committed.
func (b *ballast) settle(ctx context.Context) error {
	if err := b.producer.Flush(ctx); err != nil {
		return err
	}
	_, err := b.client.WaitCommitted(ctx, b.producer.Token())
	return err
}

// run sends keys at random until ctx ends. What it has begun to send it sends.
func (b *ballast) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
		ks := make([]int64, 256)
		for i := range ks {
			ks[i] = int64(b.rng.Uint64N(b.keys))
		}
		if err := b.send(context.WithoutCancel(ctx), ks); err != nil {
			return fmt.Errorf("ballast: %w", err)
		}
	}
}

// look compares a committed answer with what was sent: it counts every key, all rows of the answers before, and none that was
// not sent; at the end, all of them.
func (b *ballast) look(ctx context.Context, c *weir.Client, httpAddr string, end bool) error {
	var got struct{ Rows, Sum, Keys uint64 }
	answer, err := c.Query(ctx, `SELECT sum(n) AS rows, sum(n * k) AS sum, count(*) AS keys FROM ballast.counts`, weir.ReadOptions{})
	if err != nil {
		return fmt.Errorf("read the ballast: %w", err)
	}
	row, ok := answer.Next()
	if !ok {
		return fmt.Errorf("read the ballast: no row: %w", answer.Err())
	}
	if err := json.Unmarshal(row, &got); err != nil {
		return err
	}
	rows, sum := b.rows.Load(), b.sum.Load() // after the answer: it has no more than this
	if got.Keys != b.keys || got.Rows < b.counted || got.Rows > rows || end && (got.Rows != rows || got.Sum != sum) {
		return violation("K3: the ballast counts %s; sent were %d rows of %d keys with sum %d, and %d were counted before", row, rows, b.keys, sum, b.counted)
	}
	b.counted = got.Rows
	b.history.log("ballast: %s", row)
	return b.readMemory(ctx, httpAddr)
}

// readMemory notes what the server says of evictions and look-ups in its life.
func (b *ballast) readMemory(ctx context.Context, httpAddr string) error {
	evicted, err := readMetric(ctx, httpAddr, "weir_memory_evicted_keys_total")
	if err != nil {
		return err
	}
	lookedUp, err := readMetric(ctx, httpAddr, "weir_memory_looked_up_keys_total")
	if err != nil {
		return err
	}
	b.evicted, b.lookedUp = max(b.evicted, evicted), max(b.lookedUp, lookedUp)
	return nil
}

// full reports what the round was for: that the server did not have room for all keys.
func (b *ballast) full() error {
	if b.evicted == 0 || b.lookedUp == 0 {
		return fmt.Errorf("%d keys were evicted and %d looked up: the tables fit, use more keys or less memory", b.evicted, b.lookedUp)
	}
	return nil
}

// readMetric returns a figure of the server that has no labels.
func readMetric(ctx context.Context, addr, name string) (uint64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			f, err := strconv.ParseFloat(v, 64)
			return uint64(f), err
		}
	}
	return 0, fmt.Errorf("the server has no metric %s", name)
}
