package crashtest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirdb/weir/internal/testkit/crashfs"
	"github.com/weirdb/weir/internal/vfs"
)

var (
	every = flag.Int("every", 0, "crash at every n-th operation; 0 = at about 12 of them")
	only  = flag.Int("at", 0, "crash at this operation alone, for a second look")
	seed  = flag.Uint64("seed", 1, "what is lost and torn")
	span  = flag.String("span", "", "FROM-TO: crash in this part alone and print what was hit; the test calls itself with it")
)

const (
	// stuckAfter is when a life and its check, which take a fraction of a second, count as stuck.
	stuckAfter = time.Minute
	// spanCrashes is how many crashes a child process has. A crashed node cannot be taken down wholly: goroutines of its
	// stores stay, and end with the process.
	spanCrashes = 32
)

// TestEveryCrashLeavesWhatTheGuaranteesAllow is the package's point: see its documentation.
func TestEveryCrashLeavesWhatTheGuaranteesAllow(t *testing.T) {
	switch {
	case *only > 0:
		crashIn(t, *only, *only, 1)
		return
	case *span != "":
		var from, to int
		if _, err := fmt.Sscanf(*span, "%d-%d", &from, &to); err != nil {
			t.Fatalf("-span %s: %v", *span, err)
		}
		hit := crashIn(t, from, to, max(1, *every))
		b, err := json.Marshal(hit)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s%s\n", hitsMark, b)
		return
	}
	dry := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
	if h, err := live(t.Context(), dry, &clock{}); err != nil || h.acked != batches {
		t.Fatalf("the script fails without a crash: %v after %+v", err, h)
	}
	ops := dry.Ops()
	step := *every
	if step == 0 {
		step = max(1, ops/12)
	}
	t.Logf("the script makes about %d durable operations; crashing at every %d. (seed %d)", ops, step, *seed)
	hit := crashInChildren(t, ops, step)
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(hit)) {
		t.Logf("%5d × %s", hit[kind], kind)
		total += hit[kind]
	}
	t.Logf("%5d crashes in all", total)
	if step > 1 {
		return
	}
	for _, want := range []string{"log: write-at", "log: sync", "state: write", "state: sync", "snapshots: write", "snapshots: rename"} {
		if hit[want] == 0 {
			t.Errorf("no crash fell on %q: the script no longer does what it is for", want)
		}
	}
}

// hitsMark begins the line on which a child prints what was hit.
const hitsMark = "hits: "

// crashInChildren crashes at every step-th of ops operations, in child processes, and returns what was hit.
func crashInChildren(t *testing.T, ops, step int) map[string]int {
	spans := make(chan [2]int)
	var mu sync.Mutex
	hit := make(map[string]int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for s := range spans {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=20m",
					fmt.Sprintf("-span=%d-%d", s[0], s[1]), fmt.Sprintf("-every=%d", step), fmt.Sprintf("-seed=%d", *seed))
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("operations %d to %d: %v\n%s", s[0], s[1], err, out)
				}
				mu.Lock()
				addHits(t, hit, string(out))
				mu.Unlock()
			}
		})
	}
	for from := 1; from <= ops; from += spanCrashes * step {
		spans <- [2]int{from, min(ops, from+spanCrashes*step-1)}
	}
	close(spans)
	workers.Wait()
	return hit
}

func addHits(t *testing.T, hit map[string]int, out string) {
	for line := range strings.Lines(out) {
		if text, ok := strings.CutPrefix(line, hitsMark); ok {
			var h map[string]int
			if err := json.Unmarshal([]byte(text), &h); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			for kind, n := range h {
				hit[kind] += n
			}
		}
	}
}

// crashIn crashes at every step-th operation of a span, one after the other, and returns what was hit.
func crashIn(t *testing.T, from, to, step int) map[string]int {
	hit := make(map[string]int)
	for k := from; k <= to; k += step {
		stuck := time.AfterFunc(stuckAfter, func() {
			panic(fmt.Sprintf("crash at operation %d: nothing has come of it for %s", k, stuckAfter))
		})
		kind, err := crashAt(t.Context(), k)
		stuck.Stop()
		hit[kind]++
		if err != nil {
			t.Errorf("crash at operation %d (%s): %v\nagain: go test ./internal/crashtest -at %d -seed %d", k, kind, err, k, *seed)
		}
	}
	return hit
}

// crashAt lives until operation k, loses the power, and checks what is left. kind says what the operation was.
func crashAt(ctx context.Context, k int) (kind string, err error) {
	crash := crashfs.Crash{At: k, Seed: *seed + uint64(k)}
	switch k % 3 { // all lost, half lost, half lost and the last write torn
	case 1:
		crash.UnsyncedPercent = 50
	case 2:
		crash.UnsyncedPercent, crash.Torn = 50, true
	}
	fs := crashfs.New(vfs.NewCrashableMem(), crash)
	c := &clock{}
	h, _ := live(ctx, fs, c) // its error is the crash
	kind = kindOf(fs.CrashedAt())
	return kind, check(ctx, fs.AfterCrash(), h, c)
}

// kindOf classes an operation by the part of the data directory and by what it does.
func kindOf(op crashfs.Op) string {
	if op.N == 0 {
		return "the end"
	}
	for _, part := range []string{"snapshots", "state", "log", "shards", "meta"} {
		if strings.Contains(op.Path, "/"+part) {
			return part + ": " + op.Name
		}
	}
	return "data directory: " + op.Name
}

// check opens the node on what the crash left and compares it with what the outside world knows.
func check(ctx context.Context, fs *vfs.MemFS, h history, c *clock) error {
	var r recovered
	if err := within(fs, c, func(s *server) (err error) {
		r, err = resume(ctx, s, h)
		return err
	}); err != nil {
		return err
	}
	// What that start, and what came after it, has noted in the stores, the next one believes.
	return within(fs, c, func(s *server) error {
		if err := tablesEqualModel(ctx, s, r.rows, r.id); err != nil {
			return fmt.Errorf("after one more start: %w", err)
		}
		now, err := s.digests(ctx)
		if err == nil && !slices.Equal(now, r.held) {
			err = fmt.Errorf("it holds %v, and held %v", now, r.held)
		}
		if err != nil {
			return fmt.Errorf("after one more start: %w", err)
		}
		return nil
	})
}

// within calls f with a server.
func within(fs *vfs.MemFS, c *clock, f func(*server) error) error {
	s, err := open(fs, c)
	if err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	err = f(s)
	if cerr := s.close(); err == nil && cerr != nil {
		err = fmt.Errorf("close: %w", cerr)
	}
	return err
}

// recovered is what the first start after a crash has come to.
type recovered struct {
	rows map[uint32][]row
	held []string // digests
	id   uint64   // of the last checkpoint
}

// resume opens the node, compares it with what the outside world knows, sends everything again and compares that.
func resume(ctx context.Context, s *server, h history) (r recovered, err error) {
	// What was lost before the deployment was answered may be done again; what was answered must be there.
	if err := s.deploy(ctx); err != nil {
		return r, fmt.Errorf("deploy again: %w", err)
	}
	if r.rows, err = s.stream(ctx); err != nil {
		return r, fmt.Errorf("read the stream: %w", err)
	}
	if err := eachOnce(r.rows, h.acked, h.sent); err != nil {
		return r, fmt.Errorf("after the restart: %w", err)
	}
	if err := tablesEqualModel(ctx, s, r.rows, h.committed); err != nil {
		return r, fmt.Errorf("after the restart: %w", err)
	}
	// The client sends everything again.
	for i := range batches {
		if err := s.append(ctx, i); err != nil {
			return r, fmt.Errorf("send batch %d again: %w", i, err)
		}
	}
	if r.id, err = s.checkpoint(ctx); err != nil {
		return r, fmt.Errorf("checkpoint after everything: %w", err)
	}
	if r.rows, err = s.stream(ctx); err != nil {
		return r, fmt.Errorf("read the stream: %w", err)
	}
	if err := eachOnce(r.rows, batches, batches); err != nil {
		return r, fmt.Errorf("after everything was sent again: %w", err)
	}
	if err := tablesEqualModel(ctx, s, r.rows, r.id); err != nil {
		return r, fmt.Errorf("after everything was sent again: %w", err)
	}
	if r.held, err = s.digests(ctx); err != nil {
		return r, fmt.Errorf("read all that it holds: %w", err)
	}
	return r, nil
}

// eachOnce checks that the batches below acked are in the stream, each row once, and those up to sent at most once.
func eachOnce(rows map[uint32][]row, acked, sent int) error {
	count := make(map[row]int)
	for _, shard := range rows {
		for _, r := range shard {
			count[r]++
		}
	}
	total := 0
	for i := range sent {
		for r := range batchRows {
			k, v := rowOf(i, r)
			n := count[row{k, v}]
			total += n
			if n > 1 {
				return fmt.Errorf("row %d of batch %d is in the stream %d times", r, i, n)
			}
			if n == 0 && i < acked {
				return fmt.Errorf("row %d of batch %d was acknowledged and is lost", r, i)
			}
		}
	}
	for _, n := range count {
		total -= n
	}
	if total != 0 {
		return fmt.Errorf("the stream holds %d rows that were never sent", -total)
	}
	return nil
}

// tablesEqualModel compares every committed table with the fold of the stream up to the cut's positions, and checks that
// the cut is not older than one whose commit was answered.
func tablesEqualModel(ctx context.Context, s *server, rows map[uint32][]row, committed uint64) error {
	for _, name := range []string{"sums", "sizes"} {
		got, cut, err := s.table(ctx, name)
		if err != nil {
			return fmt.Errorf("scan %s: %w", name, err)
		}
		if cut.CheckpointId < committed {
			return fmt.Errorf("checkpoint %d was committed, and the newest is now %d", committed, cut.CheckpointId)
		}
		sums, sizes := model(rows, cut)
		want := sums
		if name == "sizes" {
			want = sizes
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s at checkpoint %d, positions %v:\n got %v\nwant %v", name, cut.CheckpointId, cut.Positions, got, want)
		}
	}
	return nil
}
