package killtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// errAway says that no answer came for a reason that a killed server explains.
var errAway = errors.New("no answer")

// explain sorts the errors of calls: errAway, or what broke K7. Errors whose reason is admitted are errAway too.
func explain(what string, err error, admitted ...dataflow.Reason) error {
	var broken *violationError
	if errors.As(err, &broken) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errAway
	}
	var e *dataflow.Error
	if !errors.As(err, &e) {
		st, ok := status.FromError(err)
		if !ok {
			return fmt.Errorf("%s: %w", what, err)
		}
		if e, _, ok = wire.ErrorOf(st.Proto()); !ok {
			switch st.Code() {
			case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
				return errAway
			}
			return violation("K7: %s: %s", what, err)
		}
	}
	switch e.Reason.Kind() {
	case dataflow.KindUnavailable, dataflow.KindUnknown, dataflow.KindOverloaded, dataflow.KindDeadline:
		return errAway
	}
	for _, r := range admitted {
		if e.Reason == r {
			return errAway
		}
	}
	return violation("K7: %s: %s: %v", what, e.Reason, e)
}

// reader asks for random rows of random tables until its context ends.
type reader struct {
	name   string
	rng    *rand.Rand
	book   *book
	tables []*table
	audits map[string]*audit
	ask    asker
	live   bool
	// slow readers only scan whole tables, with a pause between pages.
	slow bool
}

// asker is a way to read. The rows of a scan are all of one cut.
type asker interface {
	get(ctx context.Context, t *table, key dataflow.Row, checkpoint *uint64) (text []byte, cut *weirv1.Cut, err error)
	batchGet(ctx context.Context, t *table, keys []dataflow.Row) (texts [][]byte, cut *weirv1.Cut, err error)
	scan(ctx context.Context, t *table, r weir.ScanRange, limit int) (texts [][]byte, cut *weirv1.Cut, err error)
	query(ctx context.Context, sql string) (text []byte, cut *weirv1.Cut, err error)
}

// run reads until ctx ends or something is wrong.
func (r *reader) run(ctx context.Context) error {
	for ctx.Err() == nil {
		t := r.tables[r.rng.IntN(len(r.tables))]
		call, cancel := context.WithTimeout(ctx, patience)
		err := r.once(call, t)
		cancel()
		if err != nil && !errors.Is(err, errAway) && ctx.Err() == nil {
			return fmt.Errorf("reader %s: %w", r.name, err)
		}
		pause := time.Duration(r.rng.IntN(40)) * time.Millisecond
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

func (r *reader) once(ctx context.Context, t *table) error {
	a := r.audits[t.pipeline]
	if r.slow {
		return r.scan(ctx, t, a, weir.ScanRange{}, "slow scan", slowPage, anyKey)
	}
	switch n := r.rng.IntN(20); {
	case n < 6:
		return r.getOne(ctx, t, a)
	case n < 10:
		return r.getMany(ctx, t, a)
	case n < 14:
		return r.scanPart(ctx, t, a)
	case n < 18:
		return r.total(ctx, t, a)
	case n < 19:
		return r.getOld(ctx, t, a)
	}
	return r.scanAll(ctx, t, a)
}

// take hands an answer with these rows to the audit. asked says which keys were asked for.
func (r *reader) take(t *table, a *audit, before marks, cut *weirv1.Cut, what string, rows []row, asked func(string) bool) error {
	what = fmt.Sprintf("%s: %s %s: %d rows", r.name, t, what, len(rows))
	if !r.live {
		return a.takeCommitted(before, cut, what, func(m model) error { return compareRows(t, m, rows, asked) })
	}
	if t.grows < 0 {
		return a.takeLive(before, cut, what, nil, nil)
	}
	got := make(map[string]int64, len(rows))
	for _, row := range rows {
		got[row.key] = row.grown
	}
	return a.takeLive(before, cut, what,
		func(m model) error {
			for key := range m.keys(t.name) {
				if asked(key) && got[key] < m.grown(t.name, key) {
					return fmt.Errorf("key %s has %d, the cut %d", key, got[key], m.grown(t.name, key))
				}
			}
			return nil
		},
		func(m model) error {
			for key, n := range got {
				if n > m.grown(t.name, key) {
					return fmt.Errorf("key %s has %d, the log %d", key, n, m.grown(t.name, key))
				}
			}
			return nil
		})
}

func parseRows(t *table, texts [][]byte) ([]row, error) {
	rows := make([]row, 0, len(texts))
	for _, text := range texts {
		if len(text) == 0 {
			continue
		}
		row, err := t.parse(text)
		if err != nil {
			return nil, violation("K3: %v", err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (r *reader) getOne(ctx context.Context, t *table, a *audit) error {
	before := a.marks()
	key, want := r.key(t)
	return r.takeGet(ctx, t, a, before, key, want, nil)
}

// getOld reads a cut that was seen a little earlier, which may or may not be kept.
func (r *reader) getOld(ctx context.Context, t *table, a *audit) error {
	if r.live {
		return nil
	}
	id, ok := a.anyCut(func(uint64) uint64 { return r.rng.Uint64N(100) })
	if !ok {
		return nil
	}
	key, want := r.key(t)
	return r.takeGet(ctx, t, a, marks{}, key, want, &id)
}

func (r *reader) takeGet(ctx context.Context, t *table, a *audit, before marks, key dataflow.Row, want string, checkpoint *uint64) error {
	what := "get " + want
	text, cut, err := r.ask.get(ctx, t, key, checkpoint)
	if err != nil {
		return explain(what, err, dataflow.ReasonCheckpointExpired, dataflow.ReasonCheckpointNotFound)
	}
	if checkpoint != nil {
		what = fmt.Sprintf("%s at %d", what, *checkpoint)
		if cut.GetCheckpointId() != *checkpoint {
			return violation("K3: %s: the answer is from cut %d", what, cut.GetCheckpointId())
		}
	}
	rows, err := parseRows(t, [][]byte{text})
	if err != nil {
		return err
	}
	return r.take(t, a, before, cut, what, rows, func(key string) bool { return key == want })
}

func (r *reader) getMany(ctx context.Context, t *table, a *audit) error {
	before := a.marks()
	asked := make(map[string]bool)
	var keys []dataflow.Row
	for range 1 + r.rng.IntN(20) {
		key, text := r.key(t)
		if !asked[text] {
			asked[text] = true
			keys = append(keys, key)
		}
	}
	texts, cut, err := r.ask.batchGet(ctx, t, keys)
	if err != nil {
		return explain("batchGet", err)
	}
	if len(texts) != len(keys) {
		return violation("K3: %s: batchGet of %d keys answers %d", t, len(keys), len(texts))
	}
	rows, err := parseRows(t, texts)
	if err != nil {
		return err
	}
	return r.take(t, a, before, cut, fmt.Sprintf("batchGet of %d", len(keys)), rows, func(key string) bool { return asked[key] })
}

func (r *reader) scanAll(ctx context.Context, t *table, a *audit) error {
	return r.scan(ctx, t, a, weir.ScanRange{}, "scan", 500+r.rng.IntN(4000), anyKey)
}

// scanPart scans what a prefix of the key, or of its first text, admits.
func (r *reader) scanPart(ctx context.Context, t *table, a *audit) error {
	key, text := r.key(t)
	if t.keys > 1 {
		first, _, _ := strings.Cut(text, "|")
		if i := strings.LastIndex(text, `"|`); i >= 0 { // a country may have a bar in its name
			first = text[:i+1]
		}
		return r.scan(ctx, t, a, weir.ScanRange{Equal: key[:1]}, "scan of "+first, 1000,
			func(k string) bool { return strings.HasPrefix(k, first+"|") })
	}
	if key[0].Type != dataflow.TypeText {
		from := r.rng.Int64N(items)
		to := from + r.rng.Int64N(items)
		s := weir.ScanRange{From: new(dataflow.BigInt(from)), To: new(dataflow.BigInt(to))}
		return r.scan(ctx, t, a, s, fmt.Sprintf("scan from %d to %d", from, to), 1000,
			func(k string) bool { n, err := strconv.ParseInt(k, 10, 64); return err == nil && n >= from && n < to })
	}
	_, size := utf8.DecodeRuneInString(key[0].Str)
	prefix := key[0].Str[:size]
	return r.scan(ctx, t, a, weir.ScanRange{Prefix: prefix}, "scan of "+prefix+"…", 1000,
		func(k string) bool { return strings.HasPrefix(k, `"`+prefix) })
}

func (r *reader) scan(ctx context.Context, t *table, a *audit, s weir.ScanRange, what string, limit int, asked func(string) bool) error {
	before := a.marks()
	if r.live {
		limit = 10_000 // live pages are not of one cut
	}
	texts, cut, err := r.ask.scan(ctx, t, s, limit)
	if err != nil {
		return explain(what, err)
	}
	rows, err := parseRows(t, texts)
	if err != nil {
		return err
	}
	return r.take(t, a, before, cut, what, rows, asked)
}

func (r *reader) total(ctx context.Context, t *table, a *audit) error {
	before := a.marks()
	text, cut, err := r.ask.query(ctx, t.totalsSQL)
	if err != nil {
		return explain(t.totalsSQL, err)
	}
	parts, err := parseColumns(totalsColumns, text)
	if err != nil {
		return violation("K3: %s: %v", t.totalsSQL, err)
	}
	got := strings.Join(parts, "|")
	what := fmt.Sprintf("%s: %s: %s", r.name, t.totalsSQL, got)
	if !r.live {
		return a.takeCommitted(before, cut, what, func(m model) error {
			if want := m.totals(t.name); got != want {
				return fmt.Errorf("it must be %s", want)
			}
			return nil
		})
	}
	if t.grows < 0 {
		return a.takeLive(before, cut, what, nil, nil)
	}
	within := func(less bool) func(model) error {
		return func(m model) error {
			want := strings.Split(m.totals(t.name), "|")
			for i := range parts {
				g, w := count(parts[i]), count(want[i])
				if less && g < w || !less && g > w {
					return fmt.Errorf("%s, the model has %s", got, strings.Join(want, "|"))
				}
			}
			return nil
		}
	}
	return a.takeLive(before, cut, what, within(true), within(false))
}

func count(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // NULL is 0
	return n
}

// key returns a random key of a table, which there may or may not be a row for, and its text.
func (r *reader) key(t *table) (dataflow.Row, string) {
	switch t.name {
	case "counts":
		word := "zounds"
		if words := r.book.words[r.rng.IntN(len(r.book.words))]; len(words) > 0 {
			word, _ = strconv.Unquote(words[r.rng.IntN(len(words))])
		}
		return dataflow.Row{dataflow.Text(word)}, strconv.Quote(word)
	case "by_day":
		country, c := r.country()
		if r.rng.IntN(15) == 0 {
			return dataflow.Row{country, dataflow.NullValue(dataflow.TypeTimestamp)}, c + "|" + null
		}
		day := firstDay.AddDate(0, 0, r.rng.IntN(days+2))
		return dataflow.Row{country, dataflow.Timestamp(day.UnixMicro())}, c + "|" + keyTime(&day)
	case "by_item", "in_debt":
		country, c := r.country()
		if r.rng.IntN(15) == 0 {
			return dataflow.Row{dataflow.NullValue(dataflow.TypeBigInt), country}, null + "|" + c
		}
		item := int64(r.rng.IntN(items + 5))
		return dataflow.Row{dataflow.BigInt(item), country}, keyInt(&item) + "|" + c
	}
	if r.rng.IntN(15) == 0 {
		return dataflow.Row{dataflow.NullValue(dataflow.TypeBigInt)}, null
	}
	item := int64(r.rng.IntN(items + 5))
	return dataflow.Row{dataflow.BigInt(item)}, keyInt(&item)
}

func (r *reader) country() (dataflow.Value, string) {
	i := r.rng.IntN(len(countries) + 1)
	if i == len(countries) {
		return dataflow.NullValue(dataflow.TypeText), null
	}
	return dataflow.Text(countries[i]), strconv.Quote(countries[i])
}

// A slow scan takes longer than a cut is kept that nobody has leased: of 4,500 words about 14 s.
const (
	slowPage  = 700
	slowPause = 2 * time.Second
)

// plainAsker asks without a session, one call at a time.
type plainAsker struct {
	client    weirv1.QueryServiceClient
	isolation weirv1.Read
	pause     time.Duration // between the pages of a scan
}

func newPlainAsker(conn *grpc.ClientConn, isolation weirv1.Read) *plainAsker {
	return &plainAsker{client: weirv1.NewQueryServiceClient(conn), isolation: isolation}
}

func (p *plainAsker) get(ctx context.Context, t *table, key dataflow.Row, checkpoint *uint64) ([]byte, *weirv1.Cut, error) {
	r, err := p.client.Get(ctx, &weirv1.GetRequest{Pipeline: t.pipeline, Table: t.name, Key: wire.Key(key), Isolation: p.isolation, CheckpointId: checkpoint})
	if err != nil {
		return absent(err)
	}
	return r.GetRow(), r.GetCut(), nil
}

// absent turns ROW_NOT_FOUND, which carries a cut, into an answer without a row.
func absent(err error) ([]byte, *weirv1.Cut, error) {
	st, ok := status.FromError(err)
	if !ok {
		return nil, nil, err
	}
	e, cut, ok := wire.ErrorOf(st.Proto())
	if !ok || e.Reason != dataflow.ReasonRowNotFound {
		return nil, nil, err
	}
	if cut == nil {
		return nil, nil, violation("K3: ROW_NOT_FOUND without its cut: %v", err)
	}
	return nil, cut, nil
}

func (p *plainAsker) batchGet(ctx context.Context, t *table, keys []dataflow.Row) ([][]byte, *weirv1.Cut, error) {
	req := &weirv1.BatchGetRequest{Pipeline: t.pipeline, Table: t.name, Isolation: p.isolation}
	for _, k := range keys {
		req.Keys = append(req.Keys, wire.Key(k))
	}
	r, err := p.client.BatchGet(ctx, req)
	return r.GetRows(), r.GetCut(), err
}

func (p *plainAsker) scan(ctx context.Context, t *table, s weir.ScanRange, limit int) ([][]byte, *weirv1.Cut, error) {
	req := &weirv1.ScanRequest{Pipeline: t.pipeline, Table: t.name, Prefix: s.Prefix, Limit: int32(limit), Isolation: p.isolation}
	if s.Equal != nil {
		req.Equal = wire.Key(s.Equal)
	}
	if s.From != nil {
		req.From, req.To = wire.Value(*s.From), wire.Value(*s.To)
	}
	var rows [][]byte
	var cut *weirv1.Cut
	for {
		r, err := p.client.Scan(ctx, req)
		for err != nil && cut != nil && errors.Is(explain("page", err), errAway) && ctx.Err() == nil {
			// The server was killed between two pages: the rest is of the same cut all the same.
			r, err = p.client.Scan(ctx, req, grpc.WaitForReady(true))
		}
		if err != nil {
			return nil, nil, err
		}
		if cut != nil && r.GetCut().GetCheckpointId() != cut.GetCheckpointId() {
			return nil, nil, violation("K3: %s: a page of cut %d follows one of cut %d", t, r.GetCut().GetCheckpointId(), cut.GetCheckpointId())
		}
		cut = r.GetCut()
		rows = append(rows, r.GetRows()...)
		if req.PageToken = r.GetNextPageToken(); req.PageToken == "" {
			return rows, cut, nil
		}
		select {
		case <-time.After(p.pause):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func (p *plainAsker) query(ctx context.Context, sql string) ([]byte, *weirv1.Cut, error) {
	r, err := p.client.Query(ctx, &weirv1.QueryRequest{Sql: sql, Isolation: p.isolation})
	if err != nil {
		return nil, nil, err
	}
	if len(r.GetRows()) != 1 {
		return nil, nil, violation("K3: %s has %d rows", sql, len(r.GetRows()))
	}
	return r.GetRows()[0], r.GetCut(), nil
}

// sessionAsker asks through the client library, which passes the newest cut it has seen with every call (G3).
type sessionAsker struct{ c *weir.Client }

func (s *sessionAsker) get(ctx context.Context, t *table, key dataflow.Row, checkpoint *uint64) ([]byte, *weirv1.Cut, error) {
	o := weir.ReadOptions{}
	if checkpoint != nil {
		o.Checkpoint = new(dataflow.CheckpointID(*checkpoint))
	}
	r, err := s.c.Get(ctx, t.String(), key, o)
	if err != nil {
		if dataflow.ReasonOf(err) == dataflow.ReasonRowNotFound && weir.CutOf(err) != nil {
			return nil, weir.CutOf(err), nil
		}
		return nil, nil, err
	}
	return r.Row, r.Cut, nil
}

func (s *sessionAsker) batchGet(ctx context.Context, t *table, keys []dataflow.Row) ([][]byte, *weirv1.Cut, error) {
	r, err := s.c.BatchGet(ctx, t.String(), keys, weir.ReadOptions{})
	if err != nil {
		return nil, nil, err
	}
	return texts(r.Rows), r.Cut, nil
}

func texts(rows []weir.Row) [][]byte {
	out := make([][]byte, len(rows))
	for i, r := range rows {
		out[i] = r
	}
	return out
}

func (s *sessionAsker) scan(ctx context.Context, t *table, r weir.ScanRange, _ int) ([][]byte, *weirv1.Cut, error) {
	return collect(s.c.Scan(ctx, t.String(), r, weir.ReadOptions{}))
}

func (s *sessionAsker) query(ctx context.Context, sql string) ([]byte, *weirv1.Cut, error) {
	rows, cut, err := collect(s.c.Query(ctx, sql, weir.ReadOptions{}))
	if err != nil {
		return nil, nil, err
	}
	if len(rows) != 1 {
		return nil, nil, violation("K3: %s has %d rows", sql, len(rows))
	}
	return rows[0], cut, nil
}

func collect(rows *weir.Rows, err error) ([][]byte, *weirv1.Cut, error) {
	if err != nil {
		return nil, nil, err
	}
	var out [][]byte
	for r := range rows.All() {
		out = append(out, r)
	}
	return out, rows.Cut(), rows.Err()
}
