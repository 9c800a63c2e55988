package chaostest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// errAway says that no answer came for a reason that the faults explain.
var errAway = errors.New("no answer")

// explain sorts the errors of calls: errAway, or what broke C5. Errors whose reason is admitted are errAway too.
func explain(what string, err error, admitted ...dataflow.Reason) error {
	var broken *violationError
	if errors.As(err, &broken) {
		return err
	}
	e := reasonOf(err)
	if e == nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return errAway
		}
		switch status.Code(err) {
		case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
			return errAway
		}
		return violation("C5: %s: %v", what, err)
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
	return violation("C5: %s: %s: %v", what, e.Reason, e)
}

// reasonOf returns Weir's error in err, whether a client or gRPC has given it; nil when there is none.
func reasonOf(err error) *dataflow.Error {
	var e *dataflow.Error
	if errors.As(err, &e) {
		return e
	}
	if st, ok := status.FromError(err); ok && err != nil {
		if e, _, ok := wire.ErrorOf(st.Proto()); ok {
			return e
		}
	}
	return nil
}

// any returns a node that there is, at random, down or not.
func (w *world) any(rng *rand.Rand) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.present[rng.IntN(len(w.mu.present))]
}

// sender makes plain appends to the stream transfers, each with an idempotency key, through any node, and makes each again
// until it is answered.
type sender struct {
	w           *world
	name        string
	rng         *rand.Rand
	acked, sent atomic.Int64
	busy        atomic.Bool // an append is under way
	repeats     atomic.Int64
	duplicates  atomic.Int64 // rows that came again after they had been written
	token       string
}

func (s *sender) run(ctx context.Context) error {
	for ctx.Err() == nil && !s.w.done.Load() {
		r, err := s.append(ctx, 1+s.rng.Int64N(12), nil)
		if err != nil || r == nil {
			return err
		}
		if s.rng.IntN(4) == 0 {
			if err := s.readBack(ctx, r); err != nil && !errors.Is(err, errAway) {
				return err
			}
		}
		_ = pause.For(ctx, time.Duration(s.rng.IntN(60))*time.Millisecond) // the loop looks at ctx
	}
	return nil
}

// append sends so many rows until they are acknowledged, through node via or any; nil when ctx has ended.
func (s *sender) append(ctx context.Context, rows int64, via *node) (*weirv1.AppendResponse, error) {
	first := s.acked.Load() + 1
	var body []byte
	for i := range rows {
		b, err := json.Marshal(makeTransfer(s.name, first+i))
		if err != nil {
			return nil, err
		}
		body = append(append(body, b...), '\n')
	}
	s.sent.Store(first + rows - 1)
	key := fmt.Sprintf("%s-%d", s.name, first)
	s.busy.Store(true)
	defer s.busy.Store(false)
	for try := 0; ctx.Err() == nil; try++ {
		r, how, err := s.once(ctx, body, key, via)
		if err == nil {
			s.duplicates.Add(int64(r.GetDuplicates()))
			if got := int64(r.GetRows() + r.GetDuplicates()); got != rows {
				return nil, violation("C1: append %s of %d rows through %s: the answer says %d rows and %d duplicates", key, rows, how, r.GetRows(), r.GetDuplicates())
			}
			s.acked.Store(first + rows - 1)
			s.token = r.GetToken()
			s.w.history.log("%s: rows %d to %d acknowledged by %s, try %d, %d new", s.name, first, first+rows-1, how, try+1, r.GetRows())
			return r, nil
		}
		s.repeats.Add(1)
		if err := s.w.explainOf(how, "append through "+how, err); !errors.Is(err, errAway) {
			return nil, err
		}
		s.w.history.log("%s: rows %d to %d not acknowledged by %s: %s", s.name, first, first+rows-1, how, short(err))
		_ = pause.For(ctx, time.Duration(10+s.rng.IntN(50))*time.Millisecond) // the loop looks at ctx
	}
	return nil, nil
}

func (s *sender) once(ctx context.Context, body []byte, key string, via *node) (*weirv1.AppendResponse, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	if via == nil && s.rng.IntN(3) == 0 {
		r, err := s.w.client.Append(ctx, weir.Append{Stream: "transfers", JSON: body, IdempotencyKey: key})
		return r, "the client", err
	}
	if via == nil {
		via = s.w.any(s.rng)
	}
	r, err := weirv1.NewIngestServiceClient(via.conn).Append(ctx, &weirv1.AppendRequest{Stream: "transfers", JsonRows: body, IdempotencyKey: key})
	return r, via.name, err
}

// readBack asks any node with the token of an append: the answer's cut covers it (C3).
func (s *sender) readBack(ctx context.Context, r *weirv1.AppendResponse) error {
	n := s.w.any(s.rng)
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	a := s.w.audits["bank"]
	cut, err := s.w.ask(ctx, n, s.name, a, "balances", "", &weirv1.QueryRequest{MinToken: r.GetToken()})
	if err != nil {
		return err
	}
	info, err := a.read(cut)
	if err != nil {
		return err
	}
	for _, sh := range r.GetShards() {
		if info.positions[sh.GetShard()] < sh.GetNextOffset() {
			return violation("C3: %s: the answer of %s does not cover offset %d of shard %d, which the token covers", info, n.name, sh.GetNextOffset(), sh.GetShard())
		}
	}
	return nil
}

// ask asks a node for a whole table, or for the row of a key, and keeps the answer. req has what else is to be asked for.
func (w *world) ask(ctx context.Context, n *node, who string, a *audit, table, key string, req *weirv1.QueryRequest) (*weirv1.Cut, error) {
	of := a.p.tables[table]
	req.Sql = fmt.Sprintf("SELECT * FROM %s.%s", a.p.name, table)
	if key != "" {
		value := key
		if of != "account" && of != "n" {
			value = "'" + key + "'"
		}
		req.Sql += fmt.Sprintf(" WHERE %s = %s", of, value)
	}
	r, err := weirv1.NewQueryServiceClient(n.conn).Query(ctx, req)
	if err != nil {
		admitted := []dataflow.Reason{}
		if a.p.comes {
			admitted = []dataflow.Reason{dataflow.ReasonPipelineNotFound, dataflow.ReasonTableNotFound, dataflow.ReasonPipelineState}
		}
		w.history.log("%s: %s gives no answer to %s: %s", who, n.name, req.Sql, short(err))
		return nil, w.explainOf(n.name, fmt.Sprintf("%s on %s", req.Sql, n.name), err, admitted...)
	}
	info, err := a.read(r.GetCut())
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", req.Sql, n.name, err)
	}
	rows := make(map[string]bool, len(r.GetRows()))
	for _, row := range r.GetRows() {
		if rows[string(row)] {
			return nil, violation("C2: %s: %s on %s has the row %s twice", info, req.Sql, n.name, row)
		}
		rows[string(row)] = true
	}
	if r.GetNextPageToken() != "" {
		return nil, violation("C2: %s: %s on %s does not fit into a page", info, req.Sql, n.name)
	}
	w.history.log("%s: %s answers %s with %d rows of %s %s", who, n.name, req.Sql, len(rows), a.p.name, info)
	if table == "balances" && key == "" {
		if sum := total(r.GetRows()); sum != 0 {
			return nil, violation("C2: %s: the balances on %s sum to %d", info, n.name, sum)
		}
	}
	a.keep(answer{who: who, what: req.Sql, node: n.name, cut: info, table: table, all: key == "", key: key, rows: rows})
	w.reads.Add(1)
	return r.GetCut(), nil
}

func total(rows [][]byte) int64 {
	var sum int64
	for _, row := range rows {
		var r struct{ Balance int64 }
		if json.Unmarshal(row, &r) != nil {
			return -1
		}
		sum += r.Balance
	}
	return sum
}

// reader asks any node, as one session or without one.
type reader struct {
	w       *world
	name    string
	rng     *rand.Rand
	session bool
}

func (r *reader) run(ctx context.Context) error {
	tokens := make(map[string]*weirv1.Cut) // by pipeline
	for ctx.Err() == nil && !r.w.done.Load() {
		_ = pause.For(ctx, time.Duration(r.rng.IntN(50))*time.Millisecond) // the loop looks at ctx
		p := pipelines[r.rng.IntN(len(pipelines))]
		a := r.w.audits[p.name]
		table, key := pick(r.rng, p)
		n := r.w.any(r.rng)
		call, cancel := context.WithTimeout(ctx, 3*time.Second)
		last := tokens[p.name]
		cut, err := r.w.ask(call, n, r.name, a, table, key, &weirv1.QueryRequest{SessionToken: last.GetToken()})
		cancel()
		switch {
		case errors.Is(err, errAway):
		case err != nil:
			return err
		case last != nil && last.GetPipelineUid() == cut.GetPipelineUid() && cut.GetCheckpointId() < last.GetCheckpointId():
			return violation("C3: %s: after cut %d of %s, which %s gave, %s answers from cut %d", r.name, last.GetCheckpointId(), p.name, last.GetNode(), n.name, cut.GetCheckpointId())
		case r.session:
			tokens[p.name] = cut
		}
	}
	return nil
}

// pick returns a table of a pipeline, and a key of it or "" for all rows.
func pick(rng *rand.Rand, p *pipeline) (table, key string) {
	for name := range p.tables {
		table = max(table, name)
	}
	if p.name == "words" && rng.IntN(2) == 0 {
		table = "counts"
	}
	if rng.IntN(2) == 0 {
		return table, ""
	}
	switch table {
	case "balances":
		return table, fmt.Sprint(rng.IntN(accounts + 2))
	case "counts":
		return table, fmt.Sprintf("w%d", rng.IntN(words+2))
	}
	return table, ""
}

// live asks any node for what is not committed yet. Of that holds at least that it says so, and that a count is not more
// than what the log has in the end.
func (w *world) live(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(w.seed, 900))
	for ctx.Err() == nil && !w.done.Load() {
		_ = pause.For(ctx, time.Duration(20+rng.IntN(80))*time.Millisecond) // the loop looks at ctx
		n, word := w.any(rng), fmt.Sprintf("w%d", rng.IntN(words))
		call, cancel := context.WithTimeout(ctx, 3*time.Second)
		r, err := weirv1.NewQueryServiceClient(n.conn).Query(call, &weirv1.QueryRequest{
			Sql: fmt.Sprintf("SELECT * FROM words.counts WHERE word = '%s'", word), Isolation: weirv1.Read_READ_UNCOMMITTED,
		})
		cancel()
		if err != nil {
			if err := w.explainOf(n.name, "live read on "+n.name, err, dataflow.ReasonPipelineState); !errors.Is(err, errAway) {
				return err
			}
			continue
		}
		// Of a pipeline that is stopped all is committed.
		if c := r.GetCut(); !c.GetSpeculative() && c.GetPipelineState() == weirv1.PipelineState_PIPELINE_STATE_RUNNING {
			return violation("C2: a live answer of %s does not say that it is speculative: %v", n.name, c)
		}
		for _, row := range r.GetRows() {
			var c struct{ N int64 }
			if err := json.Unmarshal(row, &c); err != nil {
				return violation("C2: a live answer of %s: %s", n.name, row)
			}
			w.liveMost[word] = max(w.liveMost[word], c.N)
		}
		w.liveReads++
	}
	return nil
}

// producer sends numbered rows to the stream lines through the client library, and now and then begins again with its first.
type producer struct {
	w           *world
	name        string
	rng         *rand.Rand
	acked, sent atomic.Int64
	lives       int
	duplicates  uint64
	skipped     uint64
	token       string
}

func (p *producer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		again, err := p.life(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("producer %s: %w", p.name, err)
		}
		if !again {
			return nil
		}
	}
	return nil
}

// life is what one process would do. It reports whether there is to be another.
func (p *producer) life(ctx context.Context) (again bool, err error) {
	p.lives++
	prod, err := p.w.client.OpenProducer(ctx, "lines", weir.ProducerConfig{Name: p.name, RetryFor: producerPatience, BatchBytes: 4 << 10, Linger: 2 * time.Millisecond})
	if err != nil {
		if err := explain("open producer", err); !errors.Is(err, errAway) {
			return false, err
		}
		return true, pause.For(ctx, 100*time.Millisecond)
	}
	gone, leave := context.WithCancel(ctx)
	defer leave()
	defer func() {
		st := prod.Stats()
		p.duplicates += st.Duplicates
		p.skipped += st.Skipped
		if again {
			leave() // as if the process were killed: what is under way stays so
		}
		_ = prod.Close(gone) // what it did not flush is sent in the next life
	}()
	p.w.history.log("%s: life %d", p.name, p.lives)
	ends := time.Now().Add(time.Duration(3+p.rng.IntN(20)) * time.Second)
	for n := int64(0); ; {
		burst := int64(1 + p.rng.IntN(60))
		catching := n+burst < p.sent.Load()
		if catching {
			burst = min(2000, p.sent.Load()-n)
		}
		b := batch.NewBatch(prod.Schema())
		for i := range burst {
			l := makeLine(p.name, n+1+i)
			b.AppendRow(dataflow.Row{dataflow.Text(l.Sender), dataflow.BigInt(l.N), dataflow.Text(l.Line)})
		}
		p.sent.Store(max(p.sent.Load(), n+burst))
		if err := prod.Append(ctx, b); err != nil {
			return p.ended("append", err)
		}
		n += burst
		done := p.w.done.Load() && n >= p.sent.Load()
		if done || !catching && p.rng.IntN(3) == 0 {
			if err := prod.Flush(ctx); err != nil {
				return p.ended("flush", err)
			}
			if n > p.acked.Load() {
				p.acked.Store(n)
				p.w.history.log("%s: %d rows acknowledged", p.name, n)
			}
			p.token = prod.Token()
		}
		switch {
		case done:
			return false, nil
		case !catching && time.Now().After(ends):
			return true, nil
		case !catching:
			if err := pause.For(ctx, time.Duration(p.rng.IntN(250))*time.Millisecond); err != nil {
				return false, err
			}
		}
	}
}

func (p *producer) ended(what string, err error) (bool, error) {
	p.w.history.log("%s: %s: %s", p.name, what, short(err))
	if err := explain("producer's "+what, err); !errors.Is(err, errAway) {
		return false, err
	}
	return true, nil
}

// explainOf is explain for the answer of a node, whose files may have been damaged.
func (w *world) explainOf(name, what string, err error, admitted ...dataflow.Reason) error {
	w.mu.Lock()
	harmed := w.mu.harmed[name] || len(w.mu.harmed) > 0 && name == "the client"
	w.mu.Unlock()
	if harmed {
		admitted = append(admitted, dataflow.ReasonCorrupt)
	}
	return explain(what, err, admitted...)
}

// short is an error on one line.
func short(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return text[:min(len(text), 200)]
}
