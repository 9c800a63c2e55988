package resp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/node/resp"
)

// pipes is a listener whose connections are net.Pipes, which time can be simulated with.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// simulate runs fn with a server over pipes and simulated time, and stops the server after it.
func simulate(t *testing.T, cfg resp.Config, fn func(t *testing.T, s *resp.Server, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, p := resp.New(cfg), newPipes()
		done := make(chan error, 1)
		go func() { done <- s.Serve(p) }()
		synctest.Wait()
		fn(t, s, p)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Stop(ctx)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func ask(t *testing.T, c net.Conn, words ...string) string {
	t.Helper()
	if _, err := io.WriteString(c, request(words...)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4<<10)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestAClientThatTakesNoAnswerIsCutOffAndOneThatWaitsIsNot(t *testing.T) {
	f := newFake()
	simulate(t, resp.Config{Backend: f}, func(t *testing.T, _ *resp.Server, p *pipes) {
		idle, stuck := p.dial(), p.dial()
		if got := ask(t, idle, "PING"); got != "+PONG\r\n" {
			t.Fatal(got)
		}
		_, _ = io.WriteString(stuck, request("GET", "big.rows:1"))
		synctest.Wait()
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d requests hold a view while a client does not take its answer", n)
		}
		time.Sleep(46 * time.Second)
		if got, err := io.ReadAll(stuck); len(got) > 0 || err != nil {
			t.Errorf("it got %d bytes, %v", len(got), err)
		}
		if got := ask(t, idle, "PING"); got != "+PONG\r\n" {
			t.Error(got)
		}
	})
}

func TestAClientThatTakesItsAnswerSlowlyIsNotCutOff(t *testing.T) {
	simulate(t, resp.Config{Backend: newFake()}, func(t *testing.T, _ *resp.Server, p *pipes) {
		c := p.dial()
		_, _ = io.WriteString(c, request("GET", "big.rows:1"))
		const slice, want = 64 << 10, 900<<10 + len("$921600\r\n\r\n")
		for got, buf := 0, make([]byte, slice); got < want; {
			time.Sleep(20 * time.Second)
			n, err := io.ReadAtLeast(c, buf, min(slice, want-got))
			if got += n; err != nil {
				t.Fatalf("after %d bytes of %d: %v", got, want, err)
			}
		}
	})
}

func TestAClientMayPauseForHalfAMinute(t *testing.T) {
	for began := range 15 { // in s, between two looks of the server
		simulate(t, resp.Config{Backend: newFake()}, func(t *testing.T, _ *resp.Server, p *pipes) {
			c := p.dial()
			time.Sleep(time.Duration(began)*time.Second + time.Millisecond)
			_, _ = io.WriteString(c, request("GET", "big.rows:1"))
			time.Sleep(30*time.Second - 2*time.Millisecond)
			buf := make([]byte, 900<<10)
			if n, err := io.ReadFull(c, buf); err != nil {
				t.Errorf("begun after %d s: %d bytes, %v", began, n, err)
			}
		})
	}
}

func TestLargeAnswersAreMadeForAFewConnectionsAtATime(t *testing.T) {
	simulate(t, resp.Config{Backend: newFake()}, func(t *testing.T, _ *resp.Server, p *pipes) {
		var stuck []net.Conn
		for range 4 {
			c := p.dial()
			_, _ = io.WriteString(c, request("MGET", "big.rows:1", "big.rows:2"))
			stuck = append(stuck, c)
		}
		synctest.Wait()
		c := p.dial()
		if got := ask(t, c, "MGET", "big.rows:1", "big.rows:2"); !strings.HasPrefix(got, "-WEIR_OVERLOADED ") {
			t.Errorf("%.80q", got)
		}
		_ = stuck[0].Close()
		synctest.Wait()
		if got := ask(t, c, "MGET", "big.rows:1", "big.rows:2"); !strings.HasPrefix(got, "*2\r\n$921600\r\nxxx") {
			t.Errorf("%.80q", got)
		}
	})
}

func TestStopLetsWhoWaitsForACommandGoAndCutsOffWhoTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := resp.New(resp.Config{Backend: newFake()}), newPipes()
		done := make(chan error, 1)
		go func() { done <- s.Serve(p) }()
		idle, waiting := p.dial(), p.dial()
		_, _ = io.WriteString(waiting, request("WEIR.WAIT", "COMMITTED", "never", "600000"))
		synctest.Wait()
		began := time.Now()
		ended := make(chan time.Duration, 1)
		go func() {
			_, _ = io.ReadAll(idle)
			ended <- time.Since(began)
		}()
		go func() { _, _ = io.ReadAll(waiting) }()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s.Stop(ctx)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("Stop took %s", took)
		}
		if took := <-ended; took != 0 {
			t.Errorf("the idle connection ended after %s", took)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Stop(ctx) // once more
		if err := s.Serve(newPipes()); err != nil {
			t.Error(err)
		}
	})
}

func TestConnectionsOverTheLimitAreToldSo(t *testing.T) {
	_, addr := serve(t, resp.Config{Backend: newFake(), MaxConns: 1})
	first := dial(t, addr)
	if got, _ := exchange(first, request("PING")); got != "+PONG\r\n" {
		t.Fatal(got)
	}
	got, err := io.ReadAll(dial(t, addr))
	if err != nil || string(got) != "-ERR max number of clients reached\r\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestAHugePipelineIsAnsweredInOrder sends far more commands than fit in any buffer before it has read an answer.
func TestAHugePipelineIsAnsweredInOrder(t *testing.T) {
	f := newFake()
	_, addr := serve(t, resp.Config{Backend: f})
	c := dial(t, addr)
	const n = 200_000
	sent := make(chan error, 1)
	go func() {
		w := bufio.NewWriter(c)
		for i := range n {
			_, _ = w.WriteString(request("ECHO", fmt.Sprint(i)) + request("GET", "wc.counts:whale")) // Flush says
		}
		sent <- w.Flush()
	}()
	r := bufio.NewReader(c)
	for i := range n {
		text := fmt.Sprint(i)
		want := fmt.Sprintf("$%d\r\n%s\r\n$4\r\n1226\r\n", len(text), text)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("answer %d is %q, %v", i, got, err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestAnAnswerOverTheLimitIsAnErrorAndTheConnectionGoesOn(t *testing.T) {
	_, addr := serve(t, resp.Config{Backend: newFake()})
	c := dial(t, addr)
	mget := []string{"MGET"}
	for range 80 {
		mget = append(mget, "big.rows:0")
	}
	got, closed := exchange(c, request(mget...)+request("PING"))
	if closed || !strings.HasPrefix(got, "-WEIR_SCAN_LIMIT ") || !strings.HasSuffix(got, "\r\n+PONG\r\n") {
		t.Errorf("%.100q, closed %v", got, closed)
	}
	got, closed = exchange(c, request(mget[:70]...)) // 62 MB, which is the limit
	if want := 69 * (900<<10 + len("$921600\r\n\r\n")); closed || len(got) != want+len("*69\r\n") {
		t.Errorf("%d bytes, closed %v", len(got), closed)
	}
}

// TestTheCommandsOfAPipelineAreOneRequest is R1: what arrives together reads one cut.
func TestTheCommandsOfAPipelineAreOneRequest(t *testing.T) {
	f := newFake()
	simulate(t, resp.Config{Backend: f}, func(t *testing.T, _ *resp.Server, p *pipes) {
		c := p.dial()
		go func() {
			_, _ = io.WriteString(c, request("GET", "wc.counts:whale")+request("GET", "wc.total:")+request("PING"))
		}()
		buf := make([]byte, 1<<10)
		n, err := c.Read(buf)
		if got := string(buf[:n]); err != nil || got != "$4\r\n1226\r\n$4\r\n1240\r\n+PONG\r\n" {
			t.Errorf("%q, %v", got, err)
		}
		synctest.Wait()
		if begun, open := f.begun.Load(), f.open.Load(); begun != 1 || open != 0 {
			t.Errorf("%d requests, %d open", begun, open)
		}
	})
}

// failing is a listener that fails a few times, as one does when files run out, and then for good.
type failing struct{ left int }

var errTooManyFiles = errors.New("too many open files")

func (l *failing) Accept() (net.Conn, error) {
	if l.left == 0 {
		return nil, net.ErrClosed
	}
	l.left--
	return nil, errTooManyFiles
}
func (l *failing) Close() error   { return nil }
func (l *failing) Addr() net.Addr { return &net.TCPAddr{} }

func TestAListenerThatFailsIsTriedAgainAfterARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := resp.New(resp.Config{Backend: newFake()})
		began := time.Now()
		if err := s.Serve(&failing{left: 3}); err != nil || time.Since(began) != 300*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		s.Stop(t.Context())
	})
}
