package shard

import (
	"strconv"

	"github.com/weirdb/weir/dataflow"
)

// dedupBatches is how many of a producer's last batches keep their first answer. A sender has at most five requests in
// flight, as Kafka's do, and so asks for no older answer than the fifth; a few more serve senders that cut their rows
// into smaller batches when they send again.
const dedupBatches = 8

// producerKey is what numbers rows: a producer numbers each stream's rows by itself (P8).
type producerKey struct {
	stream dataflow.StreamID
	name   string
}

// producer is what a shard remembers of one.
type producer struct {
	epoch  dataflow.ProducerEpoch // the newest session; older ones are fenced
	last   dataflow.Seq           // of the last applied row; 0 = none
	used   int64                  // log time of the last append or OpenProducer
	n      int                    // how many of recent are set
	recent [dedupBatches]sent     // the last batches, oldest first
}

// sent is an applied batch and the answer to it.
type sent struct {
	first  dataflow.Seq
	count  int
	offset dataflow.Offset
	digest uint64
	time   int64 // append time
}

func (p *producer) remember(s sent) {
	if p.n == len(p.recent) {
		copy(p.recent[:], p.recent[1:])
		p.n--
	}
	p.recent[p.n] = s
	p.n++
	p.last = s.first + dataflow.Seq(s.count) - 1
}

// offsetOf returns the offset of a row that was applied, and the batch it came with; false when that is too long ago.
func (p *producer) offsetOf(seq dataflow.Seq) (dataflow.Offset, *sent, bool) {
	for i := range p.n {
		if s := &p.recent[i]; seq >= s.first && seq < s.first+dataflow.Seq(s.count) {
			return s.offset + dataflow.Offset(seq-s.first), s, true
		}
	}
	return 0, nil, false
}

// answer is the answer to rows [first, last] that have all been applied (P8: the first answer again). They may be cut in
// another way than they were the first time.
func (p *producer) answer(first, last dataflow.Seq) Appended {
	a := Appended{Duplicate: true, LastSeq: p.last}
	from, s, known := p.offsetOf(first)
	to, _, _ := p.offsetOf(last)
	switch {
	case known:
		a.First, a.Next, a.AppendTime = from, to+1, s.time
	case p.n > 0: // Some or all rows came before the remembered batches.
		a.Next = max(p.recent[0].offset, to+1)
		a.First = a.Next
	}
	return a
}

// admit decides what becomes of a batch of a session that was opened here (P8). go on = the batch is new and the next in
// order.
func (p *producer) admit(c *appendRows) (answer Appended, goOn bool, err error) {
	if c.epoch < p.epoch {
		return answer, false, fenced(c.producer, c.epoch, p.epoch)
	}
	last := c.first + dataflow.Seq(c.count) - 1
	switch {
	case c.first == p.last+1:
		return answer, true, nil
	case c.first > p.last:
		return answer, false, dataflow.Errorf(dataflow.ReasonOutOfOrder,
			"producer %q sent rows from number %d, but number %d is the next", c.producer, c.first, p.last+1).
			WithMeta("expected", strconv.FormatUint(uint64(p.last+1), 10))
	case last > p.last:
		return Appended{Overlap: true, LastSeq: p.last}, false, nil
	}
	for i := range p.n {
		if s := &p.recent[i]; s.first == c.first && s.count == c.count && s.digest != c.digest {
			return answer, false, dataflow.Errorf(dataflow.ReasonSequenceReused,
				"producer %q sent other rows before as numbers %d to %d", c.producer, c.first, last).
				WithMeta("first", strconv.FormatUint(uint64(c.first), 10))
		}
	}
	return p.answer(c.first, last), false, nil
}

// notOpened refuses a batch of a session that openProducer has not told the shard of. p is what is known of its producer,
// nil for nothing: it was never opened, or not for so long that it was forgotten. The number of a session is never taken
// from its sender: it could fence the sessions that are still to be opened.
func notOpened(c *appendRows, p *producer) *dataflow.Error {
	err := dataflow.Errorf(dataflow.ReasonUnknownProducer, "producer %q has not been opened here, or was forgotten", c.producer)
	if p != nil {
		err = dataflow.Errorf(dataflow.ReasonUnknownProducer, "session %d of producer %q has not been opened, the newest is %d", c.epoch, c.producer, p.epoch).
			WithMeta("epoch", p.epoch.String())
	}
	return err.WithHint("open the producer, and use the epoch that this gives")
}

func fenced(name string, epoch, newest dataflow.ProducerEpoch) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonProducerFenced, "producer %q has opened session %d, this is session %d", name, newest, epoch).
		WithMeta("epoch", newest.String())
}

// tooMany refuses to remember one more producer or key. Forgetting another one instead would silently count its rows
// twice when it sends them again.
func tooMany(what string, limit int) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonOverloaded, "the shard remembers %d %s, which is its limit", limit, what).
		WithHint("old ones are forgotten by time; raise the limit if so many are in use").
		WithMeta("limit", strconv.Itoa(limit)).WithRetry(tooManyRetry)
}
