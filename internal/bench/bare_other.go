//go:build !linux

package bench

import "io/fs"

func bareMemory(n int) []byte { return make([]byte, n) }

func bareFree([]byte) {}

func allocated(i fs.FileInfo) int64 { return i.Size() }
