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

func TestANewestSegmentThatWasEmptiedIsMissed(t *testing.T) {
	fs, paths := severalSegments(t)
	f, err := fs.Create(paths[len(paths)-1], vfs.WriteCategoryUnspecified) // empties it
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantMissing(t, fs)
	}
}

func TestAMarkThatIsNotThereIsMadeUpForAtOpen(t *testing.T) {
	fs, paths := severalSegments(t)
	f, err := fs.OpenReadWrite(paths[len(paths)-2], vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 20), 6144); err != nil { // as before a crash, or from an older version
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, open(t, fs))
	if err := fs.Remove(paths[len(paths)-1]); err != nil {
		t.Fatal(err)
	}
	wantMissing(t, fs)
}
