package expr

import (
	"bytes"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

func evalTrim(start, end bool) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
			set := []byte{' '}
			if len(f.args) == 2 {
				set = f.args[1].text(i)
			}
			return append(dst, trimSet(a.text(i), set, start, end)...), nil
		})
	}
}

// trimSet drops the characters of set at the ends of s.
func trimSet(s, set []byte, start, end bool) []byte {
	for start && len(s) > 0 {
		_, n := utf8.DecodeRune(s)
		if !bytes.Contains(set, s[:n]) {
			break
		}
		s = s[n:]
	}
	for end && len(s) > 0 {
		_, n := utf8.DecodeLastRune(s)
		if !bytes.Contains(set, s[len(s)-n:]) {
			break
		}
		s = s[:len(s)-n]
	}
	return s
}

// charOffset returns the byte at which character n of s begins (from 0), len(s) if s is shorter.
func charOffset(s []byte, n int64) int {
	if n <= 0 {
		return 0
	}
	if n >= int64(len(s)) {
		return len(s)
	}
	at := 0
	for ; n > 0 && at < len(s); n-- {
		if s[at] < utf8.RuneSelf {
			at++
			continue
		}
		_, size := utf8.DecodeRune(s[at:])
		at += size
	}
	return at
}

func evalSubstr(f *frame) {
	a, from := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		s, start := a.text(i), from.int(i)
		if len(f.args) == 2 {
			return append(dst, s[charOffset(s, start-boolInt(start > 0)):]...), nil
		}
		n := f.args[2].int(i)
		if n < 0 {
			return dst, failf("negative substring length not allowed")
		}
		end, over := addInt64(start, n) // the number of the character behind the part
		if over {
			end = int64(len(s)) + 1
		}
		if end <= 1 {
			return dst, nil
		}
		first := max(start, 1)
		s = s[charOffset(s, first-1):]
		return append(dst, s[:charOffset(s, end-first)]...), nil
	})
}

func evalLeft(f *frame) {
	a, n := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		s, n := a.text(i), n.int(i)
		if n < 0 {
			n += int64(utf8.RuneCount(s))
		}
		return append(dst, s[:charOffset(s, n)]...), nil
	})
}

func evalRight(f *frame) {
	a, n := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		s, n := a.text(i), n.int(i)
		skip := -n
		if n >= 0 {
			skip = int64(utf8.RuneCount(s)) - n
		}
		if n == -1<<63 {
			skip = int64(len(s))
		}
		return append(dst, s[charOffset(s, skip):]...), nil
	})
}

func evalPad(left bool) func(f *frame) {
	return func(f *frame) {
		a, width := f.args[0], f.args[1]
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
			fill := []byte{' '}
			if len(f.args) == 3 {
				fill = f.args[2].text(i)
			}
			s, n, start := a.text(i), max(width.int(i), 0), len(dst)
			missing := n - int64(utf8.RuneCount(s))
			switch {
			case missing <= 0:
				return append(dst, s[:charOffset(s, n)]...), nil
			case len(fill) == 0:
				return append(dst, s...), nil
			case missing > maxText:
				return dst, errTooLong()
			}
			if !left {
				dst = append(dst, s...)
			}
			runes := int64(utf8.RuneCount(fill))
			for ; missing >= runes; missing -= runes {
				dst = append(dst, fill...)
				if len(dst)-start > maxText {
					return dst, errTooLong()
				}
			}
			dst = append(dst, fill[:charOffset(fill, missing)]...)
			if left {
				dst = append(dst, s...)
			}
			return dst, nil
		})
	}
}

// errTooLong is the error of a result that is known to be too long before it is made.
func errTooLong() *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonTooLarge, "requested length too large").
		WithHint("a text has at most %d bytes", maxText)
}

func evalRepeat(f *frame) {
	a, n := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		s, n := a.text(i), n.int(i)
		if len(s) == 0 || n <= 0 {
			return dst, nil
		}
		if n > int64(maxText/len(s)) {
			return dst, errTooLong()
		}
		for ; n > 0; n-- {
			dst = append(dst, s...)
		}
		return dst, nil
	})
}
