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
	d, err := f.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
