package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// natsStreams is how many streams share the messages, each with a connection that publishes: as many as the group has
	// shards.
	natsStreams = 8
	// natsUnderWay bounds the messages of a connection that are not acknowledged.
	natsUnderWay = 1000
	// natsCall bounds a call of NATS' API, and natsQuiet how long nothing may come while acknowledgements are missing.
	natsCall, natsQuiet = 10 * time.Second, 30 * time.Second
	natsName            = "weirbench"
)

// natsLoad publishes to streams of JetStream with three replicas, a message of 100 bytes per row.
type natsLoad struct {
	conns []*natsConn
}

// natsConn is a connection that speaks NATS' client protocol, with a stream of its own. One goroutine uses it at a time.
type natsConn struct {
	nc     net.Conn
	in     *bufio.Reader
	stream string
	sent   uint64
}

// natsError is how JetStream says that it did not do what it was asked to.
type natsError struct {
	Error *struct{ Description string }
}

func openNATS(ctx context.Context, addr string) (l *natsLoad, err error) {
	l = &natsLoad{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	for i := range natsStreams {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return l, err
		}
		c := &natsConn{nc: nc, in: bufio.NewReaderSize(nc, 64<<10), stream: fmt.Sprintf("%s%d", natsName, i)}
		l.conns = append(l.conns, c)
		if err := c.open(); err != nil {
			return l, err
		}
	}
	return l, nil
}

// open introduces the client, and makes the stream; one that an earlier run left behind goes first.
func (c *natsConn) open() error {
	if err := c.nc.SetDeadline(time.Now().Add(natsCall)); err != nil {
		return err
	}
	if _, err := c.in.ReadString('\n'); err != nil { // INFO
		return fmt.Errorf("read what the server says of itself: %w", err)
	}
	if _, err := fmt.Fprintf(c.nc, "CONNECT {\"verbose\":false,\"pedantic\":false,\"name\":%q}\r\nSUB %s.ack 1\r\n", natsName, c.stream); err != nil {
		return err
	}
	if err := c.api("STREAM.DELETE", "", nil); err != nil && !errors.Is(err, errNATSRefuses) {
		return err
	}
	return c.api("STREAM.CREATE", fmt.Sprintf(`{"name":%q,"subjects":[%q],"num_replicas":%d,"storage":"file","retention":"limits"}`, c.stream, c.stream+".rows", groupNodes), nil)
}

// errNATSRefuses is an answer that says no.
var errNATSRefuses = errors.New("JetStream refuses")

// api makes a call of JetStream's API and decodes what it answers into out, unless that is nil.
func (c *natsConn) api(call, request string, out any) error {
	if err := c.nc.SetDeadline(time.Now().Add(natsCall)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c.nc, "PUB $JS.API.%s.%s %s.ack %d\r\n%s\r\n", call, c.stream, c.stream, len(request), request); err != nil {
		return err
	}
	b, err := c.message()
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	if err := natsRefusal(b); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

func natsRefusal(answer []byte) error {
	var e natsError
	if err := json.Unmarshal(answer, &e); err != nil {
		return fmt.Errorf("JetStream answers %q: %w", answer, err)
	}
	if e.Error != nil {
		return fmt.Errorf("%w: %s", errNATSRefuses, e.Error.Description)
	}
	return nil
}

// message returns the next message that came.
func (c *natsConn) message() ([]byte, error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		switch {
		case bytes.HasPrefix(line, []byte("MSG ")):
			f := bytes.Fields(line)
			n, err := strconv.Atoi(string(f[len(f)-1]))
			if err != nil {
				return nil, fmt.Errorf("NATS says %q: %w", line, err)
			}
			b := make([]byte, n+2)
			if _, err := io.ReadFull(c.in, b); err != nil {
				return nil, err
			}
			return b[:n], nil
		case bytes.HasPrefix(line, []byte("PING")):
			if _, err := c.nc.Write([]byte("PONG\r\n")); err != nil {
				return nil, err
			}
		case bytes.HasPrefix(line, []byte("-ERR")):
			return nil, fmt.Errorf("%w: %s", errNATSRefuses, bytes.TrimSpace(line))
		}
	}
}

// load publishes for a time, waits for what is under way, and returns acknowledged messages per second.
func (l *natsLoad) load(ctx context.Context, d time.Duration) (rate float64, err error) {
	var acknowledged atomic.Uint64
	var eg errgroup.Group
	began := time.Now()
	for _, c := range l.conns {
		eg.Go(func() error {
			n, err := c.publish(ctx, began.Add(d))
			acknowledged.Add(n)
			return err
		})
	}
	if err := eg.Wait(); err != nil {
		return 0, err
	}
	rate = float64(acknowledged.Load()) / time.Since(began).Seconds()
	for _, c := range l.conns {
		var info struct{ State struct{ Messages uint64 } }
		if err := c.api("STREAM.INFO", "", &info); err != nil {
			return 0, err
		}
		if info.State.Messages != c.sent {
			return 0, voidf("NATS acknowledged %d messages and holds %d", c.sent, info.State.Messages)
		}
	}
	return rate, nil
}

// publish keeps natsUnderWay messages under way until a time, and returns how many were acknowledged.
func (c *natsConn) publish(ctx context.Context, until time.Time) (n uint64, err error) {
	row := append(fmt.Appendf(nil, "PUB %s.rows %s.ack %d\r\n", c.stream, c.stream, rowBytes), make([]byte, rowBytes)...)
	row = append(row, '\r', '\n')
	var out []byte
	for under := 0; ; {
		if time.Now().Before(until) && ctx.Err() == nil && under <= natsUnderWay/2 {
			for out = out[:0]; under < natsUnderWay; under++ {
				out = append(out, row...)
			}
			if _, err := c.nc.Write(out); err != nil {
				return n, err
			}
		}
		if under == 0 {
			return n, ctx.Err()
		}
		if n%natsUnderWay == 0 {
			if err := c.nc.SetDeadline(time.Now().Add(natsQuiet)); err != nil {
				return n, err
			}
		}
		b, err := c.message()
		if err == nil && !bytes.Contains(b, []byte(`"seq"`)) {
			err = natsRefusal(b)
		}
		if err != nil {
			return n, fmt.Errorf("wait for JetStream's acknowledgement: %w", err)
		}
		under, n, c.sent = under-1, n+1, c.sent+1
	}
}

// close deletes the streams.
func (l *natsLoad) close() error {
	var errs []error
	for _, c := range l.conns {
		errs = append(errs, c.api("STREAM.DELETE", "", nil), c.nc.Close())
	}
	return errors.Join(errs...)
}
