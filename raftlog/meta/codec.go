package meta

import (
	"fmt"
	"math"
	"strings"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
)

// This file converts between the stored messages and the types that the rest of Weir uses. Encoding is total; decoding
// accepts what encoding produces and clips nothing: what is out of range is refused by the command that decodes it.

func (d StreamDefinition) encode() *metav1.StreamDefinition {
	out := &metav1.StreamDefinition{Name: d.Name, Options: encodeOptions(allStreamOptions(d.Options))}
	for _, c := range d.Schema {
		out.Columns = append(out.Columns, &metav1.Column{Name: c.Name, Type: uint32(c.Type), NotNull: c.NotNull, Precision: uint32(c.Mod.Precision), Scale: int32(c.Mod.Scale)})
	}
	for _, i := range d.PartitionBy {
		out.PartitionBy = append(out.PartitionBy, uint32(i))
	}
	return out
}

// decodeStream checks a definition and returns the stream it describes, without identifier and time.
func decodeStream(d *metav1.StreamDefinition) (*Stream, error) {
	st := &Stream{Name: d.GetName()}
	if !dataflow.ValidName(st.Name) {
		return nil, dataflow.Errorf(dataflow.ReasonNameInvalid, "%q cannot name a stream", st.Name)
	}
	for _, c := range d.GetColumns() {
		t := dataflow.Type(c.Type)
		if !dataflow.ValidName(c.Name) || st.Schema.Index(c.Name) >= 0 {
			return nil, dataflow.Errorf(dataflow.ReasonNameInvalid, "%q cannot name a column of stream %s", c.Name, st.Name)
		}
		if c.Type > uint32(dataflow.LastType) || t == dataflow.TypeUnknown {
			return nil, dataflow.Errorf(dataflow.ReasonSQLType, "column %s of stream %s cannot have the type %s", c.Name, st.Name, t)
		}
		mod := dataflow.NumericMod{Precision: uint16(min(c.Precision, math.MaxUint16)), Scale: int16(max(min(c.Scale, math.MaxInt16), math.MinInt16))}
		if !mod.Valid() || t != dataflow.TypeNumeric && mod != (dataflow.NumericMod{}) {
			return nil, dataflow.Errorf(dataflow.ReasonSQLType, "column %s of stream %s cannot have the precision %d and scale %d", c.Name, st.Name, c.Precision, c.Scale)
		}
		st.Schema = append(st.Schema, dataflow.Column{Name: c.Name, Type: t, NotNull: c.NotNull, Mod: mod})
	}
	if len(st.Schema) == 0 {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "stream %s has no columns", st.Name)
	}
	for _, i := range d.GetPartitionBy() {
		if int(i) >= len(st.Schema) {
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "stream %s is partitioned by column %d, which it does not have", st.Name, i)
		}
		st.PartitionBy = append(st.PartitionBy, int(i))
	}
	var err error
	st.Options, err = decodeStreamOptions(d.GetOptions())
	st.Declared = st.Options
	return st, err
}

// definition is the inverse of decodeStream.
func (st *Stream) definition() *metav1.StreamDefinition {
	return StreamDefinition{Name: st.Name, Schema: st.Schema, PartitionBy: st.PartitionBy, Options: st.Options.List()}.encode()
}

func encodeOptions(opts []dataflow.Option) []*metav1.Option {
	out := make([]*metav1.Option, len(opts))
	for i, o := range opts {
		out[i] = &metav1.Option{Name: o.Name, Value: o.Value}
	}
	return out
}

func decodeOptions(opts []*metav1.Option) []dataflow.Option {
	out := make([]dataflow.Option, len(opts))
	for i, o := range opts {
		out[i] = dataflow.Option{Name: o.Name, Value: o.Value}
	}
	return out
}

// EncodePositions returns positions as they are stored, and sent between nodes: in order.
func EncodePositions(p dataflow.Positions) []*metav1.Position {
	out := make([]*metav1.Position, 0, len(p))
	for _, k := range p.Sorted() {
		out = append(out, &metav1.Position{Stream: uint64(k.Stream), Shard: uint32(k.Shard), Offset: uint64(p[k])})
	}
	return out
}

// DecodePositions is the inverse of EncodePositions.
func DecodePositions(ps []*metav1.Position) dataflow.Positions {
	out := make(dataflow.Positions, len(ps))
	for _, p := range ps {
		out[dataflow.StreamShard{Stream: dataflow.StreamID(p.Stream), Shard: dataflow.ShardID(p.Shard)}] = dataflow.Offset(p.Offset)
	}
	return out
}

func encodeRow(r dataflow.SourceRow) *metav1.SourceRow {
	return &metav1.SourceRow{Stream: uint64(r.Stream), Shard: uint32(r.Shard), Offset: uint64(r.Offset)}
}

func decodeRow(r *metav1.SourceRow) dataflow.SourceRow {
	return dataflow.SourceRow{Stream: dataflow.StreamID(r.Stream), Shard: dataflow.ShardID(r.Shard), Offset: dataflow.Offset(r.Offset)}
}

func encodeRows(rows []dataflow.SourceRow) []*metav1.SourceRow {
	out := make([]*metav1.SourceRow, len(rows))
	for i, r := range rows {
		out[i] = encodeRow(r)
	}
	return out
}

func decodeRows(rows []*metav1.SourceRow) []dataflow.SourceRow {
	out := make([]dataflow.SourceRow, len(rows))
	for i, r := range rows {
		out[i] = decodeRow(r)
	}
	return out
}

// EncodeFailure returns a failure as it is stored, and sent between nodes, with its texts cut to what the meta log keeps.
func EncodeFailure(f *dataflow.PipelineFailure) *metav1.Failure {
	if f == nil {
		return nil
	}
	out := &metav1.Failure{
		Reason: string(f.Reason), Message: plainText(f.Message), Incarnation: uint64(f.Incarnation), At: f.At,
		View: plainText(f.View), Line: uint32(f.Line), Column: uint32(f.Column), Rendered: plainText(f.Rendered),
	}
	if f.HasRow {
		out.Row = encodeRow(f.Row)
	}
	return out
}

// maxText bounds a message that the meta log keeps.
const maxText = 4 << 10

// plainText makes text that comes from a failure fit for an entry: not too long, and valid UTF-8, without which the entry
// could not be encoded and the failure would be lost.
func plainText(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// DecodeFailure is the inverse of EncodeFailure.
func DecodeFailure(f *metav1.Failure) *dataflow.PipelineFailure {
	if f == nil {
		return nil
	}
	out := &dataflow.PipelineFailure{
		Reason: dataflow.Reason(f.Reason), Message: f.Message, Incarnation: dataflow.Incarnation(f.Incarnation), At: f.At,
		View: f.View, Line: int(f.Line), Column: int(f.Column), Rendered: f.Rendered,
	}
	if f.Row != nil {
		out.HasRow, out.Row = true, decodeRow(f.Row)
	}
	return out
}

func encodeOwners(owners []Owner) []*metav1.Owner {
	out := make([]*metav1.Owner, len(owners))
	for i, o := range owners {
		out[i] = &metav1.Owner{Shard: uint32(o.Shard), Node: o.Node, Term: o.Term}
	}
	return out
}

func decodeOwners(owners []*metav1.Owner) []Owner {
	out := make([]Owner, len(owners))
	for i, o := range owners {
		out[i] = Owner{Shard: dataflow.ShardID(o.Shard), Node: o.Node, Term: o.Term}
	}
	return out
}

func encodeCommit(c *dataflow.CheckpointCommit) *metav1.Checkpoint {
	out := &metav1.Checkpoint{
		Pipeline: uint64(c.Pipeline), Timeline: uint64(c.Timeline), Incarnation: uint64(c.Incarnation), Id: uint64(c.ID),
		Guarantee: metav1.Guarantee(c.Guarantee), TriggeredAt: c.TriggeredAt, CommittedAt: c.CommittedAt,
		MetaIndex: uint64(c.MetaIndex), Positions: EncodePositions(c.Positions), CatchingUp: c.CatchingUp,
	}
	for _, s := range c.Shards {
		out.Shards = append(out.Shards, &metav1.ShardCommit{Shard: uint32(s.Shard), Seq: uint64(s.Seq), Digest: s.Digest,
			Index: uint64(s.Index), Skipped: s.Skipped, AckMicros: s.AckMicros})
	}
	return out
}

func decodeCommit(c *metav1.Checkpoint) *dataflow.CheckpointCommit {
	out := &dataflow.CheckpointCommit{
		Pipeline: dataflow.PipelineUID(c.GetPipeline()), Timeline: dataflow.Timeline(c.GetTimeline()),
		Incarnation: dataflow.Incarnation(c.GetIncarnation()), ID: dataflow.CheckpointID(c.GetId()),
		Guarantee: dataflow.Guarantee(c.GetGuarantee()), TriggeredAt: c.GetTriggeredAt(), CommittedAt: c.GetCommittedAt(),
		MetaIndex: dataflow.LogIndex(c.GetMetaIndex()), Positions: DecodePositions(c.GetPositions()), CatchingUp: c.GetCatchingUp(),
	}
	for _, s := range c.GetShards() {
		out.Shards = append(out.Shards, dataflow.ShardCommit{Shard: dataflow.ShardID(s.Shard), Seq: dataflow.DeltaSeq(s.Seq),
			Digest: s.Digest, Index: dataflow.LogIndex(s.Index), Skipped: s.Skipped, AckMicros: s.AckMicros})
	}
	return out
}

func (c CreatePipeline) encode() *metav1.CreatePipeline {
	out := &metav1.CreatePipeline{
		Name: c.Name, Sql: c.SQL, Fingerprint: c.Fingerprint, Options: encodeOptions(allPipelineOptions(c.Options)),
		Start: EncodePositions(c.Start), DeployEnd: EncodePositions(c.DeployEnd), Owners: encodeOwners(c.Owners),
	}
	for _, d := range c.Declared {
		out.Declared = append(out.Declared, d.encode())
	}
	for _, name := range sortedKeys(c.Reads) {
		out.Reads = append(out.Reads, &metav1.ReadStream{Name: name, Id: uint64(c.Reads[name])})
	}
	return out
}

func encodeState(s dataflow.PipelineState) metav1.PipelineState { return metav1.PipelineState(s) }

func decodeState(s metav1.PipelineState) (dataflow.PipelineState, error) {
	if s < metav1.PipelineState_PIPELINE_STATE_RECOVERING || s > metav1.PipelineState_PIPELINE_STATE_FAILED {
		return 0, fmt.Errorf("pipeline state %d is not known", s)
	}
	return dataflow.PipelineState(s), nil
}
