package inject_test

import (
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/weirdb/weir/internal/inject"
	"github.com/weirdb/weir/internal/vfs"
)

func TestAProcessSeesAtOnceWhatIsWrong(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("pages of faults are there on Linux only")
	}
	path := filepath.Join(t.TempDir(), "faults")
	c, err := inject.NewControl(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := inject.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Until(f.Now()).Abs(); d > time.Minute {
		t.Errorf("the clock is wrong by %s, and should be right", d)
	}
	if err := c.SetClock(-3 * time.Hour); err != nil {
		t.Fatal(err)
	}
	if d := time.Until(f.Now()); d > -2*time.Hour {
		t.Errorf("the clock is wrong by %s, and should be three hours behind", d)
	}

	m := vfs.NewCrashableMem()
	fs := vfs.WithSync(m, f.Sync)
	write := func(name string) error { return vfs.WriteFile(fs, name, []byte("text")) }
	if err := write("/before"); err != nil {
		t.Fatal(err)
	}
	if err := c.FailSyncs(true); err != nil {
		t.Fatal(err)
	}
	if err := write("/during"); !errors.Is(err, inject.ErrSync) {
		t.Errorf("a write whose sync is to fail: %v", err)
	}
	if n, err := c.FailedSyncs(); n != 1 || err != nil {
		t.Errorf("%d syncs have failed, %v; want 1", n, err)
	}
	if err := c.FailSyncs(false); err != nil {
		t.Fatal(err)
	}
	if err := write("/after"); err != nil {
		t.Fatal(err)
	}
	// What failed is not on the disk.
	after := m.CrashClone(vfs.CrashCloneCfg{})
	for name, want := range map[string]bool{"/before": true, "/during": false, "/after": true} {
		if _, err := after.Stat(name); (err == nil) != want {
			t.Errorf("%s after a crash: %v", name, err)
		}
	}
}

func TestAPageThatIsNotThereIsAnError(t *testing.T) {
	if _, err := inject.Open(filepath.Join(t.TempDir(), "faults")); err == nil {
		t.Fatal("it was opened")
	}
}
