package shard

import (
	"encoding/binary"
	"fmt"
)

// Entries and snapshots share one way of writing: uvarints, zigzag varints for times, length-prefixed strings.

func appendInt(dst []byte, v int64) []byte { return binary.AppendVarint(dst, v) }

func appendUint[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int](dst []byte, v T) []byte {
	return binary.AppendUvarint(dst, uint64(v))
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// reader takes values off b. The first thing that does not fit sets err, and everything after it reads as zero, so that
// a decoder checks once at its end.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", errBadEntry, what)
	}
	r.b = nil
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("short")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("bad varint")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// atMost reads a uvarint that may not be larger than limit.
func (r *reader) atMost(limit uint64, what string) uint64 {
	v := r.uint()
	if v > limit {
		r.fail(what + " out of range")
		return 0
	}
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("bad varint")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) fixed64() uint64 {
	if len(r.b) < 8 {
		r.fail("short")
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("short")
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) string() string { return string(r.bytes(r.uint())) }

// count reads how many items follow, of at least size bytes each: a damaged count cannot ask for more memory than there
// are bytes.
func (r *reader) count(size int) int {
	n := r.uint()
	if n > uint64(len(r.b)/size) {
		r.fail("bad count")
		return 0
	}
	return int(n)
}

// rest takes everything that is left.
func (r *reader) rest() []byte {
	v := r.b
	r.b = nil
	return v
}

// done returns the first error, or one when bytes are left.
func (r *reader) done() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("bytes left over")
	}
	return r.err
}
