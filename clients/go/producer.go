package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Producer sends the rows of one stream exactly once (P8): it places them in shards by the documented hash, numbers them
// per shard, sends them in batches with several under way, and sends them again with the same numbers when a connection
// breaks or a server restarts, which the log recognises. In a group each shard's rows go to the node that leads the shard, where
// the client can reach that (Config.NoDiscovery).
//
// Append, AppendRow and Close are for one goroutine, because the order of the rows is their numbering. Flush, Token and
// Stats may be called from others.
type Producer struct {
	c       *Client
	cfg     ProducerConfig
	stream  string
	session *weirv1.ProducerSession
	schema  dataflow.Schema

	mu struct {
		sync.Mutex
		w       *window
		token   string
		err     error         // final: nothing is sent any more
		change  chan struct{} // closed when an acknowledgement or err has come
		trouble error         // why the last try failed; nil when all is well
		closed  bool
		spread  bool                 // rows go, or have gone, to several nodes
		avoided map[string]time.Time // nodes that no rows go to directly, and until when
	}
	wake chan struct{} // there may be something to send
	stop context.CancelFunc
	done sync.WaitGroup
}

// ProducerStats count rows of this process.
type ProducerStats struct {
	Appended   uint64 // written by this producer and acknowledged
	Duplicates uint64 // sent, and recognised as written before
	Skipped    uint64 // not written, because the log had them when the producer was opened
	Missing    uint64 // rows that the log had when the producer was opened, and that were not given to it again yet
	Pending    int    // bytes that are not acknowledged
	// Trouble is why the last try to send failed, while the producer tries again; nil when all is well.
	Trouble error
}

// OpenProducer opens a session of a producer on a stream. Close must follow; it waits for the producer's goroutines.
func (c *Client) OpenProducer(ctx context.Context, stream string, cfg ProducerConfig) (*Producer, error) {
	cfg.EnsureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Name == "" {
		cfg.Name = dataflow.AnonymousProducer + rand.Text()
	}
	var r *weirv1.OpenProducerResponse
	err := c.retryFor(ctx, cfg.RetryFor, repeatable, func(ctx context.Context) (err error) {
		r, err = c.ingest.OpenProducer(ctx, &weirv1.OpenProducerRequest{Stream: stream, Producer: cfg.Name})
		return err
	})
	if err != nil {
		return nil, err
	}
	w, err := windowOf(cfg, r)
	if err != nil {
		return nil, err
	}
	p := &Producer{
		c: c, cfg: cfg, stream: stream, session: &weirv1.ProducerSession{Name: cfg.Name, Epoch: r.GetEpoch()}, schema: w.schema,
		wake: make(chan struct{}, 1),
	}
	p.mu.w, p.mu.change = w, make(chan struct{})
	var life context.Context
	life, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	p.done.Go(func() { p.run(life) })
	if dataflow.IsAnonymousProducer(cfg.Name) {
		p.done.Go(func() { p.renew(life) })
	}
	return p, nil
}

func windowOf(cfg ProducerConfig, r *weirv1.OpenProducerResponse) (*window, error) {
	shards := int(r.GetShards())
	if shards < 1 || shards > dataflow.MaxShards {
		return nil, dataflow.Errorf(dataflow.ReasonInternal, "the server says that it has %d shards", shards)
	}
	schema := wire.Schema(r.GetStream().GetColumns())
	var partitionBy []int
	for _, name := range r.GetStream().GetPartitionBy() {
		i := schema.Index(name)
		if i < 0 {
			return nil, dataflow.Errorf(dataflow.ReasonInternal, "the stream is partitioned by %s, which is none of its columns", name)
		}
		partitionBy = append(partitionBy, i)
	}
	last := make([]dataflow.Seq, shards)
	for _, s := range r.GetLastSeqs() {
		if int(s.GetShard()) >= shards {
			return nil, dataflow.Errorf(dataflow.ReasonInternal, "the server knows rows of shard %d of %d", s.GetShard(), shards)
		}
		last[s.GetShard()] = dataflow.Seq(s.GetLastSeq())
	}
	w := newWindow(cfg.Name, schema, partitionBy, last, cfg.BatchBytes)
	for _, s := range r.GetLastSeqs() {
		l := &w.lanes[s.GetShard()]
		for _, first := range s.GetBatchFirstSeqs() {
			l.edges = append(l.edges, dataflow.Seq(first))
		}
	}
	return w, nil
}

// renew tells the shards again and again that an anonymous producer lives, until ctx ends: they forget one that is idle,
// and a stream can be idle for long. That is sooner than it needs to be, so a failure is left to the next time.
func (p *Producer) renew(ctx context.Context) {
	tick := time.NewTicker(dataflow.AnonymousProducerRenew)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// A failure is left to the next time.
			_, _ = p.c.ingest.OpenProducer(ctx, &weirv1.OpenProducerRequest{Stream: p.stream, Producer: p.session.GetName()})
		case <-ctx.Done():
			return
		}
	}
}

// Name returns the producer's name; a random one when none was given.
func (p *Producer) Name() string { return p.session.GetName() }

// Schema returns the stream's columns.
func (p *Producer) Schema() dataflow.Schema { return p.schema }

// addRows bounds how many rows are taken under the lock at once, so that acknowledgements are not held up.
const addRows = 1024

// Append takes the rows of b, whose schema must be the stream's. It copies them, and waits while the buffer is full. An
// error is final, except ROW_INVALID and TOO_LARGE, which take none of the rows, and ctx's, after which the producer
// should be closed: some of the rows may have been taken.
func (p *Producer) Append(ctx context.Context, b *batch.Batch) error {
	if err := checkRows(p.schema, b); err != nil {
		return err
	}
	for from := 0; from < b.N; {
		to := min(from+addRows, b.N)
		full, err := p.take(b, from, to)
		if err != nil {
			return err
		}
		if full != nil {
			select {
			case <-full:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		from = to
	}
	return nil
}

// AppendRow takes one row: a value per column of the schema. A value of TypeUnknown is text to be parsed as the column's
// type.
func (p *Producer) AppendRow(ctx context.Context, row dataflow.Row) error {
	b, err := rowBatch(p.schema, row)
	if err != nil {
		return err
	}
	return p.Append(ctx, b)
}

// take adds rows, or returns a channel to wait on when the buffer is full.
func (p *Producer) take(b *batch.Batch, from, to int) (full <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.mu.err != nil:
		return nil, p.mu.err
	case p.mu.closed:
		return nil, errProducerClosed()
	case p.mu.w.bytes >= p.cfg.BufferBytes:
		return p.mu.change, nil
	}
	p.mu.w.add(b, from, to, time.Now())
	p.signal()
	return nil, nil
}

// signal tells the sender to look.
func (p *Producer) signal() {
	select {
	case p.wake <- struct{}{}:
	default: // it has not looked yet
	}
}

// broadcastLocked tells those that wait.
func (p *Producer) broadcastLocked() {
	close(p.mu.change)
	p.mu.change = make(chan struct{})
}

// Flush waits until every row that was taken is acknowledged, or ctx ends.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	p.mu.w.sealAll()
	for p.mu.err == nil && !p.mu.w.empty() {
		p.mu.w.sealAll()
		p.signal()
		change := p.mu.change
		p.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	return p.mu.err
}

// Token covers every row that was acknowledged; after Flush, every row. It is empty when there is none.
func (p *Producer) Token() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.token
}

// Stats returns the counts so far.
func (p *Producer) Stats() ProducerStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.mu.w
	return ProducerStats{Appended: w.appended, Duplicates: w.dups, Skipped: w.skips, Missing: w.missing(), Pending: w.bytes, Trouble: p.mu.trouble}
}

// Close flushes, until ctx ends, and ends the producer. It waits for the producer's goroutines. A second call does
// nothing.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	again := p.mu.closed
	p.mu.closed = true
	p.mu.Unlock()
	var err error
	if !again {
		err = p.Flush(ctx)
	}
	p.stop()
	p.done.Wait()
	return err
}

func errProducerClosed() error {
	return dataflow.Errorf(dataflow.ReasonRequestInvalid, "the producer is closed")
}

// fail makes err final.
func (p *Producer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.err == nil {
		p.mu.err = err
	}
	p.broadcastLocked()
}

// checkRows refuses rows that the server would refuse, before they get numbers.
func checkRows(schema dataflow.Schema, b *batch.Batch) error {
	if len(b.Cols) != len(schema) {
		return dataflow.Errorf(dataflow.ReasonRowInvalid, "the rows have %d columns, the stream has %s", len(b.Cols), schema)
	}
	for i, c := range schema {
		v := b.Cols[i]
		switch {
		case v.Type != c.Type:
			return dataflow.Errorf(dataflow.ReasonRowInvalid, "column %s is %s, the values are %s", c.Name, c.Type, v.Type)
		case v.Len() != b.N:
			return dataflow.Errorf(dataflow.ReasonRowInvalid, "column %s has %d values for %d rows", c.Name, v.Len(), b.N)
		case c.NotNull && v.Nulls.Any():
			return dataflow.Errorf(dataflow.ReasonRowInvalid, "column %s is NOT NULL", c.Name)
		case v.Type == dataflow.TypeText && !validTexts(v):
			return dataflow.Errorf(dataflow.ReasonRowInvalid, "column %s: a TEXT is valid UTF-8 without NUL", c.Name)
		}
		if err := checkValues(c, v); err != nil {
			return dataflow.Errorf(dataflow.ReasonRowInvalid, "column %s: %w", c.Name, err)
		}
	}
	return b.CheckRows()
}

// checkValues refuses values that are not what the column's type has: the server would round or rewrite them, and place
// rows by them elsewhere than here.
func checkValues(c dataflow.Column, v *batch.Vector) error {
	switch {
	case c.Mod != (dataflow.NumericMod{}):
		for i := range v.Decs {
			if v.IsNull(i) {
				continue
			}
			var d apd.Decimal
			d.Set(&v.Decs[i])
			if err := expr.FitNumeric(c.Mod, &d); err != nil {
				return err
			}
			if d.Cmp(&v.Decs[i]) != 0 {
				return fmt.Errorf("%s has more digits than NUMERIC%s: round it", v.Decs[i].Text('f'), c.Mod)
			}
		}
	case c.Type == dataflow.TypeInterval:
		for _, iv := range v.Ivls {
			if !iv.Valid() {
				return errors.New("the interval is out of range")
			}
		}
	}
	return nil
}

func validTexts(v *batch.Vector) bool {
	for i := range v.Len() {
		if !batch.ValidText(v.Text(i)) {
			return false
		}
	}
	return true
}

// retryable reports whether sending again can help, after an error in the call to a node.
func (p *Producer) retryable(node string, err error) bool {
	var e *dataflow.Error
	if !errors.As(err, &e) {
		return false
	}
	if e.Reason == dataflow.ReasonOutOfOrder {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.mu.w.resumable(node, e)
	}
	switch e.Reason.Kind() {
	case dataflow.KindOverloaded, dataflow.KindUnavailable, dataflow.KindUnknown, dataflow.KindDeadline:
		return true
	}
	return false
}
