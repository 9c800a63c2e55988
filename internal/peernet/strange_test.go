package peernet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
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
		if got, err := io.ReadAll(c); err != nil || string(got) != "wrong port" {
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
