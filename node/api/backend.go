package api

import (
	"context"
	"slices"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Backends is what the services call. All are safe for concurrent use. Errors are *dataflow.Error where a user can do
// something about them. Every field is required.
type Backends struct {
	Streams     Streams
	Ingest      Ingest
	Reader      StreamReader
	Queries     Queries
	Pipelines   Pipelines
	Control     PipelineControl
	Tables      Tables
	Checkpoints Checkpoints
	Tokens      Tokens
	Cluster     Cluster
}

// Stream is a stream as the catalog has it. It is immutable.
type Stream struct {
	ID          dataflow.StreamID
	Name        string
	Schema      dataflow.Schema
	PartitionBy []int // columns whose hash places a row; empty = spread in runs
	Options     []dataflow.Option
	Sealed      bool
	CreatedAt   int64 // µs since 1970
}

// Streams is the catalog of streams.
type Streams interface {
	// Stream returns one stream; STREAM_NOT_FOUND. Called for every append: it must be cheap.
	Stream(ctx context.Context, name string) (*Stream, error)
	// StreamName returns the name of a stream for messages, also of one that was just dropped.
	StreamName(id dataflow.StreamID) string
	// ListStreams returns all streams by name.
	ListStreams(ctx context.Context) ([]*Stream, error)
	// DeleteStream drops a stream with its rows; STREAM_IN_USE while pipelines read it.
	DeleteStream(ctx context.Context, name string) error
	// CurrentStream is Stream as the whole group has it now.
	CurrentStream(ctx context.Context, name string) (*Stream, error)
	// SetStreamOptions changes options; OPTION_INVALID for those that cannot be changed, STREAM_IN_USE when a pipeline would lose
	// its rows at once.
	SetStreamOptions(ctx context.Context, name string, options []dataflow.Option) (*Stream, error)
	// SealStream ends a stream. Sealing a sealed stream does nothing.
	SealStream(ctx context.Context, name string) (*Stream, error)
}

// ShardRows are rows of one shard, numbered by their producer from First on (P8).
type ShardRows struct {
	Shard dataflow.ShardID
	First dataflow.Seq
	Rows  *batch.Batch
}

// Append is one append. Either Producer and Shards are set, or Rows.
type Append struct {
	Stream *Stream // as the rows were checked against

	Producer string
	Epoch    dataflow.ProducerEpoch
	Shards   []ShardRows // each shard once

	Rows           *batch.Batch // of a plain append: the backend splits them
	IdempotencyKey string       // of a plain append; may be empty
}

// ShardAppended is the outcome of an append in one shard.
type ShardAppended struct {
	Shard dataflow.ShardID
	// First and Next are the rows' offsets. Of a duplicate too old to be known exactly First equals Next; Next is past
	// the rows in any case, so that a token with it covers them.
	First, Next dataflow.Offset
	Rows        int // sent to this shard
	Duplicate   bool
	// Overlap says that some of the rows, not all, were known: nothing was written, see LastSeq.
	Overlap    bool
	LastSeq    dataflow.Seq
	AppendTime int64 // µs since 1970
	// Leader is the node that leads the shard's log, when it is known and another one than this.
	Leader string
}

// Pending is an append under way. Wait returns when all shards have answered; ctx bounds the wait, not the append.
type Pending interface {
	Wait(ctx context.Context) ([]ShardAppended, error)
}

// ProducerOpened is the answer to OpenProducer.
type ProducerOpened struct {
	Epoch  dataflow.ProducerEpoch
	Last   map[dataflow.ShardID]dataflow.Seq // shards that know the producer
	Shards int                               // of the node group
	// Batches are the first numbers of the last batches that a shard remembers, in order.
	Batches map[dataflow.ShardID][]dataflow.Seq
}

// Ingest writes rows.
type Ingest interface {
	// Begin hands rows to the shards' logs and returns without waiting for them. Appends begun one after the other by
	// one goroutine reach each shard in that order. ctx bounds the whole append. The backend keeps a.
	// It refuses rows of a shard that they do not hash to (ROW_INVALID).
	Begin(ctx context.Context, a Append) (Pending, error)
	// OpenProducer opens a session and fences older ones of the same name.
	OpenProducer(ctx context.Context, s *Stream, producer string) (ProducerOpened, error)
}

// StreamExtent says what a stream holds and who needs it.
type StreamExtent struct {
	Shards  []ShardExtent
	Holders []StreamHolder
}

// ShardExtent is one shard of a stream.
type ShardExtent struct {
	Shard      dataflow.ShardID
	Start, End dataflow.Offset // the first retained, and the next to be given
	Bytes      int64
}

// StreamHolder is a pipeline that keeps rows from being dropped.
type StreamHolder struct {
	Pipeline string
	State    dataflow.PipelineState
	Rows     uint64
	Bytes    int64
}

// StreamRead says which rows of a stream to read. Rows come per shard in order of offset.
type StreamRead struct {
	Stream *Stream
	// Latest starts at the ends; otherwise From says where, per shard, and a shard that it does not name starts at the
	// earliest retained row.
	Latest bool
	From   map[dataflow.ShardID]dataflow.Offset
	// Only limits the read to the shards of From.
	Only bool
	// Follow goes on after the ends of now, until ctx is done.
	Follow bool
	Limit  uint64 // rows; 0 = none
}

// StreamReader reads rows back.
type StreamReader interface {
	// Extent returns what the stream holds.
	Extent(ctx context.Context, s *Stream) (StreamExtent, error)
	// ReadStream calls fn with batches in which Shard, FirstOffset and AppendTime are set, and returns the next offset
	// per shard that it read. fn's error ends the read and is returned. fn must not keep the batch.
	ReadStream(ctx context.Context, r StreamRead, fn func(*batch.Batch) error) (dataflow.Positions, error)
}

// Queries reads tables. A key value of TypeUnknown that is not NULL is text to be parsed as the key column's type; NULL
// comes as TypeUnknown too. Whoever returns an error because of a missing row returns its cut as well.
type Queries interface {
	// Get returns the row with the key: a batch of one row, or of none when there is no such row.
	Get(ctx context.Context, pipeline, table string, key dataflow.Row, o dataflow.ReadOptions) (*batch.Batch, dataflow.Cut, error)
	// BatchGet returns the rows that exist, in the order of keys, and which of the keys have one.
	BatchGet(ctx context.Context, pipeline, table string, keys []dataflow.Row, o dataflow.ReadOptions) (rows *batch.Batch, found []bool, cut dataflow.Cut, err error)
	// BatchGetColumns is BatchGet of keys given as columns, one per part of the key.
	BatchGetColumns(ctx context.Context, pipeline, table string, keys *batch.Batch, o dataflow.ReadOptions) (rows *batch.Batch, found []bool, cut dataflow.Cut, err error)
	// Scan returns a page of rows in key order, and the token of the next page, "" at the end.
	Scan(ctx context.Context, pipeline, table string, r dataflow.ScanRange, p dataflow.Page, o dataflow.ReadOptions) (rows *batch.Batch, next string, cut dataflow.Cut, err error)
	// Query runs a SELECT; the batch's schema is the result's.
	Query(ctx context.Context, sql string, p dataflow.Page, o dataflow.ReadOptions) (rows *batch.Batch, next string, cut dataflow.Cut, err error)
	// Explain explains a SELECT, or what EXPLAIN explains, without running it: the plan, a row per line, and where the answer
	// would come from; nil for a file that is not deployed.
	Explain(ctx context.Context, sql string, o dataflow.ReadOptions) (rows *batch.Batch, where *dataflow.Explanation, cut dataflow.Cut, err error)
	// Watch calls fn with what happens to a table, one call after the other, until ctx is done, fn fails or nothing more can
	// come. fn's error ends the watch and is returned. An event's parts are shared with others: fn does not change them.
	Watch(ctx context.Context, w dataflow.Watch, fn func(*dataflow.WatchEvent) error) error
}

// Pipeline is a pipeline as the catalog has it, with its newest cut.
type Pipeline struct {
	Name        string
	UID         dataflow.PipelineUID
	SQL         string
	Options     []dataflow.Option // effective
	State       dataflow.PipelineState
	Failure     *dataflow.PipelineFailure
	Timeline    dataflow.Timeline
	Incarnation dataflow.Incarnation
	Tables      []string
	Streams     []string // that it reads
	CreatedAt   int64    // µs since 1970
	Cut         *dataflow.Cut
}

// StartKind says where a new pipeline starts to read.
type StartKind uint8

// Where a pipeline can start.
const (
	StartEarliest StartKind = iota
	StartLatest
	StartTime  // at the first row appended at Start.Time or later
	StartToken // at Start.Positions; shards that it does not name start at the earliest row
)

// Start is where a new pipeline starts to read.
type Start struct {
	Kind      StartKind
	Time      int64 // µs since 1970
	Positions dataflow.Positions
}

// Deploy asks for a pipeline.
type Deploy struct {
	Pipeline     string
	SQL          string
	Options      []dataflow.Option // win over the text's SET
	Start        Start
	ValidateOnly bool
}

// Deployed is what a deploy did, or would do.
type Deployed struct {
	Unchanged bool
	Pipeline  *Pipeline // nil for one that ValidateOnly would create, and for a text without materialized views
	Tables    []Table
	Streams   []DeployedStream
}

// DeployedStream is what a deploy means for a stream that its text declares or reads.
type DeployedStream struct {
	Name        string
	Created     bool
	Read        bool
	RowsToRead  uint64
	RowsDropped uint64
}

// Pipelines is the catalog of pipelines.
type Pipelines interface {
	Deploy(ctx context.Context, d Deploy) (*Deployed, error)
	// DeletePipeline removes a pipeline and names the streams that stay.
	DeletePipeline(ctx context.Context, name string) (keptStreams []string, err error)
	ListPipelines(ctx context.Context) ([]*Pipeline, error)
	GetPipeline(ctx context.Context, name string) (*Pipeline, error)
}

// PipelineControl changes what a pipeline is doing.
type PipelineControl interface {
	StopPipeline(ctx context.Context, name string) (*Pipeline, error)
	ResumePipeline(ctx context.Context, name string, skipFailedRow bool) (*Pipeline, error)
	SetPipelineOptions(ctx context.Context, name string, options []dataflow.Option) (*Pipeline, error)
	// FailPipeline crashes the dataflow as a fault would, and returns the incarnation that it ended.
	FailPipeline(ctx context.Context, name string) (dataflow.Incarnation, error)
}

// Table is a table of a pipeline.
type Table struct {
	Pipeline string
	Name     string
	Schema   dataflow.Schema
	Key      []string // names of the key columns, in key order
	Rows     uint64   // live, approximate; 0 when unknown
	Bytes    uint64
}

// Tables is the catalog of tables.
type Tables interface {
	// ListTables lists the tables of one pipeline, of all when the name is empty.
	ListTables(ctx context.Context, pipeline string) ([]Table, error)
	DescribeTable(ctx context.Context, pipeline, table string) (Table, *dataflow.Cut, error)
}

// Checkpoint is one committed cut.
type Checkpoint struct {
	Commit *dataflow.CheckpointCommit
	Leases int // that keep it
}

// Lease keeps a cut readable.
type Lease struct {
	ID         string
	Checkpoint dataflow.CheckpointID
	ExpiresAt  int64 // µs since 1970
}

// Checkpoints shows and makes checkpoints.
type Checkpoints interface {
	// ListCheckpoints returns the retained cuts, newest first.
	ListCheckpoints(ctx context.Context, pipeline string) ([]Checkpoint, error)
	GetCheckpoint(ctx context.Context, pipeline string, id dataflow.CheckpointID) (Checkpoint, error)
	// TriggerCheckpoint starts a checkpoint and, with wait, returns the commit that covers the time of the call; nil
	// without.
	TriggerCheckpoint(ctx context.Context, pipeline string, wait bool) (*Checkpoint, error)
	// LeaseCheckpoint keeps a cut (0 = the newest) for ttl; with a lease's id it renews that.
	LeaseCheckpoint(ctx context.Context, pipeline string, id dataflow.CheckpointID, ttl time.Duration, lease string) (Lease, error)
	ReleaseLease(ctx context.Context, pipeline, lease string) error
}

// TokenWait says what to wait for.
type TokenWait struct {
	Positions dataflow.Positions
	Processed bool     // live tables; otherwise a committed cut
	Pipelines []string // empty = every running one that reads the streams
}

// Tokens waits for rows to arrive in tables.
type Tokens interface {
	// WaitToken returns the cuts of the pipelines it waited for. When ctx ends first: TOKEN_NOT_REACHED.
	WaitToken(ctx context.Context, w TokenWait) ([]dataflow.Cut, error)
}

// RaftLog is the state of one Raft group, as this node sees it.
type RaftLog struct {
	Group                   string
	Role, Leader            string
	Term                    uint64
	Applied, Last, Snapshot dataflow.LogIndex
	// Voters and Readers are the log's members, as this node knows them: those that vote, and those that only follow.
	Voters, Readers []string
}

// The roles of a node in a log.
const (
	RoleLeader    = "leader"
	RoleCandidate = "candidate"
	RoleVoter     = "voter"
	RoleReader    = "reader"
)

// AddMember adds a member of the log.
func (l *RaftLog) AddMember(node string, votes bool) {
	if votes {
		l.Voters = append(l.Voters, node)
	} else {
		l.Readers = append(l.Readers, node)
	}
}

// Follows sets the role of a node that follows.
func (l *RaftLog) Follows(node string) {
	l.Role = RoleReader
	if slices.Contains(l.Voters, node) {
		l.Role = RoleVoter
	}
}

// ClusterStatus is the state of the group, as this node sees it.
type ClusterStatus struct {
	Node      string
	Shards    int
	Meta      RaftLog
	Logs      []RaftLog
	StartedAt int64 // µs since 1970
	Pipelines int
	Streams   int
}

// Cluster shows the node group.
type Cluster interface {
	Status(ctx context.Context) (ClusterStatus, error)
	// Nodes shows all nodes of the group, those that do not answer too; none in a group of one.
	Nodes(ctx context.Context) []*weirv1.NodeStatus
	// Addresses says where the nodes of the group are, without asking another; none in a group of one.
	Addresses() []*weirv1.NodeAddress
	// AddNode takes the node at an address into the group, RemoveNode takes one out, DrainNode keeps the lead of all logs away
	// from one, or lets it lead again. They return before that is done.
	AddNode(ctx context.Context, peerAddr, name string) (*weirv1.NodeStatus, error)
	RemoveNode(ctx context.Context, node string, undo bool) (*weirv1.NodeStatus, error)
	DrainNode(ctx context.Context, node string, undo bool) (*weirv1.NodeStatus, error)
	// Replicas returns how many nodes are to vote in each shard's log, 0 in a group of one; SetReplicas says how many it is to be.
	Replicas() int
	SetReplicas(ctx context.Context, n int) (int, error)
	// Rebalance spreads the shards' leads evenly and returns what it has moved.
	Rebalance(ctx context.Context) ([]*weirv1.Move, error)
	// Verify compares what the nodes hold of pipelines, no names = all.
	Verify(ctx context.Context, pipelines []string) ([]*weirv1.Verified, error)
	// Ready returns nil when the node can serve: it has a committed cut for a pipeline, or there is no pipeline.
	// Otherwise the error says what is missing.
	Ready(ctx context.Context) error
}
