package peernet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/internal/peernet"
)

// TestAClientAtThePortOfNodesIsAnswered checks that a client is handed over with all that it has said.
func TestAClientAtThePortOfNodesIsAnswered(t *testing.T) {
	for _, says := range []string{"GET /readyz HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		w := &world{t: t}
		n := w.open("n1", func(c *peernet.Config) {
			c.Stranger = func(conn net.Conn, http2 bool) {
				b := make([]byte, len(says))
				if _, err := io.ReadFull(conn, b); err != nil || string(b) != says || http2 != strings.HasPrefix(says, "PRI") {
					t.Errorf("%q: got %q, %v, %v", says, b, http2, err)
				}
				if _, err := conn.Write([]byte("wrong port")); err != nil {
					t.Error(err)
				}
			}
		})
		c, err := net.Dial("tcp", n.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(says)); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if strings.HasPrefix(says, "PRI") && len(got) > 9 { // settings come first, which a client of HTTP/2 ignores
			if got[0] != 0 || got[1] != 0 || got[3] != 4 || len(got) < 9+int(got[2]) {
				t.Errorf("%q: a frame of settings is %x", says, got)
			} else {
				got = got[9+int(got[2]):]
			}
		}
		if err != nil || string(got) != "wrong port" {
			t.Errorf("%q: answered %q, %v", says, got, err)
		}
		_ = c.Close() // it is read
	}
}

// TestANodeThatAsksAPortForClientsIsToldSo asks a server of gRPC and one of HTTP who is there.
func TestANodeThatAsksAPortForClientsIsToldSo(t *testing.T) {
	w := &world{t: t}
	n := w.open("n1", nil)
	for _, want := range []string{"gRPC", "HTTP"} {
		calls, web := grpc.NewServer(), &http.Server{Handler: http.NotFoundHandler()}
		serve := calls.Serve
		if want == "HTTP" {
			serve = web.Serve
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- serve(l) }()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // for HTTP: it answers nothing to a hello
		_, err = n.Who(ctx, l.Addr().String())
		cancel()
		var wrong *peernet.WrongPortError
		if !errors.As(err, &wrong) || wrong.Protocol != want {
			t.Errorf("%s: %v", want, err)
		}
		calls.Stop()
		_ = web.Close() // its connections were answered
		<-served
	}
}

// A hello that fails for a moment, as while a node starts behind a proxy, is no sign of a wrong port, although the port of a node
// answers a client of gRPC as a server of gRPC does. A node that was to join stopped for it.
func TestANodeWhoseHelloFailedIsNotTakenForAServer(t *testing.T) {
	w := &world{t: t}
	asks := w.open("n1", nil)
	asked := w.open("n2", func(c *peernet.Config) {
		c.Stranger = func(conn net.Conn, _ bool) {
			_, _ = conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // who asked may have gone
			_, _ = io.Copy(io.Discard, conn)                     // the same
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var proxy sync.WaitGroup
	proxy.Go(func() {
		for first := true; ; first = false {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if first {
				_ = c.Close() // it is to fail
				continue
			}
			to, err := net.Dial("tcp", asked.Addr().String())
			if err != nil {
				t.Error(err)
				_ = c.Close() // nobody is behind
				continue
			}
			for _, way := range [][2]net.Conn{{to, c}, {c, to}} {
				proxy.Go(func() {
					_, _ = io.Copy(way[0], way[1])        // it ends with either
					_, _ = way[0].Close(), way[1].Close() // the same
				})
			}
		}
	})
	_, err = asks.Who(t.Context(), l.Addr().String())
	if wrong := new(peernet.WrongPortError); err == nil || errors.As(err, &wrong) {
		t.Errorf("after a hello that failed: %v", err)
	}
	if _, err := asks.Who(t.Context(), l.Addr().String()); err != nil {
		t.Errorf("asked again: %v", err)
	}
	_ = l.Close() // ends the proxy
	proxy.Wait()
}
