package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// MkdirDurable makes a directory with its parents and makes their names durable: files in a directory whose own name is
// lost with the power are lost too, however well they were synced. The name is synced also when the directory is there,
// since a start that was killed may have made it. What Weir keeps is for its owner alone, and so are the directories.
func MkdirDurable(f FS, dir string) error {
	made := []string{dir}
	for d := f.PathDir(dir); d != f.PathDir(d); d = f.PathDir(d) {
		if _, err := f.Stat(d); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make directory %s: %w", dir, err)
		}
		made = append(made, d)
	}
	_, statErr := f.Stat(dir)
	if err := f.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}
	for _, d := range made {
		err := SyncDir(f, f.PathDir(d))
		if err != nil && (statErr != nil || !errors.Is(err, fs.ErrPermission)) { // who made it where we may not look answers for it
			return err
		}
	}
	return nil
}

// SyncDir makes the names in dir durable: what was created, renamed or removed in it.
func SyncDir(f FS, dir string) error {
	d, err := f.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// WriteFile writes a file that is as it was or as data says after a crash: data is written under another name, synced
// and renamed, and the directory is synced.
func WriteFile(f FS, path string, data []byte) error {
	tmp := path + ".tmp"
	file, err := f.Create(tmp, WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = file.Write(slices.Clone(data)) // a File may change what it is given
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return SyncDir(f, f.PathDir(path))
}

// ReadFile returns what a file holds. One that is not there is fs.ErrNotExist.
func ReadFile(f FS, path string) ([]byte, error) {
	file, err := f.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(file)
	return b, errors.Join(err, file.Close())
}
