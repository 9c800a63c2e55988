package bench_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weirdb/weir/internal/bench"
)

// fakeRedis is as much of Redis as a benchmark needs. spoiled, if it is set, is the value of every key.
type fakeRedis struct {
	listener net.Listener
	spoiled  string
	wg       sync.WaitGroup
	mu       struct {
		sync.Mutex
		values map[string]string
		most   int // keys there were
	}
}

func newFakeRedis(t *testing.T, spoiled string) *fakeRedis {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &fakeRedis{listener: l, spoiled: spoiled}
	r.mu.values = make(map[string]string)
	r.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() {
				_ = r.serve(conn) // the client has gone
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		r.wg.Wait()
	})
	return r
}

func (r *fakeRedis) serve(conn net.Conn) error {
	in, out := bufio.NewReader(conn), bufio.NewWriter(conn)
	for {
		args, err := readCommand(in)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(out, r.answer(args)); err != nil {
			return err
		}
		if in.Buffered() > 0 {
			continue
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

func readCommand(in *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number()
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := number()
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

func (r *fakeRedis) answer(args []string) string {
	bulk := func(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
	r.mu.Lock()
	defer r.mu.Unlock()
	switch args[0] {
	case "SET":
		r.mu.values[args[1]] = args[2]
		r.mu.most = max(r.mu.most, len(r.mu.values))
		return "+OK\r\n"
	case "GET":
		v, ok := r.mu.values[args[1]]
		switch {
		case !ok:
			return "$-1\r\n"
		case r.spoiled != "":
			return bulk(r.spoiled)
		}
		return bulk(v)
	case "UNLINK":
		delete(r.mu.values, args[1])
		return ":1\r\n"
	case "INFO":
		return bulk("# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.5\r\n")
	}
	return "-ERR unknown command\r\n"
}

func (r *fakeRedis) count() (now, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.values), r.mu.most
}

func TestRESPIsComparedWithARedisThatKeepsNothingOfIt(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a node for some seconds")
	}
	redis := newFakeRedis(t, "")
	found := run(t, bench.Config{Benchmarks: []string{"resp"}, Redis: redis.listener.Addr().String()})
	for _, m := range []string{"pipeline=1 ratio_to_redis", "pipeline=16 ratio_to_redis", "pipeline=16 redis_gets_per_second"} {
		if f, ok := found["resp "+m]; !ok || f.Value <= 0 {
			t.Errorf("%s is %v; there are %v", m, f.Value, keys(found))
		}
	}
	if now, most := redis.count(); now != 0 || most != 20_000 {
		t.Errorf("Redis had %d keys, and has %d now", most, now)
	}
}

func TestAWrongAnswerToAGETIsVoid(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a node for some seconds")
	}
	redis := newFakeRedis(t, "no number")
	err := bench.Run(t.Context(), config(t, bench.Config{Benchmarks: []string{"resp"}, Redis: redis.listener.Addr().String(),
		Report: func(f []bench.Figure) error {
			if f[0].Bench == "resp" {
				t.Errorf("reported %v", f)
			}
			return nil
		}}))
	if !bench.Void(err) {
		t.Errorf("the end was %v", err)
	}
	if now, _ := redis.count(); now != 0 {
		t.Errorf("Redis has %d keys left", now)
	}
}
