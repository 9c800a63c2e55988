package transport

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirdb/weir/internal/peernet"
)

// serve takes the other members' connections.
func (t *Peers) serve() {
	for {
		c, err := t.lis.AcceptPeer()
		if err != nil {
			return // closed
		}
		if err := t.register(c); err != nil {
			_ = c.Close() // it was not used
			return
		}
		t.wg.Go(func() {
			s := &server{Conn: c, t: t, r: bufio.NewReaderSize(c, 64<<10)}
			for s.answer() == nil {
			}
			t.drop(c)
			t.ended(c)
		})
	}
}

// server is a connection on which the other side asks. One goroutine serves it, one request at a time: a follower stores
// entries in order anyway.
type server struct {
	*peernet.Conn
	t   *Peers
	r   *bufio.Reader
	out []byte
}

// answer serves one request. An error ends the connection.
func (s *server) answer() error {
	if err := s.SetReadDeadline(time.Time{}); err != nil { // the next request may take its time to come
		return err
	}
	n, k, err := readHead(s.r)
	if err != nil {
		return err
	}
	if err := s.SetReadDeadline(time.Now().Add(bulkTimeout)); err != nil {
		return err
	}
	body := s.t.buffer(n)
	if _, err := io.ReadFull(s.r, *body); err != nil {
		return err
	}
	req, err := decodeRequest(k, *body)
	if err != nil {
		return err
	}
	if err := s.checkSender(req); err != nil {
		return err
	}
	answer, ask := s.t.judge(req)
	rpc := raft.RPC{Command: ask}
	if k == kindSnapshot {
		rpc.Reader = &chunkReader{s: s}
	}
	resp := raft.RPCResponse{Response: answer}
	if answer == nil {
		if resp, err = s.hand(rpc); err != nil {
			return err
		}
	}
	if r, ok := resp.Response.(*raft.AppendEntriesResponse); ok && resp.Error == nil && r.Success {
		s.t.bufs.Put(body) // T4; after a write that failed, somebody may still hold it
	}
	out, err := appendAnswer(append(s.out[:0], 0, 0, 0, 0), resp.Response, resp.Error)
	if err != nil {
		return err
	}
	s.out = out
	return s.send(out)
}

// checkSender refuses a request in the name of another node than the connection's.
func (s *server) checkSender(req any) error {
	h := req.(raft.WithRPCHeader).GetRPCHeader()
	if string(h.ID) != s.Peer().Node {
		return fmt.Errorf("transport: node %s speaks for %s", s.Peer().Node, h.ID)
	}
	return nil
}

// hand gives a request to Raft and waits for what it says. Who sends a snapshot is told meanwhile that it is worked on.
func (s *server) hand(rpc raft.RPC) (raft.RPCResponse, error) {
	answered := make(chan raft.RPCResponse, 1)
	rpc.RespChan = answered
	var working <-chan time.Time
	if rpc.Reader != nil {
		tick := time.NewTicker(workingEvery)
		defer tick.Stop()
		working = tick.C
	}
	for in := s.t.rpcs; ; {
		select {
		case in <- rpc:
			in = nil
		case resp := <-answered:
			return resp, nil
		case <-working:
			if err := s.send([]byte{0, 0, 0, 0, byte(kindWorking)}); err != nil {
				// Raft reads from the connection and will fail too; its answer has nobody to go to.
				working = nil
				_ = s.Close()
			}
		case <-s.t.ctx.Done():
			return raft.RPCResponse{}, ErrClosed
		}
	}
}

// send writes a frame whose length is still to be set.
func (s *server) send(b []byte) error {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	if err := s.SetWriteDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	_, err := s.Write(b)
	return err
}

// buffer returns memory for a request (T4).
func (t *Peers) buffer(n int) *[]byte {
	b, _ := t.bufs.Get().(*[]byte)
	if b == nil || cap(*b) < n {
		b = new([]byte)
		*b = make([]byte, n, max(n, 4<<10))
	}
	*b = (*b)[:n]
	return b
}
