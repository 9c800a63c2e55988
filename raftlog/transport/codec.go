package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// Everything between two members is frames, little-endian:
//
//	length of the rest (4) | kind (1) | body
//
// A request is one frame and has one answer, in order. A snapshot's request is followed by its bytes in chunks, each with
// a CRC32C, and by an empty chunk. Entries need no checksum here: commands carry their own (frame), and the log stores
// add theirs.
type kind uint8

const (
	kindAppend     kind = 1
	kindVote       kind = 2
	kindPreVote    kind = 3
	kindTimeoutNow kind = 4
	kindSnapshot   kind = 5
	kindChunk      kind = 6
	kindConsent    kind = 7

	kindAnswer  kind = 128 // of what was asked
	kindFailed  kind = 129 // an error's text instead
	kindWorking kind = 130 // a snapshot's receiver is still at it
)

const (
	frameHead = 4 + 1
	// maxFrame bounds what a peer can make this node allocate: a request of T3, whose one entry may be larger.
	maxFrame = 32 << 20
	// maxRequestBytes of entries go into one request (T3). Why not larger: a heartbeat that comes after it waits until it
	// is stored. Why not smaller: every request is a durable write of the follower.
	maxRequestBytes = 2 << 20
	// gatherFrom is the size from which an entry's bytes are handed to the network as they are, instead of being copied
	// into one slice with their neighbours.
	gatherFrom = 8 << 10
	chunkBytes = 64 << 10
)

var errFrame = errors.New("transport: a frame is malformed")

// putter appends fields.
type putter []byte

func (p *putter) u8(v uint8)      { *p = append(*p, v) }
func (p *putter) u64(v uint64)    { *p = binary.AppendUvarint(*p, v) }
func (p *putter) bytes(b []byte)  { p.u64(uint64(len(b))); *p = append(*p, b...) }
func (p *putter) bools(b ...bool) { p.u8(bits(b)) }

func bits(b []bool) (v uint8) {
	for i, set := range b {
		if set {
			v |= 1 << i
		}
	}
	return v
}

// cutter takes fields off. After the first that is not there, everything is zero and failed is set.
type cutter struct {
	b      []byte
	failed bool
}

func (c *cutter) fail() {
	c.b, c.failed = nil, true
}

func (c *cutter) u8() uint8 {
	if len(c.b) == 0 {
		c.fail()
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

func (c *cutter) u64() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

// bytes shares the frame's memory.
func (c *cutter) bytes() []byte {
	n := c.u64()
	if n > uint64(len(c.b)) {
		c.fail()
	}
	if c.failed || n == 0 {
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *cutter) bool(v uint8, bit int) bool { return v&(1<<bit) != 0 }

// end returns an error unless everything was there, and nothing more.
func (c *cutter) end() error {
	if c.failed || len(c.b) > 0 {
		return errFrame
	}
	return nil
}

// Every message begins with the library's header. A member's address is its id, so one of them is enough.
func (p *putter) header(h raft.RPCHeader) {
	p.u8(uint8(h.ProtocolVersion))
	p.bytes(h.ID)
}

func (c *cutter) header() raft.RPCHeader {
	v := c.u8()
	id := append([]byte(nil), c.bytes()...) // the library may keep it
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(v), ID: id, Addr: id}
}

func (p *putter) preVote(k kind, r *raft.RequestPreVoteRequest) {
	p.u8(uint8(k))
	p.header(r.RPCHeader)
	p.u64(r.Term)
	p.u64(r.LastLogIndex)
	p.u64(r.LastLogTerm)
}

// appendRequest encodes a request into b, but for the bytes of large entries, which gather has to put where it says.
func appendRequest(b []byte, req any) (_ []byte, large []largePart, _ error) {
	p := putter(b)
	switch r := req.(type) {
	case *raft.AppendEntriesRequest:
		p.u8(uint8(kindAppend))
		p.header(r.RPCHeader)
		p.u64(r.Term)
		p.u64(r.PrevLogEntry)
		p.u64(r.PrevLogTerm)
		p.u64(r.LeaderCommitIndex)
		p.u64(uint64(len(r.Entries)))
		for _, e := range r.Entries {
			p.u64(e.Index)
			p.u64(e.Term)
			p.u8(uint8(e.Type))
			var appended int64
			if !e.AppendedAt.IsZero() {
				appended = e.AppendedAt.UnixNano()
			}
			p.u64(uint64(appended))
			p.bytes(e.Extensions)
			if len(e.Data) < gatherFrom {
				p.bytes(e.Data)
				continue
			}
			p.u64(uint64(len(e.Data)))
			large = append(large, largePart{at: len(p), data: e.Data})
		}
	case *raft.RequestVoteRequest:
		p.u8(uint8(kindVote))
		p.header(r.RPCHeader)
		p.u64(r.Term)
		p.u64(r.LastLogIndex)
		p.u64(r.LastLogTerm)
		p.bools(r.LeadershipTransfer)
	case *raft.RequestPreVoteRequest:
		p.preVote(kindPreVote, r)
	case *ConsentRequest:
		p.preVote(kindConsent, &r.RequestPreVoteRequest)
	case *raft.TimeoutNowRequest:
		p.u8(uint8(kindTimeoutNow))
		p.header(r.RPCHeader)
	case *raft.InstallSnapshotRequest:
		p.u8(uint8(kindSnapshot))
		p.header(r.RPCHeader)
		p.u64(uint64(r.SnapshotVersion))
		p.u64(r.Term)
		p.u64(r.LastLogIndex)
		p.u64(r.LastLogTerm)
		p.bytes(r.Configuration)
		p.u64(r.ConfigurationIndex)
		p.u64(uint64(r.Size))
	default:
		return nil, nil, fmt.Errorf("transport: no request: %T", req)
	}
	return p, large, nil
}

// decodeRequest decodes a request, whose entries share b's memory.
func decodeRequest(k kind, b []byte) (any, error) {
	c := &cutter{b: b}
	h := c.header()
	switch k {
	case kindAppend:
		r := &raft.AppendEntriesRequest{RPCHeader: h, Term: c.u64(), PrevLogEntry: c.u64(), PrevLogTerm: c.u64(), LeaderCommitIndex: c.u64()}
		n := c.u64()
		if n > uint64(len(c.b)) { // each takes several bytes
			return nil, errFrame
		}
		logs := make([]raft.Log, n)
		r.Entries = make([]*raft.Log, n)
		for i := range logs {
			l := &logs[i]
			l.Index, l.Term, l.Type = c.u64(), c.u64(), raft.LogType(c.u8())
			if appended := int64(c.u64()); appended != 0 {
				l.AppendedAt = time.Unix(0, appended)
			}
			l.Extensions, l.Data = c.bytes(), c.bytes()
			r.Entries[i] = l
		}
		return r, c.end()
	case kindVote:
		r := &raft.RequestVoteRequest{RPCHeader: h, Term: c.u64(), LastLogIndex: c.u64(), LastLogTerm: c.u64()}
		r.LeadershipTransfer = c.bool(c.u8(), 0)
		return r, c.end()
	case kindPreVote, kindConsent:
		r := raft.RequestPreVoteRequest{RPCHeader: h, Term: c.u64(), LastLogIndex: c.u64(), LastLogTerm: c.u64()}
		if k == kindConsent {
			return &ConsentRequest{r}, c.end()
		}
		return &r, c.end()
	case kindTimeoutNow:
		return &raft.TimeoutNowRequest{RPCHeader: h}, c.end()
	case kindSnapshot:
		r := &raft.InstallSnapshotRequest{RPCHeader: h, Leader: h.ID, SnapshotVersion: raft.SnapshotVersion(c.u64()),
			Term: c.u64(), LastLogIndex: c.u64(), LastLogTerm: c.u64()}
		r.Configuration = append([]byte(nil), c.bytes()...)
		r.ConfigurationIndex, r.Size = c.u64(), int64(c.u64())
		if r.Size < 0 {
			return nil, errFrame
		}
		return r, c.end()
	}
	return nil, fmt.Errorf("%w: kind %d", errFrame, k)
}

// appendAnswer encodes what Raft said to a request.
func appendAnswer(b []byte, resp any, err error) ([]byte, error) {
	p := putter(b)
	if err != nil {
		p.u8(uint8(kindFailed))
		p.bytes([]byte(err.Error()))
		return p, nil
	}
	p.u8(uint8(kindAnswer))
	switch r := resp.(type) {
	case *raft.AppendEntriesResponse:
		p.header(r.RPCHeader)
		p.u64(r.Term)
		p.u64(r.LastLog)
		p.bools(r.Success, r.NoRetryBackoff)
	case *raft.RequestVoteResponse:
		p.header(r.RPCHeader)
		p.u64(r.Term)
		p.bools(r.Granted)
	case *raft.RequestPreVoteResponse:
		p.header(r.RPCHeader)
		p.u64(r.Term)
		p.bools(r.Granted)
	case *raft.InstallSnapshotResponse:
		p.header(r.RPCHeader)
		p.u64(r.Term)
		p.bools(r.Success)
	case *raft.TimeoutNowResponse:
		p.header(r.RPCHeader)
	default:
		return nil, fmt.Errorf("transport: no answer: %T", resp)
	}
	return p, nil
}

// remoteError is an error of the other member's Raft.
type remoteError string

func (e remoteError) Error() string { return string(e) }

// decodeAnswer decodes an answer into resp, which says what was asked. A remoteError leaves the connection usable.
func decodeAnswer(k kind, b []byte, resp any) error {
	c := &cutter{b: b}
	switch k {
	case kindFailed:
		text := string(c.bytes())
		if err := c.end(); err != nil {
			return err
		}
		return remoteError(text)
	case kindAnswer:
	default:
		return fmt.Errorf("%w: kind %d instead of an answer", errFrame, k)
	}
	h := c.header()
	switch r := resp.(type) {
	case *raft.AppendEntriesResponse:
		*r = raft.AppendEntriesResponse{RPCHeader: h, Term: c.u64(), LastLog: c.u64()}
		v := c.u8()
		r.Success, r.NoRetryBackoff = c.bool(v, 0), c.bool(v, 1)
	case *raft.RequestVoteResponse:
		*r = raft.RequestVoteResponse{RPCHeader: h, Term: c.u64()}
		r.Granted = c.bool(c.u8(), 0)
	case *raft.RequestPreVoteResponse:
		*r = raft.RequestPreVoteResponse{RPCHeader: h, Term: c.u64()}
		r.Granted = c.bool(c.u8(), 0)
	case *raft.InstallSnapshotResponse:
		*r = raft.InstallSnapshotResponse{RPCHeader: h, Term: c.u64()}
		r.Success = c.bool(c.u8(), 0)
	case *raft.TimeoutNowResponse:
		*r = raft.TimeoutNowResponse{RPCHeader: h}
	default:
		return fmt.Errorf("transport: no answer: %T", resp)
	}
	return c.end()
}

// largePart is an entry's bytes that belong into a frame at an offset.
type largePart struct {
	at   int
	data []byte
}

// gather sets the length of a frame whose head and small parts are in b, and puts its parts in a row.
func gather(bufs net.Buffers, b []byte, large []largePart) (net.Buffers, error) {
	n := len(b) - 4
	for _, l := range large {
		n += len(l.data)
	}
	if n > maxFrame {
		return nil, fmt.Errorf("transport: a frame of %d bytes is over the limit of %d", n, maxFrame)
	}
	binary.LittleEndian.PutUint32(b, uint32(n))
	from := 0
	for _, l := range large {
		bufs = append(bufs, b[from:l.at], l.data)
		from = l.at
	}
	return append(bufs, b[from:]), nil
}

// readHead reads a frame's length, without the kind, and kind.
func readHead(r io.Reader) (n int, k kind, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size < 1 || size > maxFrame {
		return 0, 0, fmt.Errorf("%w: %d bytes", errFrame, size)
	}
	return int(size) - 1, kind(head[4]), nil
}
