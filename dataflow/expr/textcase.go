package expr

import (
	"encoding/binary"
	"unicode"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

// isASCII reports whether s has no byte above 0x7f, eight bytes at a time.
func isASCII(s []byte) bool {
	const high = 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		if binary.LittleEndian.Uint64(s)&high != 0 {
			return false
		}
	}
	for _, c := range s {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func evalLower(f *frame) { evalCase(f, 'A', 'Z', unicode.ToLower) }

func evalUpper(f *frame) { evalCase(f, 'a', 'z', unicode.ToUpper) }

// evalCase changes the case of the letters from..to and, by fold, of what is not ASCII. A column that is all ASCII is
// done in one sweep over its bytes, but only if all its rows are selected: what the result takes must not depend on rows
// that are not wanted, nor on whether the neighbours are ASCII (P10).
func evalCase(f *frame, from, to byte, fold func(rune) rune) {
	a := f.args[0]
	if f.sel == nil && !a.constant() {
		if data, offs := a.span(f.n); isASCII(data) {
			f.out.Offs = offs
			f.out.Data = swapCase(make([]byte, 0, len(data)), data, from, to)
			return
		}
	}
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		return appendCase(dst, a.text(i), from, to, fold), nil
	})
}

// swapCase appends s, which is ASCII, with the case bit of the letters from..to flipped, eight bytes at a time.
func swapCase(dst, s []byte, from, to byte) []byte {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	n := len(dst)
	dst = append(dst, s...)
	out := dst[n:]
	for ; len(out) >= 8; out = out[8:] {
		w := binary.LittleEndian.Uint64(out)
		// The high bit of each byte says whether it is at least from, or above to: no sum carries over.
		atLeast := w + uint64(0x80-from)*ones
		above := w + uint64(0x7f-to)*ones
		binary.LittleEndian.PutUint64(out, w^(atLeast^above)&high>>2)
	}
	for i, c := range out {
		if c >= from && c <= to {
			out[i] = c ^ 0x20
		}
	}
	return dst
}

func appendCase(dst, s []byte, from, to byte, fold func(rune) rune) []byte {
	if isASCII(s) {
		return swapCase(dst, s, from, to)
	}
	for len(s) > 0 {
		if c := s[0]; c < utf8.RuneSelf {
			if c-from <= to-from {
				c ^= 0x20
			}
			dst = append(dst, c)
			s = s[1:]
			continue
		}
		r, n := utf8.DecodeRune(s)
		dst = utf8.AppendRune(dst, fold(r))
		s = s[n:]
	}
	return dst
}

func isAlnum(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

func appendInitcap(dst, s []byte) []byte {
	inWord := false
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		if inWord {
			dst = utf8.AppendRune(dst, unicode.ToLower(r))
		} else {
			dst = utf8.AppendRune(dst, unicode.ToUpper(r))
		}
		inWord = isAlnum(r)
		s = s[n:]
	}
	return dst
}
