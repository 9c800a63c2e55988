package phase

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Open maps the record at path, made when absent, and begins it anew: a record is about one process. The page stays
// mapped until the process ends, so that whoever comes late may still record.
func Open(path string) (_ *Recorder, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open phase record: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }() // the mapping outlives it
	if err := f.Truncate(fileSize); err != nil {
		return nil, fmt.Errorf("open phase record: %w", err)
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, fileSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map phase record: %w", err)
	}
	clear(mem)
	binary.LittleEndian.PutUint64(mem, magic)
	// The counters are native integers; Weir's Linux platforms are little-endian, as the file is.
	counters := unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&mem[8])), 2*int(count))
	return &Recorder{counters: counters}, nil
}
