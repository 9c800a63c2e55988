package resp

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/weirdb/weir/dataflow"
)

// conn is one client. Its goroutine owns all but nc and writes, or its loop when it has no goroutine (R6).
type conn struct {
	s  *Server
	nc transport
	// sock is nc if a loop serves the connection; else nil.
	sock *socket
	id   uint64
	// writes is odd while the client is to take an answer, and another number with every slice of it that has been taken.
	// Server.watchStuck reads it.
	writes atomic.Uint64

	in   []byte // what has come; in[from:to] is not answered yet
	from int
	to   int
	args [][]byte
	out  reply

	reader   Reader
	database dataflow.Isolation // SELECT
	name     string             // CLIENT SETNAME
	quit     bool               // the connection ends when the answers are sent
	hurried  bool               // others wait while it answers
	left     bool               // it has left commands undone, of a request that is not over
	large    bool               // it has one of the places for large answers

	key  dataflow.Row // of the command under way
	text []byte       // a value on its way into out
}

func newConn(s *Server, nc transport) *conn {
	return &conn{s: s, nc: nc, id: s.ids.Add(1), in: make([]byte, readBytes), reader: s.cfg.Backend.NewReader()}
}

// serve answers commands until the client goes, the server stops, or what comes is not RESP.
func (c *conn) serve(ctx context.Context) {
	for {
		if !c.answer(ctx) || !c.flush() || c.quit {
			return
		}
		if !c.fill() {
			return
		}
	}
}

// fill reads what has come, once. It returns false at the end.
func (c *conn) fill() bool {
	switch {
	case c.from == c.to:
		c.from, c.to = 0, 0
		if len(c.in) > readBytes {
			c.in = make([]byte, readBytes)
		}
	case c.from > 0:
		c.to = copy(c.in, c.in[c.from:c.to])
		c.from = 0
	}
	if c.to == len(c.in) { // one command fills it: frame bounds that
		c.in = append(c.in, make([]byte, len(c.in))...)
	}
	n, err := c.nc.Read(c.in[c.to:])
	c.to += n
	return n > 0 || err == nil
}

// answer answers every whole command that has come, as one request of the reader (R1). It returns false when the
// connection is to end without more being sent.
func (c *conn) answer(ctx context.Context) bool {
	if c.from == c.to {
		return true
	}
	if !c.left {
		c.reader.Begin()
	}
	c.left = false
	defer func() {
		if !c.left {
			c.reader.End()
		}
	}()
	count := uint64(0)
	defer func() { c.s.processed.Add(count) }()
	for !c.quit {
		n, args, err := command(c.in[c.from:c.to], c.args)
		if err != nil {
			c.out.fail(err)
			c.quit = true
			return true
		}
		if n == 0 {
			return true
		}
		if c.hurried && len(args) > 0 {
			if len(c.out.b) >= flushBytes || !c.runNow(ctx, args) {
				c.left = true
				return true
			}
			c.from += n
			count++
			c.args = args
			continue
		}
		c.from += n
		if len(args) == 0 {
			continue
		}
		count++
		c.args = args
		c.run(ctx, args)
		if len(c.out.b) < flushBytes {
			continue
		}
		c.reader.End() // R2
		if !c.flush() {
			return false
		}
		c.reader.Begin()
	}
	return true
}

// flush sends the answers. It returns false when the client is gone.
func (c *conn) flush() bool {
	if len(c.out.b) == 0 {
		return true
	}
	c.writes.Add(1)
	var err error
	for slice := range slices.Chunk(c.out.b, sliceBytes) {
		if _, err = c.nc.Write(slice); err != nil {
			break
		}
		c.writes.Add(2)
	}
	c.writes.Add(1)
	c.sent()
	return err == nil
}

// sent lets go of answers that have been sent.
func (c *conn) sent() {
	if c.out.b = c.out.b[:0]; cap(c.out.b) > 2*flushBytes {
		c.out.b = nil
	}
	if c.large {
		c.large = false
		<-c.s.large
	}
}

// room bounds the answer under way, which begins at from in out (R3). After an error the caller takes it back.
func (c *conn) room(from int) error {
	n := len(c.out.b) - from
	if n <= largeAnswer || c.large && n <= maxAnswer {
		return nil
	}
	if n > maxAnswer {
		return dataflow.Errorf(dataflow.ReasonScanLimit, "the answer takes more than %d bytes", maxAnswer).
			WithHint("ask for fewer keys at once").WithMeta("limit", "bytes")
	}
	select {
	case c.s.large <- struct{}{}:
		c.large = true
		return nil
	default:
		return dataflow.Errorf(dataflow.ReasonOverloaded, "%d answers of more than %d bytes are on their way, and more are not made at once", largeAnswers, largeAnswer).
			WithHint("try again, or ask for fewer keys at once")
	}
}
