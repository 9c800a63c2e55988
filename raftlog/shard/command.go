package shard

import (
	"encoding/binary"
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// entryVersion is the first byte of every entry. A change of any command's fields is a new version (or a new kind), and
// decode keeps reading the old ones: they may lie in a log for as long as a stream retains its rows.
const entryVersion = 1

// kind is the second byte of every entry: which command it is. Stored; append-only.
type kind uint8

const (
	kindAppend           kind = 1
	kindOpenProducer     kind = 2
	kindExpire           kind = 3
	kindDeltaChunk       kind = 4
	kindEndDelta         kind = 5
	kindBeginIncarnation kind = 6
	kindSettle           kind = 7
	kindDropPipeline     kind = 8
	kindTrimStream       kind = 9
	kindDropStream       kind = 10
	kindExpireAnonymous  kind = 11
	kindSealStream       kind = 12
	kindTrimStreamAsOf   kind = 13 // a trimStream that says which pipelines its proposer knew
)

// maxSeq bounds row numbers and counts so that sums of them cannot overflow.
const (
	maxSeq   = 1 << 62
	maxCount = 1 << 31
)

// command is one decoded entry.
type command interface {
	kind() kind
	// encode appends the fields.
	encode(dst []byte) []byte
}

// keyHash stands for a stream and an idempotency key: 128 bits of a cryptographic hash, so that the table of keys has
// entries of one small size whatever the clients choose.
type keyHash [16]byte

type (
	// appendRows carries a batch of rows. The leader's limits travel in the entry, because replicas must decide alike
	// whatever their own configuration says (P1).
	appendRows struct {
		stream   dataflow.StreamID
		now      int64
		count    int
		digest   uint64
		producer string // "" = plain
		epoch    dataflow.ProducerEpoch
		first    dataflow.Seq
		limit    int // of keys, when the batch has one; a producer's batch carries one that says nothing
		hasKey   bool
		key      keyHash
		rows     []byte
	}
	openProducer struct {
		stream   dataflow.StreamID
		now      int64
		producer string
		epoch    dataflow.ProducerEpoch
		limit    int
	}
	expire struct {
		now             int64
		producersBefore int64
		keysBefore      int64
	}
	// expireAnonymous forgets producers with anonymous names.
	expireAnonymous struct{ now, before int64 }
	deltaChunk      struct {
		delta dataflow.DeltaID
		chunk int
		data  []byte
	}
	endDelta struct {
		delta  dataflow.DeltaID
		chunks int
		digest uint64
	}
	beginIncarnation struct {
		pipeline dataflow.PipelineUID
		min      dataflow.Incarnation
		base     dataflow.DeltaRef
	}
	settle struct {
		pipeline dataflow.PipelineUID
		upTo     dataflow.DeltaRef
	}
	dropPipeline struct{ pipeline dataflow.PipelineUID }
	trimStream   struct {
		stream dataflow.StreamID
		now    int64
		to     dataflow.Offset
		why    TrimReason
		// known: the proposer knew of all pipelines below; 0 = it does not say, as entries of older programs.
		known dataflow.PipelineUID
	}
	dropStream struct{ stream dataflow.StreamID }
	sealStream struct{ stream dataflow.StreamID }
)

func (*appendRows) kind() kind       { return kindAppend }
func (*openProducer) kind() kind     { return kindOpenProducer }
func (*expire) kind() kind           { return kindExpire }
func (*deltaChunk) kind() kind       { return kindDeltaChunk }
func (*endDelta) kind() kind         { return kindEndDelta }
func (*beginIncarnation) kind() kind { return kindBeginIncarnation }
func (*settle) kind() kind           { return kindSettle }
func (*dropPipeline) kind() kind     { return kindDropPipeline }
func (*dropStream) kind() kind       { return kindDropStream }
func (*sealStream) kind() kind       { return kindSealStream }
func (*expireAnonymous) kind() kind  { return kindExpireAnonymous }

func (c *trimStream) kind() kind {
	if c.known == 0 {
		return kindTrimStream
	}
	return kindTrimStreamAsOf
}

// appendEntry writes a command as an entry.
func appendEntry(dst []byte, c command) []byte {
	return c.encode(append(dst, entryVersion, byte(c.kind())))
}

// What follows a batch's common fields.
const (
	originPlain    = 0
	originProducer = 1
	originKey      = 2
)

func (c *appendRows) encode(dst []byte) []byte {
	dst = appendUint(dst, c.stream)
	dst = appendInt(dst, c.now)
	dst = appendUint(dst, c.count)
	dst = binary.LittleEndian.AppendUint64(dst, c.digest)
	switch {
	case c.producer != "":
		dst = append(dst, originProducer)
		dst = appendString(dst, c.producer)
		dst = appendUint(dst, c.epoch)
		dst = appendUint(dst, c.first)
		dst = appendUint(dst, c.limit)
	case c.hasKey:
		dst = append(dst, originKey)
		dst = append(dst, c.key[:]...)
		dst = appendUint(dst, c.limit)
	default:
		dst = append(dst, originPlain)
	}
	return append(dst, c.rows...)
}

func (c *openProducer) encode(dst []byte) []byte {
	dst = appendUint(dst, c.stream)
	dst = appendInt(dst, c.now)
	dst = appendString(dst, c.producer)
	dst = appendUint(dst, c.epoch)
	return appendUint(dst, c.limit)
}

func (c *expire) encode(dst []byte) []byte {
	return appendInt(appendInt(appendInt(dst, c.now), c.producersBefore), c.keysBefore)
}

func (c *expireAnonymous) encode(dst []byte) []byte {
	return appendInt(appendInt(dst, c.now), c.before)
}

func (c *deltaChunk) encode(dst []byte) []byte {
	return append(appendUint(appendDeltaID(dst, c.delta), c.chunk), c.data...)
}

func (c *endDelta) encode(dst []byte) []byte {
	dst = appendUint(appendDeltaID(dst, c.delta), c.chunks)
	return binary.LittleEndian.AppendUint64(dst, c.digest)
}

func (c *beginIncarnation) encode(dst []byte) []byte {
	return appendRef(appendUint(appendUint(dst, c.pipeline), c.min), c.base)
}

func (c *settle) encode(dst []byte) []byte { return appendRef(appendUint(dst, c.pipeline), c.upTo) }

func (c *dropPipeline) encode(dst []byte) []byte { return appendUint(dst, c.pipeline) }

func (c *trimStream) encode(dst []byte) []byte {
	dst = appendInt(appendUint(dst, c.stream), c.now)
	dst = append(appendUint(dst, c.to), byte(c.why))
	if c.known == 0 {
		return dst
	}
	return appendUint(dst, c.known)
}

func (c *dropStream) encode(dst []byte) []byte { return appendUint(dst, c.stream) }

func (c *sealStream) encode(dst []byte) []byte { return appendUint(dst, c.stream) }

func appendDeltaID(dst []byte, d dataflow.DeltaID) []byte {
	return appendRef(appendUint(dst, d.Pipeline), d.Ref())
}

func appendRef(dst []byte, r dataflow.DeltaRef) []byte {
	return appendUint(appendUint(dst, r.Incarnation), r.Seq)
}

func (r *reader) ref() dataflow.DeltaRef {
	return dataflow.DeltaRef{
		Incarnation: dataflow.Incarnation(r.uint()),
		Seq:         dataflow.DeltaSeq(r.atMost(maxSeq, "delta number")),
	}
}

func (r *reader) deltaID() dataflow.DeltaID {
	p := dataflow.PipelineUID(r.uint())
	ref := r.ref()
	return dataflow.DeltaID{Pipeline: p, Incarnation: ref.Incarnation, Seq: ref.Seq}
}

// decode reads an entry. Rows and chunks of the result point into data.
func decode(data []byte) (command, error) {
	r := &reader{b: data}
	if v := r.byte(); v != entryVersion && r.err == nil {
		return nil, fmt.Errorf("%w: version %d, this program reads version %d", errBadEntry, v, entryVersion)
	}
	var c command
	switch k := kind(r.byte()); k {
	case kindAppend:
		c = decodeAppend(r)
	case kindOpenProducer:
		c = &openProducer{
			stream: dataflow.StreamID(r.uint()), now: r.int(), producer: r.string(),
			epoch: dataflow.ProducerEpoch(r.uint()), limit: int(r.atMost(maxCount, "limit")),
		}
	case kindExpire:
		c = &expire{now: r.int(), producersBefore: r.int(), keysBefore: r.int()}
	case kindExpireAnonymous:
		c = &expireAnonymous{now: r.int(), before: r.int()}
	case kindDeltaChunk:
		c = &deltaChunk{delta: r.deltaID(), chunk: int(r.atMost(maxCount, "chunk")), data: r.rest()}
	case kindEndDelta:
		c = &endDelta{delta: r.deltaID(), chunks: int(r.atMost(maxCount, "chunks")), digest: r.fixed64()}
	case kindBeginIncarnation:
		c = &beginIncarnation{
			pipeline: dataflow.PipelineUID(r.uint()), min: dataflow.Incarnation(r.uint()), base: r.ref(),
		}
	case kindSettle:
		c = &settle{pipeline: dataflow.PipelineUID(r.uint()), upTo: r.ref()}
	case kindDropPipeline:
		c = &dropPipeline{pipeline: dataflow.PipelineUID(r.uint())}
	case kindTrimStream, kindTrimStreamAsOf:
		t := &trimStream{
			stream: dataflow.StreamID(r.uint()), now: r.int(), to: dataflow.Offset(r.atMost(maxSeq, "offset")),
			why: TrimReason(r.byte()),
		}
		if k == kindTrimStreamAsOf {
			if t.known = dataflow.PipelineUID(r.uint()); t.known == 0 {
				r.fail("no pipeline is known")
			}
		}
		c = t
	case kindDropStream:
		c = &dropStream{stream: dataflow.StreamID(r.uint())}
	case kindSealStream:
		c = &sealStream{stream: dataflow.StreamID(r.uint())}
	default:
		r.fail(fmt.Sprintf("unknown kind %d", k))
	}
	if err := r.done(); err != nil {
		return nil, err
	}
	return c, nil
}

func decodeAppend(r *reader) *appendRows {
	c := &appendRows{
		stream: dataflow.StreamID(r.uint()),
		now:    r.int(),
		count:  int(r.atMost(maxCount, "count")),
		digest: r.fixed64(),
	}
	if c.count == 0 {
		r.fail("no rows")
	}
	switch origin := r.byte(); origin {
	case originPlain:
	case originProducer:
		c.producer = r.string()
		c.epoch = dataflow.ProducerEpoch(r.uint())
		c.first = dataflow.Seq(r.atMost(maxSeq, "sequence number"))
		c.limit = int(r.atMost(maxCount, "limit"))
		if c.producer == "" || c.first == 0 {
			r.fail("incomplete producer")
		}
	case originKey:
		c.hasKey = true
		copy(c.key[:], r.bytes(uint64(len(c.key))))
		c.limit = int(r.atMost(maxCount, "limit"))
	default:
		r.fail("unknown origin")
	}
	c.rows = r.rest()
	return c
}
