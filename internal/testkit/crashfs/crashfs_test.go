package crashfs_test

import (
	"errors"
	"io"
	"testing"

	"github.com/weirdb/weir/internal/testkit/crashfs"
	"github.com/weirdb/weir/internal/vfs"
)

// scenario writes "one", syncs it, writes "two" behind it, and renames the file: 8 operations.
func scenario(fs vfs.FS) error {
	if err := vfs.MkdirDurable(fs, "d"); err != nil { // 1 mkdir, 2 sync
		return err
	}
	f, err := fs.Create("d/a", vfs.WriteCategoryUnspecified) // 3
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write([]byte("one")); err != nil { // 4
		return err
	}
	if err := f.Sync(); err != nil { // 5
		return err
	}
	if err := vfs.SyncDir(fs, "d"); err != nil { // 6
		return err
	}
	if _, err := f.Write([]byte("two")); err != nil { // 7
		return err
	}
	return fs.Rename("d/a", "d/b") // 8
}

// read returns the file's content, or "" when it is not there.
func read(t *testing.T, fs vfs.FS, name string) string {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOnlyWhatWasSyncedIsLeftWithoutLuck(t *testing.T) {
	for k, want := range map[int]string{3: "", 5: "", 6: "", 7: "one", 8: "one", 9: "one"} {
		fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{At: k})
		if err := scenario(fs); (k <= 8) != errors.Is(err, crashfs.ErrCrashed) {
			t.Errorf("crash at %d: %v", k, err)
		}
		after := fs.AfterCrash()
		if got := read(t, after, "d/a"); got != want {
			t.Errorf("crash at %v: the file holds %q, want %q", fs.CrashedAt(), got, want)
		}
		if fs.CrashedAt().N != k {
			t.Errorf("crashed at %v, want %d", fs.CrashedAt(), k)
		}
	}
}

func TestEverythingIsLeftWithLuck(t *testing.T) {
	fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{At: 9, UnsyncedPercent: 100})
	if err := scenario(fs); err != nil || fs.Ops() != 8 {
		t.Fatalf("%d operations, %v", fs.Ops(), err)
	}
	if got := read(t, fs.AfterCrash(), "d/b"); got != "onetwo" {
		t.Errorf("the file holds %q", got)
	}
	if _, err := fs.Create("d/c", vfs.WriteCategoryUnspecified); !errors.Is(err, crashfs.ErrCrashed) {
		t.Errorf("a file was created after the crash: %v", err)
	}
}

func TestTornWriteLeavesAPrefix(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(60) {
		fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{At: 7, UnsyncedPercent: 100, Torn: true, Seed: seed})
		if err := scenario(fs); !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatal(err)
		}
		seen[read(t, fs.AfterCrash(), "d/a")] = true
	}
	for _, want := range []string{"one", "onet", "onetw", "onetwo"} {
		if !seen[want] {
			t.Errorf("no seed left %q", want)
		}
		delete(seen, want)
	}
	if len(seen) > 0 {
		t.Errorf("also left: %v", seen)
	}
}

func TestHookCanFailAnOperation(t *testing.T) {
	boom := errors.New("disk on fire")
	fs := crashfs.New(vfs.NewCrashableMem(), crashfs.Crash{})
	fs.OnOp(func(op crashfs.Op) error {
		if op.Name == "write" && op.Path == "d/a" {
			return boom
		}
		return nil
	})
	if err := scenario(fs); !errors.Is(err, boom) {
		t.Error(err)
	}
}
