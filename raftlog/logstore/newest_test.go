package logstore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/logstore"
)

// severalSegments returns a disk with a closed store of several segments, and their paths, the oldest first.
func severalSegments(t *testing.T) (*vfs.MemFS, []string) {
	t.Helper()
	fs := vfs.NewCrashableMem()
	s := open(t, fs)
	g := group(t, s, "g")
	for i := uint64(1); i < 200; i += 10 {
		store(t, g, i, i+9, 300)
	}
	closeStore(t, s)
	return fs, segmentPaths(t, fs)
}

func segmentPaths(t *testing.T, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("log")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, n := range names {
		if strings.HasSuffix(n, ".seg") {
			paths = append(paths, fs.PathJoin("log", n))
		}
	}
	slices.Sort(paths)
	if len(paths) < 3 {
		t.Fatalf("only %d segments", len(paths))
	}
	return paths
}

// wantMissing checks that the store does not open because a segment is missing.
func wantMissing(t *testing.T, fs vfs.FS) {
	t.Helper()
	_, err := logstore.Open(fs, "log", small)
	if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt || !strings.Contains(err.Error(), "missing") {
		t.Fatalf("opened with %v", err)
	}
}

func TestNewestSegmentsThatVanishedAreMissed(t *testing.T) {
	disk, paths := severalSegments(t)
	for lost := 1; lost < len(paths); lost++ {
		fs := disk.CrashClone(vfs.CrashCloneCfg{})
		for _, p := range paths[len(paths)-lost:] {
			if err := fs.Remove(p); err != nil {
				t.Fatal(err)
			}
		}
		wantMissing(t, fs)
	}
}

// TestADamagedNewestSegmentIsRefusedAndStays: the mark of the one before it says that it had been durable.
func TestADamagedNewestSegmentIsRefusedAndStays(t *testing.T) {
	disk, paths := severalSegments(t)
	newest := paths[len(paths)-1]
	for name, damage := range map[string]func(vfs.FS){
		"emptied":               func(fs vfs.FS) { writeTo(t, fs, newest, true, 0, 0) },
		"both headers":          func(fs vfs.FS) { writeTo(t, fs, newest, false, 28, 0, 2048) },
		"first batch and after": func(fs vfs.FS) { writeTo(t, fs, newest, false, 32<<10-8192, 8192) },
	} {
		fs := disk.CrashClone(vfs.CrashCloneCfg{})
		damage(fs)
		for range 2 {
			_, err := logstore.Open(fs, "log", small)
			if dataflow.ReasonOf(err) != dataflow.ReasonCorrupt || !strings.Contains(err.Error(), newest) {
				t.Errorf("%s: opened with %v", name, err)
			}
			if _, err := fs.Stat(newest); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// writeTo writes n zeros at each of the offsets into a file, which is emptied before if that is wanted.
func writeTo(t *testing.T, fs vfs.FS, path string, empty bool, n int, at ...int64) {
	t.Helper()
	var f vfs.File
	var err error
	if empty {
		f, err = fs.Create(path, vfs.WriteCategoryUnspecified)
	} else {
		f, err = fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range at {
		if _, err := f.WriteAt(make([]byte, n), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// unmark takes a segment's mark away: as before a crash, or from an older version.
func unmark(t *testing.T, fs vfs.FS, path string) { writeTo(t, fs, path, false, 20, 6144) }

func TestMarksThatAreNotThereAreMadeUpForAtOpen(t *testing.T) {
	fs, paths := severalSegments(t)
	for _, p := range paths {
		unmark(t, fs, p)
	}
	closeStore(t, open(t, fs))
	for i := len(paths) - 1; i > 0; i-- {
		if err := fs.Remove(paths[i]); err != nil {
			t.Fatal(err)
		}
		wantMissing(t, fs)
	}
}

// TestASegmentThatOpenBeganIsMissed: the one before it was sealed, and the process ended before it had a successor.
func TestASegmentThatOpenBeganIsMissed(t *testing.T) {
	fs, paths := severalSegments(t)
	unmark(t, fs, paths[len(paths)-2])
	if err := fs.Remove(paths[len(paths)-1]); err != nil {
		t.Fatal(err)
	}
	s := open(t, fs)
	g := group(t, s, "g")
	_, last, _ := g.Retained()
	store(t, g, uint64(last)+1, uint64(last)+2, 300)
	closeStore(t, s)
	after := segmentPaths(t, fs)
	if err := fs.Remove(after[len(after)-1]); err != nil {
		t.Fatal(err)
	}
	wantMissing(t, fs)
}
