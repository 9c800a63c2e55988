package shard

import (
	"fmt"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// tooManyRetry is the delay that a refusal for a full table suggests: the tables empty by time, so soon is pointless.
const tooManyRetry = time.Minute

// machine is the shard's FSM: a pure function of the entries it has been given (P1). It is not safe for concurrent use.
type machine struct {
	applied   dataflow.LogIndex // the last entry
	now       int64             // log time: the largest clock that a leader has written, µs
	streams   map[dataflow.StreamID]*streamRows
	producers map[producerKey]*producer
	keys      keyTable
	pipelines map[dataflow.PipelineUID]*pipelineDeltas
	// Ids of what has been dropped. They are never reused, and an entry that was on its way when its stream or pipeline
	// was dropped must not bring it back. A few bytes each, for good.
	droppedStreams   map[dataflow.StreamID]struct{}
	droppedPipelines map[dataflow.PipelineUID]struct{}
}

func newMachine() *machine {
	return &machine{
		streams:          make(map[dataflow.StreamID]*streamRows),
		producers:        make(map[producerKey]*producer),
		pipelines:        make(map[dataflow.PipelineUID]*pipelineDeltas),
		droppedStreams:   make(map[dataflow.StreamID]struct{}),
		droppedPipelines: make(map[dataflow.PipelineUID]struct{}),
	}
}

// outcome is what an entry came to.
type outcome struct {
	err      error             // why it was refused; nothing has changed then but the log time and when a producer was heard of
	appended Appended          // appendRows
	last     dataflow.Seq      // openProducer
	index    dataflow.LogIndex // endDelta: where the delta's first end entry is
	// fresh: the entry changed something and the driver must act on it: tell the replica of a delta command, or keep the
	// rows of a batch. Otherwise it was refused, or a re-send of what had been done.
	fresh bool
}

func refused(err error) outcome { return outcome{err: err} }

// step applies one entry.
func (m *machine) step(index dataflow.LogIndex, c command) outcome {
	m.applied = index
	switch c := c.(type) {
	case *appendRows:
		return m.appendRows(index, c)
	case *openProducer:
		return m.openProducer(c)
	case *expire:
		m.expire(c)
		return outcome{}
	case *expireAnonymous:
		m.expireAnonymous(c)
		return outcome{}
	case *trimStream:
		return m.trimStream(c)
	case *sealStream:
		return m.sealStream(c.stream)
	case *dropStream:
		m.dropStream(c.stream)
		return outcome{}
	default:
		return m.stepPipeline(index, c)
	}
}

// trimStream drops rows, unless a pipeline has begun here that the proposer did not know of when it looked who needs which rows.
func (m *machine) trimStream(c *trimStream) outcome {
	m.tick(c.now)
	if c.known != 0 {
		newest := dataflow.PipelineUID(0)
		for uid := range m.pipelines {
			newest = max(newest, uid)
		}
		if newest >= c.known {
			return refused(fmt.Errorf("%w: pipeline %d has begun since", ErrTrimLate, newest))
		}
	}
	if s := m.streams[c.stream]; s != nil {
		s.trimTo(c.to, c.why, m.now)
	}
	return outcome{}
}

// oldestRows returns the first entry whose rows are kept, the next one to come when there is none.
func (m *machine) oldestRows() dataflow.LogIndex {
	oldest := m.applied + 1
	for _, s := range m.streams {
		if len(s.batches) > 0 {
			oldest = min(oldest, s.batches[0].index)
		}
	}
	return oldest
}

func (m *machine) stepPipeline(index dataflow.LogIndex, c command) outcome {
	switch c := c.(type) {
	case *deltaChunk:
		fresh, err := m.pipelines[c.delta.Pipeline].chunk(index, c)
		return outcome{fresh: fresh, err: m.explain(c.delta.Pipeline, err)}
	case *endDelta:
		at, fresh, err := m.pipelines[c.delta.Pipeline].end(index, c)
		return outcome{index: at, fresh: fresh, err: m.explain(c.delta.Pipeline, err)}
	case *beginIncarnation:
		p := m.pipelines[c.pipeline]
		if p == nil {
			p = &pipelineDeltas{}
		}
		if _, dropped := m.droppedPipelines[c.pipeline]; dropped {
			return refused(fmt.Errorf("%w: pipeline %d", ErrDropped, c.pipeline))
		}
		fresh, err := p.begin(index, c)
		if fresh {
			m.pipelines[c.pipeline] = p
		}
		return outcome{fresh: fresh, err: err}
	case *settle:
		p := m.pipelines[c.pipeline]
		if p == nil {
			return refused(m.explain(c.pipeline, fmt.Errorf("%w: pipeline %d", ErrNotBegun, c.pipeline)))
		}
		fresh, err := p.settleTo(index, c)
		return outcome{fresh: fresh, err: err}
	case *dropPipeline:
		_, dropped := m.droppedPipelines[c.pipeline]
		delete(m.pipelines, c.pipeline)
		m.droppedPipelines[c.pipeline] = struct{}{}
		return outcome{fresh: !dropped}
	default:
		return refused(fmt.Errorf("%w: kind %d", errBadEntry, c.kind()))
	}
}

// explain turns the refusal of a dropped pipeline's entry into ErrDropped.
func (m *machine) explain(p dataflow.PipelineUID, err error) error {
	if _, dropped := m.droppedPipelines[p]; dropped && err != nil {
		return fmt.Errorf("%w: pipeline %d", ErrDropped, p)
	}
	return err
}

// tick raises the log time, which never goes back.
func (m *machine) tick(now int64) { m.now = max(m.now, now) }

// appendRows applies a batch as P8 says.
func (m *machine) appendRows(index dataflow.LogIndex, c *appendRows) outcome {
	m.tick(c.now)
	if _, dropped := m.droppedStreams[c.stream]; dropped {
		return refused(streamDropped(c.stream))
	}
	sealed := m.streams[c.stream] != nil && m.streams[c.stream].sealed // what was applied before is still recognised
	var p *producer
	switch {
	case c.producer != "":
		key := producerKey{c.stream, c.producer}
		p = m.producers[key]
		switch {
		case p == nil && sealed:
			return refused(streamSealed(c.stream))
		case p == nil || c.epoch > p.epoch:
			return refused(notOpened(c, p))
		}
		p.used = m.now
		if answer, goOn, err := p.admit(c); !goOn {
			return outcome{appended: answer, err: err}
		}
	case c.hasKey:
		if answer, known, err := m.keys.admit(c); known {
			return outcome{appended: answer, err: err}
		}
		if len(m.keys.entries) >= c.limit && !sealed {
			return refused(tooMany("idempotency keys", c.limit))
		}
	}
	if sealed {
		return refused(streamSealed(c.stream))
	}
	s := m.stream(c.stream)
	first := s.add(index, c.count, len(c.rows), m.now)
	answer := Appended{First: first, Next: s.end, AppendTime: m.now}
	switch {
	case p != nil:
		p.remember(sent{first: c.first, count: c.count, offset: first, digest: c.digest, time: m.now})
		answer.LastSeq = p.last
	case c.hasKey:
		m.keys.add(keyEntry{key: c.key, digest: c.digest, offset: first, count: c.count, time: m.now})
	}
	return outcome{appended: answer, fresh: true}
}

// stream returns what is known of a stream's rows, to be changed.
func (m *machine) stream(id dataflow.StreamID) *streamRows {
	s := m.streams[id]
	if s == nil {
		s = &streamRows{}
		m.streams[id] = s
	}
	return s
}

// sealStream ends a stream here: no rows follow the entry. Sealing again changes nothing.
func (m *machine) sealStream(id dataflow.StreamID) outcome {
	if _, dropped := m.droppedStreams[id]; dropped {
		return refused(streamDropped(id))
	}
	m.stream(id).sealed = true
	return outcome{}
}

func streamSealed(id dataflow.StreamID) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonStreamSealed, "stream %d is sealed and takes no more rows", id)
}

func streamDropped(id dataflow.StreamID) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonStreamNotFound, "stream %d has been dropped", id)
}

// openProducer fences older sessions and says where the producer stands (P8).
func (m *machine) openProducer(c *openProducer) outcome {
	m.tick(c.now)
	if _, dropped := m.droppedStreams[c.stream]; dropped {
		return refused(streamDropped(c.stream))
	}
	key := producerKey{c.stream, c.producer}
	p := m.producers[key]
	switch {
	case p == nil && len(m.producers) >= c.limit:
		return refused(tooMany("producers", c.limit))
	case p == nil:
		p = &producer{}
		m.producers[key] = p
	case c.epoch < p.epoch:
		return refused(fenced(c.producer, c.epoch, p.epoch))
	}
	p.epoch, p.used = c.epoch, m.now
	return outcome{last: p.last}
}

func (m *machine) expire(c *expire) {
	m.tick(c.now)
	m.keys.expire(c.keysBefore)
	for k, p := range m.producers {
		if p.used < c.producersBefore {
			delete(m.producers, k)
		}
	}
}

func (m *machine) expireAnonymous(c *expireAnonymous) {
	m.tick(c.now)
	for k, p := range m.producers {
		if dataflow.IsAnonymousProducer(k.name) && p.used < c.before {
			delete(m.producers, k)
		}
	}
}

// dropStream forgets a stream, also who sent to it. Its idempotency keys expire like all others.
func (m *machine) dropStream(id dataflow.StreamID) {
	delete(m.streams, id)
	m.droppedStreams[id] = struct{}{}
	for k := range m.producers {
		if k.stream == id {
			delete(m.producers, k)
		}
	}
}
