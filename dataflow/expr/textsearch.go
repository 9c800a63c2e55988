package expr

import (
	"bytes"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

func evalReplace(f *frame) {
	a, from, to := f.args[0], f.args[1], f.args[2]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		s, old, repl := a.text(i), from.text(i), to.text(i)
		if len(old) == 0 {
			return append(dst, s...), nil
		}
		start := len(dst)
		for {
			at := bytes.Index(s, old)
			if at < 0 {
				return append(dst, s...), nil
			}
			dst = append(append(dst, s[:at]...), repl...)
			if len(dst)-start > maxText {
				return dst, errTooLong()
			}
			s = s[at+len(old):]
		}
	})
}

func evalTranslate(f *frame) {
	a, from, to := f.args[0], f.args[1], f.args[2]
	var table map[rune]rune // -1 removes
	var tableFrom, tableTo []byte
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		x, y := from.text(i), to.text(i)
		if table == nil || !bytes.Equal(x, tableFrom) || !bytes.Equal(y, tableTo) {
			table, tableFrom, tableTo = make(map[rune]rune), x, y
			replacements := []rune(string(y))
			for k, r := range []rune(string(x)) {
				if _, ok := table[r]; ok {
					continue
				}
				table[r] = -1
				if k < len(replacements) {
					table[r] = replacements[k]
				}
			}
		}
		for s := a.text(i); len(s) > 0; {
			r, n := utf8.DecodeRune(s)
			switch t, ok := table[r]; {
			case !ok:
				dst = append(dst, s[:n]...)
			case t >= 0:
				dst = utf8.AppendRune(dst, t)
			}
			s = s[n:]
		}
		return dst, nil
	})
}

// evalPosition finds argument `part` in argument `whole`.
func evalPosition(whole, part int) func(f *frame) {
	return func(f *frame) {
		a, b := f.args[whole], f.args[part]
		f.each(func(i int) *dataflow.Error {
			s := a.text(i)
			if at := bytes.Index(s, b.text(i)); at >= 0 {
				f.out.Ints[i] = int64(utf8.RuneCount(s[:at])) + 1
			}
			return nil
		})
	}
}

func evalSplitPart(f *frame) {
	a, delim, n := f.args[0], f.args[1], f.args[2]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		s, d, n := a.text(i), delim.text(i), n.int(i)
		if n == 0 {
			return dst, failf("field position must not be zero")
		}
		if len(d) == 0 {
			if n == 1 || n == -1 {
				dst = append(dst, s...)
			}
			return dst, nil
		}
		if n < 0 {
			// From the end: the same part counted from the start. Delimiters do not overlap, read from the start.
			n += int64(bytes.Count(s, d)) + 2
			if n <= 0 {
				return dst, nil
			}
		}
		for ; n > 1; n-- {
			at := bytes.Index(s, d)
			if at < 0 {
				return dst, nil
			}
			s = s[at+len(d):]
		}
		if at := bytes.Index(s, d); at >= 0 {
			s = s[:at]
		}
		return append(dst, s...), nil
	})
}
