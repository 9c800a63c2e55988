package expr

import (
	"bytes"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

func regexpFunctions() []function {
	text2, text3, text4 := []dataflow.Type{tText, tText}, []dataflow.Type{tText, tText, tText}, []dataflow.Type{tText, tText, tText, tText}
	differs := "Weir has RE2's expressions: no back references, look-around, \\m and \\M; a pattern with a non-greedy quantifier matches leftmost-first"
	match := func(name string, flags string, negate bool, doc, example string) function {
		return function{name: name, args: text2, result: tBool, check: checkConstPattern(flags), eval: evalMatch(flags, negate), doc: doc, example: example}
	}
	first := match("~", "", false, "Whether a part of the text matches the regular expression.", "'weirdb' ~ '^w.*b$'")
	first.differs = differs
	return []function{
		first,
		{name: "~", args: []dataflow.Type{tInt}, result: tInt, eval: int1fn(func(a int64) (int64, *dataflow.Error) { return ^a, nil }),
			doc: "Bitwise NOT.", example: "~5"},
		match("~*", "i", false, "The same regardless of case.", "'weirdb' ~* 'DB'"),
		match("!~", "", true, "The opposite of ~.", "'weirdb' !~ '[0-9]'"),
		match("!~*", "i", true, "The opposite of ~*.", "'weirdb' !~* 'DB'"),
		{name: "regexp_like", args: text2, result: tBool, check: checkPattern(1, -1), eval: evalRegexpLike,
			doc: "Whether a part of the text matches. Flags: i regardless of case, n lines (. and ^ and $ know of line ends), x blanks and comments in the pattern.", example: "regexp_like('Weir', 'WEIR', 'i')"},
		{name: "regexp_like", args: text3, result: tBool, check: checkPattern(1, 2), eval: evalRegexpLike},
		{name: "regexp_count", args: text2, result: tInt, check: checkPattern(1, -1), eval: evalRegexpCount,
			doc: "How often the expression matches.", example: "regexp_count('banana', 'an')", differs: "an empty match right behind another does not count, here and in regexp_replace"},
		{name: "regexp_substr", args: text2, result: tText, check: checkPattern(1, -1), eval: evalRegexpSubstr,
			doc: "The first part that matches, or the n-th (fourth argument) from a character on (third); NULL if there is none.", example: "regexp_substr('a1b22', '[0-9]+', 1, 2)"},
		{name: "regexp_substr", args: []dataflow.Type{tText, tText, tInt}, result: tText, check: checkPattern(1, -1), eval: evalRegexpSubstr},
		{name: "regexp_substr", args: []dataflow.Type{tText, tText, tInt, tInt}, result: tText, check: checkPattern(1, -1), eval: evalRegexpSubstr},
		{name: "regexp_match", args: text2, result: tArray, check: checkPattern(1, -1), eval: evalRegexpMatch,
			doc: "The groups of the first match, the whole match if there are no groups; NULL if nothing matches.", example: "regexp_match('k=v', '(.)=(.)')"},
		{name: "regexp_match", args: text3, result: tArray, check: checkPattern(1, 2), eval: evalRegexpMatch},
		{name: "regexp_replace", args: text3, result: tText, check: checkPattern(1, -1), eval: evalRegexpReplace,
			doc: "With the first match replaced, all with flag g. In the replacement \\1 to \\9 are the groups, \\& is the match.", example: "regexp_replace('a1b22', '[0-9]+', '#', 'g')"},
		{name: "regexp_replace", args: text4, result: tText, check: checkPattern(1, 3), eval: evalRegexpReplace},
		{name: "regexp_split_to_array", args: text2, result: tArray, check: checkPattern(1, -1), eval: evalRegexpSplit,
			doc: "The parts between matches.", example: "regexp_split_to_array('to be or', ' ')"},
		{name: "regexp_split_to_array", args: text3, result: tArray, check: checkPattern(1, 2), eval: evalRegexpSplit},
	}
}

// checkPattern compiles a constant pattern, given by the numbers of the pattern's argument and the flags' (-1: none).
func checkPattern(at, flagsAt int) func(c *Call) *dataflow.Error {
	return func(c *Call) *dataflow.Error {
		flags := ""
		if flagsAt >= 0 {
			k, ok := c.args[flagsAt].(*Const)
			if !ok || k.value.Null {
				return nil
			}
			flags = k.value.Str
		}
		return preparePattern(c, at, flags)
	}
}

func checkConstPattern(flags string) func(c *Call) *dataflow.Error {
	return func(c *Call) *dataflow.Error { return preparePattern(c, 1, flags) }
}

func preparePattern(c *Call, at int, flags string) *dataflow.Error {
	k, ok := c.args[at].(*Const)
	if !ok || k.value.Null {
		return nil
	}
	p, err := compilePattern(k.value.Str, flags)
	if err != nil {
		if err.Reason == dataflow.ReasonExpressionFailed {
			err.Reason = dataflow.ReasonSQLType
		}
		return err
	}
	c.prep = p
	return nil
}

// patternAt returns the pattern of row i: argument at, with flags from argument flagsAt if that is not negative.
func (f *frame) patternAt(i, at, flagsAt int) (*pattern, *dataflow.Error) {
	if p, ok := f.call.prep.(*pattern); ok {
		return p, nil
	}
	flags := ""
	if flagsAt >= 0 {
		flags = string(f.args[flagsAt].text(i))
	}
	return f.env.patterns.get(string(f.args[at].text(i)), flags)
}

// flagsArg returns the number of the flags' argument, which is the last, if the call has so many.
func (f *frame) flagsArg(n int) int {
	if len(f.args) == n {
		return n - 1
	}
	return -1
}

func evalMatch(flags string, negate bool) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		constant, _ := f.call.prep.(*pattern)
		f.each(func(i int) *dataflow.Error {
			p := constant
			if p == nil {
				var err *dataflow.Error
				if p, err = f.env.patterns.get(string(f.args[1].text(i)), flags); err != nil {
					return err
				}
			}
			f.out.Ints[i] = boolInt(p.re.Match(a.text(i)) != negate)
			return nil
		})
	}
}

func evalRegexpLike(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error {
		p, err := f.patternAt(i, 1, f.flagsArg(3))
		if err == nil {
			f.out.Ints[i] = boolInt(p.re.Match(a.text(i)))
		}
		return err
	})
}

func evalRegexpCount(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error {
		p, err := f.patternAt(i, 1, -1)
		if err == nil {
			f.out.Ints[i] = int64(len(p.re.FindAllIndex(a.text(i), -1)))
		}
		return err
	})
}

func evalRegexpSubstr(f *frame) {
	a := f.args[0]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		p, err := f.patternAt(i, 1, -1)
		if err != nil {
			return dst, err
		}
		s, n := a.text(i), 1
		if len(f.args) > 2 {
			start := f.args[2].int(i)
			if start < 1 {
				return dst, failf(`invalid value for parameter "%s": %d`, "start", start)
			}
			s = s[charOffset(s, start-1):]
		}
		if len(f.args) > 3 {
			nth := f.args[3].int(i)
			if nth < 1 {
				return dst, failf(`invalid value for parameter "%s": %d`, "n", nth)
			}
			n = int(min(nth, maxText+1))
		}
		if n == 1 {
			if m := p.re.FindIndex(s); m != nil {
				return append(dst, s[m[0]:m[1]]...), nil
			}
		} else if all := p.re.FindAll(s, n); len(all) == n {
			return append(dst, all[n-1]...), nil
		}
		f.null(i)
		return dst, nil
	})
}

// evalSubstringPattern is substring(text, pattern): the first group, or the match.
func evalSubstringPattern(f *frame) {
	a := f.args[0]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		p, err := f.patternAt(i, 1, -1)
		if err != nil {
			return dst, err
		}
		s := a.text(i)
		m := p.re.FindSubmatchIndex(s)
		if len(m) > 2 {
			m = m[2:4]
		}
		if m == nil || m[0] < 0 {
			f.null(i)
			return dst, nil
		}
		return append(dst, s[m[0]:m[1]]...), nil
	})
}

func evalRegexpMatch(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error {
		p, err := f.patternAt(i, 1, f.flagsArg(3))
		if err != nil {
			return err
		}
		if p.global {
			return failf("regexp_match() does not support the \"global\" option")
		}
		s := a.text(i)
		m := p.re.FindSubmatchIndex(s)
		if m == nil {
			f.null(i)
			return nil
		}
		if len(m) > 2 {
			m = m[2:]
		}
		groups := make([]*string, len(m)/2)
		for g := range groups {
			if m[2*g] >= 0 {
				text := string(s[m[2*g]:m[2*g+1]])
				groups[g] = &text
			}
		}
		return f.setList(i, groups)
	})
}

func evalRegexpReplace(f *frame) {
	a, repl := f.args[0], f.args[2]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		p, err := f.patternAt(i, 1, f.flagsArg(4))
		if err != nil {
			return dst, err
		}
		s, r := a.text(i), repl.text(i)
		n := 1
		if p.global {
			if n = -1; p.manyGroups(s) {
				return dst, ErrRowMemory()
			}
		}
		start, at := len(dst), 0
		for _, m := range p.re.FindAllSubmatchIndex(s, n) {
			dst = append(dst, s[at:m[0]]...)
			dst = appendReplacement(dst, r, s, m, start+maxText)
			if at = m[1]; len(dst)-start > maxText {
				return dst, errTooLong()
			}
		}
		return append(dst, s[at:]...), nil
	})
}

// manyGroups reports whether the places of all groups of all matches in s would take more than a row may. Counting the
// matches first costs as much as finding them, and is done only for a text and a pattern that could be that large.
func (p *pattern) manyGroups(s []byte) bool {
	perMatch := int64(16 * (p.re.NumSubexp() + 2))
	return int64(len(s)+1)*perMatch > MaxRowMemory && int64(len(p.re.FindAllIndex(s, -1)))*perMatch > MaxRowMemory
}

// appendReplacement appends a replacement with its \1 to \9, \& and \\ filled in from match m in s. It stops once dst has
// more than limit bytes.
func appendReplacement(dst, repl, s []byte, m []int, limit int) []byte {
	for len(dst) <= limit {
		at := bytes.IndexByte(repl, '\\')
		if at < 0 || at+1 == len(repl) {
			return append(dst, repl...)
		}
		dst = append(dst, repl[:at]...)
		c := repl[at+1]
		group := -1
		switch {
		case c >= '1' && c <= '9':
			group = int(c - '0')
		case c == '&':
			group = 0
		case c == '\\':
			dst = append(dst, '\\')
		default:
			dst = append(dst, '\\', c)
		}
		if group >= 0 && 2*group < len(m) && m[2*group] >= 0 {
			dst = append(dst, s[m[2*group]:m[2*group+1]]...)
		}
		repl = repl[at+2:]
	}
	return dst
}

func evalRegexpSplit(f *frame) {
	a, out := f.args[0], f.out
	constant, _ := f.call.prep.(*pattern)
	if constant != nil && constant.split != nil && !a.constant() {
		// The parts are some of the texts' bytes: make room for them once.
		size := int(a.v.Offs[f.n] - a.v.Offs[0])
		out.Elems.Data = make([]byte, 0, min(int64(size), f.env.left()))
		out.Elems.Offs = append(make([]uint32, 0, size/4+f.n+2), 0)
	}
	f.each(func(i int) *dataflow.Error {
		p := constant
		if p == nil {
			var err *dataflow.Error
			if p, err = f.patternAt(i, 1, f.flagsArg(3)); err != nil {
				return err
			}
		}
		if p.global {
			return failf("regexp_split_to_array() does not support the \"global\" option")
		}
		s := a.text(i)
		if err := checkTextSize(len(s)); err != nil {
			return err
		}
		fillTo(out, i)
		if p.split != nil && !(p.split.asciiOnly && !isASCII(s)) {
			p.split.appendParts(out.Elems, s)
		} else {
			p.appendParts(out.Elems, s)
		}
		out.Lists = append(out.Lists, uint32(len(out.Elems.Offs)-1))
		return nil
	})
}

// appendParts appends the parts of s between matches.
func (p *pattern) appendParts(elems *batch.Vector, s []byte) {
	at := 0
	for _, m := range p.re.FindAllIndex(s, -1) {
		if m[1] == 0 || m[0] == len(s) && m[0] == m[1] {
			continue // an empty match at either end separates nothing
		}
		elems.Data = append(elems.Data, s[at:m[0]]...)
		elems.Offs = append(elems.Offs, uint32(len(elems.Data)))
		at = m[1]
	}
	elems.Data = append(elems.Data, s[at:]...)
	elems.Offs = append(elems.Offs, uint32(len(elems.Data)))
}
