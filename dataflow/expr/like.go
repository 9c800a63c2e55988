package expr

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

func likeFunctions() []function {
	text2, text3 := []dataflow.Type{tText, tText}, []dataflow.Type{tText, tText, tText}
	entry := func(name string, args []dataflow.Type, fold, negate bool, doc, example string) function {
		return function{name: name, args: args, result: tBool, check: checkLike(fold), eval: evalLike(fold, negate), doc: doc, example: example}
	}
	return []function{
		entry("like", text2, false, false, "Whether the text matches a pattern, in which _ is any character and % any number of them. \\ before them, or the character given by ESCAPE, takes their meaning away.", "'weirdb' LIKE 'w_ir%'"),
		entry("like", text3, false, false, "", ""),
		entry("not like", text2, false, true, "The opposite of LIKE.", "'weirdb' NOT LIKE '%x%'"),
		entry("not like", text3, false, true, "", ""),
		entry("ilike", text2, true, false, "LIKE regardless of case.", "'WeirDB' ILIKE 'weir%'"),
		entry("ilike", text3, true, false, "", ""),
		entry("not ilike", text2, true, true, "The opposite of ILIKE.", "'WeirDB' NOT ILIKE 'weir%'"),
		entry("not ilike", text3, true, true, "", ""),
	}
}

// likePattern is a LIKE pattern cut at its % signs.
type likePattern struct {
	// parts are what stands between the % signs: literal bytes with single characters for _.
	parts [][]likeAtom
	// literal[k] is parts[k] as bytes if it has no _.
	literal [][]byte
	// bad: the pattern ends in the escape character. A row fails when matching gets there with text left.
	bad bool
}

// likeAtom is a character, or any character.
type likeAtom struct {
	char rune
	any  bool
}

// noEscape means that no character escapes: ESCAPE with an empty text.
const noEscape = rune(-1)

// escapeOf reads the ESCAPE argument.
func escapeOf(s []byte) (rune, *dataflow.Error) {
	if len(s) == 0 {
		return noEscape, nil
	}
	r, n := utf8.DecodeRune(s)
	if n < len(s) {
		return 0, failf("invalid escape string").WithHint("escape string must be empty or one character")
	}
	return r, nil
}

func parseLike(p []byte, escape rune, fold bool) *likePattern {
	lp := &likePattern{parts: [][]likeAtom{nil}}
	last := 0
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		p = p[n:]
		atom := likeAtom{char: r}
		switch {
		case r == escape:
			if len(p) == 0 {
				lp.bad = true
				continue
			}
			r, n = utf8.DecodeRune(p)
			p = p[n:]
			atom.char = r
		case r == '%':
			lp.parts = append(lp.parts, nil)
			last++
			continue
		case r == '_':
			atom = likeAtom{any: true}
		}
		if fold {
			atom.char = unicode.ToLower(atom.char)
		}
		lp.parts[last] = append(lp.parts[last], atom)
	}
	lp.literal = make([][]byte, len(lp.parts))
	for k, part := range lp.parts {
		text := []byte{}
		for _, a := range part {
			if a.any {
				text = nil
				break
			}
			text = utf8.AppendRune(text, a.char)
		}
		lp.literal[k] = text
	}
	return lp
}

// matchAt matches a part at the start of s and returns how many bytes it took, -1 if it does not match.
func (lp *likePattern) matchAt(k int, s []byte) int {
	if lit := lp.literal[k]; lit != nil {
		if bytes.HasPrefix(s, lit) {
			return len(lit)
		}
		return -1
	}
	at := 0
	for _, a := range lp.parts[k] {
		if at == len(s) {
			return -1
		}
		r, n := utf8.DecodeRune(s[at:])
		if !a.any && r != a.char {
			return -1
		}
		at += n
	}
	return at
}

// find returns the end of the first match of part k in s, -1 if there is none.
func (lp *likePattern) find(k int, s []byte) int {
	if lit := lp.literal[k]; lit != nil {
		if at := bytes.Index(s, lit); at >= 0 {
			return at + len(lit)
		}
		return -1
	}
	for at := 0; ; {
		if n := lp.matchAt(k, s[at:]); n >= 0 {
			return at + n
		}
		if at == len(s) {
			return -1
		}
		_, n := utf8.DecodeRune(s[at:])
		at += n
	}
}

// matchEnd reports whether part k matches the end of s.
func (lp *likePattern) matchEnd(k int, s []byte) bool {
	if lit := lp.literal[k]; lit != nil {
		return bytes.HasSuffix(s, lit)
	}
	at := len(s)
	for range lp.parts[k] {
		if at == 0 {
			return false
		}
		_, n := utf8.DecodeLastRune(s[:at])
		at -= n
	}
	return lp.matchAt(k, s[at:]) == len(s)-at
}

// match reports whether s as a whole matches. The parts between % signs may match at their first place: no other can
// leave more for the parts behind.
func (lp *likePattern) match(s []byte) bool {
	last := len(lp.parts) - 1
	n := lp.matchAt(0, s)
	if n < 0 || last == 0 {
		return n >= 0 && n == len(s)
	}
	s = s[n:]
	for k := 1; k < last; k++ {
		n := lp.find(k, s)
		if n < 0 {
			return false
		}
		s = s[n:]
	}
	return lp.matchEnd(last, s)
}

// reachesEnd reports whether matching gets to the end of a bad pattern with text left.
func (lp *likePattern) reachesEnd(s []byte) bool {
	last := len(lp.parts) - 1
	for k := 0; k < last; k++ {
		n := lp.matchAt(k, s)
		if k > 0 {
			n = lp.find(k, s)
		}
		if n < 0 {
			return false
		}
		s = s[n:]
	}
	for {
		if n := lp.matchAt(last, s); n >= 0 && n < len(s) {
			return true
		}
		if last == 0 || len(s) == 0 {
			return false
		}
		_, n := utf8.DecodeRune(s)
		s = s[n:]
	}
}

// checkLike prepares a constant pattern.
func checkLike(fold bool) func(c *Call) *dataflow.Error {
	return func(c *Call) *dataflow.Error {
		escape := '\\'
		if len(c.args) == 3 {
			k, ok := c.args[2].(*Const)
			if !ok || k.value.Null {
				return nil
			}
			var err *dataflow.Error
			if escape, err = escapeOf([]byte(k.value.Str)); err != nil {
				err.Reason = dataflow.ReasonSQLType
				return err
			}
		}
		if k, ok := c.args[1].(*Const); ok && !k.value.Null {
			c.prep = parseLike([]byte(k.value.Str), escape, fold)
		}
		return nil
	}
}

func evalLike(fold, negate bool) func(f *frame) {
	return func(f *frame) {
		a, p, out := f.args[0], f.args[1], f.out.Ints
		lp, _ := f.call.prep.(*likePattern)
		var last []byte // the pattern that lp was made from, when it is not constant
		var lastEscape rune
		var lowered []byte
		f.each(func(i int) *dataflow.Error {
			if f.call.prep == nil {
				escape := '\\'
				if len(f.args) == 3 {
					var err *dataflow.Error
					if escape, err = escapeOf(f.args[2].text(i)); err != nil {
						return err
					}
				}
				if lp == nil || escape != lastEscape || !bytes.Equal(last, p.text(i)) {
					last, lastEscape = p.text(i), escape
					lp = parseLike(last, escape, fold)
				}
			}
			s := a.text(i)
			if fold {
				lowered = appendCase(lowered[:0], s, 'A', 'Z', unicode.ToLower)
				s = lowered
			}
			if lp.bad {
				if lp.reachesEnd(s) {
					return failf("LIKE pattern must not end with escape character")
				}
				out[i] = boolInt(negate)
				return nil
			}
			out[i] = boolInt(lp.match(s) != negate)
			return nil
		})
	}
}
