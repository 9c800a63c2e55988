package state

import (
	"encoding/binary"
	"math/bits"
)

// slab holds byte strings of any length for one table: long keys, and values that differ in length. Cells come in classes
// of sizes; a freed cell is used again for its class.
//
// A ref names a cell: the number of its chunk << 32 | its offset there. References stay valid when the slab grows; slices
// that bytes has returned do too, until their cell is freed or the slab is closed.
type slab struct {
	chunks []memory
	single []bool // per chunk: it has one cell, larger than maxCell
	// current is the chunk that cells are cut from, used how much of it has been given out, and room how much is left: 0 before
	// there is one.
	current, used, room int
	// free is per class the first free cell + 1, which holds the next one's ref + 1 in its first bytes; 0 = none.
	free  [slabClasses]uint64
	spare []int // numbers of chunks that were given back
	cells int   // that are in use
	live  int64 // bytes of these
	size  int64 // bytes of all chunks
	// Of a slab that is being packed anew: which chunks are to be emptied, their bytes, and those of the cells in use there.
	aged               []bool
	agedSize, agedLive int64
}

const (
	slabClasses = 4 * 16
	// maxCell is the largest size that shares a chunk with others; a larger string has a chunk of its own.
	maxCell = 64 << 10
	// The first chunk is small, so that a table of few keys is; the later ones are a quarter of what is there already.
	minChunk, maxChunk = 4 << 10, 4 << 20
)

// classOf returns the class for n bytes: from 16 on four classes to each doubling, so that at most a fifth is wasted.
func classOf(n int) int {
	if n <= 16 {
		return 0
	}
	log := bits.Len(uint(n-1)) - 1 // 2^log < n ≤ 2^(log+1)
	step := 1 << (log - 2)
	return 4*(log-4) + (n-1-1<<log)/step + 1
}

func classSize(class int) int {
	if class == 0 {
		return 16
	}
	log := (class-1)/4 + 4
	return 1<<log + ((class-1)%4+1)<<(log-2)
}

// capacityFor returns the capacity of a cell for n bytes, which shares a chunk when it is of a class.
func capacityFor(n int) (class, capacity int) {
	if n > maxCell {
		return -1, n + n/4 // what has grown so large is likely to grow again
	}
	class = classOf(n)
	return class, classSize(class)
}

// alloc returns a cell for n bytes and how many it can hold. Its bytes are undefined.
func (s *slab) alloc(n int) (ref uint64, capacity int) {
	class, size := capacityFor(n)
	s.cells++
	s.live += int64(size)
	if class < 0 {
		return uint64(s.addChunk(size, true)) << 32, size
	}
	if first := s.free[class]; first != 0 {
		ref = first - 1
		s.free[class] = binary.LittleEndian.Uint64(s.bytes(ref, 8))
		return ref, size
	}
	if size > s.room {
		s.room = max(size, minChunk, min(int(s.size/4), maxChunk))
		s.current, s.used = s.addChunk(s.room, false), 0
	}
	ref = uint64(s.current)<<32 | uint64(s.used)
	s.used, s.room = s.used+size, s.room-size
	return ref, size
}

// addChunk makes a chunk of n bytes; single says that it is for one cell.
func (s *slab) addChunk(n int, single bool) (number int) {
	s.size += int64(n)
	if last := len(s.spare) - 1; last >= 0 {
		number, s.spare = s.spare[last], s.spare[:last]
		s.chunks[number], s.single[number] = newMemory(n), single
		if number < len(s.aged) {
			s.aged[number] = false
		}
		return number
	}
	s.chunks, s.single = append(s.chunks, newMemory(n)), append(s.single, single)
	return len(s.chunks) - 1
}

// release frees the cell of n bytes' capacity, as alloc returned it.
func (s *slab) release(ref uint64, capacity int) {
	s.live -= int64(capacity)
	if s.cells--; s.cells == 0 {
		s.close()
		return
	}
	if s.isAged(ref) {
		s.agedLive -= int64(capacity)
		return // the chunk goes as a whole
	}
	if capacity > maxCell {
		number := int(ref >> 32)
		s.size -= int64(len(s.chunks[number].bytes))
		s.chunks[number].free()
		s.spare = append(s.spare, number)
		return
	}
	class := classOf(capacity)
	binary.LittleEndian.PutUint64(s.bytes(ref, 8), s.free[class])
	s.free[class] = ref + 1
}

// bytes returns the first n bytes of a cell.
func (s *slab) bytes(ref uint64, n int) []byte {
	return s.chunks[ref>>32].bytes[uint32(ref):][:n:n]
}

// sparse reports whether most of the slab is free cells, which no other class can use.
func (s *slab) sparse() bool { return !s.aging() && s.size > 4*minChunk && 2*s.live < s.size }

// age begins to pack the slab anew: no cell is made in the chunks that it has now, except that those with one cell stay as they
// are. Who uses the slab moves the cells whose chunk isAged, and calls dropAged then.
func (s *slab) age() {
	s.aged = make([]bool, len(s.chunks))
	s.agedSize, s.agedLive = 0, s.live
	for i, c := range s.chunks {
		switch {
		case len(c.bytes) == 0: // given back
		case s.single[i]:
			s.agedLive -= int64(len(c.bytes))
		default:
			s.aged[i] = true
			s.agedSize += int64(len(c.bytes))
		}
	}
	s.free, s.room = [slabClasses]uint64{}, 0
}

func (s *slab) aging() bool { return s.aged != nil }

func (s *slab) isAged(ref uint64) bool {
	chunk := int(ref >> 32)
	return chunk < len(s.aged) && s.aged[chunk]
}

// dropAged gives the aged chunks back.
func (s *slab) dropAged() {
	for i, aged := range s.aged {
		if aged {
			s.chunks[i].free()
			s.spare = append(s.spare, i)
		}
	}
	s.size -= s.agedSize
	s.aged, s.agedSize, s.agedLive = nil, 0, 0
}

// counted returns the memory that a budget is to know of: while the slab is packed anew, what is free in the aged chunks is about
// to go, and nobody is to give up entries for it.
func (s *slab) counted() int64 { return s.size - s.agedSize + s.agedLive }

// close gives everything back.
func (s *slab) close() {
	for i := range s.chunks {
		s.chunks[i].free()
	}
	*s = slab{}
}
