package shard

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// A snapshot of the machine is
//
//	magic, version
//	applied index, log time
//	streams:    id, end, bytes ever, last trim, batches (count, bytes before the first, then per batch the differences
//	            to the one before: offset, index, time, bytes)
//	producers:  stream, name, epoch, last, used, recent batches
//	keys:       hash, digest, offset, count, time
//	pipelines:  uid, incarnation, …, deltas, chunks
//	ids of dropped streams and pipelines, and of sealed streams
//
// with every list preceded by its length and ordered by id, so that equal machines have equal bytes. It holds references
// into the log and never row bytes (P7). Whoever stores it guards it with a checksum.
const (
	snapshotMagic   = "weirshd"
	snapshotVersion = 2 // 1 had no sealed streams
)

// freeze returns a copy of the machine that stays as it is while the machine goes on. Lists whose elements never change
// are shared, so this costs a few hundred bytes per producer and unsettled delta, and nothing per batch or key.
func (m *machine) freeze() *machine {
	f := newMachine()
	f.applied, f.now = m.applied, m.now
	f.keys = keyTable{entries: m.keys.entries}
	for id, s := range m.streams {
		c := *s
		f.streams[id] = &c
	}
	all := make([]producer, 0, len(m.producers))
	for k, p := range m.producers {
		all = append(all, *p)
		f.producers[k] = &all[len(all)-1]
	}
	for uid, p := range m.pipelines {
		c := *p
		c.deltas = slices.Clone(p.deltas)
		f.pipelines[uid] = &c
	}
	maps.Copy(f.droppedStreams, m.droppedStreams)
	maps.Copy(f.droppedPipelines, m.droppedPipelines)
	return f
}

// snapshotPiece is about how many bytes are given to a writer at once.
const snapshotPiece = 64 << 10

// write writes the snapshot of the machine, which must not change meanwhile.
func (m *machine) write(w io.Writer) error {
	e := &snapshotWriter{w: w, buf: make([]byte, 0, snapshotPiece+1<<10)}
	e.buf = append(e.buf, snapshotMagic...)
	e.buf = append(e.buf, snapshotVersion)
	e.buf = appendUint(e.buf, m.applied)
	e.buf = appendInt(e.buf, m.now)

	e.buf = appendUint(e.buf, len(m.streams))
	for _, id := range slices.Sorted(maps.Keys(m.streams)) {
		e.stream(id, m.streams[id])
	}
	e.buf = appendUint(e.buf, len(m.producers))
	for _, k := range slices.SortedFunc(maps.Keys(m.producers), compareProducerKeys) {
		e.producer(k, m.producers[k])
	}
	e.buf = appendUint(e.buf, len(m.keys.entries))
	for i := range m.keys.entries {
		k := &m.keys.entries[i]
		e.buf = append(e.buf, k.key[:]...)
		e.buf = binary.LittleEndian.AppendUint64(e.buf, k.digest)
		e.buf = appendUint(e.buf, k.offset)
		e.buf = appendUint(e.buf, k.count)
		e.buf = appendInt(e.buf, k.time)
		e.flush(snapshotPiece)
	}
	e.buf = appendUint(e.buf, len(m.pipelines))
	for _, uid := range slices.Sorted(maps.Keys(m.pipelines)) {
		e.pipeline(uid, m.pipelines[uid])
	}
	e.buf = appendIDs(e.buf, m.droppedStreams)
	e.buf = appendIDs(e.buf, m.droppedPipelines)
	e.buf = appendIDs(e.buf, m.sealedStreams())
	e.flush(0)
	return e.err
}

type snapshotWriter struct {
	w   io.Writer
	buf []byte
	err error
}

// flush hands on what has been gathered when it is more than limit bytes.
func (e *snapshotWriter) flush(limit int) {
	if len(e.buf) <= limit {
		return
	}
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

func (e *snapshotWriter) stream(id dataflow.StreamID, s *streamRows) {
	e.buf = appendUint(e.buf, id)
	e.buf = appendUint(e.buf, s.end)
	e.buf = appendUint(e.buf, s.bytes)
	e.buf = appendUint(e.buf, s.trim.To)
	e.buf = append(e.buf, byte(s.trim.Reason))
	e.buf = appendInt(e.buf, s.trim.Time)
	e.buf = appendUint(e.buf, len(s.batches))
	var prev rowBatch
	for _, b := range s.batches {
		e.buf = appendUint(e.buf, b.first-prev.first)
		e.buf = appendUint(e.buf, b.index-prev.index)
		e.buf = appendInt(e.buf, b.time-prev.time)
		e.buf = appendUint(e.buf, b.before-prev.before)
		prev = b
		e.flush(snapshotPiece)
	}
}

func (e *snapshotWriter) producer(k producerKey, p *producer) {
	e.buf = appendUint(e.buf, k.stream)
	e.buf = appendString(e.buf, k.name)
	e.buf = appendUint(e.buf, p.epoch)
	e.buf = appendUint(e.buf, p.last)
	e.buf = appendInt(e.buf, p.used)
	e.buf = appendUint(e.buf, p.n)
	for _, s := range p.recent[:p.n] {
		e.buf = appendUint(e.buf, s.first)
		e.buf = appendUint(e.buf, s.count)
		e.buf = appendUint(e.buf, s.offset)
		e.buf = binary.LittleEndian.AppendUint64(e.buf, s.digest)
		e.buf = appendInt(e.buf, s.time)
	}
	e.flush(snapshotPiece)
}

func (e *snapshotWriter) pipeline(uid dataflow.PipelineUID, p *pipelineDeltas) {
	e.buf = appendUint(e.buf, uid)
	e.buf = appendUint(e.buf, p.min)
	e.buf = appendRef(e.buf, p.base)
	e.buf = appendUint(e.buf, p.begun)
	e.buf = appendUint(e.buf, p.next)
	e.buf = appendRef(e.buf, p.settled)
	e.buf = appendUint(e.buf, p.settle)
	e.buf = appendUint(e.buf, len(p.deltas))
	for i := range p.deltas {
		d := &p.deltas[i]
		e.buf = appendRef(e.buf, d.ref)
		e.buf = appendUint(e.buf, d.end)
		e.buf = appendUint(e.buf, len(d.chunks))
		for _, c := range d.chunks {
			e.buf = appendUint(e.buf, c.index)
			e.buf = binary.LittleEndian.AppendUint64(e.buf, c.hash)
		}
		e.flush(snapshotPiece)
	}
}

func compareProducerKeys(a, b producerKey) int {
	return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.name, b.name))
}

func appendIDs[T ~uint64](dst []byte, ids map[T]struct{}) []byte {
	dst = appendUint(dst, len(ids))
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		dst = appendUint(dst, id)
	}
	return dst
}

// readMachine rebuilds a machine from its snapshot. It refuses what no machine writes: also bytes that a checksum has
// passed are not trusted with a panic later.
func readMachine(data []byte) (*machine, error) {
	r := &reader{b: data}
	if string(r.bytes(uint64(len(snapshotMagic)))) != snapshotMagic {
		return nil, fmt.Errorf("%w: not a shard snapshot", errBadEntry)
	}
	version := r.byte()
	if (version < 1 || version > snapshotVersion) && r.err == nil {
		return nil, fmt.Errorf("%w: shard snapshot of version %d, this program reads versions up to %d", errBadEntry, version, snapshotVersion)
	}
	m := newMachine()
	m.applied = dataflow.LogIndex(r.uint())
	m.now = r.int()
	for n := r.count(7); n > 0; n-- {
		r.stream(m)
	}
	for n := r.count(6); n > 0; n-- {
		r.producer(m)
	}
	for n := r.count(27); n > 0; n-- {
		k := keyEntry{}
		copy(k.key[:], r.bytes(uint64(len(k.key))))
		k.digest = r.fixed64()
		k.offset = dataflow.Offset(r.atMost(maxSeq, "offset"))
		k.count = int(r.atMost(maxCount, "count"))
		k.time = r.int()
		m.keys.add(k)
	}
	for n := r.count(10); n > 0; n-- {
		r.pipeline(m)
	}
	readIDs(r, m.droppedStreams)
	readIDs(r, m.droppedPipelines)
	if version >= 2 {
		r.sealed(m)
	}
	if len(m.keys.at) != len(m.keys.entries) {
		r.fail("a key comes twice")
	}
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("shard snapshot: %w", err)
	}
	return m, nil
}

func (r *reader) stream(m *machine) {
	id := dataflow.StreamID(r.uint())
	s := &streamRows{
		end:   dataflow.Offset(r.atMost(maxSeq, "offset")),
		bytes: r.atMost(maxSeq, "bytes"),
		trim:  Trim{To: dataflow.Offset(r.uint()), Reason: TrimReason(r.byte()), Time: r.int()},
	}
	n := r.count(4)
	s.batches = make([]rowBatch, 0, n)
	var b rowBatch
	for i := range n {
		gap := dataflow.Offset(r.atMost(maxSeq, "offset"))
		if i > 0 && gap == 0 {
			r.fail("empty batch")
		}
		b.first += gap
		b.index += dataflow.LogIndex(r.atMost(maxSeq, "index"))
		b.time += r.int()
		b.before += r.atMost(maxSeq, "bytes")
		s.batches = append(s.batches, b)
		if b.first >= s.end || b.before > s.bytes || b.index > m.applied {
			r.fail("batch past the end")
			return
		}
	}
	m.streams[id] = s
}

func (r *reader) producer(m *machine) {
	k := producerKey{stream: dataflow.StreamID(r.uint()), name: r.string()}
	p := &producer{
		epoch: dataflow.ProducerEpoch(r.uint()),
		last:  dataflow.Seq(r.atMost(maxSeq, "sequence number")),
		used:  r.int(),
		n:     int(r.atMost(dedupBatches, "batches")),
	}
	for i := range p.n {
		p.recent[i] = sent{
			first:  dataflow.Seq(r.atMost(maxSeq, "sequence number")),
			count:  int(r.atMost(maxCount, "count")),
			offset: dataflow.Offset(r.atMost(maxSeq, "offset")),
			digest: r.fixed64(),
			time:   r.int(),
		}
	}
	m.producers[k] = p
}

func (r *reader) pipeline(m *machine) {
	uid := dataflow.PipelineUID(r.uint())
	p := &pipelineDeltas{
		min:     dataflow.Incarnation(r.uint()),
		base:    r.ref(),
		begun:   dataflow.LogIndex(r.uint()),
		next:    dataflow.DeltaSeq(r.atMost(maxSeq, "delta number")),
		settled: r.ref(),
		settle:  dataflow.LogIndex(r.uint()),
	}
	n := r.count(4)
	p.deltas = make([]delta, 0, n)
	for range n {
		d := delta{ref: r.ref(), end: dataflow.LogIndex(r.uint())}
		chunks := r.count(9)
		d.chunks = make([]chunk, 0, chunks)
		for range chunks {
			c := chunk{index: dataflow.LogIndex(r.uint()), hash: r.fixed64()}
			d.chunks = append(d.chunks, c)
			d.digest = d.digest.AddHash(c.hash)
		}
		if d.end == 0 && len(d.chunks) == 0 {
			r.fail("delta without entries")
		}
		p.deltas = append(p.deltas, d)
	}
	m.pipelines[uid] = p
}

// sealedStreams returns the ids of the streams that are sealed here.
func (m *machine) sealedStreams() map[dataflow.StreamID]struct{} {
	ids := make(map[dataflow.StreamID]struct{})
	for id, s := range m.streams {
		if s.sealed {
			ids[id] = struct{}{}
		}
	}
	return ids
}

func (r *reader) sealed(m *machine) {
	ids := make(map[dataflow.StreamID]struct{})
	readIDs(r, ids)
	for id := range ids {
		if m.streams[id] == nil {
			r.fail("a sealed stream that is not there")
			return
		}
		m.streams[id].sealed = true
	}
}

func readIDs[T ~uint64](r *reader, ids map[T]struct{}) {
	for n := r.count(1); n > 0; n-- {
		ids[T(r.uint())] = struct{}{}
	}
}
