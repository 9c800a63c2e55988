package shard

import (
	"bytes"
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// Machine is the shard's state machine by itself: what Log applies, without a Raft group, a store or a goroutine. It is for
// who has a log of another kind, such as a simulation. It is not safe for concurrent use.
type Machine struct {
	m *machine
	r Replica
}

// NewMachine returns a machine in the state before the first entry, which tells r of deltas as Log does.
func NewMachine(r Replica) *Machine { return &Machine{m: newMachine(), r: r} }

// Outcome is what an entry came to.
type Outcome struct {
	Err      error             // why it was refused
	Appended Appended          // of an append
	Last     dataflow.Seq      // of OpenProducer
	Index    dataflow.LogIndex // of EndDelta: where the delta's first end entry is
	Fresh    bool              // the entry changed something; otherwise it was refused, or a re-send
}

// Apply applies a committed entry. An error means that the machine and the replica must not be used any more: the entry is
// damaged, or the replica is.
func (m *Machine) Apply(index dataflow.LogIndex, entry []byte) (Outcome, error) {
	c, err := decode(entry)
	if err != nil {
		return Outcome{}, fmt.Errorf("entry %d: %w", index, err)
	}
	out := m.m.step(index, c)
	if _, rows := c.(*appendRows); out.fresh && !rows {
		err = tell(m.r, index, c)
	}
	return Outcome{Err: out.err, Appended: out.appended, Last: out.last, Index: out.index, Fresh: out.fresh}, err
}

// Snapshot returns the machine's state: equal states give equal bytes.
func (m *Machine) Snapshot() []byte {
	var b bytes.Buffer
	_ = m.m.write(&b) // a Buffer takes everything
	return b.Bytes()
}

// Restore replaces the state by a snapshot's, and tells the replica what the snapshot's log has told it, as far as the
// snapshot refers to it. entry gives back committed entries.
func (m *Machine) Restore(snapshot []byte, entry func(dataflow.LogIndex) ([]byte, error)) error {
	got, err := readMachine(snapshot)
	if err != nil {
		return err
	}
	if err := refeed(got, m.r, entry); err != nil {
		return err
	}
	m.m = got
	return nil
}

// References returns the entries that the machine refers to: all from floor on, and those of the islands below (P7).
func (m *Machine) References() (floor dataflow.LogIndex, islands []dataflow.LogRange) {
	r := m.m.references()
	return r.floor, r.islands
}

// Applied returns the last index that was applied.
func (m *Machine) Applied() dataflow.LogIndex { return m.m.applied }

// Range returns a stream's first retained offset and the offset after its last row.
func (m *Machine) Range(stream dataflow.StreamID) (start, end dataflow.Offset) {
	s := m.m.streams[stream]
	if s == nil {
		return 0, 0
	}
	return s.start(), s.end
}

// Batch returns where the batch lies that holds an offset, which must be retained: its entry, and the offset of its first row.
func (m *Machine) Batch(stream dataflow.StreamID, offset dataflow.Offset) (index dataflow.LogIndex, first dataflow.Offset) {
	s := m.m.streams[stream]
	b := s.batches[s.find(offset)]
	return b.index, b.first
}

// Pipeline returns what the log knows of a pipeline; false when it has not begun here or is dropped.
func (m *Machine) Pipeline(uid dataflow.PipelineUID) (PipelineStatus, bool) {
	p := m.m.pipelines[uid]
	if p == nil {
		return PipelineStatus{}, false
	}
	return p.status(), true
}

// RowsOf returns the rows that an entry appends; nil when it appends none.
func RowsOf(entry []byte) []byte {
	c, err := decode(entry)
	if a, ok := c.(*appendRows); ok && err == nil {
		return a.rows
	}
	return nil
}

// The entries of the commands that a simulation writes. Arguments are those of the methods of Log.

// AppendEntry is the entry of Log.Append, which has at most limit idempotency keys. a.Now must be set.
func AppendEntry(a Append, limit int) ([]byte, error) {
	c, err := appendCommand(a, limit)
	if err != nil {
		return nil, err
	}
	return appendEntry(nil, c), nil
}

// OpenProducerEntry is the entry of Log.OpenProducer, which has at most limit producers.
func OpenProducerEntry(stream dataflow.StreamID, producer string, epoch dataflow.ProducerEpoch, limit int, now int64) []byte {
	return appendEntry(nil, &openProducer{stream: stream, now: now, producer: producer, epoch: epoch, limit: limit})
}

// AppendDeltaEntry is the entry of Log.AppendDelta.
func AppendDeltaEntry(d dataflow.DeltaID, chunk int, data []byte) []byte {
	return appendEntry(nil, &deltaChunk{delta: d, chunk: chunk, data: data})
}

// EndDeltaEntry is the entry of Log.EndDelta.
func EndDeltaEntry(d dataflow.DeltaID, chunks int, digest uint64) []byte {
	return appendEntry(nil, &endDelta{delta: d, chunks: chunks, digest: digest})
}

// BeginIncarnationEntry is the entry of Log.BeginIncarnation.
func BeginIncarnationEntry(pipeline dataflow.PipelineUID, min dataflow.Incarnation, base dataflow.DeltaRef) []byte {
	return appendEntry(nil, &beginIncarnation{pipeline: pipeline, min: min, base: base})
}

// SettleEntry is the entry of Log.Settle.
func SettleEntry(pipeline dataflow.PipelineUID, upTo dataflow.DeltaRef) []byte {
	return appendEntry(nil, &settle{pipeline: pipeline, upTo: upTo})
}

// DropPipelineEntry is the entry of Log.DropPipeline.
func DropPipelineEntry(pipeline dataflow.PipelineUID) []byte {
	return appendEntry(nil, &dropPipeline{pipeline: pipeline})
}

// TrimStreamEntry is the entry of Log.TrimStream.
func TrimStreamEntry(stream dataflow.StreamID, to dataflow.Offset, why TrimReason, now int64, known dataflow.PipelineUID) []byte {
	return appendEntry(nil, &trimStream{stream: stream, now: now, to: min(to, maxSeq), why: why, known: known})
}
