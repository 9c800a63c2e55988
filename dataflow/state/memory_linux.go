//go:build linux && !race

package state

import (
	"syscall"
	"unsafe"
)

// hugePage is the size from which the kernel is asked for huge pages: with small ones, look-ups in a large table spend
// more time on finding the page than on the entry.
const hugePage = 2 << 20

// mapBytes returns n zero bytes outside the heap of Go and the mapping that they are a part of, or nil when the kernel has none
// to give. The collector neither scans nor counts them. What can have huge pages begins at one: the kernel puts mappings one
// behind the other, and most of two or three MiB would have no place for a page of two. What is mapped for that and not used
// takes addresses, no memory.
func mapBytes(n int) (b, whole []byte) {
	size := n
	if n >= hugePage {
		size += hugePage
	}
	whole, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil
	}
	if n < hugePage {
		return whole, whole
	}
	from := -int(uintptr(unsafe.Pointer(unsafe.SliceData(whole)))) & (hugePage - 1)
	b = whole[from:][:n:n]
	// Advice: without huge pages everything works, slower.
	_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	return b, whole
}

// unmapBytes gives back a mapping of mapBytes. Nothing may refer to it any more.
func unmapBytes(b []byte) {
	// It fails only for memory that was not mapped by mapBytes.
	_ = syscall.Munmap(b)
}
