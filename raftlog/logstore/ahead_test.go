package logstore_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/testkit/crashfs"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/logstore"
)

// opLog keeps the operations of a file system, and lets one fail or wait.
type opLog struct {
	sync.Mutex
	ops []crashfs.Op
	on  func(crashfs.Op) error // may be nil
}

func watch(fs *crashfs.FS) *opLog {
	l := &opLog{}
	fs.OnOp(func(op crashfs.Op) error {
		l.Lock()
		l.ops = append(l.ops, op)
		on := l.on
		l.Unlock()
		if on != nil {
			return on(op)
		}
		return nil
	})
	return l
}

// set changes what is done on an operation.
func (l *opLog) set(on func(crashfs.Op) error) {
	l.Lock()
	defer l.Unlock()
	l.on = on
}

// take returns the operations since the last call.
func (l *opLog) take() []crashfs.Op {
	l.Lock()
	defer l.Unlock()
	ops := l.ops
	l.ops = nil
	return ops
}

// filler stores small entries one after the other.
type filler struct {
	t    *testing.T
	s    *logstore.Store
	g    *logstore.GroupLog
	last uint64
}

// until stores until done says so.
func (f *filler) until(done func(logstore.Stats) bool) {
	f.t.Helper()
	for !done(f.s.Stats()) {
		f.last++
		store(f.t, f.g, f.last, f.last, 1000)
		synctest.Wait()
		if f.last > 10_000 {
			f.t.Fatalf("it does not come to be: %+v", f.s.Stats())
		}
	}
}

func ahead(st logstore.Stats) bool { return st.Ahead == 1 }

func segmentsAre(n int) func(logstore.Stats) bool {
	return func(st logstore.Stats) bool { return st.Segments == n }
}

// newFiller opens a store and stores until the next segment is made ahead of need.
func newFiller(t *testing.T, fs vfs.FS) *filler {
	t.Helper()
	s := open(t, fs)
	f := &filler{t: t, s: s, g: group(t, s, "a")}
	f.until(ahead)
	return f
}

func TestARotationOnlySwitchesToTheSegmentMadeAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
		ops := watch(fs)
		f := newFiller(t, fs)
		for n := 2; n < 6; n++ {
			ops.take()
			f.until(segmentsAre(n))
			for _, op := range ops.take() {
				if op.Name != "write-at" && op.Name != "sync" || !strings.HasSuffix(op.Path, ".seg") {
					t.Errorf("segment %d: the commits did %v", n, op)
				}
			}
			f.until(ahead)
		}
		closeStore(t, f.s)
	})
}

func TestAnIdleStoreMakesNoSegmentAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		s := open(t, fs)
		store(t, group(t, s, "a"), 1, 1, 100)
		synctest.Wait()
		if st := s.Stats(); st.Ahead != 0 || st.Segments != 1 {
			t.Errorf("%+v", st)
		}
		closeStore(t, s)
	})
}

func TestARotationAndCloseWaitForTheSegmentThatIsBeingMade(t *testing.T) {
	for _, closes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
			ops := watch(fs)
			s := open(t, fs)
			g := group(t, s, "a")
			hung := make(chan struct{})
			ops.set(func(op crashfs.Op) error {
				if op.Name == "open" {
					<-hung
				}
				return nil
			})
			store(t, g, 1, 20, 1000) // more than half of the first segment
			synctest.Wait()
			ops.take()
			done := make(chan error, 1)
			go func() {
				if closes {
					done <- s.Close()
				} else {
					done <- g.StoreLogs(logs(21, 40, 1000))
				}
			}()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("it did not wait: %v", err)
			default:
			}
			close(hung)
			if err := <-done; err != nil {
				t.Error(err)
			}
			if slices.ContainsFunc(ops.take(), func(op crashfs.Op) bool { return op.Name == "open" && !strings.HasSuffix(op.Path, "2.seg") }) {
				t.Error("another segment was made meanwhile")
			}
			closeStore(t, s)
			want := 2
			if closes {
				want = 1
			}
			if names := segmentNames(t, fs); len(names) != want {
				t.Errorf("Close left %v, want %d", names, want)
			}
		})
	}
}

func segmentNames(t *testing.T, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("log")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".seg") })
}

func TestAFailedSyncOfTheSegmentMadeAheadIsFinal(t *testing.T) {
	for what, path := range map[string]string{"the file": "2.seg", "the directory": "log"} {
		synctest.Test(t, func(t *testing.T) {
			fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
			ops := watch(fs)
			s := open(t, fs)
			g := group(t, s, "a")
			boom := errors.New("disk on fire")
			ops.set(func(op crashfs.Op) error {
				if op.Name == "sync" && strings.HasSuffix(op.Path, path) {
					return boom
				}
				return nil
			})
			store(t, g, 1, 20, 1000)
			synctest.Wait()
			if err := s.Err(); !errors.Is(err, logstore.ErrFailed) || !errors.Is(err, boom) {
				t.Errorf("%s: the idle store says %v", what, err)
			}
			ops.set(nil)
			if err := g.StoreLogs(logs(21, 21, 10)); !errors.Is(err, boom) {
				t.Errorf("%s: a write after it: %v", what, err)
			}
			closeStore(t, s)
			s = open(t, fs)
			wantEntries(t, group(t, s, "a"), 1, 20, 1000)
			closeStore(t, s)
		})
	}
}

// tightFS is a file system that may be out of space.
type tightFS struct {
	vfs.FS
	free     uint64 // what it says; 0 = it does not
	noBlocks bool   // Preallocate fails
}

func (f *tightFS) GetDiskUsage(dir string) (vfs.DiskUsage, error) {
	if f.free == 0 {
		return f.FS.GetDiskUsage(dir)
	}
	return vfs.DiskUsage{AvailBytes: f.free}, nil
}

func (f *tightFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	if err != nil {
		return nil, err
	}
	return &tightFile{File: file, fs: f}, nil
}

type tightFile struct {
	vfs.File
	fs *tightFS
}

func (f *tightFile) Preallocate(off, n int64) error {
	if f.fs.noBlocks {
		return syscall.ENOSPC
	}
	return f.File.Preallocate(off, n)
}

func TestWithoutSpaceASegmentIsMadeWhenItIsNeeded(t *testing.T) {
	for what, tight := range map[string]func(*tightFS, *opLog){
		"the file is not created": func(_ *tightFS, ops *opLog) { ops.set(failOnce("open", syscall.ENOSPC)) },
		"no blocks":               func(fs *tightFS, _ *opLog) { fs.noBlocks = true },
		"little is free":          func(fs *tightFS, _ *opLog) { fs.free = 3 * uint64(small.SegmentBytes) },
	} {
		synctest.Test(t, func(t *testing.T) {
			mem := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
			ops := watch(mem)
			fs := &tightFS{FS: mem}
			s := open(t, fs)
			f := &filler{t: t, s: s, g: group(t, s, "a")}
			tight(fs, ops)
			store(t, f.g, 1, 20, 1000)
			synctest.Wait()
			f.last = 20
			if st, names := s.Stats(), segmentNames(t, fs); st.Ahead != 0 || len(names) != 1 || s.Err() != nil {
				t.Fatalf("%s: %+v, %v, %v", what, st, names, s.Err())
			}
			f.until(segmentsAre(3))
			closeStore(t, s)
			s = open(t, fs)
			wantEntries(t, group(t, s, "a"), 1, f.last, 1000)
			closeStore(t, s)
		})
	}
}

// failOnce lets the next operation of the name fail.
func failOnce(name string, err error) func(crashfs.Op) error {
	var once sync.Once
	return func(op crashfs.Op) (failed error) {
		if op.Name == name {
			once.Do(func() { failed = err })
		}
		return failed
	}
}

// TestARecycledFileThatCouldNotBeTakenAheadIsTakenWhenNeeded: a rename, too, may want a block of the directory.
func TestARecycledFileThatCouldNotBeTakenAheadIsTakenWhenNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
		ops := watch(fs)
		f := newFiller(t, fs)
		f.until(segmentsAre(4))
		if err := f.g.DeleteRange(1, f.last); err != nil {
			t.Fatal(err)
		}
		f.g.Retain(dataflow.LogIndex(f.last + 1))
		synctest.Wait()
		st := f.s.Stats()
		if st.Free == 0 || st.Ahead != 0 {
			t.Fatalf("nothing to reuse: %+v", st)
		}
		ops.set(failOnce("rename", syscall.ENOSPC))
		ops.take()
		f.until(segmentsAre(st.Segments + 1))
		if renames := slices.DeleteFunc(ops.take(), func(op crashfs.Op) bool { return op.Name != "rename" }); len(renames) != 2 || renames[0].Path != renames[1].Path {
			t.Errorf("renames: %v", renames)
		}
		if got := f.s.Stats().Free; got != st.Free-1 {
			t.Errorf("%d files are left for reuse of %d", got, st.Free)
		}
		closeStore(t, f.s)
	})
}

func TestWhatFollowsARotationIsAnsweredWhenTheMarkIsDurable(t *testing.T) {
	boom := errors.New("disk on fire")
	for _, markFails := range []error{nil, boom} {
		synctest.Test(t, func(t *testing.T) {
			fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
			ops := watch(fs)
			f := newFiller(t, fs)
			store(t, f.g, f.last+1, f.last+5, 1000)
			hung := make(chan struct{})
			var begun sync.Once
			sealed := make(chan struct{})
			ops.set(func(op crashfs.Op) error {
				if strings.HasSuffix(op.Path, "2.seg") {
					begun.Do(func() { close(sealed) })
				}
				select {
				case <-sealed:
					if op.Name == "sync" && strings.HasSuffix(op.Path, "1.seg") {
						<-hung
						return markFails
					}
				default:
				}
				return nil
			})
			ops.take()
			done := make(chan error, 1)
			go func() { done <- f.g.StoreLogs(logs(f.last+6, f.last+25, 1000)) }()
			synctest.Wait()
			syncs := slices.DeleteFunc(ops.take(), func(op crashfs.Op) bool { return op.Name != "sync" || !strings.HasSuffix(op.Path, "2.seg") })
			if len(syncs) != 2 {
				t.Errorf("the beginning and a batch are to be synced while the mark is: %v", syncs)
			}
			select {
			case err := <-done:
				t.Fatalf("answered before the mark is durable: %v", err)
			default:
			}
			close(hung)
			if err := <-done; !errors.Is(err, markFails) || markFails != nil && !errors.Is(f.s.Err(), logstore.ErrFailed) {
				t.Errorf("the mark's error is %v: %v", markFails, err)
			}
			ops.set(nil)
			closeStore(t, f.s)
		})
	}
}

// TestASegmentThatWasNeverNeededHidesNoDamage: the file that lies behind the newest segment changes nothing in what is
// refused, and what is tolerated.
func TestASegmentThatWasNeverNeededHidesNoDamage(t *testing.T) {
	var disk *vfs.MemFS
	var last uint64
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		f := newFiller(t, mem)
		f.until(segmentsAre(3))
		f.until(ahead)
		disk, last = mem.CrashClone(vfs.CrashCloneCfg{}), f.last
		closeStore(t, f.s)
	})
	paths := segmentPaths(t, disk)
	spare, newest, older := paths[3], paths[2], paths[1]
	st, err := disk.Stat(newest)
	if err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		damage  func(fs vfs.FS)
		refused string // what the message names; empty when it opens with all entries but lost
		lost    uint64
	}{
		"nothing":                  {damage: func(vfs.FS) {}},
		"the spare file is gone":   {damage: func(fs vfs.FS) { remove(t, fs, spare) }},
		"it holds an old segment":  {damage: func(fs vfs.FS) { copyFile(t, fs, older, spare) }},
		"it holds zeros":           {damage: func(fs vfs.FS) { writeTo(t, fs, spare, true, 32<<10, 0) }},
		"the last batch is torn":   {damage: func(fs vfs.FS) { writeTo(t, fs, newest, false, 8, st.Size()-16) }, lost: 1},
		"the newest is gone":       {damage: func(fs vfs.FS) { remove(t, fs, newest) }, refused: baseOf(newest) + ", which came after"},
		"the newest is emptied":    {damage: func(fs vfs.FS) { writeTo(t, fs, newest, true, 0, 0) }, refused: newest},
		"its first batch is torn":  {damage: func(fs vfs.FS) { writeTo(t, fs, newest, false, 64, 8192) }, refused: newest},
		"a batch in it is damaged": {damage: func(fs vfs.FS) { writeTo(t, fs, newest, false, 64, st.Size()-3000) }, refused: newest},
		"the one before has no seal": {
			damage: func(fs vfs.FS) { writeTo(t, fs, older, false, 20, 4096) }, refused: older},
	} {
		fs := disk.CrashClone(vfs.CrashCloneCfg{})
		tc.damage(fs)
		s, err := logstore.Open(fs, "log", small)
		if tc.refused != "" {
			if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: opened with %v", what, err)
			}
			if _, err := fs.Stat(spare); err != nil {
				t.Errorf("%s: what is damaged was changed: %v", what, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		g := group(t, s, "a")
		if got, _ := g.LastIndex(); got != last-tc.lost {
			t.Errorf("%s: the log ends at %d, want %d", what, got, last-tc.lost)
		}
		wantEntries(t, g, 1, last-tc.lost, 1000)
		store(t, g, last-tc.lost+1, last+40, 1000) // over the next rotation
		closeStore(t, s)
		s = open(t, fs)
		wantEntries(t, group(t, s, "a"), 1, last+40, 1000)
		closeStore(t, s)
	}
}

func baseOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func remove(t *testing.T, fs vfs.FS, path string) {
	t.Helper()
	if err := fs.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, fs vfs.FS, from, to string) {
	t.Helper()
	b, err := vfs.ReadFile(fs, from)
	if err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(fs, to, b); err != nil {
		t.Fatal(err)
	}
}

// TestCrashAtAnyOperationAroundASegmentMadeAhead: each step waits until the file is made, so that every operation of that is
// crashed at. The other crash tests race it against the commits.
func TestCrashAtAnyOperationAroundASegmentMadeAhead(t *testing.T) {
	todo := scenario(rand.New(rand.NewPCG(23, 0)), 50)
	play := func(t *testing.T, fs *crashfs.FS) (models map[string]*groupModel, under *step, files int) {
		synctest.Test(t, func(t *testing.T) {
			s, err := logstore.Open(fs, "log", small)
			if err != nil {
				if !errors.Is(err, crashfs.ErrCrashed) {
					t.Fatal(err)
				}
				return
			}
			defer s.Close() // its error is the crash's
			models = map[string]*groupModel{}
			had := 0
			for i := range todo {
				_, u, err := runOn(s, models, todo[i:i+1])
				if err != nil {
					if !errors.Is(err, crashfs.ErrCrashed) {
						t.Fatal(err)
					}
					under = u
					return
				}
				synctest.Wait()
				has := s.Stats().Ahead
				files += max(has-had, 0)
				had = has
			}
		})
		return models, under, files
	}
	fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
	_, _, files := play(t, fs)
	t.Logf("%d operations, %d files made ahead of need", fs.Ops(), files)
	for k := 1; k <= fs.Ops(); k++ {
		for _, percent := range []int{0, 50, 100} {
			crash := crashfs.Crash{At: k, UnsyncedPercent: percent, Torn: true, Seed: uint64(k)}
			fs := crashfs.New(vfs.NewCrashableMem(), crash)
			models, under, _ := play(t, fs)
			if err := reopenAndCheck(fs.AfterCrash(), models, under); err != nil {
				t.Fatalf("crash %+v at %v: %v", crash, fs.CrashedAt(), err)
			}
		}
	}
	if files < 2 {
		t.Errorf("%d files were made ahead of need: the scenario exercises nothing", files)
	}
}
