package bench_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weirdb/weir/internal/bench"
)

// run runs benchmarks small and returns their figures by case and metric.
func run(t *testing.T, cfg bench.Config) map[string]bench.Figure {
	t.Helper()
	found := make(map[string]bench.Figure)
	cfg = config(t, cfg)
	cfg.Report = func(figures []bench.Figure) error {
		for _, f := range figures {
			found[f.Bench+" "+f.Case+" "+f.Metric] = f
		}
		return nil
	}
	if err := bench.Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(cfg.Dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return found
}

func TestBenchmarksRunAndFindTheirResultsRight(t *testing.T) {
	if testing.Short() {
		t.Skip("runs nodes for some seconds")
	}
	for _, c := range []struct {
		name, filter string
		metrics      []string
	}{
		{"engine", "keys=1000 type=bigint dist=zipf1.1", []string{"engine keys=1000 type=bigint dist=zipf1.1 rows_per_second", "engine keys=1000 type=bigint dist=zipf1.1 ratio_to_bare"}},
		{"ingest", "plan=counts", []string{"ingest plan=counts rows_per_second", "ingest plan=counts ratio_to_plain_file", "ingest plan=counts ack_at_half_load_p99"}},
		{"get", "batch=100", []string{"get batch=100 committed keys_per_second", "get batch=100 live latency_at_half_rate_p99", "get batch=100 committed cold keys_per_second"}},
		{"resp", "", []string{"resp pipeline=1 gets_per_second", "resp pipeline=16 node_cpu_per_million_gets"}},
		{"freshness", "", []string{"freshness interval=1 s age_p99", "freshness interval=100 ms age_p99"}},
		{"live", "", []string{"live keys=2000 visible_after_ack_p99"}},
		{"recover", "", []string{"recover keys=20000 first_committed_answer", "recover keys=20000 lag_below_one_second"}},
		{"group", "", []string{
			"group ingest ratio_to_plain_files", "group ingest ack_at_half_load_p99",
			"group kill=shards keys=20000 committed_reads_gap", "group kill=shards keys=20000 lag_below_one_second",
			"group kill=meta keys=20000 next_deploy", "group reads keys=20000 follower_p99_to_leader_p99",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "engine" { // which measures the memory and the allocations of this process, and gives memory back
				t.Parallel()
			}
			found := run(t, bench.Config{Benchmarks: []string{c.name}, Case: c.filter})
			for _, m := range append(c.metrics, "canary  fdatasync_4kib_p99") {
				if f, ok := found[m]; !ok || f.Value <= 0 {
					t.Errorf("%s is %v; there are %v", m, f.Value, keys(found))
				}
			}
		})
	}
}

// config completes what a small run needs.
func config(t *testing.T, cfg bench.Config) bench.Config {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Quick, cfg.Dir, cfg.NodeCommand = true, t.TempDir(), []string{program, nodeArgument}
	return cfg
}

func keys(m map[string]bench.Figure) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func TestAnUnknownBenchmarkIsRefused(t *testing.T) {
	err := bench.Run(t.Context(), bench.Config{Benchmarks: []string{"speed"}, NodeCommand: []string{"none"}, Report: func([]bench.Figure) error { return nil }})
	if err == nil || !strings.Contains(err.Error(), `no benchmark "speed"`) {
		t.Error(err)
	}
}
