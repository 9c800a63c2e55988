package node_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// narrow has tables with values of one length, one of which is read by another, one whose values differ, and one from which
// rows go again.
const narrow = `
CREATE STREAM s (k TEXT NOT NULL, v TEXT NOT NULL);
SET checkpoint.interval = '50 ms';
CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW latest AS SELECT k, max(v) AS v FROM s GROUP BY k;
CREATE MATERIALIZED VIEW sums AS SELECT k, sum(length(v)) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW histogram AS SELECT n, count(*) AS keys FROM counts GROUP BY n;
`

// narrowModel is what the tables should hold.
type narrowModel struct {
	counts, sums map[string]int
	latest       map[string]string
}

func (m *narrowModel) tables() map[string][]string {
	out := map[string][]string{}
	histogram := map[int]int{}
	for _, k := range slices.Sorted(maps.Keys(m.counts)) {
		out["counts"] = append(out["counts"], fmt.Sprintf(`{"k":%q,"n":%d}`, k, m.counts[k]))
		out["sums"] = append(out["sums"], fmt.Sprintf(`{"k":%q,"n":%d}`, k, m.sums[k]))
		out["latest"] = append(out["latest"], fmt.Sprintf(`{"k":%q,"v":%q}`, k, m.latest[k]))
		histogram[m.counts[k]]++
	}
	for _, n := range slices.Sorted(maps.Keys(histogram)) {
		out["histogram"] = append(out["histogram"], fmt.Sprintf(`{"n":%d,"keys":%d}`, n, histogram[n]))
	}
	return out
}

// TestTablesThatDoNotFitIntoTheMemoryAreExact counts more keys than the live tables may hold, through crashes of the dataflow
// and restarts of the node.
func TestTablesThatDoNotFitIntoTheMemoryAreExact(t *testing.T) {
	t.Parallel()
	const keys = 8000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	// An empty table has some KiB, so this is little more than nothing.
	n := nodetest.Open(t, nodetest.Options{MemoryBytes: 256 << 10, Tuning: nodetest.Restless()})
	n.Deploy("p", narrow)
	m := narrowModel{counts: map[string]int{}, sums: map[string]int{}, latest: map[string]string{}}
	for round := range 8 {
		var tokens []string // an append goes to one of the shards
		for range 10 {
			rows := make([]string, 500)
			for i := range rows {
				k := fmt.Sprintf("key %d", rng.IntN(keys))
				v := strings.Repeat("x", rng.IntN(60)) + strconv.Itoa(rng.IntN(1000))
				rows[i] = fmt.Sprintf(`{"k":%q,"v":%q}`, k, v)
				m.counts[k]++
				m.sums[k] += len(v)
				m.latest[k] = max(m.latest[k], v)
			}
			tokens = append(tokens, n.Append("s", rows...))
		}
		switch round % 4 {
		case 1:
			before := n.Pipeline("p").GetIncarnation()
			n.CrashDataflow("p")
			for n.Pipeline("p").GetIncarnation() == before { // live reads of the old one say nothing of the new one
				n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_RUNNING)
			}
		case 3:
			n.Close()
			if err := n.Reopen(); err != nil {
				t.Fatal(err)
			}
		}
		for _, token := range tokens {
			n.WaitProcessed(token)
		}
		for name, want := range m.tables() {
			wantSameRows(t, n, name, nodetest.Live, want)
		}
		for _, token := range tokens {
			n.WaitCommitted(token)
		}
		for name, want := range m.tables() {
			wantSameRows(t, n, name, nodetest.Committed, want)
		}
		for range 20 {
			k := fmt.Sprintf("key %d", rng.IntN(keys))
			row, _, ok := n.Get("p", "counts", nodetest.Live, k)
			if want := fmt.Sprintf(`{"k":%q,"n":%d}`, k, m.counts[k]); ok != (m.counts[k] > 0) || ok && row != want {
				t.Fatalf("get %q = %s, want %s", k, row, want)
			}
		}
	}
	// At rest everything is committed, and can go.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	metrics := ""
	for end := time.Now().Add(30 * time.Second); ; <-tick.C {
		_, _, metrics = n.HTTP("GET", "/metrics", "", nil)
		used, limit := metric(t, metrics, "weir_memory_tables_bytes"), metric(t, metrics, "weir_memory_tables_limit_bytes")
		if used <= limit {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the tables take %g bytes at rest, of %g", used, limit)
		}
	}
	for _, name := range []string{"weir_memory_evicted_keys_total", "weir_memory_looked_up_keys_total", "weir_memory_partial_keys_total"} {
		if v := metric(t, metrics, name); v < 1000 {
			t.Errorf("%s is %g: the tables were never too large", name, v)
		}
	}
}

// TestLargeTablesAreUsedWhileTheyAreFilled starts again, by a restart or a recovery, with tables that are too large to be
// filled before the tasks start, and changes and reads them at once.
func TestLargeTablesAreUsedWhileTheyAreFilled(t *testing.T) {
	t.Parallel()
	const keys = 30_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("p", narrow)
	m := narrowModel{counts: map[string]int{}, sums: map[string]int{}, latest: map[string]string{}}
	feed := func(count int, key func(i int) int) {
		var tokens []string
		for at := 0; at < count; at += 2000 {
			var rows []string
			for i := range 2000 {
				k, v := fmt.Sprintf("key %d", key(at+i)), strconv.Itoa(rng.IntN(1000))
				rows = append(rows, fmt.Sprintf(`{"k":%q,"v":%q}`, k, v))
				m.counts[k]++
				m.sums[k] += len(v)
				m.latest[k] = max(m.latest[k], v)
			}
			tokens = append(tokens, n.Append("s", rows...))
		}
		for _, token := range tokens {
			n.WaitProcessed(token)
		}
	}
	feed(keys, func(i int) int { return i })
	for round := range 4 {
		n.Checkpoint("p")
		before := n.Pipeline("p").GetIncarnation()
		if round%2 == 0 {
			n.Close()
			if err := n.Reopen(); err != nil {
				t.Fatal(err)
			}
		} else {
			n.CrashDataflow("p")
		}
		for n.Pipeline("p").GetIncarnation() == before {
			n.WaitState("p", weirv1.PipelineState_PIPELINE_STATE_RUNNING)
		}
		feed(4000, func(int) int { return rng.IntN(keys) })
		for name, want := range m.tables() {
			wantSameRows(t, n, name, nodetest.Live, want)
		}
	}
}

// wantSameRows compares a table of p with what it should hold, and shows the first difference.
func wantSameRows(t *testing.T, n *nodetest.Node, table string, isolation nodetest.Isolation, want []string) {
	t.Helper()
	rows, cut := n.Scan("p", table, isolation)
	for i := range max(len(rows), len(want)) {
		if i >= len(rows) || i >= len(want) || rows[i] != want[i] {
			t.Fatalf("%s rows of %s: row %d of %d differs, %d are wanted\ngot  %q\nwant %q\n%v",
				isolation, table, i, len(rows), len(want), rows[min(i, len(rows)):min(i+3, len(rows))], want[min(i, len(want)):min(i+3, len(want))], cut)
		}
	}
}

// metric returns the value of a metric without labels.
func metric(t *testing.T, text, name string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestATableThatBeginsWithoutMemoryIsExact deploys a pipeline while another one's table takes all memory, and more.
func TestATableThatBeginsWithoutMemoryIsExact(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{MemoryBytes: 64 << 10})
	n.Deploy("first", `
CREATE STREAM s (k TEXT NOT NULL, v TEXT NOT NULL);
SET checkpoint.interval = 'off';
CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM s GROUP BY k;`)
	var rows []string
	for i := range 3000 {
		rows = append(rows, fmt.Sprintf(`{"k":"key %d","v":"x"}`, i))
	}
	n.WaitProcessed(n.Append("s", rows...))
	n.Deploy("p", `
CREATE STREAM s (k TEXT NOT NULL, v TEXT NOT NULL);
SET checkpoint.interval = '50 ms';
CREATE MATERIALIZED VIEW longest AS SELECT v, max(k) AS k, count(*) AS n FROM s GROUP BY v;`)
	var tokens []string
	for range 5 {
		tokens = append(tokens, n.Append("s", rows...))
	}
	for _, token := range tokens {
		n.WaitCommitted(token)
	}
	wantTable(t, n, "p", "longest", nodetest.Committed, `{"v":"x","k":"key 999","n":18000}`)
	wantTable(t, n, "p", "longest", nodetest.Live, `{"v":"x","k":"key 999","n":18000}`)
}
