package meta

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// KeepSuperseded is how long a cut stays readable after its successor was committed (P6). Why not shorter: a reader that
// was told the newest cut asks other shards for it. Why not longer: cuts hold back merging.
const KeepSuperseded = 10 * time.Second

// MaxSuperseded bounds the cuts that are kept because they are young. Why not fewer: so many are made in KeepSuperseded at
// the shortest checkpoint.interval. Why not unbounded: while the clock stands behind the meta log's time, because it had
// run ahead and was set right, no cut gets older.
const MaxSuperseded = 1000

// Limits of what one group or pipeline may hold in the meta log, so that no client can grow it without bound.
const (
	MaxLeases    = 1000           // leases of one pipeline
	MaxLeaseTime = 24 * time.Hour // longest life of a lease without renewal
	MaxSkipRows  = 10_000         // rows on a pipeline's skip list
	MaxPipelines = 1000
	MaxStreams   = 10_000
	MaxAttempts  = 1 << 20 // attempt numbers of one block
	MaxInstance  = 256     // bytes of the name of a producer's opening
)

// State is the meta log's state after entry Index. It is immutable, with all that it points to.
type State struct {
	Index dataflow.LogIndex
	Now   int64 // µs since 1970: the largest time that an entry carried

	ClusterID string // "" until bootstrapped
	Shards    int    // number of shards; 0 until bootstrapped

	// Members are the nodes of the group, those that have left too, by id; none in a group of one node that no other can join.
	Members []Member
	// Placement says who votes in which log.
	Placement Placement
	replicas  int // 0 = DefaultReplicas

	// NextStream and NextPipeline are the next identifiers to give: a smaller one that is not in the maps was dropped.
	NextStream   dataflow.StreamID
	NextPipeline dataflow.PipelineUID

	Streams   map[dataflow.StreamID]*Stream
	Pipelines map[dataflow.PipelineUID]*Pipeline

	streamNames   map[string]dataflow.StreamID
	pipelineNames map[string]dataflow.PipelineUID
	producers     producers
	// forgottenEpoch is the largest epoch of a producer that was forgotten. New ones begin above it.
	forgottenEpoch dataflow.ProducerEpoch
}

// Stream is a stream's definition.
type Stream struct {
	ID          dataflow.StreamID
	Name        string
	Schema      dataflow.Schema
	PartitionBy []int // columns whose hash places a row; empty = rows are spread
	Options     dataflow.StreamOptions
	Declared    dataflow.StreamOptions // that it was made with
	Sealed      bool                   // takes no more rows
	CreatedAt   int64                  // µs since 1970
}

// Lease keeps a cut readable until it expires or is released.
type Lease struct {
	ID         uint64 // unique within the pipeline, never reused
	Checkpoint dataflow.CheckpointID
	ExpiresAt  int64 // µs since 1970, in the meta log's time
}

// Owner says which node runs a shard's tasks in an incarnation.
type Owner struct {
	Shard dataflow.ShardID
	Node  string
	Term  uint64 // of the shard's log when the incarnation began
}

// Pipeline is all that the meta log knows of a pipeline.
type Pipeline struct {
	UID         dataflow.PipelineUID
	Name        string
	SQL         string
	Fingerprint string
	Options     dataflow.PipelineOptions
	Reads       []dataflow.StreamID // ascending
	CreatedAt   int64               // µs since 1970

	State      dataflow.PipelineState
	StateSince int64                     // µs since 1970
	Failure    *dataflow.PipelineFailure // why it is FAILED, or the last failure that a resume left behind; nil = none
	// ClaimExpired says that the pipeline, not running, held its rows for longer than the streams' grace (POSITIONS_EXPIRED).
	ClaimExpired bool

	Timeline    dataflow.Timeline
	Incarnation dataflow.Incarnation
	Base        *dataflow.CheckpointCommit // the cut that the incarnation started from (P4)
	Owners      []Owner
	Cause       string // why the incarnation began

	Start     dataflow.Positions // the positions of cut 0
	DeployEnd dataflow.Positions // where the streams ended when it was deployed
	CaughtUp  bool               // a committed cut has covered DeployEnd

	// Attempts in [AttemptsFrom, AttemptsTo) may commit (P3).
	AttemptsFrom, AttemptsTo dataflow.CheckpointID

	// Cuts are the readable cuts, ascending by id; never empty. The last is the newest.
	Cuts   []*dataflow.CheckpointCommit
	Leases []Lease // ascending by id

	Skip []dataflow.SourceRow // rows that the tasks leave out; ascending

	nextLease uint64
}

// Newest returns the newest committed cut.
func (p *Pipeline) Newest() *dataflow.CheckpointCommit { return p.Cuts[len(p.Cuts)-1] }

// Floor returns the oldest cut that is retained or leased. Replicas merge up to it and never past it (P6).
func (p *Pipeline) Floor() *dataflow.CheckpointCommit { return p.Cuts[0] }

// Cut returns the readable cut n. Otherwise the error is CHECKPOINT_NOT_FOUND, or CHECKPOINT_EXPIRED for one that may
// have been committed once.
func (p *Pipeline) Cut(n dataflow.CheckpointID) (*dataflow.CheckpointCommit, error) {
	i, ok := slices.BinarySearchFunc(p.Cuts, n, func(c *dataflow.CheckpointCommit, n dataflow.CheckpointID) int {
		return cmp.Compare(c.ID, n)
	})
	if ok {
		return p.Cuts[i], nil
	}
	if n < p.Newest().ID {
		return nil, dataflow.Errorf(dataflow.ReasonCheckpointExpired, "checkpoint %d of pipeline %s is no longer kept", n, p.Name)
	}
	return nil, dataflow.Errorf(dataflow.ReasonCheckpointNotFound, "pipeline %s has no checkpoint %d", p.Name, n)
}

// ReadsStream reports whether the pipeline reads the stream.
func (p *Pipeline) ReadsStream(id dataflow.StreamID) bool {
	_, ok := slices.BinarySearch(p.Reads, id)
	return ok
}

// Stream returns the stream called name, or STREAM_NOT_FOUND.
func (s *State) Stream(name string) (*Stream, error) {
	if id, ok := s.streamNames[name]; ok {
		return s.Streams[id], nil
	}
	return nil, dataflow.Errorf(dataflow.ReasonStreamNotFound, "there is no stream %q", name).WithMeta("stream", name)
}

// Pipeline returns the pipeline called name, or PIPELINE_NOT_FOUND.
func (s *State) Pipeline(name string) (*Pipeline, error) {
	if uid, ok := s.pipelineNames[name]; ok {
		return s.Pipelines[uid], nil
	}
	return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "there is no pipeline %q", name).WithMeta("pipeline", name)
}

// StreamList returns all streams by name.
func (s *State) StreamList() []*Stream {
	out := make([]*Stream, 0, len(s.Streams))
	for _, name := range slices.Sorted(maps.Keys(s.streamNames)) {
		out = append(out, s.Streams[s.streamNames[name]])
	}
	return out
}

// PipelineList returns all pipelines by name.
func (s *State) PipelineList() []*Pipeline {
	out := make([]*Pipeline, 0, len(s.Pipelines))
	for _, name := range slices.Sorted(maps.Keys(s.pipelineNames)) {
		out = append(out, s.Pipelines[s.pipelineNames[name]])
	}
	return out
}

// StreamDropped reports whether the stream existed once and does no more: what is stored of it can be deleted.
func (s *State) StreamDropped(id dataflow.StreamID) bool {
	return id < s.NextStream && s.Streams[id] == nil
}

// PipelineDeleted reports whether the pipeline existed once and does no more: what is stored of it can be deleted.
func (s *State) PipelineDeleted(uid dataflow.PipelineUID) bool {
	return uid < s.NextPipeline && s.Pipelines[uid] == nil
}

// ProducerEpoch returns the epoch that was last given to the producer; 0 when it has never been opened.
func (s *State) ProducerEpoch(name string) dataflow.ProducerEpoch { return s.producers.get(name).epoch }

// Holder is a pipeline's claim on the rows of a stream.
type Holder struct {
	Pipeline  dataflow.PipelineUID
	Name      string
	State     dataflow.PipelineState
	Positions dataflow.Positions // per shard of this stream: rows from here on are still needed (the newest cut's, P6)
	// Until is when the claim ends by itself, in µs since 1970 of the meta log's time; 0 while the pipeline is active.
	Until int64
}

// StreamHolders returns the claims on a stream's rows, by the pipelines' names. A claim that has expired is not among them.
//
// A pipeline needs the rows behind its newest committed cut, from which every recovery goes on (P4). Older cuts, retained
// or leased, are state that is there to be read: they need no row.
func (s *State) StreamHolders(id dataflow.StreamID) []Holder {
	st := s.Streams[id]
	if st == nil {
		return nil
	}
	var out []Holder
	for _, p := range s.PipelineList() {
		if !p.ReadsStream(id) || p.ClaimExpired {
			continue
		}
		h := Holder{Pipeline: p.UID, Name: p.Name, State: p.State, Positions: dataflow.Positions{}, Until: s.claimEnd(p)}
		next := p.Newest().Positions
		for shard := range s.Shards {
			k := dataflow.StreamShard{Stream: id, Shard: dataflow.ShardID(shard)}
			h.Positions[k] = next[k]
		}
		out = append(out, h)
	}
	return out
}

// claimEnd returns when p, if it is not active, loses its claim on the rows of all its streams: after the shortest grace
// among them, because a pipeline that lacks rows of one cannot go on. 0 = not while it is active, or reads nothing.
func (s *State) claimEnd(p *Pipeline) int64 {
	if p.State.Active() {
		return 0
	}
	var end int64
	for _, id := range p.Reads {
		if e := p.StateSince + s.Streams[id].Options.Grace.Microseconds(); end == 0 || e < end {
			end = e
		}
	}
	return end
}
