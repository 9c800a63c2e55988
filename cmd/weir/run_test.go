package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// testEnvironment is an environment whose signals come from the channel that it returns.
func testEnvironment(stdin io.Reader) (e *environment, stdout, stderr *bytes.Buffer, signals chan chan<- os.Signal) {
	stdout, stderr, signals = &bytes.Buffer{}, &bytes.Buffer{}, make(chan chan<- os.Signal, 1)
	no := func() bool { return false }
	return &environment{
		stdin: stdin, stdout: stdout, stderr: stderr, environ: func() []string { return nil }, getenv: func(string) string { return "" },
		program: "weir", terminal: no, stderrTerminal: no,
		notify: func(c chan<- os.Signal) func() { signals <- c; return func() {} },
		exit:   func(code int) { panic(fmt.Sprint("exit ", code)) },
	}, stdout, stderr, signals
}

func TestFirstSignalEndsTheVerb(t *testing.T) {
	e, _, stderr, signals := testEnvironment(strings.NewReader(""))
	done := make(chan int, 1)
	go func() {
		done <- run(context.Background(), e, []string{"ingest", "s", "--addr", "127.0.0.1:1", "--retry-for", "1h"})
	}()
	c := <-signals
	c <- os.Interrupt
	if code := <-done; code != exitTryAgain || !strings.HasPrefix(stderr.String(), "error: interrupted\n") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestSecondSignalEndsTheProcess(t *testing.T) {
	in, typing := io.Pipe() // a verb that waits for its input, which nothing can call off
	e, _, _, signals := testEnvironment(in)
	exits := make(chan int, 1)
	e.exit = func(code int) { exits <- code }
	done := make(chan int, 1)
	go func() { done <- run(context.Background(), e, []string{"query", "-f", "-", "--addr", "127.0.0.1:1"}) }()
	c := <-signals
	c <- os.Interrupt
	c <- syscall.SIGTERM
	if code := <-exits; code != exitTryAgain {
		t.Errorf("exit code %d", code)
	}
	if err := typing.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

func TestExitCodesFollowTheKindOfTheError(t *testing.T) {
	for _, r := range dataflow.Reasons() {
		want := exitRefused
		switch r.Kind {
		case dataflow.KindNotFound:
			want = exitNotFound
		case dataflow.KindUnavailable, dataflow.KindUnknown, dataflow.KindDeadline:
			want = exitTryAgain
		case dataflow.KindOverloaded:
			if r.Reason != dataflow.ReasonScanLimit {
				want = exitTryAgain
			}
		}
		if got := exitCode(fmt.Errorf("wrapped: %w", dataflow.Errorf(r.Reason, "x"))); got != want {
			t.Errorf("%s: %d, want %d", r.Reason, got, want)
		}
	}
	for err, want := range map[error]int{
		nil: exitOK, usagef("x"): exitUsage, context.DeadlineExceeded: exitTryAgain, io.ErrUnexpectedEOF: exitRefused,
		&hinted{err: usagef("x"), hint: "y"}: exitUsage,
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

func TestErrorsArePrintedWithTheirHintsAndViolations(t *testing.T) {
	e, _, stderr, _ := testEnvironment(nil)
	c := &cli{environment: e}
	bad := dataflow.Errorf(dataflow.ReasonRowInvalid, "rows[0].a: wrong (and 1 more)").WithHint("mend them")
	bad.Violations = []dataflow.Violation{{Field: "rows[0].a", Description: "wrong"}, {Field: "rows[1].b", Description: "too"}}
	c.report(context.Background(), &hinted{err: bad, hint: "nothing was written", fact: "as of now"})
	want := "error: ROW_INVALID: rows[0].a: wrong (and 1 more)\n  rows[0].a: wrong\n  rows[1].b: too\n       as of now\nhint: mend them\n      nothing was written\n"
	if stderr.String() != want {
		t.Errorf("got\n%swant\n%s", stderr, want)
	}
}

func TestTablesAlignAndEscape(t *testing.T) {
	var b bytes.Buffer
	tb := newTable(&b, "name", "n")
	for _, r := range []string{`{"name":"größe","n":12345678901234567890}`, `{"name":"a\nb\u001b[31m","n":null}`} {
		_, cells, err := rowCells([]byte(r))
		if err != nil {
			t.Fatal(err)
		}
		if err := tb.add(cells...); err != nil {
			t.Fatal(err)
		}
	}
	if err := tb.flush(); err != nil {
		t.Fatal(err)
	}
	want := "name                               n\ngröße           12345678901234567890\na\\nb\\u001b[31m  NULL\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	for _, bad := range []string{"", "[", `{"a":`, `{"a":1`} {
		if _, _, err := rowCells([]byte(bad)); err == nil {
			t.Errorf("%q is a row", bad)
		}
	}
}

func TestSizesAndCountsAreReadAndWritten(t *testing.T) {
	for in, want := range map[string]string{"64MiB": "64MiB", "1 gib": "1GiB", "1536KiB": "1536KiB", "10": "10", "2kB": "2000", "0": "0", "1024": "1KiB", "7B": "7"} {
		var b byteSize
		if err := b.Set(in); err != nil || b.String() != want {
			t.Errorf("%q: %s, %v; want %s", in, b.String(), err, want)
		}
	}
	for _, bad := range []string{"", "-1", "x", "MiB", "9999999TiB", "1.5GiB"} {
		var b byteSize
		if err := b.Set(bad); err == nil {
			t.Errorf("%q is %s", bad, b.String())
		}
	}
	for n, want := range map[uint64]string{0: "0 rows", 1: "1 row", 999: "999 rows", 1234567: "1,234,567 rows"} {
		if got := rows(n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for n, want := range map[uint64]string{5: "5 B", 1536: "1.5 KiB", 3 << 30: "3.0 GiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := age(int64(90 * time.Second / time.Millisecond)); got != "1m30s" {
		t.Error(got)
	}
}

func TestAHangUpStopsAVerbAsAnInterruptDoes(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("started with SIGHUP ignored, as under nohup: then it stays so")
	}
	c := make(chan os.Signal, 1)
	stop := osEnv().notify(c)
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c:
	case <-t.Context().Done():
		t.Fatal("nothing heard it")
	}
}

// A server that waits for the others of its group stops when it is told to, and that is no failure.
func TestASignalStopsAServerThatHasNoGroupYet(t *testing.T) {
	e, _, stderr, signals := testEnvironment(strings.NewReader(""))
	done := make(chan int, 1)
	go func() {
		done <- run(context.Background(), e, []string{"server", "--data-dir", t.TempDir(), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
			"--peer-addr", "127.0.0.1:0", "--join", "127.0.0.1:1,127.0.0.1:2", "--bootstrap-expect", "3"})
	}()
	c := <-signals
	c <- os.Interrupt
	if code := <-done; code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
