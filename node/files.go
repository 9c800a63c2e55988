package node

import (
	"errors"
	"io"
	"io/fs"

	"github.com/weirdb/weir/internal/vfs"
)

var errNotExist = fs.ErrNotExist

func readFile(f vfs.FS, path string) ([]byte, error) {
	file, err := f.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(file)
	return b, errors.Join(err, file.Close())
}

// writeFile writes a file that is either whole or absent after a crash: it is written under another name, synced, and
// renamed, and the directory is synced.
func writeFile(f vfs.FS, dir, path string, data []byte) error {
	tmp := path + ".tmp"
	file, err := f.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := f.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(f, dir)
}

// makeDir makes a directory with its parents and makes their names durable: files in a directory whose own name is lost
// with the power are lost too, however well they were synced. The name is synced also when the directory is there, since
// a start that was killed may have made it.
func makeDir(f vfs.FS, dir string) error {
	made := []string{dir}
	for d := f.PathDir(dir); d != f.PathDir(d); d = f.PathDir(d) {
		if _, err := f.Stat(d); err == nil {
			break
		}
		made = append(made, d)
	}
	_, statErr := f.Stat(dir)
	if err := f.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, d := range made {
		err := syncDir(f, f.PathDir(d))
		if err != nil && (statErr != nil || !errors.Is(err, fs.ErrPermission)) { // who made it where we may not look answers for it
			return err
		}
	}
	return nil
}

func syncDir(f vfs.FS, dir string) error {
	d, err := f.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
