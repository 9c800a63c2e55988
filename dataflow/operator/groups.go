package operator

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

// groups numbers the distinct keys of a batch in the order in which they appear first. Its memory is used for batch after
// batch.
//
// It begins with all rows in one group, and lets each key column divide the groups that the columns before it have made. So
// rows are told apart by their values, and a key is encoded once per batch, however often it comes.
type groups struct {
	of    []int32 // by row: the number of its group
	first []int32 // by group: its first row

	table  []int32 // open addressing: the number of a group + 1; 0 = free. A power of two, at most half full
	shift  int     // 64 less the bits of a place in the table
	tokens []token // by group

	// Scratch of encoded: row i of a column is keys[offs[i]:offs[i+1]].
	rows []int32
	offs []uint32
	keys []byte
}

// token stands in the table for the value of a column and the group of the columns before. Two texts of at most tokenBytes bytes
// are equal if their tokens are; of longer ones it has the hash.
type token struct {
	a, b   uint64
	size   int32 // of a text, in bytes; nullSize = NULL
	before int32
}

const (
	// tokenBytes is the longest text that a token has in full.
	tokenBytes = 16
	nullSize   = -1
	// minTable is the smallest length of a table.
	minTable = 64
)

// find numbers the rows of b by their keys, which are its first nkeys columns.
func (g *groups) find(b *batch.Batch, nkeys int) {
	g.of = resized(g.of, b.N)
	clear(g.of)
	if nkeys == 0 {
		if g.first = g.first[:0]; b.N > 0 {
			g.first = append(g.first, 0)
		}
		return
	}
	for _, v := range b.Cols[:nkeys] {
		g.begin()
		switch v.Type {
		case dataflow.TypeBigInt, dataflow.TypeTimestamp, dataflow.TypeDate, dataflow.TypeBool:
			g.ints(v)
		case dataflow.TypeText, dataflow.TypeBytea:
			g.texts(v.Nulls, v.Data, v.Offs)
		default:
			g.encoded(v)
		}
	}
}

// begin makes the table ready for another column. It has the size that was needed last: a small one stays in the cache.
func (g *groups) begin() {
	size := minTable
	for size < 2*len(g.first) {
		size *= 2
	}
	g.first, g.tokens = g.first[:0], g.tokens[:0]
	g.resize(size)
}

// resize makes the table one of so many places and puts the groups in it.
func (g *groups) resize(size int) {
	g.table = resized(g.table, size)
	clear(g.table)
	g.shift = 64 - bits.TrailingZeros(uint(size))
	for i := range g.tokens {
		at := g.tokens[i].place(g.shift)
		for g.table[at] != 0 {
			at = (at + 1) & (size - 1)
		}
		g.table[at] = int32(i + 1)
	}
}

// add makes row the first of a new group, whose place in the table is free, and returns the group's number + 1.
func (g *groups) add(t token, row, place int) int32 {
	g.tokens, g.first = append(g.tokens, t), append(g.first, int32(row))
	n := int32(len(g.first))
	g.table[place] = n
	if 2*len(g.first) > len(g.table) {
		g.resize(2 * len(g.table))
	}
	return n
}

// ints divides the groups by a column of numbers.
func (g *groups) ints(v *batch.Vector) {
	values := v.Ints
	for row, before := range g.of {
		t := token{a: uint64(values[row]), before: before}
		if v.IsNull(row) {
			t = token{size: nullSize, before: before}
		}
		at := t.place(g.shift)
		n := g.table[at]
		for n != 0 && g.tokens[n-1] != t {
			at = (at + 1) & (len(g.table) - 1)
			n = g.table[at]
		}
		if n == 0 {
			n = g.add(t, row, at)
		}
		g.of[row] = n - 1
	}
}

// texts divides the groups by a column of texts: that of row i is data[offs[i]:offs[i+1]].
func (g *groups) texts(nulls batch.Bitmap, data []byte, offs []uint32) {
	for row, before := range g.of {
		text := data[offs[row]:offs[row+1]]
		t := textToken(text)
		if t.before = before; nulls.Get(row) {
			t = token{size: nullSize, before: before}
		}
		at := t.place(g.shift)
		n := g.table[at]
		for n != 0 && (g.tokens[n-1] != t || t.size > tokenBytes && !bytes.Equal(text, textOf(data, offs, g.first[n-1]))) {
			at = (at + 1) & (len(g.table) - 1)
			n = g.table[at]
		}
		if n == 0 {
			n = g.add(t, row, at)
		}
		g.of[row] = n - 1
	}
}

func textOf(data []byte, offs []uint32, row int32) []byte { return data[offs[row]:offs[row+1]] }

// encoded divides the groups by a column of a type that has several forms of one value: by its parts of the keys.
func (g *groups) encoded(v *batch.Vector) {
	n := len(g.of)
	for i := len(g.rows); i < n; i++ {
		g.rows = append(g.rows, int32(i))
	}
	g.offs = resized(g.offs, n+1)
	g.offs[0] = 0
	g.keys = key.AppendKeys(g.keys[:0], g.offs[1:], []*batch.Vector{v}, g.rows[:n])
	g.texts(nil, g.keys, g.offs)
}

// textToken returns the token of a text. Up to tokenBytes bytes, its two words cover the text and may overlap.
func textToken(text []byte) token {
	t := token{size: int32(len(text))}
	switch n := len(text); {
	case n > tokenBytes:
		t.a = dataflow.HashKey(text)
	case n >= 8:
		t.a, t.b = binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[n-8:])
	case n >= 4:
		t.a, t.b = uint64(binary.LittleEndian.Uint32(text)), uint64(binary.LittleEndian.Uint32(text[n-4:]))
	case n > 0:
		t.a = uint64(text[0]) | uint64(text[n/2])<<8 | uint64(text[n-1])<<16
	}
	return t
}

// place returns where to look for the token first: the high bits of a product that all bits of the token have a part in, also
// where one factor of the product before it is 0.
func (t *token) place(shift int) int {
	const odd1, odd2 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
	rest := t.b ^ uint64(uint32(t.size)) ^ uint64(t.before)<<32
	hi, lo := bits.Mul64(t.a^odd1, rest^odd2)
	return int((hi ^ lo ^ t.a ^ rest) * odd1 >> shift)
}

// resized returns a slice of n elements, whatever they hold, in the memory of s if there is room.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
