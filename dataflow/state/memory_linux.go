//go:build linux && !race

package state

import "syscall"

// hugePage is the size from which the kernel is asked for huge pages: with small ones, look-ups in a large table spend
// more time on finding the page than on the entry.
const hugePage = 2 << 20

// mapBytes returns n zero bytes outside the heap of Go, or nil when the kernel has none to give. The collector neither
// scans nor counts them.
func mapBytes(n int) []byte {
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	if n >= hugePage {
		// Advice: without huge pages everything works, slower.
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	}
	return b
}

// unmapBytes gives back what mapBytes returned. Nothing may refer to it any more.
func unmapBytes(b []byte) {
	// It fails only for memory that was not mapped by mapBytes.
	_ = syscall.Munmap(b)
}
