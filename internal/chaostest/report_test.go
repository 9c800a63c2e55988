package chaostest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// sums count what all runs of this process have done.
type sums struct {
	runs      int
	faults    map[string]int
	sometimes map[string]int // what the test is for must have happened
	heals     []time.Duration
	rows      int64
	compared  int
	live      int
	repeats   int64
	took      time.Duration
}

func newSums() *sums { return &sums{faults: make(map[string]int), sometimes: make(map[string]int)} }

func (s *sums) add(w *world) {
	s.runs++
	s.rows += w.acked
	s.compared += w.compared
	s.live += w.liveReads
	s.took += w.took
	for _, x := range w.senders {
		s.repeats += x.repeats.Load()
		s.sometimes["a row of a repeated append recognised"] += int(x.duplicates.Load())
	}
	for _, p := range w.producers {
		s.sometimes["a producer that began again"] += p.lives - 1
		s.sometimes["a row of a producer recognised"] += int(p.duplicates + p.skipped)
	}
	for _, n := range w.all {
		s.sometimes["a checkpoint attempt cancelled"] += int(n.count("weir_checkpoint_failures_total"))
		s.sometimes["a row recognised by a server"] += int(n.count("weir_ingest_duplicate_rows_total"))
	}
}

func (s *sums) report() string {
	var b strings.Builder
	total := 0
	for _, n := range s.faults {
		total += n
	}
	fmt.Fprintf(&b, "%d runs in %s, %d faults, %d rows acknowledged and read back, %d committed and %d live answers compared, %d appends repeated\n",
		s.runs, s.took.Round(time.Second), total, s.rows, s.compared, s.live, s.repeats)
	if h := slices.Sorted(slices.Values(s.heals)); len(h) > 0 {
		fmt.Fprintf(&b, "healed %d times; whole again: median %s, 90 %% %s, longest %s\n",
			len(h), h[len(h)/2].Round(time.Millisecond), h[len(h)*9/10].Round(time.Millisecond), h[len(h)-1].Round(time.Millisecond))
	}
	for _, m := range []struct {
		title  string
		counts map[string]int
	}{{"faults", s.faults}, {"what happened", s.sometimes}} {
		fmt.Fprintf(&b, "\n%s\n", m.title)
		for _, name := range slices.Sorted(maps.Keys(m.counts)) {
			fmt.Fprintf(&b, "%8d  %s\n", m.counts[name], name)
		}
	}
	return b.String()
}
