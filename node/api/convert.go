package api

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Timestamp returns microseconds since 1970 as a message; 0 is unset.
func Timestamp(micros int64) *timestamppb.Timestamp {
	if micros == 0 {
		return nil
	}
	return timestamppb.New(time.UnixMicro(micros))
}

func optionMap(opts []dataflow.Option) map[string]string {
	m := make(map[string]string, len(opts))
	for _, o := range opts {
		m[o.Name] = o.Value
	}
	return m
}

// optionList is the reverse of optionMap, by name so that equal requests are handled alike.
func optionList(m map[string]string) []dataflow.Option {
	out := make([]dataflow.Option, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, dataflow.Option{Name: name, Value: m[name]})
	}
	return out
}

func streamMessage(s *Stream) *weirv1.Stream {
	m := &weirv1.Stream{Name: s.Name, Id: uint64(s.ID), Columns: wire.Columns(s.Schema), Options: optionMap(s.Options),
		Sealed: s.Sealed, CreatedAt: Timestamp(s.CreatedAt)}
	for _, c := range s.PartitionBy {
		m.PartitionBy = append(m.PartitionBy, s.Schema[c].Name)
	}
	return m
}

func stateMessage(s dataflow.PipelineState) weirv1.PipelineState {
	switch s {
	case dataflow.PipelineRunning:
		return weirv1.PipelineState_PIPELINE_STATE_RUNNING
	case dataflow.PipelineRecovering:
		return weirv1.PipelineState_PIPELINE_STATE_RECOVERING
	case dataflow.PipelineStopping:
		return weirv1.PipelineState_PIPELINE_STATE_STOPPING
	case dataflow.PipelineStopped:
		return weirv1.PipelineState_PIPELINE_STATE_STOPPED
	case dataflow.PipelineFailed:
		return weirv1.PipelineState_PIPELINE_STATE_FAILED
	}
	return weirv1.PipelineState_PIPELINE_STATE_UNSPECIFIED
}

func guaranteeMessage(g dataflow.Guarantee) weirv1.Guarantee {
	switch g {
	case dataflow.GuaranteeExactlyOnce:
		return weirv1.Guarantee_GUARANTEE_EXACTLY_ONCE
	case dataflow.GuaranteeAtLeastOnce:
		return weirv1.Guarantee_GUARANTEE_AT_LEAST_ONCE
	case dataflow.GuaranteeAtMostOnce:
		return weirv1.Guarantee_GUARANTEE_AT_MOST_ONCE
	}
	return weirv1.Guarantee_GUARANTEE_UNSPECIFIED
}

// namer makes messages of what has the ids of streams, which have their names there. It is safe for concurrent use.
type namer struct {
	name func(dataflow.StreamID) string
	last atomic.Pointer[namedCut] // that was made a message
}

// namedCut is what messages of a committed cut have in common. Most reads of a moment are of one cut, and its positions are
// most of a short answer.
type namedCut struct {
	session   dataflow.SessionToken
	token     string
	positions []*weirv1.Position // nobody changes them
}

func newNamer(name func(dataflow.StreamID) string) *namer { return &namer{name: name} }

// committed returns what the messages of a committed cut have in common. A cut never changes, and its session token names it.
func (n *namer) committed(c *dataflow.Cut) *namedCut {
	if last := n.last.Load(); last != nil && last.session == c.Session && len(last.positions) == len(c.Positions) {
		return last
	}
	made := &namedCut{session: c.Session, token: c.Session.String(), positions: n.positions(c.Positions)}
	n.last.Store(made)
	return made
}

func (n *namer) positions(p dataflow.Positions) []*weirv1.Position {
	// Every answer of a read has them: all messages in one piece, and a name per stream, not per shard.
	messages := make([]weirv1.Position, len(p))
	out := make([]*weirv1.Position, len(p))
	var stream dataflow.StreamID
	var name string
	for i, k := range p.Sorted() {
		if i == 0 || k.Stream != stream {
			stream, name = k.Stream, n.name(k.Stream)
		}
		m := &messages[i]
		m.Stream, m.Shard, m.Offset = name, uint32(k.Shard), uint64(p[k])
		out[i] = m
	}
	return out
}

// cut returns a cut as a message; nil for none.
func (n *namer) cut(c *dataflow.Cut) *weirv1.Cut {
	if c == nil || c.Pipeline == "" {
		return nil
	}
	m := &weirv1.Cut{
		Pipeline: c.Pipeline, PipelineUid: uint64(c.UID), Timeline: uint64(c.Timeline), CheckpointId: uint64(c.Checkpoint),
		Incarnation: uint64(c.Incarnation), Guarantee: guaranteeMessage(c.Guarantee), TriggeredAt: Timestamp(c.TriggeredAt),
		CommittedAt: Timestamp(c.CommittedAt), AgeMs: c.AgeMillis,
		Watermark: Timestamp(c.Watermark), BehindRows: c.BehindRows, BehindMs: c.BehindMillis, Speculative: c.Speculative,
		CatchingUp: c.CatchingUp, Node: c.Node, Role: c.Role, PipelineState: stateMessage(c.State), SkippedRows: c.Skipped,
	}
	switch {
	case c.Session == (dataflow.SessionToken{}):
		m.Positions = n.positions(c.Positions)
	case c.Speculative:
		m.Token, m.Positions = c.Session.String(), n.positions(c.Positions)
	default:
		common := n.committed(c)
		m.Token, m.Positions = common.token, common.positions
	}
	return m
}

// AppendCutJSON appends a cut as HTTP answers have it, for the faces that do not speak gRPC. names gives the names of streams.
func AppendCutJSON(dst []byte, c *dataflow.Cut, names func(dataflow.StreamID) string) []byte {
	return wire.AppendCutJSON(dst, newNamer(names).cut(c))
}

func (n *namer) pipeline(p *Pipeline) *weirv1.Pipeline {
	if p == nil {
		return nil
	}
	m := &weirv1.Pipeline{
		Name: p.Name, Uid: uint64(p.UID), Sql: p.SQL, Options: optionMap(p.Options), State: stateMessage(p.State),
		Timeline: uint64(p.Timeline), Incarnation: uint64(p.Incarnation), Tables: p.Tables, Streams: p.Streams,
		CreatedAt: Timestamp(p.CreatedAt), Cut: n.cut(p.Cut),
	}
	if f := p.Failure; f != nil && p.State == dataflow.PipelineFailed { // what it once failed with says nothing of now
		m.Failure = &weirv1.PipelineFailure{
			Reason: string(f.Reason), Message: f.Message, At: Timestamp(f.At), View: f.View, Line: uint32(max(f.Line, 0)),
			Column: uint32(max(f.Column, 0)), HasRow: f.HasRow, Incarnation: uint64(f.Incarnation),
		}
		if f.HasRow {
			m.Failure.Stream, m.Failure.Shard, m.Failure.Offset = n.name(f.Row.Stream), uint32(f.Row.Shard), uint64(f.Row.Offset)
			m.Failure.Row = f.Rendered
		}
	}
	return m
}

func tableMessage(t Table) *weirv1.Table {
	return &weirv1.Table{Pipeline: t.Pipeline, Name: t.Name, Columns: wire.Columns(t.Schema), Key: t.Key, Rows: t.Rows, Bytes: t.Bytes}
}

func (n *namer) checkpoint(pipeline string, c *Checkpoint) *weirv1.Checkpoint {
	if c == nil || c.Commit == nil {
		return nil
	}
	k := c.Commit
	m := &weirv1.Checkpoint{
		Pipeline: pipeline, Id: uint64(k.ID), Timeline: uint64(k.Timeline), Incarnation: uint64(k.Incarnation),
		Guarantee: guaranteeMessage(k.Guarantee), TriggeredAt: Timestamp(k.TriggeredAt), CommittedAt: Timestamp(k.CommittedAt),
		Positions: n.positions(k.Positions), SkippedRows: k.Skipped(), CatchingUp: k.CatchingUp, Leases: uint32(c.Leases),
	}
	for _, s := range k.Shards {
		m.Shards = append(m.Shards, &weirv1.CheckpointShard{
			Shard: uint32(s.Shard), DeltaSeq: uint64(s.Seq), Digest: fmt.Sprintf("%016x", s.Digest), LogIndex: uint64(s.Index),
			AcknowledgedAfter: durationpb.New(time.Duration(s.AckMicros) * time.Microsecond),
		})
	}
	return m
}
