package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/testkit/crashfs"
	"github.com/weirdb/weir/internal/vfs"
)

// from fetches from a lease as a node does from another one.
func from(x *Lease) Fetch {
	return func(_ context.Context, name string, offset int64) (io.ReadCloser, error) { return x.Open(name, offset) }
}

func (c *trio) export(opts ExportOptions) *Lease {
	c.t.Helper()
	x, err := c.leader().log.Export(c.ctx(), opts)
	c.must(err)
	return x
}

// TestARebuiltMemberIsLikeTheOthers: at random moments of random histories a member is stopped, or is new, or runs and lags;
// it is rebuilt from the leader while the group goes on, and from then on reads as the others do.
func TestARebuiltMemberIsLikeTheOthers(t *testing.T) {
	t.Parallel()
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			c := newTrio(t, seed)
			defer c.close()
			for round := range 3 {
				for range 20 + c.rng.IntN(20) {
					c.step()
				}
				c.same()
				i := c.rng.IntN(3)
				c.rebuild(i, round)
				for range c.rng.IntN(20) {
					c.step()
				}
				c.same()
			}
		})
	}
}

// rebuild rebuilds a member in one of three ways.
func (c *trio) rebuild(i, how int) {
	n := c.nodes[i]
	opts := ExportOptions{Rebuild: true, Have: n.log.group.LastIndex()}
	if how != 2 {
		c.stop(i)
	}
	if how == 1 { // its disk is lost, and its place is taken by a new one under the same name, for the test's sake
		n.fs, opts.Have = vfs.NewCrashableMem(), 0
	}
	for range 10 {
		c.step()
	}
	if how == 2 && n == c.leader() {
		c.stop(i)
		how = 0
	}
	x := c.export(opts)
	defer x.Release()
	if got := x.Manifest().Index; got < opts.Have {
		c.t.Fatalf("exported at index %d for one that has %d", got, opts.Have)
	}
	for range c.rng.IntN(40) { // with snapshots, trims and settled deltas
		c.step()
	}
	if how == 2 { // pulled while it runs
		in := trioInstaller(c.t, n.fs, n.store)
		c.must(in.Pull(c.ctx(), x.Manifest(), from(x)))
		c.stop(i)
	}
	store, err := openTrioStore(n.fs)
	c.must(err)
	in := trioInstaller(c.t, n.fs, store)
	if how == 2 {
		_, err = in.Recover()
	} else {
		err = in.Install(c.ctx(), x.Manifest(), from(x))
	}
	c.must(err)
	if left, err := exists(n.fs, trioDir+incomingSuffix); err != nil || left {
		c.t.Fatalf("something is left of the install: %v, %v", left, err)
	}
	c.must(store.Close())
	c.start(i)
	c.caughtUp() // before the lease ends
}

// TestALaggingMemberAsksAndIsBroughtForward walks the whole way of a member that was away for too long.
func TestALaggingMemberAsksAndIsBroughtForward(t *testing.T) {
	t.Parallel()
	c := newTrio(t, 99)
	defer c.close()
	for range 10 {
		c.step()
	}
	lead := c.leader()
	lag := 0
	for i, n := range c.nodes {
		if n != lead {
			lag = i
		}
	}
	c.caughtUp()
	c.stop(lag)
	for range 300 {
		c.rows(1)
	}
	c.must(c.leader().log.Snapshot(c.ctx()))
	c.start(lag)
	n := c.nodes[lag]
	select {
	case <-n.log.Needs():
	case <-c.ctx().Done():
		t.Fatal("it does not ask")
	}
	have := n.log.group.LastIndex()
	x := c.export(ExportOptions{Have: have})
	defer x.Release()
	in := trioInstaller(t, n.fs, n.store)
	c.must(in.Pull(c.ctx(), x.Manifest(), from(x)))
	for range 50 {
		c.rows(1)
	}
	c.must(c.leader().log.Snapshot(c.ctx()))
	c.stop(lag)
	if _, err := Open(Config{Shard: trioShard, Store: nopStore{}, Replica: n.replica, Raft: n.log.cfg.Raft}); !errors.Is(err, ErrInstallPending) {
		t.Fatalf("open before the install was finished: %v", err)
	}
	store, err := openTrioStore(n.fs)
	c.must(err)
	c.must(trioInstaller(t, n.fs, store).Swap())
	c.must(store.Close())
	c.start(lag)
	c.same()
	if _, err := c.leader().log.Export(c.ctx(), ExportOptions{Have: n.log.group.LastIndex()}); !errors.Is(err, ErrNotNeeded) {
		t.Fatalf("an export for one that keeps up: %v", err)
	}
	x.Release()
	if _, err := x.Open(EntriesName, 0); !errors.Is(err, ErrLeaseOver) {
		t.Fatalf("after the lease: %v", err)
	}
}

// nopStore is a store that nobody reads.
type nopStore struct{ Store }

// base is a member as it is before an install, what it is made of, and what both read.
type base struct {
	mem      *vfs.MemFS // its disk
	old, new string     // dumps
	c        *trio
	x        *Lease
}

func installBase(t *testing.T) *base {
	c := newTrio(t, 7)
	for range 25 {
		c.step()
	}
	lead := c.leader()
	i := 0
	if c.nodes[0] == lead {
		i = 1
	}
	c.caughtUp()
	c.must(c.nodes[i].log.Snapshot(c.ctx()))
	c.stop(i)
	b := &base{c: c, mem: c.nodes[i].fs.(*vfs.MemFS)}
	var err error
	if b.old, err = dumpDisk(b.mem, nil); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		c.step()
	}
	b.x = c.export(ExportOptions{Rebuild: true, Have: 1})
	t.Cleanup(func() {
		b.x.Release()
		c.close()
	})
	// What is expected is what an undisturbed install gives.
	mem := b.mem.CrashClone(vfs.CrashCloneCfg{})
	c.must(install(t, mem, b.x.Manifest(), from(b.x)))
	if b.new, err = dumpDisk(mem, c.pipes); err != nil {
		t.Fatal(err)
	}
	if want, err := dump(c.leader().log, c.leader().replica, c.pipes); err != nil || want != b.new {
		t.Fatalf("what was installed differs from its source (%d bytes and %d), %v", len(b.new), len(want), err)
	}
	return b
}

func install(t testing.TB, fs vfs.FS, m Manifest, fetch Fetch) (err error) {
	store, err := openTrioStore(fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return trioInstaller(t, fs, store).Install(context.Background(), m, fetch)
}

// dumpDisk reads a replica that is not running, as far as its snapshot goes; with pipes, their cuts.
func dumpDisk(fs vfs.FS, pipes []*trioPipeline) (text string, err error) {
	store, err := openTrioStore(fs)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	r, err := openTrioState(fs)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, p := range pipes {
		for _, k := range p.cuts {
			if err := r.Publish(k); err != nil {
				return "", err
			}
		}
	}
	g, err := store.Group(trioGroup)
	if err != nil {
		return "", err
	}
	cfg := Config{Shard: trioShard, Store: g, Replica: r, CacheBytes: -1}
	cfg.Raft.FS, cfg.Raft.Dir = fs, trioDir
	cfg.ensureDefaults()
	l := newLog(cfg)
	if err := l.restore(); err != nil {
		return "", err
	}
	return dump(l, r, pipes)
}

// TestACrashInAnInstallLeavesTheOldReplicaOrTheNew crashes at each operation on the disk, looks at what is there, and
// installs again.
func TestACrashInAnInstallLeavesTheOldReplicaOrTheNew(t *testing.T) {
	t.Parallel()
	b := installBase(t)
	m := b.x.Manifest()
	probe := crashfs.New(b.mem.CrashClone(vfs.CrashCloneCfg{}), crashfs.Crash{})
	b.c.must(install(t, probe, m, from(b.x)))
	ops := probe.Ops()
	t.Logf("%d operations", ops)
	if ops < 50 {
		t.Fatalf("only %d operations", ops)
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	seen := map[string]int{}
	for k := 1; k <= ops; k += step {
		for _, percent := range []int{0, 50} {
			crash := crashfs.Crash{At: k, UnsyncedPercent: percent, Torn: true, Seed: uint64(k)}
			fs := crashfs.New(b.mem.CrashClone(vfs.CrashCloneCfg{}), crash)
			err := install(t, fs, m, from(b.x))
			at := fmt.Sprintf("crash %+v at %v", crash, fs.CrashedAt())
			if err == nil && fs.CrashedAt().N != 0 && fs.CrashedAt().N < ops-5 {
				t.Logf("%s: installed all the same", at)
			}
			after := fs.AfterCrash()
			// Once more, while it is recovered from.
			again := crashfs.New(after, crashfs.Crash{At: 1 + k%9, UnsyncedPercent: percent, Torn: true, Seed: uint64(k)})
			_, _ = recoverDisk(t, again)
			after = again.AfterCrash()
			if _, err := recoverDisk(t, after); err != nil {
				t.Fatalf("%s: recover: %v", at, err)
			}
			text, err := dumpDisk(after, nil)
			if err != nil {
				t.Fatalf("%s: what is there: %v", at, err)
			}
			switch {
			case text == b.old:
				seen["old"]++
				if err := install(t, after, m, from(b.x)); err != nil {
					t.Fatalf("%s: install again: %v", at, err)
				}
			default:
				seen["new"]++
			}
			if text, err = dumpDisk(after, b.c.pipes); err != nil || text != b.new {
				t.Fatalf("%s: neither the old replica nor the new: %d bytes, want %d, %v", at, len(text), len(b.new), err)
			}
		}
	}
	t.Logf("after %v", seen)
	if seen["old"] == 0 || seen["new"] == 0 {
		t.Fatalf("crashes left only %v", seen)
	}
}

// recoverDisk does what a start does first.
func recoverDisk(t testing.TB, fs vfs.FS) (installed bool, err error) {
	store, err := openTrioStore(fs)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return trioInstaller(t, fs, store).Recover()
}

// badSource spoils what it passes on.
type badSource struct {
	x     *Lease
	spoil func(name string, offset int64, r io.Reader) io.Reader // nil result: it is gone
	bytes int64
	names []string
}

func (b *badSource) fetch(_ context.Context, name string, offset int64) (io.ReadCloser, error) {
	b.names = append(b.names, name)
	r, err := b.x.Open(name, offset)
	if err != nil {
		return nil, err
	}
	s := io.Reader(r)
	if b.spoil != nil {
		if s = b.spoil(name, offset, r); s == nil {
			return nil, errors.Join(errors.New("the source is gone"), r.Close())
		}
	}
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(s, (*counter)(&b.bytes)), r}, nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// flip damages the byte at n of what it reads.
type flip struct {
	r io.Reader
	n int
}

func (f *flip) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if f.n >= 0 && f.n < n {
		p[f.n] ^= 0x10
	}
	f.n -= n
	return n, err
}

func TestWhatComesDamagedOrBreaksOffIsFetchedAgain(t *testing.T) {
	t.Parallel()
	b := installBase(t)
	m := b.x.Manifest()
	var whole badSource
	whole.x = b.x
	b.c.must(install(t, b.mem.CrashClone(vfs.CrashCloneCfg{}), m, whole.fetch))
	calls := 0
	for name, spoil := range map[string]func(string, int64, io.Reader) io.Reader{
		"damaged": func(_ string, _ int64, r io.Reader) io.Reader {
			if calls++; calls%2 == 0 {
				return r
			}
			return &flip{r: r, n: 3 + calls*37%300}
		},
		"truncated": func(_ string, _ int64, r io.Reader) io.Reader {
			if calls++; calls%2 == 0 {
				return r
			}
			return io.LimitReader(r, int64(calls*101%3000))
		},
		"gone": func(_ string, _ int64, r io.Reader) io.Reader {
			if calls++; calls%3 == 0 {
				return r
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := b.mem.CrashClone(vfs.CrashCloneCfg{})
			src := &badSource{x: b.x, spoil: spoil}
			b.c.must(install(t, mem, m, src.fetch))
			if text, err := dumpDisk(mem, b.c.pipes); err != nil || text != b.new {
				t.Fatalf("it differs: %v", err)
			}
		})
	}

	// Each time the source is there for one call more: what has come stays, so that in all, little comes twice.
	t.Run("goes away again and again", func(t *testing.T) {
		mem := b.mem.CrashClone(vfs.CrashCloneCfg{})
		store, err := openTrioStore(mem)
		b.c.must(err)
		in := trioInstaller(t, mem, store)
		src := &badSource{x: b.x}
		pulls := 0
		for left := 0; ; pulls++ {
			left = 2
			src.spoil = func(name string, _ int64, r io.Reader) io.Reader {
				if left--; left < 0 {
					return nil
				}
				if name == EntriesName {
					return io.LimitReader(r, 12000)
				}
				return r
			}
			err := in.Pull(context.Background(), m, src.fetch)
			if err == nil {
				break
			}
			if !errors.Is(err, ErrSource) || !strings.Contains(err.Error(), "gone") || pulls > 200 {
				t.Fatal(err)
			}
		}
		if pulls == 0 || src.bytes > 3*whole.bytes {
			t.Fatalf("%d pulls fetched %d bytes of %d", pulls, src.bytes, whole.bytes)
		}
		t.Logf("%d pulls fetched %d bytes of %d", pulls, src.bytes, whole.bytes)
		b.c.must(in.Pull(context.Background(), m, nil)) // nothing is left to fetch
		b.c.must(in.Swap())
		b.c.must(store.Close())
		if text, err := dumpDisk(mem, b.c.pipes); err != nil || text != b.new {
			t.Fatalf("it differs: %v", err)
		}
	})
}

// TestASourceThatLiesIsNotBelieved: bytes that were damaged at the source have right checksums on their way.
func TestASourceThatLiesIsNotBelieved(t *testing.T) {
	t.Parallel()
	b := installBase(t)
	for i, f := range append(b.x.Manifest().Files, File{Name: EntriesName}) {
		if f.Size == 0 && f.Name != EntriesName || strings.Contains(f.Name, ".log") || strings.Contains(f.Name, "OPTIONS") || strings.Contains(f.Name, "MADE") {
			continue
		}
		mem := b.mem.CrashClone(vfs.CrashCloneCfg{})
		src := func(_ context.Context, name string, offset int64) (io.ReadCloser, error) {
			r, err := b.x.Open(name, offset)
			if err != nil || name != f.Name {
				return r, err
			}
			defer r.Close()
			p := newPieces(r)
			var out []byte
			for {
				piece, _, err := p.next()
				if err != nil {
					return io.NopCloser(strings.NewReader(string(out))), nil
				}
				bad := append([]byte(nil), piece...)
				bad[len(bad)/2] ^= 1
				out = appendPiece(out, bad)
			}
		}
		err := install(t, mem, b.x.Manifest(), src)
		if err == nil || dataflow.ReasonOf(err) != dataflow.ReasonCorrupt && !errors.Is(err, ErrSource) {
			t.Errorf("file %d, %s, damaged at the source: %v", i, f.Name, err)
		}
		if text, err := dumpDisk(mem, nil); err != nil || text != b.old {
			t.Errorf("file %d, %s: the old replica is gone: %v", i, f.Name, err)
		}
	}
}

// TestAFileThatCameInPartGoesOnBehindItsSoundPieces: whatever of it and of the sums a crash has left.
func TestAFileThatCameInPartGoesOnBehindItsSoundPieces(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	store, err := openTrioStore(mem)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	in := trioInstaller(t, mem, store)
	open := func() *partFile {
		t.Helper()
		w, err := in.resume("part", "sums", 10_000)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	closeIt := func(w *partFile) {
		t.Helper()
		if err := errors.Join(w.data.Close(), w.sums.Close()); err != nil {
			t.Fatal(err)
		}
	}
	w := open()
	for i := range 4 {
		piece := []byte(strings.Repeat(fmt.Sprint(i), 1000))
		if err := w.add(piece, pieceSum(piece)); err != nil {
			t.Fatal(err)
		}
	}
	closeIt(w)
	if w = open(); w.have != 4000 {
		t.Fatalf("%d bytes are sound", w.have)
	}
	if _, err := w.data.WriteAt([]byte("x"), 2500); err != nil {
		t.Fatal(err)
	}
	closeIt(w)
	if w = open(); w.have != 2000 {
		t.Fatalf("%d bytes are sound before the damage", w.have)
	}
	piece := []byte(strings.Repeat("9", 1500))
	if err := w.add(piece, pieceSum(piece)); err != nil {
		t.Fatal(err)
	}
	closeIt(w)
	if w = open(); w.have != 3500 {
		t.Fatalf("%d bytes are sound after it went on", w.have)
	}
	closeIt(w)
}
