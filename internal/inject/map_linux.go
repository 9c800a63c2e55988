package inject

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Open maps the page at path, which a Control has made. It stays mapped until the process ends: whoever comes late may still look.
func Open(path string) (_ *Faults, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open a page of faults: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }() // the mapping outlives it
	if info, err := f.Stat(); err != nil || info.Size() < pageBytes {
		return nil, fmt.Errorf("open a page of faults: %s is shorter than %d bytes (%w)", path, pageBytes, err)
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, pageBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a page of faults: %w", err)
	}
	return &Faults{page: unsafe.Slice((*atomic.Int64)(unsafe.Pointer(&mem[0])), int(cells))}, nil
}
