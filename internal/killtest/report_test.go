package killtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirdb/weir/internal/phase"
)

// stats counts what a run has done.
type stats struct {
	began time.Time
	took  time.Duration

	ways          map[string]int // kills by how their moment was chosen
	aims          map[phase.Phase]int
	hits          map[phase.Phase]int // kills that fell into the phase
	entered       map[phase.Phase]uint64
	idle          int // kills that fell into none
	producerKills int
	waits         []time.Duration // for the server, after a start or later
	comparisons   int
	comparing     time.Duration
}

func newStats() stats {
	return stats{ways: make(map[string]int), aims: make(map[phase.Phase]int), hits: make(map[phase.Phase]int), entered: make(map[phase.Phase]uint64)}
}

// count takes what a killed server was at.
func (s *stats) count(way string, c phase.Counts) {
	s.ways[strings.SplitN(way, " ", 2)[0]]++
	idle := true
	for _, p := range phase.All() {
		s.entered[p] += c[p].Entered
		if c.In(p) > 0 {
			s.hits[p]++
			idle = false
		}
	}
	if idle {
		s.idle++
	}
}

func underWay(c *phase.Counts) string {
	var in []string
	for _, p := range phase.All() {
		if n := c.In(p); n > 0 {
			in = append(in, fmt.Sprintf("%d %s", n, p))
		}
	}
	if len(in) == 0 {
		return "nothing"
	}
	return strings.Join(in, ", ")
}

func (r *run) answers(live bool) int {
	n := 0
	for _, a := range r.audits {
		if live {
			n += a.live
		} else {
			n += a.committed
		}
	}
	return n
}

// report says what the run has done, for people.
func (r *run) report() string {
	var b strings.Builder
	total := 0
	for _, n := range r.ways {
		total += n
	}
	fmt.Fprintf(&b, "%d kills in %s: %d at random, %d aimed, %d early after a start; producers killed %d times\n",
		total, r.took.Round(time.Second/10), r.ways["random"], r.ways["aimed"], r.ways["early"], r.producerKills)
	fmt.Fprintf(&b, "\n%-10s %8s %8s %10s\n", "phase", "kills", "aimed", "entered")
	for _, p := range phase.All() {
		fmt.Fprintf(&b, "%-10s %8d %8d %10d\n", p, r.hits[p], r.aims[p], r.entered[p])
	}
	fmt.Fprintf(&b, "%-10s %8d\n\n", "none", r.idle)
	acked := r.acknowledged()
	for _, who := range slices.Sorted(maps.Keys(acked)) {
		fmt.Fprintf(&b, "%-10s %8d rows acknowledged, %d in the log\n", who, acked[who], r.logOf(who).reader.count(who))
	}
	for _, name := range slices.Sorted(maps.Keys(r.audits)) {
		log := r.audits[name].log
		fmt.Fprintf(&b, "%-10s %8d rows read back, %d of them dropped by retention since\n", log.stream, log.length(), log.trimmed)
	}
	if r.ballast != nil {
		fmt.Fprintf(&b, "ballast    %8d rows of %d keys; in one life of the server %d keys were evicted and %d looked up\n",
			r.ballast.rows.Load(), r.ballast.keys, r.ballast.evicted, r.ballast.lookedUp)
	}
	fmt.Fprintf(&b, "\n%d committed and %d live answers compared with the model, in %d comparisons that took %s\n",
		r.answers(false), r.answers(true), r.comparisons, r.comparing.Round(time.Second/10))
	if w := slices.Clone(r.waits); len(w) > 0 {
		slices.Sort(w)
		fmt.Fprintf(&b, "waited for the server: median %s, longest %s\n", w[len(w)/2].Round(time.Millisecond), w[len(w)-1].Round(time.Millisecond))
	}
	return b.String()
}
