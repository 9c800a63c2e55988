package vfs

// WithSync returns f with around in the place of each sync of a file or directory: around does the sync, or fails without it. What
// else f does is as it was.
func WithSync(f FS, around func(sync func() error) error) FS { return &syncFS{FS: f, around: around} }

// syncFS is a file system whose syncs something is done around.
type syncFS struct {
	FS
	around func(sync func() error) error
}

var _ FS = (*syncFS)(nil)

// Create implements FS.
func (s *syncFS) Create(name string, c DiskWriteCategory) (File, error) {
	return s.wrap(s.FS.Create(name, c))
}

// Open implements FS. Pebble syncs a file that it has opened for reading, when it is about to link it.
func (s *syncFS) Open(name string, opts ...OpenOption) (File, error) {
	return s.wrap(s.FS.Open(name, opts...))
}

// OpenReadWrite implements FS.
func (s *syncFS) OpenReadWrite(name string, c DiskWriteCategory, opts ...OpenOption) (File, error) {
	return s.wrap(s.FS.OpenReadWrite(name, c, opts...))
}

// ReuseForWrite implements FS.
func (s *syncFS) ReuseForWrite(oldname, newname string, c DiskWriteCategory) (File, error) {
	return s.wrap(s.FS.ReuseForWrite(oldname, newname, c))
}

// OpenDir implements FS.
func (s *syncFS) OpenDir(name string) (File, error) { return s.wrap(s.FS.OpenDir(name)) }

// Unwrap implements FS.
func (s *syncFS) Unwrap() FS { return s.FS }

func (s *syncFS) wrap(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return &syncFile{File: f, around: s.around}, nil
}

// syncFile is a file of a syncFS.
type syncFile struct {
	File
	around func(sync func() error) error
}

// Sync implements File.
func (s *syncFile) Sync() error { return s.around(s.File.Sync) }

// SyncData implements File.
func (s *syncFile) SyncData() error { return s.around(s.File.SyncData) }

// SyncTo implements File.
func (s *syncFile) SyncTo(length int64) (full bool, err error) {
	err = s.around(func() (err error) {
		full, err = s.File.SyncTo(length)
		return err
	})
	return full, err
}
