package vfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/weirdb/weir/internal/vfs"
)

// crash returns what is left of a file system when all that was not synced is lost.
func crash(m *vfs.MemFS) *vfs.MemFS { return m.CrashClone(vfs.CrashCloneCfg{}) }

func TestADirectoryAndItsParentsSurviveACrash(t *testing.T) {
	m := vfs.NewCrashableMem()
	if err := vfs.MkdirDurable(m, "/a/b/c"); err != nil {
		t.Fatal(err)
	}
	if _, err := crash(m).Stat("/a/b/c"); err != nil {
		t.Fatal(err)
	}
}

func TestADirectoryThatAKilledStartMadeIsMadeDurable(t *testing.T) {
	m := vfs.NewCrashableMem()
	if err := m.MkdirAll("/a", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := vfs.MkdirDurable(m, "/a"); err != nil {
		t.Fatal(err)
	}
	if _, err := crash(m).Stat("/a"); err != nil {
		t.Fatal(err)
	}
}

func TestAWrittenFileSurvivesACrash(t *testing.T) {
	m := vfs.NewCrashableMem()
	if err := vfs.MkdirDurable(m, "/d"); err != nil {
		t.Fatal(err)
	}
	if _, err := vfs.ReadFile(m, "/d/f"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a file that is not there: %v", err)
	}
	for _, text := range []string{"one", "two"} {
		if err := vfs.WriteFile(m, "/d/f", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := vfs.ReadFile(crash(m), "/d/f"); err != nil || string(b) != text {
			t.Fatalf("got %q, %v, want %q", b, err, text)
		}
	}
}

// Pebble links files while a test takes the disk away.
func TestACrashCloneWaitsForNoLink(t *testing.T) {
	m := vfs.NewCrashableMem()
	f, err := m.Create("/a", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	linked := make(chan error, 1)
	go func() {
		for i := range 20_000 {
			if err := m.Link("/a", fmt.Sprintf("/%d", i%10)); err != nil && !errors.Is(err, fs.ErrExist) {
				linked <- err
				return
			}
			if err := m.Remove(fmt.Sprintf("/%d", i%10)); err != nil {
				linked <- err
				return
			}
		}
		linked <- nil
	}()
	for {
		select {
		case err := <-linked:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
			crash(m)
		}
	}
}
