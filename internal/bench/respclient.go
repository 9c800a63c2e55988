package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// respConns is how many connections make the load: as many as redis-benchmark opens if it is not told otherwise.
const respConns = 50

// respClient speaks the Redis protocol to a server that has respKey + k = k for every k below keys. Its methods are not
// called at once.
type respClient struct {
	addr  string
	keys  uint64
	conns []*respConn
}

// respConn is one connection. One goroutine uses it at a time.
type respConn struct {
	nc     net.Conn
	in     *bufio.Reader
	out    []byte   // commands to send
	asked  []uint64 // the keys of the GETs under way
	want   []byte   // an answer
	random xorshift
}

func dialRESP(ctx context.Context, addr string, keys uint64) (*respClient, error) {
	c := &respClient{addr: addr, keys: keys}
	for i := range uint64(respConns) {
		conn, err := dialRESPConn(ctx, addr)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		conn.random = xorshift((i + 1) * 0x9e3779b97f4a7c15)
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

func dialRESPConn(ctx context.Context, addr string) (*respConn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &respConn{nc: nc, in: bufio.NewReaderSize(nc, 16<<10)}, nil
}

func (c *respClient) close() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.nc.Close())
	}
	return errors.Join(errs...)
}

// interruptible runs body, whose reads and writes end when ctx does.
func (c *respConn) interruptible(ctx context.Context, body func() error) error {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.nc.SetDeadline(time.Unix(1, 0)) // it fails on a connection that is closed, which has ended too
		close(interrupted)
	})
	err := body()
	if !stop() {
		<-interrupted
		err = errors.Join(ctx.Err(), err)
	}
	return err
}

// load keeps every connection busy with GETs of random keys for a time, so many at once, and says how many were answered
// and in what time.
func (c *respClient) load(ctx context.Context, pipeline int, d time.Duration) (gets uint64, took time.Duration, err error) {
	var count atomic.Uint64
	eg, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for _, conn := range c.conns {
		eg.Go(func() error {
			return conn.interruptible(ctx, func() error {
				done := uint64(0)
				defer func() { count.Add(done) }()
				for time.Since(began) < d {
					if err := conn.get(pipeline, c.keys); err != nil {
						return err
					}
					done += uint64(pipeline)
				}
				return nil
			})
		})
	}
	err = eg.Wait()
	return count.Load(), time.Since(began), err
}

// get sends n GETs together and checks their answers.
func (c *respConn) get(n int, keys uint64) error {
	c.out, c.asked = c.out[:0], c.asked[:0]
	for range n {
		k := c.random.below(keys)
		c.asked = append(c.asked, k)
		c.out = appendGet(c.out, k)
	}
	if _, err := c.nc.Write(c.out); err != nil {
		return err
	}
	for _, k := range c.asked {
		c.want = appendBulkNumber(c.want[:0], k)
		header := bytes.IndexByte(c.want, '\n') + 1
		for _, want := range [][]byte{c.want[:header], c.want[header:]} {
			got, err := c.in.ReadSlice('\n')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return err
			}
			if !bytes.Equal(got, want) {
				return voidf("an answer to GET %s%d is %q instead of %q", respKey, k, got, want)
			}
		}
	}
	return nil
}

// appendGet appends the command that reads key k.
func appendGet(dst []byte, k uint64) []byte {
	dst = append(dst, "*2\r\n$3\r\nGET\r\n"...)
	return appendKeyName(dst, k)
}

// appendKeyName appends the name of key k as a bulk string.
func appendKeyName(dst []byte, k uint64) []byte {
	dst = append(dst, '$')
	dst = strconv.AppendInt(dst, int64(len(respKey)+digits(k)), 10)
	dst = append(dst, "\r\n"+respKey...)
	dst = strconv.AppendUint(dst, k, 10)
	return append(dst, "\r\n"...)
}

// appendBulkNumber appends a number as a bulk string.
func appendBulkNumber(dst []byte, k uint64) []byte {
	dst = append(dst, '$')
	dst = strconv.AppendInt(dst, int64(digits(k)), 10)
	dst = append(dst, "\r\n"...)
	dst = strconv.AppendUint(dst, k, 10)
	return append(dst, "\r\n"...)
}

// digits returns how many decimal digits k has.
func digits(k uint64) int {
	n := 1
	for ; k >= 10; k /= 10 {
		n++
	}
	return n
}

// fillBatch is how many keys are written or removed between looks at the answers.
const fillBatch = 1000

// fill writes every key.
func (c *respClient) fill(ctx context.Context) error {
	return c.each(ctx, "+OK\r\n", func(dst []byte, k uint64) []byte {
		dst = append(dst, "*3\r\n$3\r\nSET\r\n"...)
		return appendBulkNumber(appendKeyName(dst, k), k)
	})
}

// remove takes every key away again.
func (c *respClient) remove(ctx context.Context) error {
	return c.each(ctx, ":", func(dst []byte, k uint64) []byte {
		dst = append(dst, "*2\r\n$6\r\nUNLINK\r\n"...)
		return appendKeyName(dst, k)
	})
}

// each sends a command per key, and sees that every answer begins as it should. Its connection is its own: those of a load
// that has failed are of no use.
func (c *respClient) each(ctx context.Context, answer string, command func(dst []byte, k uint64) []byte) (err error) {
	conn, err := dialRESPConn(ctx, c.addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.nc.Close()) }()
	return conn.interruptible(ctx, func() error {
		for from := uint64(0); from < c.keys; from += fillBatch {
			to := min(from+fillBatch, c.keys)
			conn.out = conn.out[:0]
			for k := from; k < to; k++ {
				conn.out = command(conn.out, k)
			}
			if _, err := conn.nc.Write(conn.out); err != nil {
				return err
			}
			for range to - from {
				line, err := conn.in.ReadString('\n')
				if err != nil {
					return err
				}
				if !strings.HasPrefix(line, answer) {
					return fmt.Errorf("the answer is %q", line)
				}
			}
		}
		return nil
	})
}

// cpuTime asks the server how much CPU time it has taken; 0 when it does not tell.
func (c *respClient) cpuTime(ctx context.Context) (total time.Duration, err error) {
	conn := c.conns[0]
	err = conn.interruptible(ctx, func() error {
		if _, err := io.WriteString(conn.nc, "*2\r\n$4\r\nINFO\r\n$3\r\nCPU\r\n"); err != nil {
			return err
		}
		line, err := conn.in.ReadString('\n')
		if err != nil {
			return err
		}
		size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "$")))
		if err != nil || size < 0 || size > conn.in.Size()-2 {
			return fmt.Errorf("the answer to INFO CPU begins with %q", line)
		}
		text, err := conn.in.Peek(size + 2)
		if err != nil {
			return err
		}
		total = cpuOf(string(text))
		_, err = conn.in.Discard(size + 2)
		return err
	})
	return total, err
}

// cpuOf adds up the CPU time of the process in an answer of INFO CPU.
func cpuOf(info string) (total time.Duration) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_sys" && name != "used_cpu_user" {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0
		}
		total += time.Duration(seconds * float64(time.Second))
	}
	return total
}
