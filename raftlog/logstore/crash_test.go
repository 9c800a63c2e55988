package logstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/testkit/crashfs"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/frame"
	"github.com/weirdb/weir/raftlog/logstore"
)

var small = logstore.Options{SegmentBytes: 32 << 10, BatchBytes: 8 << 10}

// step is one request of a scenario.
type step struct {
	group      string
	logs       []*raft.Log
	delLo, del uint64
	vote       uint64 // term of a vote for "n<vote>"
	retain     uint64
	islands    []dataflow.LogRange // below retain
	// Of another node's log that takes the group's place.
	install uint64 // what it begins behind
	placed  []logstore.Stored
}

// groupModel is what a group's log must hold.
type groupModel struct {
	first, last uint64
	behind      uint64 // when empty: where the log began that was deleted, less one
	floor       uint64
	islands     []dataflow.LogRange
	partial     bool              // there may be more than what is in data
	data        map[uint64][]byte // commands by index: Raft's and the retained
	term        map[uint64]uint64
	vote        uint64
}

func (m *groupModel) clone() *groupModel {
	c := *m
	c.data, c.term = maps.Clone(m.data), maps.Clone(m.term)
	return &c
}

func (m *groupModel) apply(s step) {
	switch {
	case len(s.logs) > 0:
		for _, l := range s.logs {
			if m.last == 0 {
				if l.Index != m.behind+1 {
					clear(m.data)
				}
				m.first = l.Index
			}
			m.last = l.Index
			m.data[l.Index], m.term[l.Index] = l.Data, l.Term
		}
	case s.del > 0:
		switch {
		case s.delLo <= m.first && s.del >= m.last:
			for i := m.first; i <= m.last; i++ {
				delete(m.data, i)
			}
			m.behind, m.first, m.last = m.first-1, 0, 0
		case s.delLo <= m.first:
			m.first = s.del + 1
		default:
			for i := s.delLo; i <= m.last; i++ {
				delete(m.data, i)
			}
			m.last = s.delLo - 1
		}
	case s.install > 0:
		*m = groupModel{behind: s.install, data: map[uint64][]byte{}, term: map[uint64]uint64{}}
		for _, e := range s.placed {
			m.data[uint64(e.Index)], m.term[uint64(e.Index)] = e.Data, e.Term
		}
	case s.vote > 0:
		m.vote = s.vote
	case s.retain > 0:
		m.floor, m.islands = s.retain, s.islands
	}
}

// retains says whether the index is to stay readable whatever Raft deletes.
func (m *groupModel) retains(index uint64) bool {
	return index >= m.floor || slices.ContainsFunc(m.islands, func(r dataflow.LogRange) bool {
		return uint64(r.First) <= index && index <= uint64(r.Last)
	})
}

// retainSome makes a call of Retain that is allowed after the earlier ones.
func (m *groupModel) retainSome(rng *rand.Rand) (floor uint64, islands []dataflow.LogRange) {
	floor = m.floor + 1 + rng.Uint64N(max(m.last, m.floor+1)-m.floor)
	for i := uint64(1); i < floor; i++ {
		if !m.retains(i) || rng.IntN(3) == 0 {
			continue // what was let go stays so
		}
		if rng.IntN(4) > 0 { // mostly far between
			i += rng.Uint64N(8)
			if i >= floor || !m.retains(i) {
				continue
			}
		}
		index := dataflow.LogIndex(i)
		if n := len(islands); n > 0 && islands[n-1].Last+1 == index {
			islands[n-1].Last = index
		} else {
			islands = append(islands, dataflow.LogRange{First: index, Last: index})
		}
	}
	return floor, islands
}

// scenario makes n random steps over three groups, valid in their order.
func scenario(rng *rand.Rand, n int) []step {
	models := map[string]*groupModel{}
	var steps []step
	for range n {
		g := fmt.Sprintf("shard-%d", rng.IntN(3))
		m := models[g]
		if m == nil {
			m = &groupModel{data: map[uint64][]byte{}, term: map[uint64]uint64{}}
			models[g] = m
		}
		s := step{group: g}
		switch p := rng.IntN(103); {
		case p >= 100:
			s.install = m.last + 1 + rng.Uint64N(20)
			for i := rng.Uint64N(5); i <= s.install; i += 1 + rng.Uint64N(9) {
				if i > 0 {
					s.placed = append(s.placed, logstore.Stored{Index: dataflow.LogIndex(i), Term: 7, Data: frame.Append(nil, make([]byte, rng.IntN(2000)))})
				}
			}
		case p < 70 || m.last == 0:
			next := m.last + 1
			if m.last == 0 {
				next = 1 + rng.Uint64N(5)
				if rng.IntN(2) == 0 {
					next = m.behind + 1 // as after a suffix that was all
				}
			}
			for i := range 1 + rng.Uint64N(4) {
				cmd := make([]byte, rng.IntN(3000))
				for j := range cmd {
					cmd[j] = byte(rng.Uint32())
				}
				s.logs = append(s.logs, &raft.Log{Index: next + i, Term: 1 + m.vote, Type: raft.LogCommand, Data: frame.Append(nil, cmd)})
			}
		case p < 80:
			s.delLo, s.del = m.first, m.first+rng.Uint64N(m.last-m.first+1) // a prefix, now and then all
		case p < 85:
			s.delLo, s.del = m.first+rng.Uint64N(m.last-m.first+1), m.last // a suffix
		case p < 92:
			s.vote = m.vote + 1
		default:
			s.retain, s.islands = m.retainSome(rng)
		}
		m.apply(s)
		steps = append(steps, s)
	}
	return steps
}

// do does a step on a store.
func (s step) do(store *logstore.Store) error {
	g, err := store.Group(s.group)
	if err != nil {
		return err
	}
	switch {
	case s.install > 0:
		return s.doInstall(store)
	case len(s.logs) > 0:
		return g.StoreLogs(s.logs)
	case s.del > 0:
		return g.DeleteRange(s.delLo, s.del)
	case s.vote > 0:
		if err := g.SetUint64([]byte("LastVoteTerm"), s.vote); err != nil {
			return err
		}
		return g.Set([]byte("LastVoteCand"), fmt.Appendf(nil, "n%d", s.vote))
	}
	g.Retain(dataflow.LogIndex(s.retain), s.islands...)
	return nil
}

func (s step) doInstall(store *logstore.Store) error {
	staged := s.group + ".incoming"
	g, err := store.Group(staged)
	if err != nil {
		return err
	}
	if err := g.Reset(dataflow.LogIndex(s.install)); err != nil {
		return err
	}
	half := len(s.placed) / 2
	for _, part := range [][]logstore.Stored{s.placed[:half], s.placed[half:], s.placed[half:]} { // the last one again
		if err := g.Place(part); err != nil {
			return err
		}
	}
	return store.Adopt(staged, s.group)
}

// run does steps until one fails, and returns what the store has promised: the models after all that succeeded, and the
// one that was under way.
func run(store *logstore.Store, steps []step) (map[string]*groupModel, *step, error) {
	return runOn(store, map[string]*groupModel{}, steps)
}

// runOn does steps behind those that models are of.
func runOn(store *logstore.Store, models map[string]*groupModel, steps []step) (map[string]*groupModel, *step, error) {
	for i, s := range steps {
		if err := s.do(store); err != nil {
			return models, &steps[i], err
		}
		m := models[s.group]
		if m == nil {
			m = &groupModel{data: map[uint64][]byte{}, term: map[uint64]uint64{}}
			models[s.group] = m
		}
		m.apply(s)
	}
	return models, nil, nil
}

// check compares a group with what it may hold: the model, or the model with a part of the step that was under way.
func check(store *logstore.Store, name string, m *groupModel, under *step) error {
	g, err := store.Group(name)
	if err != nil {
		return err
	}
	candidates := []*groupModel{m}
	if under != nil && under.group == name {
		if len(under.logs) > 0 {
			for n := 1; n <= len(under.logs); n++ {
				c := m.clone()
				c.apply(step{logs: under.logs[:n]})
				candidates = append(candidates, c)
			}
		} else {
			c := m.clone()
			c.apply(*under)
			candidates = append(candidates, c)
		}
	}
	var errs []error
	for _, c := range candidates {
		if err := c.equal(g); err == nil {
			return nil
		} else {
			errs = append(errs, err)
		}
	}
	return fmt.Errorf("%s: %w", name, errors.Join(errs...))
}

func (m *groupModel) equal(g *logstore.GroupLog) error {
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	if first != m.first || last != m.last {
		return fmt.Errorf("range is %d to %d, want %d to %d", first, last, m.first, m.last)
	}
	var l raft.Log
	for i := m.first; i <= m.last && i > 0; i++ {
		if err := g.GetLog(i, &l); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if l.Index != i || l.Term != m.term[i] || !bytes.Equal(l.Data, m.data[i]) {
			return fmt.Errorf("entry %d differs: term %d, want %d", i, l.Term, m.term[i])
		}
	}
	for i, want := range m.data {
		if i > max(m.last, m.behind) {
			continue
		}
		cmd, err := g.Entry(dataflow.LogIndex(i))
		if errors.Is(err, logstore.ErrNotFound) && !m.retains(i) && (i < m.first || m.last == 0) {
			continue
		}
		if err != nil {
			return fmt.Errorf("retained entry %d: %w", i, err)
		}
		if !bytes.Equal(frame.Append(nil, cmd), want) {
			return fmt.Errorf("retained entry %d differs", i)
		}
	}
	for i := uint64(1); i <= max(m.last, m.behind)+3; i++ {
		if _, had := m.data[i]; had || m.partial {
			continue
		}
		if _, err := g.Entry(dataflow.LogIndex(i)); !errors.Is(err, logstore.ErrNotFound) {
			return errors.Join(fmt.Errorf("entry %d was deleted: want ErrNotFound", i), err)
		}
	}
	term, err := g.GetUint64([]byte("LastVoteTerm"))
	if err != nil {
		return err
	}
	cand, err := g.Get([]byte("LastVoteCand"))
	if err != nil {
		return err
	}
	wantCand := ""
	if m.vote > 0 {
		wantCand = fmt.Sprintf("n%d", m.vote)
	}
	if term != m.vote || string(cand) != wantCand {
		return fmt.Errorf("vote is %d %q, want %d", term, cand, m.vote)
	}
	return nil
}

// reopenAndCheck opens what a crash left, checks it, writes on, and checks that a second opening finds that too.
func reopenAndCheck(mem vfs.FS, models map[string]*groupModel, under *step) error {
	store, err := logstore.Open(mem, "log", small)
	if err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	for name, m := range models {
		if err := check(store, name, m, under); err != nil {
			_ = store.Close()
			return err
		}
	}
	g, err := store.Group("after")
	if err != nil {
		_ = store.Close()
		return err
	}
	last, _ := g.LastIndex()
	l := &raft.Log{Index: last + 1, Type: raft.LogCommand, Data: frame.Append(nil, []byte("after"))}
	if err := g.StoreLog(l); err != nil {
		_ = store.Close()
		return fmt.Errorf("write after reopening: %w", err)
	}
	if err := store.Close(); err != nil {
		return err
	}
	store, err = logstore.Open(mem, "log", small)
	if err != nil {
		return fmt.Errorf("reopen again: %w", err)
	}
	defer store.Close()
	for name, m := range models {
		if err := check(store, name, m, under); err != nil {
			return fmt.Errorf("after the second opening: %w", err)
		}
	}
	if g, err = store.Group("after"); err != nil {
		return err
	}
	cmd, err := g.Entry(dataflow.LogIndex(last + 1))
	if err != nil {
		return fmt.Errorf("entry written after reopening: %w", err)
	}
	if string(cmd) != "after" {
		return fmt.Errorf("entry written after reopening reads %q", cmd)
	}
	return nil
}

func TestCrashAtAnyOperationKeepsWhatWasAcknowledged(t *testing.T) {
	const steps, seed = 70, 7
	todo := scenario(rand.New(rand.NewPCG(seed, 0)), steps)
	play := func(fs *crashfs.FS) (map[string]*groupModel, *step) {
		store, err := logstore.Open(fs, "log", small)
		if err != nil {
			if !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatal(err)
			}
			return nil, nil
		}
		defer store.Close() // its error is the crash's
		models, under, err := run(store, todo)
		if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatal(err)
		}
		return models, under
	}
	fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
	play(fs)
	ops := fs.Ops()
	t.Logf("%d steps, %d operations", steps, ops)
	if ops < 100 {
		t.Fatalf("only %d operations: the scenario exercises nothing", ops)
	}
	for k := 1; k <= ops; k++ {
		for _, percent := range []int{0, 50, 100} {
			crash := crashfs.Crash{At: k, UnsyncedPercent: percent, Torn: true, Seed: uint64(k)}
			fs := crashfs.New(vfs.NewCrashableMem(), crash)
			models, under := play(fs)
			after := fs.AfterCrash()
			// A second crash, while the first is recovered from, must not make it worse.
			again := crashfs.New(after, crashfs.Crash{At: 1 + k%7, UnsyncedPercent: percent, Torn: true, Seed: uint64(k)})
			if s, err := logstore.Open(again, "log", small); err == nil {
				_ = s.Close()
			} else if !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("crash %+v at %v: reopen: %v", crash, fs.CrashedAt(), err)
			}
			if err := reopenAndCheck(again.AfterCrash(), models, under); err != nil {
				t.Fatalf("crash %+v at %v, then at %v: %v", crash, fs.CrashedAt(), again.CrashedAt(), err)
			}
		}
	}
}

func TestRandomStoresSurviveRandomCrashes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 100 {
		todo := scenario(rng, 20+rng.IntN(150))
		crash := crashfs.Crash{At: 1 + rng.IntN(300), UnsyncedPercent: rng.IntN(101), Torn: rng.IntN(2) == 0, Seed: rng.Uint64()}
		fs := crashfs.New(vfs.NewCrashableMem(), crash)
		var models map[string]*groupModel
		var under *step
		if store, err := logstore.Open(fs, "log", small); err == nil {
			models, under, _ = run(store, todo)
			_ = store.Close()
		}
		if err := reopenAndCheck(fs.AfterCrash(), models, under); err != nil {
			t.Fatalf("seed %d, round %d: crash %+v at %v: %v", seed, round, crash, fs.CrashedAt(), err)
		}
	}
}

// A killed process leaves its unsynced writes in the operating system's cache. Recovery reads them; from then on they
// must survive a power failure, because somebody may have acted on them.
func TestWhatRecoveryHasReadSurvivesPowerLoss(t *testing.T) {
	todo := scenario(rand.New(rand.NewPCG(11, 0)), 60)
	probe := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
	store, err := logstore.Open(probe, "log", small)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(store, todo); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for k := 1; k <= probe.Ops(); k++ {
		mem := vfs.NewCrashableMem()
		fs := crashfs.New(mem, crashfs.Crash{At: k, Torn: true, Seed: uint64(k)})
		if store, err := logstore.Open(fs, "log", small); err == nil {
			_, _, _ = run(store, todo)
			_ = store.Close()
		}
		// Killed at k: mem still has everything that was written.
		store, err := logstore.Open(mem, "log", small)
		if err != nil {
			t.Fatalf("killed at %v: %v", fs.CrashedAt(), err)
		}
		seen := map[string]*groupModel{}
		for _, name := range store.Names() {
			g, err := store.Group(name)
			if err != nil {
				t.Fatal(err)
			}
			m := &groupModel{data: map[uint64][]byte{}, term: map[uint64]uint64{}, partial: true}
			m.first, _ = g.FirstIndex()
			m.last, _ = g.LastIndex()
			m.vote, _ = g.GetUint64([]byte("LastVoteTerm"))
			var l raft.Log
			for i := m.first; i > 0 && i <= m.last; i++ {
				if err := g.GetLog(i, &l); err != nil {
					t.Fatal(err)
				}
				m.data[i], m.term[i] = l.Data, l.Term
			}
			seen[name] = m
		}
		after := mem.CrashClone(vfs.CrashCloneCfg{})
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if err := reopenAndCheck(after, seen, nil); err != nil {
			t.Fatalf("killed at %v, then power lost: %v", fs.CrashedAt(), err)
		}
	}
}
