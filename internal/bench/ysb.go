package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/pause"
)

// The Yahoo streaming benchmark (Chintapalli et al., "Benchmarking Streaming Computation Engines", 2016): of ad events keep
// the views, find the campaign of the ad, and count per campaign and window of ten seconds. There the campaign comes from a
// table in Redis and the counts go to Redis; here ten consecutive ads belong to a campaign, and the counts are read where
// they are.
const ysbSQL = `
CREATE STREAM events (user_id BIGINT NOT NULL, page_id BIGINT NOT NULL, ad_id BIGINT NOT NULL, ad_type TEXT NOT NULL,
                      event_type TEXT NOT NULL, event_time TIMESTAMPTZ NOT NULL);
CREATE MATERIALIZED VIEW counts AS
SELECT ad_id / 10 AS campaign, date_bin(INTERVAL '10 seconds', event_time, TIMESTAMPTZ '2000-01-01 00:00:00+00') AS window_start, count(*) AS n
FROM events WHERE event_type = 'view'
GROUP BY campaign, window_start;`

const ysbCheck = `SELECT sum(n) AS rows, sum(n * campaign) AS sum, count(*) AS keys FROM bench.counts`

const (
	adsPerCampaign = 10
	ysbWindow      = 10 * time.Second
	// ysbWindows is how many windows the events lie in: an engine has a few open at a time.
	ysbWindows = 3
)

// adMaker makes ad events. A third of them are views.
type adMaker struct {
	campaigns uint64
	seen      map[[2]uint64]struct{} // campaign and window
}

func (m *adMaker) schema() dataflow.Schema {
	column := func(name string, t dataflow.Type) dataflow.Column {
		return dataflow.Column{Name: name, Type: t, NotNull: true}
	}
	return dataflow.Schema{
		column("user_id", dataflow.TypeBigInt), column("page_id", dataflow.TypeBigInt), column("ad_id", dataflow.TypeBigInt),
		column("ad_type", dataflow.TypeText), column("event_type", dataflow.TypeText), column("event_time", dataflow.TypeTimestamp),
	}
}

func (m *adMaker) least() uint64    { return 4 * m.campaigns }
func (m *adMaker) distinct() uint64 { return uint64(len(m.seen)) }

func (m *adMaker) maker(shard int) func(b *batch.Batch) (counted, key uint64) {
	x := xorshift(88172645463325252 + uint64(shard))
	types, kinds := []string{"banner", "modal", "sponsored-search", "mail", "mobile"}, []string{"view", "click", "purchase"}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	return func(b *batch.Batch) (counted, key uint64) {
		ad, kind := x.below(m.campaigns*adsPerCampaign), x.below(3)
		window, within := x.below(ysbWindows), x.below(uint64(ysbWindow.Microseconds()))
		b.Cols[0].AppendInt(int64(x.below(100_000)))
		b.Cols[1].AppendInt(int64(x.below(1000)))
		b.Cols[2].AppendInt(int64(ad))
		b.Cols[3].AppendText([]byte(types[x.below(uint64(len(types)))]))
		b.Cols[4].AppendText([]byte(kinds[kind]))
		b.Cols[5].AppendInt(begin + int64(window)*ysbWindow.Microseconds() + int64(within))
		campaign := ad / adsPerCampaign
		if kind != 0 {
			return 0, 0
		}
		m.seen[[2]uint64{campaign, window}] = struct{}{}
		return 1, campaign
	}
}

// ysb measures the plan while a client reads its results as they are, and while a client copies all of them to Redis each
// second, if there is one.
func (r *runner) ysb(ctx context.Context) error {
	for _, campaigns := range r.size.campaigns {
		sides := []struct {
			name   string
			beside func(ctx context.Context, c *weir.Client) error
		}{{"results=read", readResults}}
		copier := &redisCopy{addr: r.cfg.Redis}
		if r.cfg.Redis != "" {
			sides = append(sides, struct {
				name   string
				beside func(ctx context.Context, c *weir.Client) error
			}{"results=copied", copier.run})
		}
		for _, side := range sides {
			f := &figures{bench: "ysb", name: fmt.Sprintf("campaigns=%d %s", campaigns, side.name)}
			if !r.wants(f.name) {
				continue
			}
			r.progress("ysb %s: rows", f.name)
			k := ringCase{
				maker: &adMaker{campaigns: campaigns, seen: make(map[[2]uint64]struct{})}, sql: ysbSQL, check: ysbCheck,
				profile: fmt.Sprintf("ysb-%d-%s", campaigns, strings.TrimPrefix(side.name, "results=")), beside: side.beside,
				window: r.size.window,
			}
			if err := r.ringCase(ctx, k, f); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			if n := copier.rows.Swap(0); n > 0 {
				f.add("rows_copied", "rows", float64(n))
			}
			if err := r.cfg.Report(f.list); err != nil {
				return err
			}
		}
	}
	return nil
}

// readResults asks each second for the campaigns with the most views in a window.
func readResults(ctx context.Context, c *weir.Client) error {
	const top = `SELECT campaign, n FROM bench.counts WHERE window_start = TIMESTAMPTZ '2026-01-01 00:00:10+00' ORDER BY n DESC, campaign LIMIT 10`
	for {
		answer, err := c.Query(ctx, top, weir.ReadOptions{})
		if err == nil {
			for _, ok := answer.Next(); ok; _, ok = answer.Next() {
			}
			err = answer.Err()
		}
		if err != nil {
			return err
		}
		if err := pause.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// redisCopy copies a table to Redis.
type redisCopy struct {
	addr string
	rows atomic.Uint64 // copied
}

// run copies the whole table each second: what has to be done when results cannot be read where they are.
func (r *redisCopy) run(ctx context.Context, c *weir.Client) (err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return fmt.Errorf("connect to Redis: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) }) // ends a write or read under way
	defer stop()
	for {
		if err := r.copy(ctx, c, conn); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if err := pause.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// copy writes every row as a field of its campaign's hash, pipelined, and reads the replies.
func (r *redisCopy) copy(ctx context.Context, c *weir.Client, conn net.Conn) error {
	w, replies := bufio.NewWriterSize(conn, 1<<16), bufio.NewReaderSize(conn, 1<<16)
	scan, err := c.Scan(ctx, "bench.counts", weir.ScanRange{}, weir.ReadOptions{})
	if err != nil {
		return err
	}
	pending := 0
	settle := func() error {
		if err := w.Flush(); err != nil {
			return err
		}
		for ; pending > 0; pending-- {
			line, err := replies.ReadString('\n')
			if err != nil {
				return err
			}
			if !strings.HasPrefix(line, ":") {
				return fmt.Errorf("the reply of Redis to HSET is %q", line)
			}
		}
		return nil
	}
	for raw, ok := scan.Next(); ok; raw, ok = scan.Next() {
		var row struct {
			Campaign    json.Number `json:"campaign"`
			WindowStart string      `json:"window_start"`
			N           json.Number `json:"n"`
		}
		if err := json.Unmarshal(raw, &row); err != nil {
			return err
		}
		writeCommand(w, "HSET", "campaign:"+row.Campaign.String(), row.WindowStart, row.N.String())
		r.rows.Add(1)
		if pending++; pending == 1000 {
			if err := settle(); err != nil {
				return err
			}
		}
	}
	return errors.Join(scan.Err(), settle())
}

// writeCommand writes a command of the Redis protocol. An error of w shows when it is flushed.
func writeCommand(w io.Writer, args ...string) {
	fmt.Fprintf(w, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(w, "$%d\r\n%s\r\n", len(a), a)
	}
}
