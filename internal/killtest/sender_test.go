package killtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// plainSender makes plain appends to the stream orders, each with an idempotency key, and makes each again until it is
// answered. Now and then it reads what it has written, with the append's token.
type plainSender struct {
	name    string
	rng     *rand.Rand
	conn    *grpc.ClientConn
	tables  []*table
	audit   *audit
	history *history
	acked   atomic.Int64
	token   string
}

func (s *plainSender) run(ctx context.Context) error {
	ingest := weirv1.NewIngestServiceClient(s.conn)
	for n := 0; ctx.Err() == nil; n++ {
		first := s.acked.Load() + 1
		rows := int64(1 + s.rng.IntN(20))
		var body []byte
		for i := range rows {
			row, err := json.Marshal(makeOrder(s.name, first+i))
			if err != nil {
				return err
			}
			body = append(append(body, row...), '\n')
		}
		req := &weirv1.AppendRequest{Stream: "orders", JsonRows: body, IdempotencyKey: fmt.Sprintf("%s-%d", s.name, first), PreviousToken: s.token}
		r, err := s.append(ctx, ingest, req)
		if err != nil {
			return fmt.Errorf("sender %s: %w", s.name, err)
		}
		if r == nil {
			return nil // ctx has ended; what became of the rows is open
		}
		s.acked.Store(first + rows - 1)
		s.token = r.GetToken()
		s.history.log("sender %s: %d rows acknowledged", s.name, first+rows-1)
		if n%5 == 0 {
			if err := s.readBack(ctx, r); err != nil {
				return fmt.Errorf("sender %s: %w", s.name, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(s.rng.IntN(60)) * time.Millisecond):
		}
	}
	return nil
}

// append makes an append until it is answered.
func (s *plainSender) append(ctx context.Context, c weirv1.IngestServiceClient, req *weirv1.AppendRequest) (*weirv1.AppendResponse, error) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		r, err := c.Append(call, req)
		cancel()
		if err == nil {
			return r, nil
		}
		if err := explain("append", err); !errors.Is(err, errAway) {
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil, nil
}

// readBack reads with the token of an append: the answer's cut covers it (K8).
func (s *plainSender) readBack(ctx context.Context, r *weirv1.AppendResponse) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	t := s.tables[s.rng.IntN(len(s.tables))]
	before := s.audit.marks()
	q := weirv1.NewQueryServiceClient(s.conn)
	what := "batchGet with a token"
	a, err := q.BatchGet(ctx, &weirv1.BatchGetRequest{
		Pipeline: t.pipeline, Table: t.name, MinToken: r.GetToken(), Keys: []*weirv1.Key{wire.Key(nullKey(t))},
	})
	if err != nil {
		if err := explain(what, err); !errors.Is(err, errAway) {
			return err
		}
		return nil
	}
	info, err := s.audit.read(a.GetCut())
	if err != nil {
		return err
	}
	for _, sh := range r.GetShards() {
		if info.positions[sh.GetShard()] < sh.GetNextOffset() {
			return violation("K8: %s does not cover offset %d of shard %d, which the token covers", info, sh.GetNextOffset(), sh.GetShard())
		}
	}
	rows, err := parseRows(t, a.GetRows())
	if err != nil {
		return err
	}
	want := null
	for range t.keys - 1 {
		want += "|" + null
	}
	return s.audit.takeCommitted(before, a.GetCut(), s.name+": "+what, func(m model) error {
		return compareRows(t, m, rows, func(key string) bool { return key == want })
	})
}

// nullKey returns the key of a table whose columns are all NULL.
func nullKey(t *table) dataflow.Row {
	types := map[columnKind]dataflow.Type{textColumn: dataflow.TypeText, numberColumn: dataflow.TypeBigInt, timeColumn: dataflow.TypeTimestamp}
	var key dataflow.Row
	for _, c := range t.columns[:t.keys] {
		key = append(key, dataflow.NullValue(types[c.kind]))
	}
	return key
}
