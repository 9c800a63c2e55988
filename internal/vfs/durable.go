package vfs

import (
	"errors"
	"fmt"
	"os"
)

// MkdirDurable creates dir and its parents where they are missing, and makes the new names durable.
func MkdirDurable(fs FS, dir string) error {
	var missing []string
	for d := dir; ; d = fs.PathDir(d) {
		if _, err := fs.Stat(d); err == nil || d == fs.PathDir(d) {
			break
		} else if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("create directory %s: %w", dir, err)
		}
		missing = append(missing, d)
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create directory %s: %w", dir, err)
	}
	for _, d := range missing {
		if err := SyncDir(fs, fs.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

// SyncDir makes the names in dir durable: what was created, renamed or removed in it.
func SyncDir(fs FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
