package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// maxReadWait bounds max_wait: a request must not hold its place for longer than anybody waits for it.
const maxReadWait = 10 * time.Minute

// minStaleness is the least that can be asked for: a node that does not lead must hear from those that do before it answers.
const minStaleness = 10 * time.Millisecond

// queryService implements weirv1.QueryServiceServer.
type queryService struct {
	weirv1.UnimplementedQueryServiceServer
	b     Backends
	names *namer
	group dataflow.GroupID
	// readers waits for the goroutines that send to watchers.
	readers *readers
}

// readRequest is what every read's message has.
type readRequest interface {
	GetIsolation() weirv1.Read
	GetMinToken() string
	GetSessionToken() string
	GetMaxWait() *durationpb.Duration
	GetMaxStaleness() *durationpb.Duration
	GetNumbers() weirv1.Numbers
}

// options checks what every read has. checkpoint is nil when it is not set.
func (s *queryService) options(r readRequest, checkpoint *uint64) (dataflow.ReadOptions, error) {
	var o dataflow.ReadOptions
	switch r.GetIsolation() {
	case weirv1.Read_READ_UNSPECIFIED, weirv1.Read_READ_COMMITTED:
	case weirv1.Read_READ_UNCOMMITTED:
		o.Isolation = dataflow.ReadUncommitted
	default:
		return o, invalid("isolation", "%d is not READ_COMMITTED or READ_UNCOMMITTED", r.GetIsolation())
	}
	if err := checkNumbers(r.GetNumbers()); err != nil {
		return o, err
	}
	if t := r.GetMinToken(); t != "" {
		tok, err := dataflow.ParseToken(t, s.group)
		if err != nil {
			return o, err
		}
		o.Min = tok.Positions
	}
	if t := r.GetSessionToken(); t != "" {
		tok, err := dataflow.ParseSessionToken(t, s.group)
		if err != nil {
			return o, err
		}
		o.Session = &tok
	}
	var err error
	if o.MaxWait, err = checkWait(r.GetMaxWait()); err != nil {
		return o, err
	}
	if o.MaxStaleness, err = checkStaleness(r.GetMaxStaleness()); err != nil {
		return o, err
	}
	if checkpoint != nil {
		if o.Isolation != dataflow.ReadCommitted {
			return o, invalid("checkpoint_id", "is for READ_COMMITTED: live state belongs to no checkpoint")
		}
		if o.MaxStaleness > 0 {
			return o, invalid("max_staleness", "is for the newest cut; checkpoint_id names one, however old it is")
		}
		id := dataflow.CheckpointID(*checkpoint)
		o.Checkpoint = &id
	}
	return o, nil
}

func checkNumbers(n weirv1.Numbers) error {
	if _, ok := weirv1.Numbers_name[int32(n)]; !ok {
		return invalid("numbers", "%d is not NUMBERS_JSON or NUMBERS_STRING", n)
	}
	return nil
}

func checkWait(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, invalid("max_wait", "is out of range")
	}
	switch w := d.AsDuration(); {
	case w < 0:
		return 0, invalid("max_wait", "%s is negative", w)
	default:
		return min(w, maxReadWait), nil
	}
}

// checkStaleness returns how stale an answer may be; 0 = unsaid.
func checkStaleness(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, invalid("max_staleness", "is out of range")
	}
	switch s := d.AsDuration(); {
	case s < 0:
		return 0, invalid("max_staleness", "%s is negative", s)
	case s > 0 && s < minStaleness:
		return 0, invalid("max_staleness", "%s is less than %s, which asking the others takes", s, minStaleness)
	default:
		return s, nil
	}
}

func checkTable(pipeline, table string) error {
	if err := checkName("pipeline", pipeline); err != nil {
		return err
	}
	return checkName("table", table)
}

// checkPage clamps a limit as AIP-158 has it: too much is the most there is, negative is wrong.
func checkPage(limit int32, token string) (dataflow.Page, error) {
	if limit < 0 {
		return dataflow.Page{}, invalid("limit", "%d is negative", limit)
	}
	return dataflow.Page{Limit: min(int(limit), dataflow.MaxPageRows), Token: token}, nil
}

// checkKey converts a key, or a part of one, and bounds it before anything is computed from it.
func checkKey(field string, k *weirv1.Key) (dataflow.Row, error) {
	size := 0
	for _, v := range k.GetValues() {
		size += 1 + len(v.GetText()) + len(v.GetLiteral()) + len(v.GetNumeric())
	}
	if size > dataflow.MaxKeyBytes {
		return nil, wrong(dataflow.ReasonTooLarge, field, "a key of %d bytes is over the limit of %d", size, dataflow.MaxKeyBytes)
	}
	row, err := wire.KeyFrom(k)
	if err != nil {
		return nil, err
	}
	return row, nil
}

// failed adds the cut to an error, when there is one.
func (s *queryService) failed(err error, cut dataflow.Cut) error {
	if c := s.names.cut(&cut); c != nil {
		return &cutError{err: err, cut: c}
	}
	return err
}

// Get implements weirv1.QueryServiceServer.
func (s *queryService) Get(ctx context.Context, r *weirv1.GetRequest) (*weirv1.GetResponse, error) {
	if err := checkTable(r.GetPipeline(), r.GetTable()); err != nil {
		return nil, err
	}
	o, err := s.options(r, r.CheckpointId)
	if err != nil {
		return nil, err
	}
	key, err := checkKey("key", r.GetKey())
	if err != nil {
		return nil, err
	}
	b, cut, err := s.b.Queries.Get(ctx, r.GetPipeline(), r.GetTable(), key, o)
	if err != nil {
		return nil, s.failed(err, cut)
	}
	if b == nil || b.N == 0 {
		return nil, s.failed(dataflow.Errorf(dataflow.ReasonRowNotFound, "table %s.%s has no row with this key", r.GetPipeline(), r.GetTable()), cut)
	}
	return &weirv1.GetResponse{Row: wire.AppendRowJSON(nil, b, 0, r.GetNumbers()), Cut: s.names.cut(&cut)}, nil
}

// BatchGet implements weirv1.QueryServiceServer.
func (s *queryService) BatchGet(ctx context.Context, r *weirv1.BatchGetRequest) (*weirv1.BatchGetResponse, error) {
	if err := checkTable(r.GetPipeline(), r.GetTable()); err != nil {
		return nil, err
	}
	o, err := s.options(r, r.CheckpointId)
	if err != nil {
		return nil, err
	}
	rows, found, cut, err := s.lookUp(ctx, r, o)
	if err != nil {
		return nil, s.failed(err, cut)
	}
	if r.GetPacked() {
		return &weirv1.BatchGetResponse{PackedRows: wire.PackedRowsJSON(rows, found, r.GetNumbers()), Cut: s.names.cut(&cut)}, nil
	}
	m := &weirv1.BatchGetResponse{Rows: make([][]byte, len(found)), Cut: s.names.cut(&cut)}
	texts := wire.RowsJSON(rows, r.GetNumbers())
	for i, ok := range found {
		if ok {
			m.Rows[i], texts = texts[0], texts[1:]
		}
	}
	return m, nil
}

// lookUp looks up the keys of a request, however they are given.
func (s *queryService) lookUp(ctx context.Context, r *weirv1.BatchGetRequest, o dataflow.ReadOptions) (*batch.Batch, []bool, dataflow.Cut, error) {
	field, n := "keys", len(r.GetKeys())
	columns := r.GetKeyColumns()
	if columns != nil {
		if n > 0 {
			return nil, nil, dataflow.Cut{}, invalid("key_columns", "is instead of keys, which are there too")
		}
		field, n = "key_columns", int(columns.GetRows())
	}
	if n > dataflow.MaxBatchGetKeys {
		return nil, nil, dataflow.Cut{}, wrong(dataflow.ReasonTooLarge, field, "%d keys are over the limit of %d", n, dataflow.MaxBatchGetKeys)
	}
	if columns != nil {
		keys, err := wire.KeysFrom(ctx, columns, field)
		if err != nil {
			return nil, nil, dataflow.Cut{}, err
		}
		return s.b.Queries.BatchGetColumns(ctx, r.GetPipeline(), r.GetTable(), keys, o)
	}
	keys := make([]dataflow.Row, n)
	var err error
	for i, k := range r.GetKeys() {
		if keys[i], err = checkKey(field, k); err != nil {
			return nil, nil, dataflow.Cut{}, err
		}
	}
	return s.b.Queries.BatchGet(ctx, r.GetPipeline(), r.GetTable(), keys, o)
}

// Scan implements weirv1.QueryServiceServer.
func (s *queryService) Scan(ctx context.Context, r *weirv1.ScanRequest) (*weirv1.ScanResponse, error) {
	if err := checkTable(r.GetPipeline(), r.GetTable()); err != nil {
		return nil, err
	}
	o, err := s.options(r, r.CheckpointId)
	if err != nil {
		return nil, err
	}
	page, err := checkPage(r.GetLimit(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	if page.AtMost = r.GetAtMost(); page.AtMost < 0 {
		return nil, invalid("at_most", "%d is negative", page.AtMost)
	}
	rng, err := scanRange(r)
	if err != nil {
		return nil, err
	}
	rows, next, cut, err := s.b.Queries.Scan(ctx, r.GetPipeline(), r.GetTable(), rng, page, o)
	if err != nil {
		return nil, s.failed(err, cut)
	}
	return &weirv1.ScanResponse{Rows: wire.RowsJSON(rows, r.GetNumbers()), Cut: s.names.cut(&cut), NextPageToken: next}, nil
}

// rangeRequest is what a message has that names a range of keys.
type rangeRequest interface {
	GetEqual() *weirv1.Key
	GetPrefix() string
	GetFrom() *weirv1.Value
	GetTo() *weirv1.Value
}

func scanRange(r rangeRequest) (dataflow.ScanRange, error) {
	rng := dataflow.ScanRange{Prefix: r.GetPrefix()}
	if len(rng.Prefix) > dataflow.MaxKeyBytes {
		return rng, wrong(dataflow.ReasonTooLarge, "prefix", "%d bytes are over the limit of %d for a key", len(rng.Prefix), dataflow.MaxKeyBytes)
	}
	var err error
	if rng.Equal, err = checkKey("equal", r.GetEqual()); err != nil {
		return rng, err
	}
	for _, bound := range []struct {
		field string
		m     *weirv1.Value
		v     **dataflow.Value
	}{{"from", r.GetFrom(), &rng.From}, {"to", r.GetTo(), &rng.To}} {
		if bound.m == nil {
			continue
		}
		row, err := checkKey(bound.field, &weirv1.Key{Values: []*weirv1.Value{bound.m}})
		if err != nil {
			return rng, err
		}
		*bound.v = &row[0]
	}
	return rng, nil
}

// Query implements weirv1.QueryServiceServer.
func (s *queryService) Query(ctx context.Context, r *weirv1.QueryRequest) (*weirv1.QueryResponse, error) {
	o, err := s.options(r, r.CheckpointId)
	if err != nil {
		return nil, err
	}
	page, err := checkPage(r.GetLimit(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	if err := checkSQL(r.GetSql()); err != nil {
		return nil, err
	}
	if r.GetExplain() {
		return s.explain(ctx, r, page, o)
	}
	rows, next, cut, err := s.b.Queries.Query(ctx, r.GetSql(), page, o)
	if err != nil {
		return nil, s.failed(err, cut)
	}
	return &weirv1.QueryResponse{Columns: wire.Columns(rows.Schema), Rows: wire.RowsJSON(rows, r.GetNumbers()), Cut: s.names.cut(&cut), NextPageToken: next}, nil
}

// explain answers a request that says explain.
func (s *queryService) explain(ctx context.Context, r *weirv1.QueryRequest, page dataflow.Page, o dataflow.ReadOptions) (*weirv1.QueryResponse, error) {
	if page.Token != "" {
		return nil, invalid("page_token", "continues a query, and an explanation has one page")
	}
	rows, x, cut, err := s.b.Queries.Explain(ctx, r.GetSql(), o)
	if err != nil {
		return nil, s.failed(err, cut)
	}
	return &weirv1.QueryResponse{
		Columns: wire.Columns(rows.Schema), Rows: wire.RowsJSON(rows, r.GetNumbers()), Cut: s.names.cut(&cut), Explanation: explanationMessage(x),
	}, nil
}

func explanationMessage(x *dataflow.Explanation) *weirv1.Explanation {
	if x == nil {
		return nil
	}
	m := &weirv1.Explanation{Node: x.Node, Isolation: weirv1.Read_READ_COMMITTED, Why: x.Why}
	if x.Isolation == dataflow.ReadUncommitted {
		m.Isolation = weirv1.Read_READ_UNCOMMITTED
	}
	for _, sh := range x.Shards {
		source := weirv1.ShardSource_SHARD_SOURCE_LOCAL_COPY
		switch sh.Source {
		case dataflow.LiveHere:
			source = weirv1.ShardSource_SHARD_SOURCE_LIVE_HERE
		case dataflow.LiveRemote:
			source = weirv1.ShardSource_SHARD_SOURCE_LIVE_REMOTE
		}
		m.Shards = append(m.Shards, &weirv1.ShardRead{Shard: uint32(sh.Shard), Node: sh.Node, Source: source, Why: sh.Why})
	}
	return m
}

func checkSQL(sql string) error {
	switch {
	case sql == "":
		return invalid("sql", "is missing")
	case len(sql) > dataflow.MaxSQLBytes:
		return wrong(dataflow.ReasonTooLarge, "sql", "%d bytes are over the limit of %d", len(sql), dataflow.MaxSQLBytes)
	}
	return nil
}
