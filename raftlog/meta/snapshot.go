package meta

import (
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
	"github.com/weirdb/weir/raftlog"
)

var _ raftlog.FSM = (*FSM)(nil)

// Snapshot captures the state; it costs nothing, because a State is immutable.
func (f *FSM) Snapshot() (raftlog.Snapshot, error) { return snapshot{f.State()}, nil }

// Restore replaces the state by a snapshot's.
func (f *FSM) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read a snapshot of the meta log: %w", err)
	}
	s, err := decodeSnapshot(b)
	if err != nil {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "snapshot of the meta log: %w", err)
	}
	f.replace(s)
	return nil
}

type snapshot struct{ state *State }

// Persist writes the state: equal states give equal bytes.
func (s snapshot) Persist(w io.Writer) error {
	b, err := s.state.encodeSnapshot()
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("write a snapshot of the meta log: %w", err)
	}
	return nil
}

// Release implements raftlog.Snapshot.
func (snapshot) Release() {}

func (s *State) encodeSnapshot() ([]byte, error) {
	out := &metav1.Snapshot{
		Index: uint64(s.Index), Now: s.Now, ClusterId: s.ClusterID, Shards: uint32(s.Shards),
		NextStream: uint64(s.NextStream), NextPipeline: uint64(s.NextPipeline),
		ForgottenEpoch: uint64(s.forgottenEpoch),
	}
	for _, id := range sortedKeys(s.Streams) {
		st := s.Streams[id]
		m := &metav1.Stream{Id: uint64(id), Definition: st.definition(), Sealed: st.Sealed, CreatedAt: st.CreatedAt}
		if st.Declared != st.Options {
			m.Declared = encodeOptions(st.Declared.List())
		}
		out.Streams = append(out.Streams, m)
	}
	for _, uid := range sortedKeys(s.Pipelines) {
		out.Pipelines = append(out.Pipelines, encodePipeline(s.Pipelines[uid]))
	}
	names := s.producers.names()
	slices.Sort(names)
	for _, name := range names {
		p := s.producers.get(name)
		out.Producers = append(out.Producers, &metav1.Producer{Name: name, Epoch: uint64(p.epoch), Instance: p.instance, OpenedAt: p.opened})
	}
	for i := range s.Members {
		out.Members = append(out.Members, encodeMember(&s.Members[i]))
	}
	out.Replicas, out.Placement = uint32(s.replicas), encodePlacement(&s.Placement)
	return proto.MarshalOptions{Deterministic: true}.Marshal(out)
}

func decodeSnapshot(b []byte) (*State, error) {
	var in metav1.Snapshot
	if err := proto.Unmarshal(b, &in); err != nil {
		return nil, err
	}
	s := emptyState()
	s.Index, s.Now, s.ClusterID, s.Shards = dataflow.LogIndex(in.Index), in.Now, in.ClusterId, int(in.Shards)
	s.NextStream, s.NextPipeline = dataflow.StreamID(in.NextStream), dataflow.PipelineUID(in.NextPipeline)
	if in.Shards > dataflow.MaxShards {
		return nil, fmt.Errorf("%d shards", in.Shards)
	}
	for _, m := range in.Streams {
		st, err := decodeStream(m.Definition)
		if err != nil {
			return nil, fmt.Errorf("stream %d: %w", m.Id, err)
		}
		st.ID, st.Sealed, st.CreatedAt = dataflow.StreamID(m.Id), m.Sealed, m.CreatedAt
		if len(m.Declared) > 0 {
			if st.Declared, err = decodeStreamOptions(m.Declared); err != nil {
				return nil, fmt.Errorf("stream %d: %w", m.Id, err)
			}
		}
		if st.ID >= s.NextStream || s.Streams[st.ID] != nil || s.streamNames[st.Name] != 0 {
			return nil, fmt.Errorf("stream %d %s is out of place", st.ID, st.Name)
		}
		s.Streams[st.ID] = st
		s.streamNames[st.Name] = st.ID
	}
	for _, m := range in.Pipelines {
		p, err := decodePipeline(m)
		if err != nil {
			return nil, fmt.Errorf("pipeline %d: %w", m.Uid, err)
		}
		if p.UID >= s.NextPipeline || s.Pipelines[p.UID] != nil || s.pipelineNames[p.Name] != 0 {
			return nil, fmt.Errorf("pipeline %d %s is out of place", p.UID, p.Name)
		}
		for _, id := range p.Reads {
			if s.Streams[id] == nil {
				return nil, fmt.Errorf("pipeline %d reads stream %d, which is not there", p.UID, id)
			}
		}
		s.Pipelines[p.UID] = p
		s.pipelineNames[p.Name] = p.UID
	}
	s.forgottenEpoch = dataflow.ProducerEpoch(in.ForgottenEpoch)
	for i, m := range in.Members {
		if i > 0 && m.Id <= in.Members[i-1].Id {
			return nil, fmt.Errorf("node %s is out of place", m.Id)
		}
		s.Members = append(s.Members, decodeMember(m))
	}
	s.replicas, s.Placement = int(in.Replicas), decodePlacement(in.Placement)
	for _, m := range in.Producers {
		s.producers.put(m.Name, producer{epoch: dataflow.ProducerEpoch(m.Epoch), instance: m.Instance, opened: m.OpenedAt})
	}
	return s, nil
}

func encodePipeline(p *Pipeline) *metav1.Pipeline {
	out := &metav1.Pipeline{
		Uid: uint64(p.UID), Name: p.Name, Sql: p.SQL, Fingerprint: p.Fingerprint, Options: encodeOptions(p.Options.List()),
		CreatedAt: p.CreatedAt, State: encodeState(p.State), StateSince: p.StateSince, Failure: EncodeFailure(p.Failure),
		ClaimExpired: p.ClaimExpired, Timeline: uint64(p.Timeline), Incarnation: uint64(p.Incarnation),
		Base: encodeCommit(p.Base), Owners: encodeOwners(p.Owners), Cause: p.Cause,
		Start: EncodePositions(p.Start), DeployEnd: EncodePositions(p.DeployEnd), CaughtUp: p.CaughtUp,
		AttemptsFrom: uint64(p.AttemptsFrom), AttemptsTo: uint64(p.AttemptsTo),
		Skip: encodeRows(p.Skip), NextLease: p.nextLease,
	}
	for _, id := range p.Reads {
		out.Reads = append(out.Reads, uint64(id))
	}
	for _, c := range p.Cuts {
		out.Cuts = append(out.Cuts, encodeCommit(c))
	}
	for _, l := range p.Leases {
		out.Leases = append(out.Leases, &metav1.HeldLease{Id: l.ID, Checkpoint: uint64(l.Checkpoint), ExpiresAt: l.ExpiresAt})
	}
	return out
}

func decodePipeline(m *metav1.Pipeline) (*Pipeline, error) {
	options, err := decodePipelineOptions(m.Options)
	if err != nil {
		return nil, err
	}
	state, err := decodeState(m.State)
	if err != nil {
		return nil, err
	}
	p := &Pipeline{
		UID: dataflow.PipelineUID(m.Uid), Name: m.Name, SQL: m.Sql, Fingerprint: m.Fingerprint, Options: options,
		CreatedAt: m.CreatedAt, State: state, StateSince: m.StateSince, Failure: DecodeFailure(m.Failure),
		ClaimExpired: m.ClaimExpired, Timeline: dataflow.Timeline(m.Timeline), Incarnation: dataflow.Incarnation(m.Incarnation),
		Base: decodeCommit(m.Base), Owners: decodeOwners(m.Owners), Cause: m.Cause,
		Start: DecodePositions(m.Start), DeployEnd: DecodePositions(m.DeployEnd), CaughtUp: m.CaughtUp,
		AttemptsFrom: dataflow.CheckpointID(m.AttemptsFrom), AttemptsTo: dataflow.CheckpointID(m.AttemptsTo),
		Skip: decodeRows(m.Skip), nextLease: m.NextLease,
	}
	for _, id := range m.Reads {
		p.Reads = append(p.Reads, dataflow.StreamID(id))
	}
	for i, c := range m.Cuts {
		cut := decodeCommit(c)
		if i > 0 && cut.ID <= p.Cuts[i-1].ID {
			return nil, fmt.Errorf("cut %d follows %d", cut.ID, p.Cuts[i-1].ID)
		}
		p.Cuts = append(p.Cuts, cut)
	}
	if len(p.Cuts) == 0 {
		return nil, fmt.Errorf("it has no cut")
	}
	for _, l := range m.Leases {
		p.Leases = append(p.Leases, Lease{ID: l.Id, Checkpoint: dataflow.CheckpointID(l.Checkpoint), ExpiresAt: l.ExpiresAt})
	}
	return p, nil
}
