package shard

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/dataflow"
)

// model is what P8 promises, said in the simplest way: every row has a place, or none yet.
type model struct {
	rows  map[dataflow.StreamID]dataflow.Offset // next offset per stream
	peers map[producerKey]*modelProducer
	keys  map[string]Appended
}

type modelProducer struct {
	epoch   dataflow.ProducerEpoch
	offsets []dataflow.Offset // of row number 1, 2, …
	batches []modelBatch
}

type modelBatch struct {
	first dataflow.Seq
	count int
}

// TestEveryRowGetsOnePlaceWhateverSendersDo lets seeded random senders re-send, overlap, leave gaps, open new sessions
// and use old ones, with rows cut in any way, over a machine that is at any moment replaced by one that was restored
// from an older snapshot and has replayed the log since, as after a failover. Answers are those of the model.
func TestEveryRowGetsOnePlaceWhateverSendersDo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			s := &senders{
				t: t, rnd: rand.New(rand.NewPCG(seed, 8)), m: newMachine(),
				model: model{
					rows:  make(map[dataflow.StreamID]dataflow.Offset),
					peers: make(map[producerKey]*modelProducer),
					keys:  make(map[string]Appended),
				},
			}
			s.snapshot = persist(t, s.m)
			for range 1500 {
				s.act()
			}
			s.failover()
		})
	}
}

// senders drives a machine and the model beside it.
type senders struct {
	t        *testing.T
	rnd      *rand.Rand
	m        *machine
	model    model
	log      [][]byte // entries since snapshot
	snapshot []byte
	now      int64
}

func (s *senders) step(c command) outcome {
	entry := appendEntry(nil, c)
	s.log = append(s.log, entry)
	return s.apply(s.m, entry, s.m.applied+1)
}

func (s *senders) apply(m *machine, entry []byte, index dataflow.LogIndex) outcome {
	c, err := decode(entry)
	if err != nil {
		s.t.Fatalf("decode: %v", err)
	}
	return m.step(index, c)
}

func (s *senders) act() {
	s.now += int64(s.rnd.IntN(5)) - 1 // sometimes back
	switch n := s.rnd.IntN(100); {
	case n < 3:
		s.snapshot, s.log = persist(s.t, s.m.freeze()), nil
	case n < 6:
		s.failover()
	case n < 12:
		s.open()
	case n < 25:
		s.plain()
	default:
		s.numbered()
	}
}

// failover goes on with a machine that restored the last snapshot and replayed what came after it.
func (s *senders) failover() {
	m, err := readMachine(s.snapshot)
	if err != nil {
		s.t.Fatalf("restore: %v", err)
	}
	for _, entry := range s.log {
		s.apply(m, entry, m.applied+1)
	}
	if a, b := persist(s.t, s.m), persist(s.t, m); !bytes.Equal(a, b) {
		s.t.Fatalf("replicas differ:\n%s\n%s", describe(s.m), describe(m))
	}
	s.m = m
}

func (s *senders) peer() (producerKey, *modelProducer) {
	k := producerKey{stream: dataflow.StreamID(1 + s.rnd.IntN(2)), name: string(rune('a' + s.rnd.IntN(3)))}
	return k, s.model.peers[k]
}

func (s *senders) open() {
	k, p := s.peer()
	epoch := dataflow.ProducerEpoch(1 + s.rnd.IntN(3))
	if p != nil {
		epoch = max(1, p.epoch+dataflow.ProducerEpoch(s.rnd.IntN(3))-1)
	}
	out := s.step(&openProducer{stream: k.stream, now: s.now, producer: k.name, epoch: epoch, limit: 100})
	if p != nil && epoch < p.epoch {
		s.want(out, dataflow.ReasonProducerFenced)
		return
	}
	s.want(out, "")
	if p == nil {
		p = &modelProducer{}
		s.model.peers[k] = p
	}
	p.epoch = epoch
	if int(out.last) != len(p.offsets) {
		s.t.Fatalf("open %v: last=%d, want %d", k, out.last, len(p.offsets))
	}
}

func (s *senders) want(out outcome, reason dataflow.Reason) {
	s.t.Helper()
	if got := dataflow.ReasonOf(out.err); got != reason {
		s.t.Fatalf("entry %d came to %q (%v), want %q", s.m.applied, got, out.err, reason)
	}
}

// plain appends without numbers, sometimes with a key that came before.
func (s *senders) plain() {
	c := &appendRows{stream: dataflow.StreamID(1 + s.rnd.IntN(2)), now: s.now, count: 1 + s.rnd.IntN(5), digest: 1}
	key := ""
	if s.rnd.IntN(3) > 0 {
		key = fmt.Sprintf("%d/%d", c.stream, s.rnd.IntN(40))
		c.hasKey, c.key, c.limit = true, hashKey(c.stream, key), 1000
		c.digest = uint64(s.rnd.IntN(2))
	}
	out := s.step(c)
	if before, known := s.model.keys[key]; known && key != "" {
		if before.LastSeq != dataflow.Seq(c.digest) {
			s.want(out, dataflow.ReasonIdempotencyKeyReused)
			return
		}
		s.want(out, "")
		if a := out.appended; !a.Duplicate || a.First != before.First || a.Next != before.Next || a.AppendTime != before.AppendTime {
			s.t.Fatalf("key %s: %+v, want again %+v", key, a, before)
		}
		return
	}
	s.want(out, "")
	s.placed(c, out.appended)
	if key != "" {
		a := out.appended
		a.LastSeq = dataflow.Seq(c.digest) // The model keeps the digest there.
		s.model.keys[key] = a
	}
}

// placed checks that new rows come next in their stream.
func (s *senders) placed(c *appendRows, a Appended) {
	s.t.Helper()
	first := s.model.rows[c.stream]
	if a.Duplicate || a.Overlap || a.First != first || a.Next != first+dataflow.Offset(c.count) || a.AppendTime != s.m.now {
		s.t.Fatalf("rows placed at %+v, want %d rows from %d", a, c.count, first)
	}
	s.model.rows[c.stream] = a.Next
}

// numbered appends as a producer does: mostly what is next, often what was sent before, cut as before or otherwise.
func (s *senders) numbered() {
	k, p := s.peer()
	last, epoch := 0, dataflow.ProducerEpoch(1)
	if p != nil {
		last, epoch = len(p.offsets), max(1, p.epoch)
	}
	first, count := last+1, 1+s.rnd.IntN(6)
	again := false
	switch n := s.rnd.IntN(10); {
	case n < 2: // A gap, or a producer unknown in the middle.
		first += 1 + s.rnd.IntN(3)
	case n < 4 && last > 0: // From anywhere before.
		first = 1 + s.rnd.IntN(last)
	case n < 6 && last > 0: // One of the last batches again.
		b := p.batches[len(p.batches)-1-s.rnd.IntN(min(5, len(p.batches)))]
		first, count, again = int(b.first), b.count, true
	}
	if s.rnd.IntN(15) == 0 {
		epoch = max(1, epoch+dataflow.ProducerEpoch(s.rnd.IntN(3))-1)
	}
	c := &appendRows{
		stream: k.stream, now: s.now, count: count, digest: rowsDigest(first, count),
		producer: k.name, epoch: epoch, first: dataflow.Seq(first), limit: 100,
	}
	out := s.step(c)
	switch {
	case p == nil || epoch > p.epoch:
		s.want(out, dataflow.ReasonUnknownProducer)
		return
	case epoch < p.epoch:
		s.want(out, dataflow.ReasonProducerFenced)
		return
	}
	end := first + count - 1
	switch a := out.appended; {
	case first > last+1:
		s.want(out, dataflow.ReasonOutOfOrder)
	case first == last+1:
		s.want(out, "")
		s.placed(c, a)
		for i := range count {
			p.offsets = append(p.offsets, a.First+dataflow.Offset(i))
		}
		p.batches = append(p.batches, modelBatch{first: c.first, count: count})
		if int(a.LastSeq) != len(p.offsets) {
			s.t.Fatalf("last=%d after row %d", a.LastSeq, len(p.offsets))
		}
	case end > last:
		s.want(out, "")
		if !a.Overlap || int(a.LastSeq) != last {
			s.t.Fatalf("rows %d to %d of %d known: %+v", first, end, last, a)
		}
	default:
		s.want(out, "")
		from, to := p.offsets[first-1], p.offsets[end-1]+1
		exact := a.First == from && a.Next == to
		vague := a.First == a.Next && a.Next >= to && a.Next <= s.model.rows[k.stream]
		if !a.Duplicate || int(a.LastSeq) != last || !exact && !vague || again && !exact {
			s.t.Fatalf("rows %d to %d lie at [%d,%d): %+v", first, end, from, to, a)
		}
	}
}

// rowsDigest is the digest of rows of which each holds its number.
func rowsDigest(first, count int) uint64 {
	return xxhash.Sum64String(fmt.Sprint(first, count))
}
