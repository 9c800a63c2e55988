package bench

import (
	"io/fs"
	"syscall"
)

// bareMemory returns n zero bytes where a live table has its own: outside the heap, with huge pages if the kernel has them.
func bareMemory(n int) []byte {
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return make([]byte, n)
	}
	// Advice: without huge pages everything works, slower.
	_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	return b
}

// bareFree gives back what bareMemory returned.
func bareFree(b []byte) {
	// It fails for memory of the heap, which the collector takes.
	_ = syscall.Munmap(b)
}

// allocated returns what a file takes on the disk: less than its size if it has holes, more if room was set aside for it.
func allocated(i fs.FileInfo) int64 {
	if st, ok := i.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return i.Size()
}
