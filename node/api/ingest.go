package api

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const (
	// maxIngestBytes bounds the rows of all appends in flight. Why not larger: it is memory that nothing else accounts
	// for. Why not smaller: eight of the largest appends must fit beside each other.
	maxIngestBytes = 128 << 20
	// maxNameBytes bounds producer names, and idempotency keys and the names of leases alike.
	maxNameBytes = dataflow.MaxProducerName
)

// ingestService implements weirv1.IngestServiceServer.
type ingestService struct {
	weirv1.UnimplementedIngestServiceServer
	b       Backends
	names   *namer
	group   dataflow.GroupID
	budget  *semaphore.Weighted // of maxIngestBytes
	readers *readers
	ends    context.Context // AppendStream calls end with it: a sender that has nothing to send keeps its call open as long as it lives
	metrics *metrics
}

// Append implements weirv1.IngestServiceServer.
func (s *ingestService) Append(ctx context.Context, r *weirv1.AppendRequest) (*weirv1.AppendResponse, error) {
	size := appendBytes(r)
	if !s.budget.TryAcquire(size) {
		return nil, dataflow.Errorf(dataflow.ReasonOverloaded, "appends of %d MiB are in flight; nothing was written", maxIngestBytes>>20).
			WithRetry(ingestRetryAfter)
	}
	defer s.budget.Release(size)
	pos, err := s.previous(r)
	if err != nil {
		return nil, err
	}
	st, err := s.stream(ctx, r.GetStream())
	if err != nil {
		return nil, err
	}
	a, err := decodeAppend(ctx, st, r)
	if err != nil {
		return nil, err
	}
	p, err := s.b.Ingest.Begin(ctx, a)
	if err != nil {
		return nil, err
	}
	shards, err := p.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return s.appended(st, shards, pos), nil
}

// previous returns the positions that the answer's token starts from.
func (s *ingestService) previous(r *weirv1.AppendRequest) (dataflow.Positions, error) {
	if r.GetPreviousToken() == "" {
		return make(dataflow.Positions), nil
	}
	t, err := dataflow.ParseToken(r.GetPreviousToken(), s.group)
	if err != nil {
		return nil, err
	}
	return t.Positions, nil
}

// appended builds the answer; it advances pos by what the answer's token covers.
func (s *ingestService) appended(st *Stream, shards []ShardAppended, pos dataflow.Positions) *weirv1.AppendResponse {
	m := &weirv1.AppendResponse{}
	for _, a := range shards {
		m.Shards = append(m.Shards, &weirv1.ShardAppended{
			Shard: uint32(a.Shard), FirstOffset: uint64(a.First), NextOffset: uint64(a.Next), Duplicate: a.Duplicate,
			Overlap: a.Overlap, LastSeq: uint64(a.LastSeq), AppendTime: Timestamp(a.AppendTime),
		})
		switch {
		case a.Overlap:
			continue // nothing was written: the sender sends the rest again
		case a.Duplicate:
			m.Duplicates += uint64(a.Rows)
		default:
			m.Rows += uint64(a.Rows)
		}
		pos.Advance(dataflow.Positions{{Stream: st.ID, Shard: a.Shard}: a.Next})
	}
	m.Token = dataflow.Token{Group: s.group, Positions: pos}.String()
	s.metrics.ingested(m.Rows, m.Duplicates)
	return m
}

// appendBytes is what a request weighs in the budget.
func appendBytes(r *weirv1.AppendRequest) int64 {
	n := int64(len(r.GetJsonRows())) + columnBytes(r.GetBatch())
	for _, sh := range r.GetShards() {
		n += columnBytes(sh.GetBatch())
	}
	return min(n, maxIngestBytes)
}

func columnBytes(b *weirv1.ColumnBatch) int64 {
	n := int64(0)
	for _, c := range b.GetColumns() {
		n += int64(len(c.GetNulls()))
		switch v := c.GetValues().(type) {
		case *weirv1.ColumnData_Texts:
			n += int64(len(v.Texts.GetData()) + 4*len(v.Texts.GetLengths()))
		case *weirv1.ColumnData_Numerics:
			n += int64(len(v.Numerics.GetData()) + 4*len(v.Numerics.GetLengths()))
		default:
			n += 8 * int64(b.GetRows()%(dataflow.MaxBatchRows+1))
		}
	}
	return n
}

// decodeAppend checks a request against its stream and returns it in Go terms.
func decodeAppend(ctx context.Context, st *Stream, r *weirv1.AppendRequest) (Append, error) {
	if st.Sealed {
		return Append{}, dataflow.Errorf(dataflow.ReasonStreamSealed, "stream %s is sealed", st.Name).WithMeta("stream", st.Name)
	}
	forms := 0
	for _, set := range []bool{r.GetProducer() != nil || len(r.GetShards()) > 0, r.GetBatch() != nil, len(r.GetJsonRows()) > 0} {
		if set {
			forms++
		}
	}
	switch {
	case forms == 0:
		return Append{}, dataflow.Errorf(dataflow.ReasonRequestInvalid, "no rows: an append needs at least one").
			WithHint("set producer and shards, or batch, or json_rows")
	case forms > 1:
		return Append{}, dataflow.Errorf(dataflow.ReasonRequestInvalid, "rows come in more than one form").
			WithHint("set producer and shards, or batch, or json_rows")
	}
	if r.GetProducer() != nil || len(r.GetShards()) > 0 {
		return decodeNumbered(ctx, st, r)
	}
	a := Append{Stream: st, IdempotencyKey: r.GetIdempotencyKey()}
	if len(a.IdempotencyKey) > maxNameBytes {
		return Append{}, invalid("idempotency_key", "%d bytes are over the limit of %d", len(a.IdempotencyKey), maxNameBytes)
	}
	var err error
	if r.GetBatch() != nil {
		a.Rows, err = wire.DecodeColumns(ctx, st.Schema, r.GetBatch(), "batch")
	} else {
		a.Rows, err = wire.DecodeJSONRows(ctx, st.Schema, r.GetJsonRows())
	}
	return a, err
}

// decodeNumbered checks a producer's append (P8).
func decodeNumbered(ctx context.Context, st *Stream, r *weirv1.AppendRequest) (Append, error) {
	p := r.GetProducer()
	switch {
	case p == nil:
		return Append{}, invalid("producer", "is missing: rows per shard are numbered by a producer")
	case r.GetIdempotencyKey() != "":
		return Append{}, invalid("idempotency_key", "is for plain appends: a producer's rows have numbers")
	case p.GetEpoch() == 0:
		return Append{}, invalid("producer.epoch", "is 0: open the producer first")
	case len(r.GetShards()) == 0:
		return Append{}, invalid("shards", "no rows: an append needs at least one")
	}
	if err := checkProducer("producer.name", p.GetName()); err != nil {
		return Append{}, err
	}
	a := Append{Stream: st, Producer: p.GetName(), Epoch: dataflow.ProducerEpoch(p.GetEpoch()), Shards: make([]ShardRows, 0, len(r.GetShards()))}
	seen, rows, size := make(map[uint32]bool, len(r.GetShards())), 0, 0
	for i, sh := range r.GetShards() {
		field := fmt.Sprintf("shards[%d]", i)
		switch n := uint64(sh.GetBatch().GetRows()); {
		case sh.GetShard() >= dataflow.MaxShards:
			return Append{}, invalid(field+".shard", "there is no shard %d", sh.GetShard())
		case seen[sh.GetShard()]:
			return Append{}, invalid(field+".shard", "shard %d comes twice", sh.GetShard())
		case sh.GetFirstSeq() == 0:
			return Append{}, invalid(field+".first_seq", "is 0: rows are numbered from 1")
		case sh.GetFirstSeq()+n < sh.GetFirstSeq():
			return Append{}, invalid(field+".first_seq", "%d + %d rows is past the largest number", sh.GetFirstSeq(), n)
		}
		seen[sh.GetShard()] = true
		b, err := wire.DecodeColumns(ctx, st.Schema, sh.GetBatch(), field+".batch")
		if err != nil {
			return Append{}, err
		}
		if rows += b.N; rows > dataflow.MaxBatchRows {
			return Append{}, wrong(dataflow.ReasonTooLarge, "shards", "more than %d rows in one append", dataflow.MaxBatchRows)
		}
		if size += wire.BatchBytes(b); size > dataflow.MaxBatchBytes {
			return Append{}, wrong(dataflow.ReasonTooLarge, "shards", "rows of more than %d bytes in one append", dataflow.MaxBatchBytes)
		}
		a.Shards = append(a.Shards, ShardRows{Shard: dataflow.ShardID(sh.GetShard()), First: dataflow.Seq(sh.GetFirstSeq()), Rows: b})
	}
	return a, nil
}

func checkProducer(field, name string) error {
	switch {
	case name == "":
		return invalid(field, "is missing")
	case len(name) > maxNameBytes:
		return invalid(field, "%d bytes are over the limit of %d", len(name), maxNameBytes)
	}
	return nil
}

// OpenProducer implements weirv1.IngestServiceServer.
func (s *ingestService) OpenProducer(ctx context.Context, r *weirv1.OpenProducerRequest) (*weirv1.OpenProducerResponse, error) {
	if err := checkProducer("producer", r.GetProducer()); err != nil {
		return nil, err
	}
	st, err := s.stream(ctx, r.GetStream())
	if err != nil {
		return nil, err
	}
	o, err := s.b.Ingest.OpenProducer(ctx, st, r.GetProducer())
	if err != nil {
		return nil, err
	}
	m := &weirv1.OpenProducerResponse{Epoch: uint64(o.Epoch), Shards: uint32(o.Shards), Stream: streamMessage(st)}
	for sh := range dataflow.ShardID(o.Shards) {
		if last := o.Last[sh]; last > 0 {
			var firsts []uint64
			for _, seq := range o.Batches[sh] {
				firsts = append(firsts, uint64(seq))
			}
			m.LastSeqs = append(m.LastSeqs, &weirv1.ShardSeq{Shard: uint32(sh), LastSeq: uint64(last), BatchFirstSeqs: firsts})
		}
	}
	return m, nil
}
