package vfs_test

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/weirdb/weir/internal/vfs"
)

func TestFilesOnDiskCanBeReadByTheirOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	makers := map[string]func(path string) (io.Closer, error){
		"create":          func(p string) (io.Closer, error) { return vfs.Default.Create(p, vfs.WriteCategoryUnspecified) },
		"open-read-write": func(p string) (io.Closer, error) { return vfs.Default.OpenReadWrite(p, vfs.WriteCategoryUnspecified) },
		"lock":            func(p string) (io.Closer, error) { return vfs.Default.Lock(p) },
		"reuse": func(p string) (io.Closer, error) {
			f, err := vfs.Default.Create(old, vfs.WriteCategoryUnspecified)
			if err != nil {
				return nil, err
			}
			if err := f.Close(); err != nil {
				return nil, err
			}
			return vfs.Default.ReuseForWrite(old, p, vfs.WriteCategoryUnspecified)
		},
	}
	for name, open := range makers {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			f, err := open(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			info, err := vfs.Default.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != 0o600 {
				t.Fatalf("the file has the permissions %o", got)
			}
		})
	}
}
