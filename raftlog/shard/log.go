package shard

import (
	"context"

	"github.com/weirdb/weir/dataflow"
)

// Log is the log of one shard. All methods are safe for concurrent use.
type Log struct {
}

// Append is one batch of rows of one stream for this shard.
type Append struct {
	Stream dataflow.StreamID
	Rows   []byte // batch.Encode; at most dataflow.MaxBatchBytes
	Count  int    // rows in Rows, at least 1

	// Producer, Epoch and First are set together (P8), or not at all.
	Producer string
	Epoch    dataflow.ProducerEpoch
	First    dataflow.Seq // number of the first row, from 1

	// IdempotencyKey makes a plain append retryable; "" = none. Not together with Producer.
	IdempotencyKey string

	Digest uint64 // of the rows' content, by which a re-send is told from other rows; 0 = the hash of Rows
	Now    int64  // the leader's clock, µs since 1970; 0 = Config.Now
}

// Appended is the answer to an append.
type Appended struct {
	// First and Next are the offsets of the batch: [First, Next). For a duplicate they are those of the first answer. For
	// one so old that its place is not remembered First = Next, and the rows lie somewhere below Next.
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

// Open opens the shard's log.
func Open(cfg Config) (*Log, error) { panic("unwritten") }

// Close stops the log.
func (l *Log) Close() error { panic("unwritten") }

func (l *Log) Append(ctx context.Context, a Append) (Appended, error) { panic("unwritten") }
func (l *Log) OpenProducer(ctx context.Context, stream dataflow.StreamID, producer string, epoch dataflow.ProducerEpoch) (dataflow.Seq, error) {
	panic("unwritten")
}
func (l *Log) ExpireProducers(ctx context.Context, before int64) error { panic("unwritten") }
func (l *Log) ExpireKeys(ctx context.Context, before int64) error      { panic("unwritten") }

func (l *Log) Read(stream dataflow.StreamID, from dataflow.Offset, maxRows int) ([]Rows, error) {
	panic("unwritten")
}
func (l *Log) Range(stream dataflow.StreamID) (start, end dataflow.Offset, bytes int64) {
	panic("unwritten")
}

// OffsetAt returns the offset of the first retained row with an append time of at least t, or the end.
func (l *Log) OffsetAt(stream dataflow.StreamID, t int64) dataflow.Offset { panic("unwritten") }

// OffsetKeeping returns the lowest offset from which the stream's rows take at most maxBytes.
func (l *Log) OffsetKeeping(stream dataflow.StreamID, maxBytes int64) dataflow.Offset {
	panic("unwritten")
}

// Streams returns the streams that have or had rows here, Pipelines those with deltas; in order of their ids.
func (l *Log) Streams() []dataflow.StreamID      { panic("unwritten") }
func (l *Log) Pipelines() []dataflow.PipelineUID { panic("unwritten") }
func (l *Log) Changed() <-chan struct{}          { panic("unwritten") }

func (l *Log) AppendDelta(ctx context.Context, d dataflow.DeltaID, chunk int, data []byte) error {
	panic("unwritten")
}
func (l *Log) EndDelta(ctx context.Context, d dataflow.DeltaID, chunks int, digest uint64) (dataflow.LogIndex, error) {
	panic("unwritten")
}
func (l *Log) BeginIncarnation(ctx context.Context, pipeline dataflow.PipelineUID, min dataflow.Incarnation, base dataflow.DeltaRef) error {
	panic("unwritten")
}
func (l *Log) Settle(ctx context.Context, pipeline dataflow.PipelineUID, upTo dataflow.DeltaRef) error {
	panic("unwritten")
}
func (l *Log) DropPipeline(ctx context.Context, pipeline dataflow.PipelineUID) error {
	panic("unwritten")
}
func (l *Log) TrimStream(ctx context.Context, stream dataflow.StreamID, to dataflow.Offset, why TrimReason) error {
	panic("unwritten")
}
func (l *Log) DropStream(ctx context.Context, stream dataflow.StreamID) error { panic("unwritten") }

func (l *Log) Barrier(ctx context.Context) error    { panic("unwritten") }
func (l *Log) WaitLeader(ctx context.Context) error { panic("unwritten") }
func (l *Log) Snapshot(ctx context.Context) error   { panic("unwritten") }
func (l *Log) AppliedIndex() dataflow.LogIndex      { panic("unwritten") }
func (l *Log) LogTime() int64                       { panic("unwritten") }
func (l *Log) IsLeader() bool                       { panic("unwritten") }
func (l *Log) Leader() string                       { panic("unwritten") }
func (l *Log) Term() uint64                         { panic("unwritten") }
func (l *Log) Failed() <-chan error                 { panic("unwritten") }
