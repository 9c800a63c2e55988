package state

// memory is the bytes of one piece of a table: outside the heap when it is large, in the heap when it is small or the
// kernel gives none.
type memory struct {
	bytes  []byte
	mapped []byte // the mapping that bytes are a part of; nil = they are in the heap
}

// mapFrom is the size from which memory is mapped. Why not less: a mapping has pages of 4 KiB and costs a system call.
const mapFrom = 64 << 10

func newMemory(n int) memory {
	if n >= mapFrom {
		if b, whole := mapBytes(n); b != nil {
			return memory{b, whole}
		}
	}
	return memory{bytes: make([]byte, n)}
}

// free gives the bytes back. No slice of them may be used afterwards.
func (m *memory) free() {
	if m.mapped != nil {
		unmapBytes(m.mapped)
	}
	*m = memory{}
}
