package resp_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/node/resp"
)

// answers reads what a client gets until the server ends the connection.
func answers(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestQuickAndSlowCommandsOfABatchAreAnsweredInOrder has commands that a loop answers among those that it hands on.
func TestQuickAndSlowCommandsOfABatchAreAnsweredInOrder(t *testing.T) {
	f := newFake()
	_, addr := serve(t, resp.Config{Backend: f})
	c := dial(t, addr)
	batch := request("PING") + request("GET", "no such key") + request("ECHO", "a") + request("NONSENSE") + request("ECHO", "b") +
		request("WEIR.WAIT", "COMMITTED", "token") + request("ECHO", "c") + "\r\n" + request("QUIT") + request("ECHO", "never")
	if _, err := io.WriteString(c, batch); err != nil {
		t.Fatal(err)
	}
	got := answers(t, c)
	rest := got
	for _, want := range []string{"+PONG\r\n", "-WEIR_KEY_INVALID", "$1\r\na\r\n", "-ERR unknown command 'NONSENSE'", "$1\r\nb\r\n", "token", "$1\r\nc\r\n", "+OK\r\n"} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("%q is not in its place in %q", want, got)
		}
		rest = after
	}
	if rest != "" {
		t.Errorf("%q follows QUIT", rest)
	}
	if n := f.open.Load(); n != 0 {
		t.Errorf("%d requests are open", n)
	}
}

// TestAClientThatHasSaidAllGetsItsAnswers closes its side at once, so that its end arrives with its commands.
func TestAClientThatHasSaidAllGetsItsAnswers(t *testing.T) {
	_, addr := serve(t, resp.Config{Backend: newFake()})
	for range 50 {
		c := dial(t, addr)
		if _, err := io.WriteString(c, request("PING")+request("ECHO", "a")); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := answers(t, c); got != "+PONG\r\n$1\r\na\r\n" {
			t.Fatalf("got %q", got)
		}
	}
}

// TestAClientThatDoesNotTakeItsAnswersHoldsUpNobody asks for more than sockets hold before it reads anything.
func TestAClientThatDoesNotTakeItsAnswersHoldsUpNobody(t *testing.T) {
	_, addr := serve(t, resp.Config{Backend: newFake()})
	stuck, other := dial(t, addr), dial(t, addr)
	const asked = 20
	if _, err := io.WriteString(stuck, strings.Repeat(request("GET", "big.rows:1"), asked)+request("QUIT")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(other)
	for range 100 {
		if _, err := io.WriteString(other, request("PING")); err != nil {
			t.Fatal(err)
		}
		if line, err := in.ReadString('\n'); err != nil || line != "+PONG\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if got, want := len(answers(t, stuck)), asked*(900<<10+len("$921600\r\n\r\n"))+len("+OK\r\n"); got != want {
		t.Errorf("%d bytes of answers, want %d", got, want)
	}
}

func TestStopEndsConnectionsThatWaitAndAnswersThatNobodyTakes(t *testing.T) {
	s, addr := serve(t, resp.Config{Backend: newFake()})
	idle, stuck, waiting := dial(t, addr), dial(t, addr), dial(t, addr)
	for _, c := range []io.ReadWriter{idle, stuck, waiting} {
		if _, err := io.WriteString(c, request("PING")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, len("+PONG\r\n"))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(stuck, strings.Repeat(request("GET", "big.rows:1"), 20)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(waiting, request("WEIR.WAIT", "COMMITTED", "never")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stuck, make([]byte, 1)); err != nil { // its answers are on their way
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	s.Stop(ctx) // returns when all have ended
	if got := answers(t, idle); got != "" {
		t.Errorf("the idle client got %q", got)
	}
	s.Stop(t.Context())
}
