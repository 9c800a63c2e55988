package chaostest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// figure is something of a server that must not grow for ever.
type figure struct {
	name   string
	metric string // of /metrics; "" = the test looks itself
	unit   float64
	// The second half of a life may show growth of slack, or of share of what it began with, whichever is more.
	slack, share float64
	// together says that the nodes' sum counts: what some need for leading a shard, the meta log or a pipeline moves between them
	// with every fault. One shard's lead is 12 to 18 goroutines, the meta log's some 20.
	together bool
}

// figures and what each may grow by. A leak of something per call, per checkpoint or per row is tens of thousands in an hour, one per
// fault or per pipeline that comes and goes one a minute; noise is bounded by what a server does at one time.
var figures = []figure{
	// Connections that come and go have a handful each, and calls of other nodes may be under way: of some 800, looks at a group
	// that does not leak went by 23 up and down. An hour's leak of one per round on one node is 30.
	{"goroutines", "go_goroutines", 1, 12, .03, true},
	// Pebble opens and closes tables as it compacts, and a connection is a file on both sides.
	{"files", "process_open_fds", 1, 12, .05, true},
	// Twice what was alive at the last collection, about: what a query holds at that moment is in it.
	{"heap goal, MiB", "go_memstats_next_gc_bytes", 1 << 20, 4, .10, false},
	// The allocator gives memory back late, and Pebble's cache and memory tables fill up in the first minutes.
	{"resident, MiB", "process_resident_memory_bytes", 1 << 20, 16, .10, false},
	// A log is between its trailing bytes and those and a snapshot's long, in whole segments, for each of the shards; a store is
	// compacted when it is worth it.
	{"disk, MiB", "", 1 << 20, shards * (soakSnapshot + soakTrailing + 2*soakSegment) / (1 << 20), .10, false},
}

// key is the figure's name in samples.
func (f figure) key() string {
	if f.metric == "" {
		return "disk"
	}
	return f.metric
}

// needs looks at what the server needs now.
func (n *node) needs(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.http+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Close = true // a connection that stays would be a file and two goroutines
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	got := make(map[string]float64)
	for lines := bufio.NewScanner(io.LimitReader(res.Body, 8<<20)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		for _, f := range figures {
			if f.metric == name {
				v, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return nil, err
				}
				got[f.key()] = v / f.unit
			}
		}
	}
	if len(got) != len(figures)-1 {
		return nil, fmt.Errorf("%s shows %d figures of %d", n.name, len(got), len(figures)-1)
	}
	var blocks int64
	err = filepath.WalkDir(n.dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
			return nil // files come and go
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // it has just gone
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			blocks += st.Blocks
		}
		return nil
	})
	got["disk"] = float64(blocks) * 512 / (1 << 20)
	return got, err
}

// show writes figures on a line.
func show(got map[string]float64) string {
	var parts []string
	for _, f := range figures {
		if v, ok := got[f.key()]; ok {
			parts = append(parts, fmt.Sprintf("%s %.1f", f.name, v))
		}
	}
	return strings.Join(parts, "; ")
}

// sample is what a server needed at a time.
type sample struct {
	at  time.Duration
	got map[string]float64
}

// samples are what each node needed, in order.
type samples struct{ of map[string][]sample }

func (s *samples) add(node string, at time.Duration, got map[string]float64) {
	if s.of == nil {
		s.of = make(map[string][]sample)
	}
	s.of[node] = append(s.of[node], sample{at, got})
}

// trend is how a figure went in the second half of a life: from about where it began, by how much it grew, and by how many standard
// deviations more pairs of samples went up than down than would by chance.
type trend struct{ from, growth, sure float64 }

// trendOf draws the line through the second half whose slope is the median of the slopes between all pairs of samples (Theil and
// Sen): a few samples that something else has lifted do not turn it. How sure that is says the test of Mann and Kendall, without its
// correction for equal samples.
func trendOf(all []sample, key string) (trend, bool) {
	half := slices.DeleteFunc(slices.Clone(all[len(all)/2:]), func(s sample) bool { _, ok := s.got[key]; return !ok })
	if len(half) < 3 {
		return trend{}, false
	}
	var slopes, values []float64
	up := 0 // pairs that go up, less those that go down
	for i, a := range half {
		values = append(values, a.got[key])
		for _, b := range half[i+1:] {
			slopes = append(slopes, (b.got[key]-a.got[key])/(b.at-a.at).Seconds())
			up += cmp.Compare(b.got[key], a.got[key])
		}
	}
	n := float64(len(half))
	growth := median(slopes) * (half[len(half)-1].at - half[0].at).Seconds()
	return trend{median(values) - growth/2, growth, float64(up) / math.Sqrt(n*(n-1)*(2*n+5)/18)}, true
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// sureEnough is how sure a trend is that counts. Three nodes with seven figures each are some twenty tests of a soak: one in 700 errs at
// 3, and what leaks is at 7 after an hour.
const sureEnough = 3

// fewLooks at a group have a trend by chance: in lives of twelve the connections of three nodes went by up to 27 of 260 files and 27 of
// 800 goroutines, most of them down. A longer life shows what is no chance.
const fewLooks = 30

// grown names what has grown for no reason.
func (s *samples) grown() []error {
	var out []error
	for _, node := range slices.Sorted(maps.Keys(s.of)) {
		for _, f := range figures {
			t, ok := trendOf(s.of[node], f.key())
			most := max(f.slack, f.share*t.from)
			if f.together && len(s.of[node]) < fewLooks {
				most *= 2
			}
			if ok && t.growth > most && (t.sure >= sureEnough || len(s.of[node]) < fewLooks) {
				out = append(out, fmt.Errorf("%s: %s grew by %.1f from %.1f in the second half, more than %.1f", node, f.name, t.growth, t.from, most))
			}
		}
	}
	return out
}

// report shows each figure of each node: at the first look, in the middle, at the end, and the trend of the second half.
func (s *samples) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-4s %-16s %10s %10s %10s %14s %6s\n", "node", "", "first", "middle", "last", "2nd half grew", "sure")
	for _, node := range slices.Sorted(maps.Keys(s.of)) {
		all := s.of[node]
		for _, f := range figures {
			if t, ok := trendOf(all, f.key()); ok {
				fmt.Fprintf(&b, "%-4s %-16s %10.1f %10.1f %10.1f %14.1f %6.1f\n", node, f.name, all[0].got[f.key()], all[len(all)/2].got[f.key()], all[len(all)-1].got[f.key()], t.growth, t.sure)
			}
		}
	}
	return b.String()
}

// What the soak would say of servers that leak, and of one that only wavers.
func TestASoakSeesALeakAndNoNoise(t *testing.T) {
	life := func(f func(i int) float64) *samples {
		s := &samples{}
		for i := range 60 {
			s.add("n1", time.Duration(i)*time.Minute, map[string]float64{"go_goroutines": f(i)})
		}
		return s
	}
	for name, c := range map[string]struct {
		f    func(i int) float64
		grew bool
	}{
		"steady":                       {func(int) float64 { return 300 }, false},
		"a goroutine per round":        {func(i int) float64 { return 300 + float64(i) }, true},
		"it fills up, and stays":       {func(i int) float64 { return 300 + 10*float64(min(i, 25)) }, false},
		"it wavers":                    {func(i int) float64 { return 300 + 40*float64(i%2) }, false},
		"one look happens upon calls":  {func(i int) float64 { return 300 + 500*float64(i/59) }, false},
		"it wavers and leaks":          {func(i int) float64 { return 300 + 40*float64(i%2) + float64(i) }, true},
		"it leaks from the middle on":  {func(i int) float64 { return 300 + float64(max(0, i-30)) }, true},
		"it wavers by chance":          {func(i int) float64 { return 800 + 100*math.Sin(float64(i*i)) + 3*float64(i%11) }, false},
		"it shrinks":                   {func(i int) float64 { return 300 - float64(i) }, false},
		"it leaks in bursts of twenty": {func(i int) float64 { return 300 + 20*float64(i/5) }, true},
	} {
		if grown := life(c.f).grown(); (len(grown) > 0) != c.grew {
			t.Errorf("%s: %v", name, grown)
		}
	}
}
