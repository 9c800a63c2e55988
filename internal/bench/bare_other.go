//go:build !linux

package bench

func bareMemory(n int) []byte { return make([]byte, n) }

func bareFree([]byte) {}
