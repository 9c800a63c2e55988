// Package apitest has an in-memory node behind the api's interfaces, for tests of what stands in front of a node: the
// services, the gateway, clients. It keeps rows and tables, follows the rules for producers (P8), and fails on demand. It
// runs no pipelines: tests put rows into its tables.
package apitest

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/node/api"
)

// Group is the fake's group.
var group = dataflow.GroupID{1, 2, 3, 4}

// Group returns the fake group's id.
func Group() dataflow.GroupID { return group }

// Shards is how many shards the fake has.
const Shards = 4

// Fake is a node in memory.
type Fake struct {
	mu struct {
		sync.Mutex
		streams map[string]*stream
		tables  map[string]*Table
		keys    map[string]keyed
		epochs  map[string]dataflow.ProducerEpoch
		deploys []api.Deploy
		state   dataflow.PipelineState
		fail    error
		crash   bool
		ready   error
		leases  int
	}
}

type stream struct {
	info   *api.Stream
	shards [Shards]shard
}

type shard struct {
	rows []*batch.Batch // one row each
	last map[string]dataflow.Seq
}

type keyed struct {
	digest uint64
	answer []api.ShardAppended
}

// Table is a table of the fake: rows whose first KeyCols columns are the key, sorted by key.
type Table struct {
	Rows    *batch.Batch
	KeyCols int
}

// New returns a node with the stream lines (line TEXT NOT NULL, n BIGINT) and no tables.
func New() *Fake {
	f := &Fake{}
	f.mu.streams, f.mu.tables = make(map[string]*stream), make(map[string]*Table)
	f.mu.keys, f.mu.epochs = make(map[string]keyed), make(map[string]dataflow.ProducerEpoch)
	f.mu.state = dataflow.PipelineRunning
	f.AddStream("lines", dataflow.Schema{{Name: "line", Type: dataflow.TypeText, NotNull: true}, {Name: "n", Type: dataflow.TypeBigInt}})
	return f
}

// AddStream adds a stream.
func (f *Fake) AddStream(name string, schema dataflow.Schema) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &stream{info: &api.Stream{ID: dataflow.StreamID(len(f.mu.streams) + 1), Name: name, Schema: schema, CreatedAt: 1}}
	for i := range s.shards {
		s.shards[i].last = make(map[string]dataflow.Seq)
	}
	f.mu.streams[name] = s
}

// SetTable puts a table in place.
func (f *Fake) SetTable(name string, t *Table) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.tables[name] = t
}

// Fail makes every later call fail with err; nil ends that.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.fail = err
}

// Crash makes every later call panic.
func (f *Fake) Crash(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.crash = on
}

// SetReady sets what readiness answers.
func (f *Fake) SetReady(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.ready = err
}

// SetState sets the state of the pipeline that cuts show.
func (f *Fake) SetState(s dataflow.PipelineState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.state = s
}

// Deploys returns what was deployed.
func (f *Fake) Deploys() []api.Deploy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mu.deploys)
}

// Count returns how many rows a stream holds.
func (f *Fake) Count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	if s := f.mu.streams[name]; s != nil {
		for i := range s.shards {
			n += len(s.shards[i].rows)
		}
	}
	return n
}

// Backends returns the node behind the api's interfaces.
func (f *Fake) Backends() api.Backends {
	return api.Backends{Streams: f, Ingest: f, Reader: f, Queries: f, Pipelines: f, Control: f, Tables: f, Checkpoints: f, Tokens: f, Cluster: f}
}

// enter takes the lock and fails or panics as told. The caller unlocks when err is nil.
func (f *Fake) enter() error {
	f.mu.Lock()
	if f.mu.crash {
		f.mu.Unlock()
		panic("the fake crashes as told")
	}
	if err := f.mu.fail; err != nil {
		f.mu.Unlock()
		return err
	}
	return nil
}

func notFound(name string) error {
	return dataflow.Errorf(dataflow.ReasonStreamNotFound, "there is no stream %q", name).WithMeta("stream", name)
}

// Stream implements api.Streams.
func (f *Fake) Stream(_ context.Context, name string) (*api.Stream, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	if s := f.mu.streams[name]; s != nil {
		return s.info, nil
	}
	return nil, notFound(name)
}

// CurrentStream implements api.Streams.
func (f *Fake) CurrentStream(ctx context.Context, name string) (*api.Stream, error) {
	return f.Stream(ctx, name)
}

// SetStreamOptions implements api.Streams.
func (f *Fake) SetStreamOptions(_ context.Context, name string, options []dataflow.Option) (*api.Stream, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	s := f.mu.streams[name]
	if s == nil {
		return nil, notFound(name)
	}
	o, err := dataflow.DefaultStreamOptions().With(append(slices.Clone(s.info.Options), options...))
	if err != nil {
		return nil, err
	}
	changed := *s.info
	changed.Options = o.List()
	s.info = &changed
	return s.info, nil
}

// StreamName implements api.Streams.
func (f *Fake) StreamName(id dataflow.StreamID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n, s := range f.mu.streams {
		if s.info.ID == id {
			return n
		}
	}
	return fmt.Sprintf("#%d", id)
}

// ListStreams implements api.Streams.
func (f *Fake) ListStreams(context.Context) ([]*api.Stream, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	var out []*api.Stream
	for _, s := range f.mu.streams {
		out = append(out, s.info)
	}
	slices.SortFunc(out, func(a, b *api.Stream) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out, nil
}

// DeleteStream implements api.Streams.
func (f *Fake) DeleteStream(_ context.Context, name string) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if f.mu.streams[name] == nil {
		return notFound(name)
	}
	delete(f.mu.streams, name)
	return nil
}

// SealStream implements api.Streams.
func (f *Fake) SealStream(_ context.Context, name string) (*api.Stream, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	s := f.mu.streams[name]
	if s == nil {
		return nil, notFound(name)
	}
	sealed := *s.info
	sealed.Sealed = true
	s.info = &sealed
	return s.info, nil
}

// done is an append that has already happened.
type done struct{ shards []api.ShardAppended }

// Wait implements api.Pending.
func (d done) Wait(context.Context) ([]api.ShardAppended, error) { return d.shards, nil }

// Begin implements api.Ingest.
func (f *Fake) Begin(_ context.Context, a api.Append) (api.Pending, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	s := f.mu.streams[a.Stream.Name]
	if s == nil {
		return nil, notFound(a.Stream.Name)
	}
	if a.Producer == "" {
		return f.plainLocked(s, a)
	}
	if e := f.mu.epochs[a.Producer]; a.Epoch > e {
		return nil, dataflow.Errorf(dataflow.ReasonUnknownProducer, "session %d of producer %q has not been opened", a.Epoch, a.Producer)
	} else if a.Epoch < e {
		return nil, dataflow.Errorf(dataflow.ReasonProducerFenced, "epoch %d of producer %q was fenced by epoch %d", a.Epoch, a.Producer, e)
	}
	var out []api.ShardAppended
	for _, r := range a.Shards {
		if r.Shard >= Shards {
			return nil, dataflow.Errorf(dataflow.ReasonRowInvalid, "there is no shard %d", r.Shard)
		}
		x, err := s.shards[r.Shard].numbered(a.Producer, r)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return done{out}, nil
}

// plainLocked spreads single rows over the shards in turn.
func (f *Fake) plainLocked(s *stream, a api.Append) (api.Pending, error) {
	h := fnv.New64a()
	_, _ = h.Write(batch.Encode(nil, a.Rows)) // hashing does not fail
	if k, ok := f.mu.keys[a.IdempotencyKey]; ok && a.IdempotencyKey != "" {
		if k.digest != h.Sum64() {
			return nil, dataflow.Errorf(dataflow.ReasonIdempotencyKeyReused, "the key came with other rows")
		}
		again := slices.Clone(k.answer)
		for i := range again {
			again[i].Duplicate = true
		}
		return done{again}, nil
	}
	var out []api.ShardAppended
	for sh := range min(Shards, a.Rows.N) {
		d := &s.shards[sh]
		x := api.ShardAppended{Shard: dataflow.ShardID(sh), First: dataflow.Offset(len(d.rows)), AppendTime: 1}
		for i := sh; i < a.Rows.N; i += Shards {
			d.rows = append(d.rows, a.Rows.Slice(i, i+1))
			x.Rows++
		}
		x.Next = dataflow.Offset(len(d.rows))
		out = append(out, x)
	}
	if a.IdempotencyKey != "" {
		f.mu.keys[a.IdempotencyKey] = keyed{h.Sum64(), out}
	}
	return done{out}, nil
}

// numbered follows P8.
func (d *shard) numbered(producer string, r api.ShardRows) (api.ShardAppended, error) {
	last, n := d.last[producer], dataflow.Seq(r.Rows.N)
	x := api.ShardAppended{Shard: r.Shard, First: dataflow.Offset(len(d.rows)), Rows: r.Rows.N, LastSeq: last, AppendTime: 1}
	switch {
	case r.First > last+1:
		return x, dataflow.Errorf(dataflow.ReasonOutOfOrder, "shard %d wants %d, got %d", r.Shard, last+1, r.First)
	case r.First+n-1 <= last:
		x.Duplicate, x.Next = true, dataflow.Offset(len(d.rows))
		return x, nil
	case r.First <= last:
		x.Overlap, x.Next = true, x.First
		return x, nil
	}
	for i := range r.Rows.N {
		d.rows = append(d.rows, r.Rows.Slice(i, i+1))
	}
	d.last[producer] = r.First + n - 1
	x.LastSeq, x.Next = d.last[producer], dataflow.Offset(len(d.rows))
	return x, nil
}

// OpenProducer implements api.Ingest.
func (f *Fake) OpenProducer(_ context.Context, s *api.Stream, producer string) (api.ProducerOpened, error) {
	if err := f.enter(); err != nil {
		return api.ProducerOpened{}, err
	}
	defer f.mu.Unlock()
	f.mu.epochs[producer]++
	o := api.ProducerOpened{Epoch: f.mu.epochs[producer], Shards: Shards, Last: make(map[dataflow.ShardID]dataflow.Seq)}
	for i := range f.mu.streams[s.Name].shards {
		if last := f.mu.streams[s.Name].shards[i].last[producer]; last > 0 {
			o.Last[dataflow.ShardID(i)] = last
		}
	}
	return o, nil
}

// Extent implements api.StreamReader.
func (f *Fake) Extent(_ context.Context, s *api.Stream) (api.StreamExtent, error) {
	if err := f.enter(); err != nil {
		return api.StreamExtent{}, err
	}
	defer f.mu.Unlock()
	var x api.StreamExtent
	for i := range f.mu.streams[s.Name].shards {
		n := len(f.mu.streams[s.Name].shards[i].rows)
		x.Shards = append(x.Shards, api.ShardExtent{Shard: dataflow.ShardID(i), End: dataflow.Offset(n), Bytes: int64(n)})
	}
	x.Holders = []api.StreamHolder{{Pipeline: "p", State: f.mu.state, Rows: 1, Bytes: 1}}
	return x, nil
}

// ReadStream implements api.StreamReader.
func (f *Fake) ReadStream(ctx context.Context, r api.StreamRead, fn func(*batch.Batch) error) (dataflow.Positions, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	shards := f.mu.streams[r.Stream.Name].shards
	f.mu.Unlock()
	end, left := make(dataflow.Positions), r.Limit
	for i := range shards {
		sh := dataflow.ShardID(i)
		from, named := r.From[sh]
		if r.Only && !named {
			continue
		}
		for off := from; int(off) < len(shards[i].rows) && !r.Latest; off++ {
			if r.Limit > 0 && left == 0 {
				return end, nil
			}
			left--
			b := *shards[i].rows[off]
			b.Shard, b.FirstOffset, b.AppendTime = sh, off, []int64{1}
			if err := fn(&b); err != nil {
				return nil, err
			}
			end[dataflow.StreamShard{Stream: r.Stream.ID, Shard: sh}] = off + 1
		}
	}
	if r.Follow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return end, nil
}

func (f *Fake) tableLocked(pipeline, table string) (*Table, error) {
	t := f.mu.tables[pipeline+"."+table]
	if t == nil {
		return nil, dataflow.Errorf(dataflow.ReasonTableNotFound, "pipeline %s has no table %s", pipeline, table).WithMeta("table", table)
	}
	return t, nil
}

func (f *Fake) cutLocked(pipeline string, o dataflow.ReadOptions) dataflow.Cut {
	return dataflow.Cut{
		Pipeline: pipeline, UID: 1, Timeline: 1, Checkpoint: 42, Incarnation: 3, Guarantee: dataflow.GuaranteeExactlyOnce, TriggeredAt: 1, CommittedAt: 2,
		AgeMillis: 7, Positions: dataflow.Positions{{Stream: 1, Shard: 0}: 5}, BehindRows: 2, BehindMillis: 9,
		Speculative: o.Isolation == dataflow.ReadUncommitted, Node: "n1", Role: "leader", State: f.mu.state,
		Session: dataflow.SessionToken{Group: group, Pipeline: 1, Timeline: 1, Checkpoint: 42},
	}
}

// find returns the number of the row with the key, -1 when there is none.
func (t *Table) find(key dataflow.Row) (int, error) {
	if len(key) != t.KeyCols {
		return 0, dataflow.Errorf(dataflow.ReasonKeyInvalid, "the key has %d columns, got %d values", t.KeyCols, len(key))
	}
	want := make([]string, len(key))
	for i, v := range key {
		switch {
		case v.Null:
			want[i] = "NULL"
		case v.Type == dataflow.TypeUnknown:
			p, err := expr.ParseValue(t.Rows.Schema[i].Type, v.Str)
			if err != nil {
				return 0, dataflow.Errorf(dataflow.ReasonKeyInvalid, "key column %s: %v", t.Rows.Schema[i].Name, err)
			}
			want[i] = "=" + expr.FormatValue(p)
		default:
			want[i] = "=" + expr.FormatValue(v)
		}
	}
	for r := range t.Rows.N {
		same := true
		for i := range key {
			got := "NULL"
			if !t.Rows.Cols[i].IsNull(r) {
				got = "=" + expr.FormatValue(t.Rows.Cols[i].Value(r))
			}
			same = same && got == want[i]
		}
		if same {
			return r, nil
		}
	}
	return -1, nil
}

// Get implements api.Queries.
func (f *Fake) Get(_ context.Context, pipeline, table string, key dataflow.Row, o dataflow.ReadOptions) (*batch.Batch, dataflow.Cut, error) {
	if err := f.enter(); err != nil {
		return nil, dataflow.Cut{}, err
	}
	defer f.mu.Unlock()
	t, err := f.tableLocked(pipeline, table)
	if err != nil {
		return nil, dataflow.Cut{}, err
	}
	i, err := t.find(key)
	if err != nil {
		return nil, dataflow.Cut{}, err
	}
	if i < 0 {
		return nil, f.cutLocked(pipeline, o), nil
	}
	return t.Rows.Slice(i, i+1), f.cutLocked(pipeline, o), nil
}

// BatchGet implements api.Queries.
func (f *Fake) BatchGet(_ context.Context, pipeline, table string, keys []dataflow.Row, o dataflow.ReadOptions) (*batch.Batch, []bool, dataflow.Cut, error) {
	if err := f.enter(); err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	defer f.mu.Unlock()
	t, err := f.tableLocked(pipeline, table)
	if err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	found, rows := make([]bool, len(keys)), []int32(nil)
	for k, key := range keys {
		i, err := t.find(key)
		if err != nil {
			return nil, nil, dataflow.Cut{}, err
		}
		if found[k] = i >= 0; found[k] {
			rows = append(rows, int32(i))
		}
	}
	return t.Rows.Select(append([]int32{}, rows...)), found, f.cutLocked(pipeline, o), nil
}

// BatchGetColumns implements api.Queries.
func (f *Fake) BatchGetColumns(ctx context.Context, pipeline, table string, keys *batch.Batch, o dataflow.ReadOptions) (*batch.Batch, []bool, dataflow.Cut, error) {
	rows := make([]dataflow.Row, keys.N)
	for i := range rows {
		for _, c := range keys.Cols {
			rows[i] = append(rows[i], c.Value(i))
		}
	}
	return f.BatchGet(ctx, pipeline, table, rows, o)
}

// Scan implements api.Queries. Its page token is the number of the next row; its bounds are on the first column as text.
func (f *Fake) Scan(_ context.Context, pipeline, table string, r dataflow.ScanRange, p dataflow.Page, o dataflow.ReadOptions) (*batch.Batch, string, dataflow.Cut, error) {
	if err := f.enter(); err != nil {
		return nil, "", dataflow.Cut{}, err
	}
	defer f.mu.Unlock()
	t, err := f.tableLocked(pipeline, table)
	if err != nil {
		return nil, "", dataflow.Cut{}, err
	}
	start := 0
	if p.Token != "" {
		if _, err := fmt.Sscan(p.Token, &start); err != nil {
			return nil, "", dataflow.Cut{}, dataflow.Errorf(dataflow.ReasonTokenInvalid, "the page token is damaged")
		}
	}
	limit := p.Limit
	if limit == 0 {
		limit = 1000
	}
	var sel []int32
	next := ""
	for i := start; i < t.Rows.N; i++ {
		first := expr.FormatValue(t.Rows.Cols[0].Value(i))
		if r.From != nil && first < r.From.Str || r.To != nil && first >= r.To.Str || len(first) < len(r.Prefix) || first[:len(r.Prefix)] != r.Prefix {
			continue
		}
		if p.AtMost > 0 && int64(len(sel)) == p.AtMost {
			break
		}
		if len(sel) == limit {
			next = fmt.Sprint(i)
			break
		}
		sel = append(sel, int32(i))
	}
	return t.Rows.Select(append([]int32{}, sel...)), next, f.cutLocked(pipeline, o), nil
}

// Query implements api.Queries: it answers with all rows of the only table.
func (f *Fake) Query(_ context.Context, sql string, _ dataflow.Page, o dataflow.ReadOptions) (*batch.Batch, string, dataflow.Cut, error) {
	if err := f.enter(); err != nil {
		return nil, "", dataflow.Cut{}, err
	}
	defer f.mu.Unlock()
	for _, t := range f.mu.tables {
		return t.Rows, "", f.cutLocked("p", o), nil
	}
	return nil, "", dataflow.Cut{}, dataflow.Errorf(dataflow.ReasonSQLSyntax, "cannot run %.20q", sql)
}

// Explain implements api.Queries: every query is a scan on node n1, and shard 1 is node n2's.
func (f *Fake) Explain(_ context.Context, _ string, o dataflow.ReadOptions) (*batch.Batch, *dataflow.Explanation, dataflow.Cut, error) {
	if err := f.enter(); err != nil {
		return nil, nil, dataflow.Cut{}, err
	}
	defer f.mu.Unlock()
	plan := batch.NewBatch(dataflow.Schema{{Name: "plan", Type: dataflow.TypeText, NotNull: true}})
	plan.AppendRow(dataflow.Row{dataflow.Text("scan t")})
	return plan, &dataflow.Explanation{Node: "n1", Isolation: o.Isolation, Why: "it was asked", Shards: []dataflow.ShardRead{
		{Shard: 0, Node: "n1", Source: dataflow.LiveHere, Why: "here"}, {Shard: 1, Node: "n2", Source: dataflow.LiveRemote, Why: "there"},
	}}, f.cutLocked("p", o), nil
}

// Watch implements api.Queries: a snapshot of the table, then a cut in which its first row is deleted; then nothing.
func (f *Fake) Watch(ctx context.Context, w dataflow.Watch, fn func(*dataflow.WatchEvent) error) error {
	if err := f.enter(); err != nil {
		return err
	}
	t, err := f.tableLocked(w.Pipeline, w.Table)
	cut := f.cutLocked(w.Pipeline, dataflow.ReadOptions{Isolation: w.Isolation})
	f.mu.Unlock()
	if err != nil {
		return err
	}
	if w.Resume == nil {
		ev := &dataflow.WatchEvent{Snapshot: true, EndOfCut: true, Cut: &cut}
		for i := range t.Rows.N {
			ev.Changes = append(ev.Changes, dataflow.WatchChange{Key: t.rowJSON(i, t.KeyCols), Row: t.rowJSON(i, len(t.Rows.Cols)), Checkpoint: cut.Checkpoint})
		}
		if err := fn(ev); err != nil {
			return err
		}
	}
	next := cut
	next.Checkpoint++
	next.Session.Checkpoint++
	if err := fn(&dataflow.WatchEvent{EndOfCut: true, Cut: &next, Changes: []dataflow.WatchChange{{Key: t.rowJSON(0, t.KeyCols), Checkpoint: next.Checkpoint}}}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// rowJSON writes the first cols columns of a row.
func (t *Table) rowJSON(i, cols int) []byte {
	out := []byte{'{'}
	for c, col := range t.Rows.Schema[:cols] {
		if c > 0 {
			out = append(out, ',')
		}
		out = append(expr.AppendTextJSON(out, col.Name), ':')
		out = expr.AppendCellJSON(out, t.Rows.Cols[c], i, false)
	}
	return append(out, '}')
}
