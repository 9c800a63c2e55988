package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// InstallSnapshot implements raft.Transport. A snapshot may take as long as it takes, while something of it moves.
func (t *Peers) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	c, err := t.dial(t.ctx, string(id))
	if err != nil {
		return err
	}
	defer t.drop(c.Conn)
	err = c.send(args, bulkTimeout)
	if err == nil {
		err = c.sendChunks(data)
	}
	if err != nil {
		// The member may have said why it hung up.
		var remote remoteError
		if rerr := c.receive(resp, time.Second); errors.As(rerr, &remote) {
			err = errors.Join(remote, err)
		}
		return fmt.Errorf("log %s: send a snapshot to node %s: %w", t.group, id, err)
	}
	if err := c.receive(resp, bulkTimeout); err != nil {
		return fmt.Errorf("log %s: install a snapshot on node %s: %w", t.group, id, err)
	}
	if resp.Success {
		t.progress(id).learn(args.Term, args.LastLogIndex, true)
	}
	return nil
}

// sendChunks sends a snapshot's bytes and the empty chunk that ends them.
func (c *client) sendChunks(data io.Reader) error {
	buf := make([]byte, frameHead+4+chunkBytes)
	for {
		n, err := io.ReadFull(data, buf[frameHead+4:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		b := buf[:frameHead+4+n]
		binary.LittleEndian.PutUint32(b, uint32(1+4+n))
		b[4] = byte(kindChunk)
		binary.LittleEndian.PutUint32(b[frameHead:], chunkSum(b[frameHead+4:]))
		if derr := c.SetWriteDeadline(time.Now().Add(bulkTimeout)); derr != nil {
			return derr
		}
		if _, werr := c.Write(b); werr != nil {
			return werr
		}
		if n == 0 {
			return nil
		}
	}
}

func chunkSum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// chunkReader reads a snapshot's bytes. It stays with its first error, io.EOF among them.
type chunkReader struct {
	s    *server
	buf  []byte
	rest []byte // of the chunk being read
	err  error
}

// Read implements io.Reader.
func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.err = r.next()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *chunkReader) next() error {
	if err := r.s.SetReadDeadline(time.Now().Add(bulkTimeout)); err != nil {
		return err
	}
	n, k, err := readHead(r.s.r)
	switch {
	case err != nil:
		return noEOF(err)
	case k != kindChunk || n < 4 || n > 4+chunkBytes:
		return fmt.Errorf("%w: kind %d of %d bytes instead of a chunk", errFrame, k, n)
	}
	if r.buf == nil {
		r.buf = make([]byte, 4+chunkBytes)
	}
	if _, err := io.ReadFull(r.s.r, r.buf[:n]); err != nil {
		return noEOF(err)
	}
	r.rest = r.buf[4:n]
	if binary.LittleEndian.Uint32(r.buf) != chunkSum(r.rest) {
		r.rest = nil
		return fmt.Errorf("%w: the checksum of a snapshot's chunk is wrong", errFrame)
	}
	if len(r.rest) == 0 {
		return io.EOF
	}
	return nil
}

// noEOF keeps a connection that ended too early from looking like a snapshot that ended.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
