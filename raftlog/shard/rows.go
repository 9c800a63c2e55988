package shard

import (
	"context"
	"maps"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog"
)

// Limits of what senders choose. They go into every snapshot (producers) or are hashed anyway (keys).
const (
	maxProducerName   = dataflow.MaxProducerName
	maxIdempotencyKey = 1024
)

// maxReadBytes ends a Read after the batch that reaches it, so that a caller who asks for rows gets no unbounded memory.
const maxReadBytes = 4 << 20

// Append is one batch of rows of one stream for this shard.
type Append struct {
	Stream dataflow.StreamID
	// Rows is the encoded batch (batch.Encode). It is copied. An entry holds at most a little more than one row of
	// dataflow.MaxRowBytes; senders cut at dataflow.MaxEntryBytes.
	Rows  []byte
	Count int // rows in Rows, at least 1

	// Producer, Epoch and First number the rows (P8). All are set or none. Epoch is one that OpenProducer wrote here.
	Producer string
	Epoch    dataflow.ProducerEpoch
	First    dataflow.Seq // number of the first row, from 1

	// IdempotencyKey makes an append without producer retryable; "" = none.
	IdempotencyKey string

	Digest uint64 // of the rows' content, by which a re-send is told from other rows; 0 = the hash of Rows
	Now    int64  // the leader's clock, µs since 1970; 0 = Config.Now
}

// Appended is the answer to an append.
type Appended struct {
	// First and Next are the offsets of the batch: [First, Next). For a duplicate they are those of the first answer; a
	// duplicate that was cut in another way than before may have other producers' rows in between. For one so old that
	// its place is not remembered First = Next, and the rows lie somewhere below Next.
	First, Next dataflow.Offset
	Duplicate   bool // all rows were known already; nothing was written
	// Overlap: rows up to LastSeq were known already, those after it were not; nothing was written. The sender trims the
	// known rows and sends the rest. First and Next say nothing.
	Overlap    bool
	LastSeq    dataflow.Seq // the producer's last known row afterwards; 0 without a producer
	AppendTime int64        // log time of the batch, µs; for a duplicate that of the first answer, 0 if not remembered
}

// Rows is a batch of rows as it was appended.
type Rows struct {
	First      dataflow.Offset
	Count      int
	AppendTime int64  // µs
	Data       []byte // what Append.Rows was; shared, not to be changed
}

// TrimReason says why rows were dropped. Stored; append-only.
type TrimReason uint8

// The reasons to trim.
const (
	TrimAge   TrimReason = 1 // older than the stream's retention
	TrimSize  TrimReason = 2 // over the stream's max_bytes
	TrimGrace TrimReason = 3 // a lagging pipeline lost its claim
)

func (t TrimReason) String() string {
	switch t {
	case TrimAge:
		return "age"
	case TrimSize:
		return "size"
	case TrimGrace:
		return "grace"
	default:
		return "unknown"
	}
}

// Append writes a batch, or answers it as P8 says: OUT_OF_ORDER names the wanted number in its metadata ("expected"),
// and PRODUCER_FENCED, UNKNOWN_PRODUCER, SEQUENCE_REUSED, IDEMPOTENCY_KEY_REUSED, STREAM_SEALED and STREAM_NOT_FOUND
// (dropped) mean that nothing was written. The caller has checked that the rows belong to this shard and fit the stream.
func (l *Log) Append(ctx context.Context, a Append) (Appended, error) {
	c, err := l.appendCommand(a)
	if err != nil {
		return Appended{}, err
	}
	out, err := l.propose(ctx, c)
	return out.appended, err
}

// Pending is an append that was handed to the log and whose answer is not known yet.
type Pending struct{ p *raftlog.Pending }

// Wait returns the answer. When ctx ends first, the error is OUTCOME_UNKNOWN, and the rows may still be written.
func (p *Pending) Wait(ctx context.Context) (Appended, error) {
	out, err := settled(p.p.Wait(ctx))
	return out.appended, err
}

// Submit is the first half of Append: it hands the batch to the log and does not wait. Batches submitted one after
// another enter the log in that order, so a producer may have several under way. When leadership is lost, a later one can
// come without the earlier ones, and is refused with OUT_OF_ORDER.
func (l *Log) Submit(a Append) (*Pending, error) {
	c, err := l.appendCommand(a)
	if err != nil {
		return nil, err
	}
	p, err := l.submit(c, l.group.Submit)
	if err != nil {
		return nil, err
	}
	return &Pending{p}, nil
}

func (l *Log) appendCommand(a Append) (*appendRows, error) {
	a.Now = l.now(a.Now)
	return appendCommand(a, l.cfg.MaxKeys)
}

func appendCommand(a Append, maxKeys int) (*appendRows, error) {
	if err := a.validate(); err != nil {
		return nil, err
	}
	c := &appendRows{
		stream: a.Stream, now: a.Now, count: a.Count, digest: a.Digest,
		producer: a.Producer, epoch: a.Epoch, first: a.First, rows: a.Rows,
	}
	if c.digest == 0 {
		c.digest = dataflow.HashKey(a.Rows)
	}
	if a.IdempotencyKey != "" {
		c.hasKey, c.key, c.limit = true, hashKey(a.Stream, a.IdempotencyKey), maxKeys
	}
	return c, nil
}

func (a *Append) validate() error {
	switch {
	case a.Count < 1 || a.Count > maxCount:
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "a batch of %d rows", a.Count)
	case a.Producer != "" && a.IdempotencyKey != "":
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "a batch has a producer or an idempotency key, not both")
	case a.Producer == "" && (a.Epoch != 0 || a.First != 0):
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "a batch without a producer has no epoch or sequence number")
	case len(a.IdempotencyKey) > maxIdempotencyKey:
		return dataflow.Errorf(dataflow.ReasonTooLarge, "an idempotency key of %d bytes is over the limit of %d", len(a.IdempotencyKey), maxIdempotencyKey)
	case a.Producer != "" && (a.First == 0 || a.First > maxSeq):
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "rows are numbered from 1, not from %d", a.First)
	case a.Producer != "":
		return validateProducer(a.Producer, a.Epoch)
	}
	return nil
}

func validateProducer(name string, epoch dataflow.ProducerEpoch) error {
	switch {
	case name == "":
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "the producer has no name")
	case len(name) > maxProducerName:
		return dataflow.Errorf(dataflow.ReasonTooLarge, "a producer name of %d bytes is over the limit of %d", len(name), maxProducerName)
	case epoch == 0:
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "producer %q has no epoch: it has not been opened", name)
	}
	return nil
}

// now returns a given time, or the clock's.
func (l *Log) now(given int64) int64 {
	if given != 0 {
		return given
	}
	return l.cfg.Now()
}

// OpenProducer fences the producer's older sessions in this shard and returns the number of its last row in the stream,
// 0 for none (P8). Errors: PRODUCER_FENCED, OVERLOADED when too many producers are remembered, STREAM_NOT_FOUND.
//
// A producer that has been idle for longer than Config.ProducerTTL, or Config.AnonymousTTL, is forgotten, and then stands at 0 again: if it sends
// its rows from the beginning, they count twice.
func (l *Log) OpenProducer(ctx context.Context, stream dataflow.StreamID, producer string, epoch dataflow.ProducerEpoch) (last dataflow.Seq, err error) {
	if err := validateProducer(producer, epoch); err != nil {
		return 0, err
	}
	out, err := l.propose(ctx, &openProducer{
		stream: stream, now: l.cfg.Now(), producer: producer, epoch: epoch, limit: l.cfg.MaxProducers,
	})
	return out.last, err
}

// Remembered returns the first numbers of the producer's last batches in the stream, in order: those whose rows are
// compared when they come again with the same edges.
func (l *Log) Remembered(stream dataflow.StreamID, producer string) []dataflow.Seq {
	l.mu.RLock()
	defer l.mu.RUnlock()
	p := l.mu.m.producers[producerKey{stream: stream, name: producer}]
	if p == nil {
		return nil
	}
	firsts := make([]dataflow.Seq, p.n)
	for i := range firsts {
		firsts[i] = p.recent[i].first
	}
	return firsts
}

// ExpireProducers forgets the producers that were last heard of before the given log time, µs. While it leads, the log
// does so by itself with Config.ProducerTTL.
func (l *Log) ExpireProducers(ctx context.Context, before int64) error {
	_, err := l.proposeHere(ctx, &expire{now: l.cfg.Now(), producersBefore: before})
	return err
}

// ExpireKeys forgets the idempotency keys of before the given log time, µs. While it leads, the log does so by itself
// with Config.KeyTTL.
func (l *Log) ExpireKeys(ctx context.Context, before int64) error {
	_, err := l.proposeHere(ctx, &expire{now: l.cfg.Now(), keysBefore: before})
	return err
}

// TrimStream drops the stream's rows below an offset, as far as whole batches lie below it. Whether anything still needs
// them is the caller's to know, who has looked at all pipelines below known: when another has begun in the shard by the time
// that the entry is committed, nothing is dropped, and the error is ErrTrimLate.
func (l *Log) TrimStream(ctx context.Context, stream dataflow.StreamID, to dataflow.Offset, why TrimReason, known dataflow.PipelineUID) error {
	_, err := l.proposeHere(ctx, &trimStream{stream: stream, now: l.cfg.Now(), to: min(to, maxSeq), why: why, known: known})
	return err
}

// SealStream ends the stream in this shard: rows that come later are refused with STREAM_SEALED, and when it returns no
// row follows. What a sender sends again is answered as before. Sealing again changes nothing.
func (l *Log) SealStream(ctx context.Context, stream dataflow.StreamID) error {
	_, err := l.propose(ctx, &sealStream{stream: stream})
	return err
}

// DropStream drops the stream's rows and producers for good. Appends that come later are refused.
func (l *Log) DropStream(ctx context.Context, stream dataflow.StreamID) error {
	_, err := l.proposeHere(ctx, &dropStream{stream: stream})
	return err
}

// Range returns the stream's first retained offset, the offset after its last row, and the bytes in between. A stream
// without rows is [0, 0).
func (l *Log) Range(stream dataflow.StreamID) (start, end dataflow.Offset, bytes int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.mu.m.streams[stream]
	if s == nil {
		return 0, 0, 0
	}
	return s.start(), s.end, int64(s.retainedBytes())
}

// OffsetAt returns the offset of the first retained batch with an append time of at least t, µs; the end if there is none.
func (l *Log) OffsetAt(stream dataflow.StreamID, t int64) dataflow.Offset {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s := l.mu.m.streams[stream]; s != nil {
		return s.offsetAt(t)
	}
	return 0
}

// BytesFrom returns the bytes of the retained batches that hold rows from an offset on: what cannot be trimmed while
// somebody needs these rows.
func (l *Log) BytesFrom(stream dataflow.StreamID, from dataflow.Offset) int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s := l.mu.m.streams[stream]; s != nil {
		return s.bytesFrom(from)
	}
	return 0
}

// BatchAt returns the first offset of the retained batch that holds an offset: how far a trim to it would get. It is the
// start below all batches, and the end behind them.
func (l *Log) BatchAt(stream dataflow.StreamID, offset dataflow.Offset) dataflow.Offset {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.mu.m.streams[stream]
	if s == nil {
		return 0
	}
	if i := s.find(max(offset, s.start())); i < len(s.batches) {
		return s.batches[i].first
	}
	return s.end
}

// OffsetKeeping returns the lowest offset at a batch's edge from which the stream's rows take at most maxBytes, or the
// first of the newest batch, which is kept whatever its size.
func (l *Log) OffsetKeeping(stream dataflow.StreamID, maxBytes int64) dataflow.Offset {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s := l.mu.m.streams[stream]; s != nil {
		return s.offsetKeeping(maxBytes)
	}
	return 0
}

// LastTrim returns how rows last left the stream; the zero Trim if none ever did.
func (l *Log) LastTrim(stream dataflow.StreamID) Trim {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s := l.mu.m.streams[stream]; s != nil {
		return s.trim
	}
	return Trim{}
}

// Streams returns the streams that have or had rows here, or are sealed here, and are not dropped, in order.
func (l *Log) Streams() []dataflow.StreamID {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Sorted(maps.Keys(l.mu.m.streams))
}

// LogTime returns the log's time, µs: the largest clock that a leader has written into it. 0 = none yet.
func (l *Log) LogTime() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.m.now
}
