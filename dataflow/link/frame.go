package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/exchange"
)

// A stream is a sequence of frames, both ways:
//
//	length uint32 little-endian: bytes after the checksum
//	crc    uint32 little-endian: CRC32C of these
//	kind   uint8
//	body   by kind
//
// The checksum is here although TCP has one: TCP's 16 bits let a damaged frame through now and then, and what is wrong in a row
// of a view stays wrong. It costs a few percent of what the encoding costs. Integers in bodies are uvarints.
const (
	frameHeader = 4 + 4
	// maxFrame bounds what a length makes a reader allocate.
	maxFrame = exchange.MaxMessageBytes + 64
	// maxGreeting bounds frames before both have agreed: all are short.
	maxGreeting = 4 << 10
	// maxReason bounds a reason that is sent to a peer.
	maxReason = 1 << 10
)

// version is that of the frames and of the messages in them.
const version = 1

// frameKind tells frames apart. The list is append-only.
type frameKind uint8

const (
	frameHello   frameKind = 1 // who the dialer is and what it runs
	frameWelcome frameKind = 2 // the acceptor runs the same
	frameRefuse  frameKind = 3 // a code, the newest incarnation, a reason to the end
	frameBegin   frameKind = 4 // the dialer takes the stream for connected
	frameMessage frameKind = 5 // an edge's id, the message's number on the edge, the message to the end
	frameCredit  frameKind = 6 // an edge's id, a number of credits; again to the end
	framePing    frameKind = 7 // nothing to say
	frameBye     frameKind = 8 // the sender's run has ended: 1 = it was told to, 0 = not, a reason to the end
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // read only

var (
	errFrame    = errors.New("malformed frame")
	errChecksum = errors.New("the checksum of a frame does not match")
	errTooLarge = errors.New("a frame is too large")
)

// beginFrame appends an empty frame to dst; what is appended until endFrame is its body.
func beginFrame(dst []byte, kind frameKind) []byte {
	return append(dst, 0, 0, 0, 0, 0, 0, 0, 0, byte(kind))
}

// endFrame fills in the header of the frame that begins at at and goes to the end.
func endFrame(dst []byte, at int) []byte {
	body := dst[at+frameHeader:]
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(body)))
	binary.LittleEndian.PutUint32(dst[at+4:], crc32.Checksum(body, castagnoli))
	return dst
}

// readFrame reads a frame into memory of its own.
func readFrame(r io.Reader, most int) (frameKind, []byte, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 {
		return 0, nil, errFrame
	}
	if uint64(n) > uint64(most) {
		return 0, nil, errTooLarge
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return 0, nil, errChecksum
	}
	return frameKind(body[0]), body[1:], nil
}

func appendEdge(dst []byte, id exchange.EdgeID) []byte {
	dst = binary.AppendUvarint(dst, uint64(id.Stage))
	dst = binary.AppendUvarint(dst, uint64(id.Input))
	dst = binary.AppendUvarint(dst, uint64(id.From))
	return binary.AppendUvarint(dst, uint64(id.To))
}

// hello is what a dialer says of itself.
type hello struct {
	Pipeline    dataflow.PipelineUID
	Incarnation dataflow.Incarnation
	From, To    string // nodes
	Edges       uint64 // between the two, both ways
	Fingerprint uint64 // of the program, the owners and the edges
}

func (h hello) String() string {
	return fmt.Sprintf("hello from %s to %s for pipeline %d incarnation %d: %d edges, fingerprint %016x", h.From, h.To, h.Pipeline, h.Incarnation, h.Edges, h.Fingerprint)
}

func (h hello) append(dst []byte) []byte {
	at := len(dst)
	dst = append(beginFrame(dst, frameHello), version)
	for _, v := range []uint64{uint64(h.Pipeline), uint64(h.Incarnation), h.Edges, h.Fingerprint} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, s := range []string{h.From, h.To} {
		dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
	}
	return endFrame(dst, at)
}

func parseHello(body []byte) (hello, error) {
	if len(body) == 0 {
		return hello{}, errFrame
	}
	if body[0] != version {
		return hello{}, fmt.Errorf("the peer speaks version %d of the exchange, this node %d: %w", body[0], version, errFrame)
	}
	r := reader{rest: body[1:]}
	h := hello{
		Pipeline: dataflow.PipelineUID(r.uvarint()), Incarnation: dataflow.Incarnation(r.uvarint()),
		Edges: r.uvarint(), Fingerprint: r.uvarint(), From: r.text(), To: r.text(),
	}
	return h, r.end()
}

// refusal says why an acceptor does not take a stream.
type refusal struct {
	code   refusalCode
	newest dataflow.Incarnation
	reason string
}

// refusalCode tells refusals apart. The list is append-only.
type refusalCode uint8

const (
	refuseStale      refusalCode = 1
	refuseNotStarted refusalCode = 2 // try again
	refuseMismatch   refusalCode = 3
	refuseBusy       refusalCode = 4 // the hub is being closed, or the pair is connected already: try again
)

func (r refusal) append(dst []byte) []byte {
	at := len(dst)
	dst = append(beginFrame(dst, frameRefuse), byte(r.code))
	dst = binary.AppendUvarint(dst, uint64(r.newest))
	return endFrame(append(dst, r.reason[:min(len(r.reason), maxReason)]...), at)
}

func parseRefusal(body []byte) (refusal, error) {
	if len(body) == 0 {
		return refusal{}, errFrame
	}
	r := reader{rest: body[1:]}
	newest := dataflow.Incarnation(r.uvarint())
	return refusal{code: refusalCode(body[0]), newest: newest, reason: string(r.rest)}, r.err
}

// reader reads from the front of rest. After an error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) uvarint() uint64 {
	v, k := binary.Uvarint(r.rest)
	if k <= 0 {
		r.rest, r.err = nil, errFrame
		return 0
	}
	r.rest = r.rest[k:]
	return v
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.rest, r.err = nil, errFrame
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *reader) edge() exchange.EdgeID {
	stage, input, from, to := r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	if stage >= 1<<32 || input >= 1<<31 || from >= dataflow.MaxShards || to >= dataflow.MaxShards {
		r.rest, r.err = nil, errFrame
	}
	return exchange.EdgeID{Stage: dataflow.StageID(stage), Input: int(input), From: dataflow.ShardID(from), To: dataflow.ShardID(to)}
}

func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		return errFrame
	}
	return r.err
}
