package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirdb/weir/raftlog/meta"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "run this seed alone, and print its history")
	seedsFlag  = flag.Int("seeds", 300, "how many seeds to run")
	fromFlag   = flag.Uint64("from", 1, "the first of them")
	mutantFlag = flag.String("mutant", "", "run with this defect, see mutants_test.go")
)

// manySeeds are so many that everything which should happen sometimes must have happened. The rarest comes once in some
// hundred runs.
const manySeeds = 3000

// Bounds of a run, in virtual time.
const (
	chaosMin  = 2 * second
	chaosMax  = 6 * second
	healBound = 60 * second // I13: after the faults have ended everything is live within this
)

// run is the whole life of a world: the group is founded, faults and work go on for some seconds, then the faults end and
// everything must come to rest.
func (w *world) run() (failure *violation) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case violation:
			failure = &r
		default:
			panic(r)
		}
	}()
	w.found()
	w.chaos()
	w.heal()
	w.oracle.finish()
	return nil
}

func newWorld(seed uint64, mutant string, trace bool) *world {
	w := &world{seed: seed, mutant: mutant, trace: trace, now: 1_000_000 * second, rnd: rand.New(rand.NewPCG(seed, 7))}
	w.shards = 2 + w.rnd.IntN(2)
	nodes := 3
	if w.chance(200) {
		nodes = 5
	}
	w.oracle.init(w)
	for i := range nodes {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	for _, n := range w.nodes {
		n.skew = w.between(-second, second)
		n.boot()
	}
	return w
}

// until steps the world until a time, or until ok is true; false = the time has come.
func (w *world) until(at int64, ok func() bool) bool {
	for next := w.now; w.now < at; {
		if w.now >= next {
			if ok != nil && ok() {
				return true
			}
			next = w.now + 10*ms
		}
		w.n.events++
		if !w.step() {
			return false
		}
	}
	return false
}

// found makes the group and its first pipeline.
func (w *world) found() {
	w.calm = true
	w.logf("seed %d: %d nodes, %d shards", w.seed, len(w.nodes), w.shards)
	founded, deployed := false, false
	var try func()
	try = func() {
		var members []meta.Member
		for _, n := range w.nodes {
			members = append(members, meta.Member{ID: n.name, DataID: "d" + n.name, PeerAddr: n.name + ":1"})
		}
		w.request("found", func(l *meta.Log) (any, error) { return nil, l.Found(bg, "sim", w.shards, members) }, func(_ any, err error) {
			if founded = err == nil; !founded {
				w.after(100*ms, nil, try)
			}
		})
	}
	w.after(second, nil, try)
	var deploy func()
	deploy = func() {
		w.deploy("p0", false, func(ok bool) {
			if deployed = ok; !ok {
				w.after(100*ms, nil, deploy)
			}
		})
	}
	if !w.until(w.now+60*second, func() bool { return founded }) {
		w.fail("I13", "the group is not founded")
	}
	w.request("create stream", func(l *meta.Log) (any, error) {
		st, _, err := l.CreateStream(bg, meta.StreamDefinition{Name: "s", Schema: oneColumn})
		return st, err
	}, func(any, error) {})
	w.after(50*ms, nil, deploy)
	if !w.until(w.now+60*second, func() bool { return deployed }) {
		w.fail("I13", "the first pipeline is not deployed")
	}
	for i := range 2 + w.rnd.IntN(2) {
		w.newProducer(uint16(i+1), 30+w.rnd.IntN(60))
	}
	for range 2 {
		w.clients.sessions = append(w.clients.sessions, newReader(w))
	}
	w.calm = false
}

// chaos lets work and faults go on.
func (w *world) chaos() {
	end := w.now + w.between(chaosMin, chaosMax)
	w.repeat(60*ms, w.appendPlain)
	w.repeat(120*ms, w.admin)
	w.repeat(80*ms, w.readMeta)
	for _, r := range w.clients.sessions {
		w.repeat(70*ms, r.read)
	}
	every := w.between(100*ms, 600*ms) // some runs are rough, some nearly quiet
	w.repeat(every, w.fault)
	w.until(end, nil)
}

// repeat does something now and then until the faults end.
func (w *world) repeat(every int64, fn func()) {
	w.after(w.between(1, 2*every), nil, func() {
		if !w.clients.settling {
			fn()
			w.repeat(every, fn)
		}
	})
}

// fault breaks something, or mends it.
func (w *world) fault() {
	n := w.anyNode()
	switch x := w.rnd.IntN(100); {
	case x < 14:
		if !n.up {
			w.restart(n)
			return
		}
		if w.chance(300) { // the leader of something
			if l := w.nodes[w.rnd.IntN(len(w.nodes))].groups[w.rnd.IntN(w.shards+1)].leader; l >= 0 && w.nodes[l].up {
				n = w.nodes[l]
			}
		}
		n.crash()
		w.after(w.between(100*ms, 2*second), nil, func() { w.restart(n) })
	case x < 26:
		if n.up && !n.paused {
			w.n.pauses++
			w.logf("%s is paused", n.name)
			n.paused = true
			w.after(w.between(100*ms, 2*second), nil, func() { w.unpause(n) })
		}
	case x < 38:
		w.n.partitions++
		w.logf("%s is cut off", n.name)
		for _, m := range w.nodes {
			if m != n {
				w.cut[m.id][n.id], w.cut[n.id][m.id] = true, true
			}
		}
	case x < 48:
		if m := w.anyNode(); m != n {
			w.n.oneWayCuts++
			w.logf("nothing comes from %s to %s", n.name, m.name)
			w.cut[n.id][m.id] = true
			if w.chance(300) {
				w.cut[m.id][n.id] = true
			}
		}
	case x < 68:
		w.cut = [maxNodes][maxNodes]bool{}
	case x < 76:
		w.loss, w.slow = w.rnd.IntN(80), w.rnd.IntN(80)
	case x < 84:
		w.loss, w.slow = 0, 0
	case x < 87:
		if runs := n.worker.runs; n.up && !n.paused && len(runs) > 0 {
			r := runs[w.rnd.IntN(len(runs))]
			permanent := w.chance(300)
			if permanent {
				w.n.failures++
			}
			r.end("a task fails", permanent)
		}
	case x < 92:
		w.n.clockJumps++
		n.skew += w.between(-10*second, 10*second)
		w.logf("the clock of %s jumps to %+d ms", n.name, n.skew/ms)
	default:
		g := w.rnd.IntN(w.shards + 1)
		for _, m := range w.nodes {
			if m.up && !m.paused && m.groups[g].role == leading {
				m.groups[g].transfer(n)
			}
		}
	}
}

func (w *world) restart(n *node) {
	if n.up {
		return
	}
	w.logf("%s starts", n.name)
	n.boot()
}

func (w *world) unpause(n *node) {
	if !n.paused {
		return
	}
	w.logf("%s goes on", n.name)
	n.paused = false
	for _, e := range n.stash {
		e.at = w.now
		w.push(e)
	}
	n.stash = nil
}

// heal ends the faults. Everything must become live: all rows sent, all pipelines running, and their newest cuts cover all rows
// on every node (I13).
func (w *world) heal() {
	w.logf("the faults end")
	w.calm, w.clients.settling = true, true
	w.cut, w.loss, w.slow = [maxNodes][maxNodes]bool{}, 0, 0
	for _, n := range w.nodes {
		w.restart(n)
		w.unpause(n)
	}
	revive := w.now
	var why string
	if !w.until(w.now+healBound, func() bool {
		if w.now >= revive { // what was stopped is resumed
			revive = w.now + 500*ms
			for _, p := range w.oracle.meta.State().PipelineList() {
				if !p.State.Active() {
					w.resume(p.UID)
				} else if p.Options.Interval == 0 {
					w.trigger(p.UID)
				}
			}
		}
		why = w.unsettled()
		return why == ""
	}) {
		w.fail("I13", "%s, %d s after the faults have ended", why, healBound/second)
	}
}

// unsettled says what is not live yet.
func (w *world) unsettled() string {
	if w.clients.open() {
		return "senders still wait"
	}
	st := w.oracle.meta.State()
	for _, p := range st.PipelineList() {
		c := p.Newest()
		for s, rows := range w.oracle.rows {
			if got := c.Positions[position(s)]; int(got) != len(rows) && !(c.ID == 0 && w.empty(p, s)) {
				return fmt.Sprintf("pipeline %d is %s in i%d and its newest cut has %d of %d rows of shard %d", p.UID, p.State, p.Incarnation, got, len(rows), s)
			}
		}
		for _, n := range w.nodes {
			mine := n.meta.State().Pipelines[p.UID]
			if mine == nil || mine.Newest().ID != c.ID {
				return n.name + " does not know the newest cut"
			}
			if _, ok := n.readCut(c); !ok {
				return fmt.Sprintf("%s cannot read cut %d of pipeline %d", n.name, c.ID, p.UID)
			}
		}
	}
	for g, log := range w.oracle.logs {
		for _, n := range w.nodes {
			if n.groups[g].applied != uint64(len(log)) {
				return fmt.Sprintf("%s has applied %d of %d entries of group %d", n.name, n.groups[g].applied, len(log), g)
			}
		}
	}
	return ""
}

// TestSim runs many seeds, or one with its history.
func TestSim(t *testing.T) {
	if *seedFlag != 0 {
		w := newWorld(*seedFlag, *mutantFlag, true)
		v := w.run()
		t.Logf("history of seed %d:\n%s", *seedFlag, strings.Join(w.hist, "\n"))
		t.Logf("%+v", w.n)
		if v != nil {
			t.Fatalf("seed %d: %v", *seedFlag, v)
		}
		return
	}
	total := runSeeds(t, *fromFlag, *seedsFlag)
	for _, what := range sortedNames(total.sometimes()) {
		n := total.sometimes()[what]
		t.Logf("%9d %s", n, what)
		if n == 0 && *seedsFlag >= manySeeds {
			t.Errorf("%s: never in %d runs, which prove little then", what, *seedsFlag)
		}
	}
}

// runSeeds runs seeds in as many goroutines as there are processors; each world has one.
func runSeeds(t *testing.T, from uint64, count int) (total counts) {
	const maxFailures = 3
	var mu sync.Mutex
	failures := 0
	next, last := from, from+uint64(count)
	began := time.Now()
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				mu.Lock()
				seed, enough := next, failures >= maxFailures
				next++
				mu.Unlock()
				if seed >= last || enough {
					return
				}
				w := newWorld(seed, *mutantFlag, false)
				v := w.run()
				mu.Lock()
				total.add(&w.n)
				if v != nil {
					failures++
				}
				mu.Unlock()
				if v != nil {
					again := newWorld(seed, *mutantFlag, true)
					_ = again.run()
					t.Errorf("seed %d: %v\nits history ends:\n%s\nall of it: go test ./internal/sim -run TestSim -seed %d -v%s", seed, v,
						strings.Join(again.hist[max(0, len(again.hist)-60):], "\n"), seed, mutantArg())
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d new pipelines lost rows to a trim before they had a cut", total.expired)
	t.Logf("%d seeds, %d events in %s", count, total.events, time.Since(began).Round(time.Millisecond))
	return total
}

func mutantArg() string {
	if *mutantFlag == "" {
		return ""
	}
	return " -mutant " + *mutantFlag
}

// add sums all counts.
func (c *counts) add(o *counts) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		*(*int)(to.Field(i).Addr().UnsafePointer()) += int(from.Field(i).Int())
	}
}

func sortedNames(m map[string]int) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestSeedsReplay runs some seeds twice: the same seed is the same history.
func TestSeedsReplay(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		a, b := newWorld(seed, "", true), newWorld(seed, "", true)
		_, _ = a.run(), b.run()
		if !slices.Equal(a.hist, b.hist) {
			for i := range a.hist {
				if i >= len(b.hist) || a.hist[i] != b.hist[i] {
					t.Fatalf("seed %d: two runs differ from line %d on:\n%s\n%s", seed, i, a.hist[i], b.hist[min(i, len(b.hist)-1)])
				}
			}
		}
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(800) // worlds are small and short: collecting them often takes more time than running them
	os.Exit(m.Run())
}
