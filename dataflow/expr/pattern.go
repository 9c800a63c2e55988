package expr

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

// maxPattern bounds a regular expression in bytes. Why not larger: its program is some ten times the size, and a
// pattern may come from each row.
const maxPattern = 4 << 10

// maxPatterns bounds the patterns that an Env keeps compiled.
const maxPatterns = 64

// pattern is a compiled regular expression.
type pattern struct {
	re *regexp.Regexp
	// split is set for patterns that are so simple that a table of bytes splits by them.
	split *byteClass
	// global is the flag g.
	global bool
}

// patternCache keeps the patterns of an Env that are not constant.
type patternCache struct{ m map[[2]string]*pattern }

func (pc *patternCache) get(text, flags string) (*pattern, *dataflow.Error) {
	if p := pc.m[[2]string{text, flags}]; p != nil {
		return p, nil
	}
	p, err := compilePattern(text, flags)
	if err != nil {
		return nil, err
	}
	if pc.m == nil || len(pc.m) >= maxPatterns {
		pc.m = make(map[[2]string]*pattern)
	}
	pc.m[[2]string{text, flags}] = p
	return p, nil
}

// compilePattern compiles a PostgreSQL regular expression with the flags of regexp_replace and its like.
func compilePattern(text, flags string) (*pattern, *dataflow.Error) {
	if len(text) > maxPattern {
		return nil, dataflow.Errorf(dataflow.ReasonTooLarge, "regular expression of %d bytes is over the limit of %d bytes", len(text), maxPattern)
	}
	t := translator{src: text}
	if err := t.flags(flags); err != nil {
		return nil, err
	}
	out, err := t.translate()
	if err != nil {
		return nil, err
	}
	re, cerr := regexp.Compile(out)
	if cerr != nil {
		return nil, badPattern(cerr)
	}
	if !t.lazy {
		re.Longest()
	}
	return &pattern{re: re, global: t.global, split: splitClass(out)}, nil
}

// badPattern gives Go's complaints PostgreSQL's names.
func badPattern(err error) *dataflow.Error {
	why := "unsupported construct"
	var se *syntax.Error
	if errors.As(err, &se) {
		switch se.Code {
		case syntax.ErrMissingParen, syntax.ErrUnexpectedParen:
			why = "parentheses () not balanced"
		case syntax.ErrMissingBracket:
			why = "brackets [] not balanced"
		case syntax.ErrInvalidCharRange, syntax.ErrInvalidCharClass:
			why = "invalid character range"
		case syntax.ErrMissingRepeatArgument, syntax.ErrInvalidRepeatOp:
			why = "quantifier operand invalid"
		case syntax.ErrInvalidRepeatSize:
			why = "invalid repetition count(s)"
		case syntax.ErrTrailingBackslash, syntax.ErrInvalidEscape:
			why = `invalid escape \ sequence`
		case syntax.ErrLarge, syntax.ErrNestingDepth:
			why = "regular expression is too complex"
		}
	}
	return failf("invalid regular expression: %s", why)
}

func notInRE2(what string) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonSQLUnsupported, "regular expressions with %s are not supported", what).
		WithHint("they are RE2's, which match in time linear to the text")
}

// translator writes a PostgreSQL advanced regular expression as RE2.
type translator struct {
	src string
	i   int
	out strings.Builder

	fold, newline, expanded, global bool

	lazy bool // a quantifier is not greedy: then the match is RE2's first, else the longest
}

// flags reads the letters of a flags argument.
func (t *translator) flags(flags string) *dataflow.Error {
	for _, c := range flags {
		switch c {
		case 'g':
			t.global = true
		case 'i':
			t.fold = true
		case 'c':
			t.fold = false
		case 'n', 'm':
			t.newline = true
		case 's':
			t.newline = false
		case 'x':
			t.expanded = true
		case 't':
			t.expanded = false
		default:
			return failf(`invalid regular expression option: "%c"`, c).WithHint("the options are g, i, c, n, s, x and t")
		}
	}
	return nil
}

func (t *translator) translate() (string, *dataflow.Error) {
	if strings.HasPrefix(t.src, "***") {
		return "", notInRE2("a *** director")
	}
	if strings.HasPrefix(t.src, "(?") && len(t.src) > 2 && isLetter(t.src[2]) {
		end := strings.IndexByte(t.src, ')')
		if end < 0 {
			return "", failf("invalid regular expression: parentheses () not balanced")
		}
		if err := t.flags(strings.ReplaceAll(t.src[2:end], "g", "?")); err != nil {
			return "", failf("invalid regular expression: invalid embedded option")
		}
		t.i = end + 1
	}
	switch {
	case t.newline:
		t.out.WriteString("(?m)")
	default:
		t.out.WriteString("(?s)")
	}
	if t.fold {
		t.out.WriteString("(?i)")
	}
	for t.i < len(t.src) {
		c := t.src[t.i]
		switch {
		case c == '\\':
			if err := t.escape(); err != nil {
				return "", err
			}
		case c == '[':
			if err := t.bracket(); err != nil {
				return "", err
			}
		case c == '(':
			if err := t.group(); err != nil {
				return "", err
			}
		case c == '*' || c == '+' || c == '?':
			t.i++
			t.quantifier(string(c))
		case c == '{' && t.i+1 < len(t.src) && isDigit(t.src[t.i+1]):
			if err := t.bounds(); err != nil {
				return "", err
			}
		case c == '{' || c == '}':
			t.out.WriteString(`\` + string(c))
			t.i++
		case t.expanded && strings.IndexByte(pgSpace, c) >= 0:
			t.i++
		case t.expanded && c == '#':
			for t.i < len(t.src) && t.src[t.i] != '\n' {
				t.i++
			}
		default:
			t.out.WriteByte(c)
			t.i++
		}
	}
	return t.out.String(), nil
}

// quantifier writes a quantifier and the ? behind it that makes it prefer the shortest match.
func (t *translator) quantifier(q string) {
	t.out.WriteString(q)
	if t.i < len(t.src) && t.src[t.i] == '?' {
		t.out.WriteByte('?')
		t.i++
		t.lazy = true
	}
}

// bounds reads {m}, {m,} and {m,n}. PostgreSQL's greatest count is 255.
func (t *translator) bounds() *dataflow.Error {
	end := strings.IndexByte(t.src[t.i:], '}')
	if end < 0 {
		return failf("invalid regular expression: braces {} not balanced")
	}
	q := t.src[t.i : t.i+end+1]
	lo, hi, both := strings.Cut(q[1:len(q)-1], ",")
	m, err := strconv.Atoi(lo)
	n := m
	if both && hi != "" && err == nil {
		n, err = strconv.Atoi(hi)
	}
	if err != nil || n < m || m > 255 || n > 255 {
		return failf("invalid regular expression: invalid repetition count(s)")
	}
	t.i += end + 1
	t.quantifier(q)
	return nil
}

func (t *translator) group() *dataflow.Error {
	rest := t.src[t.i:]
	switch {
	case strings.HasPrefix(rest, "(?:"):
		t.out.WriteString("(?:")
		t.i += 3
		return nil
	case strings.HasPrefix(rest, "(?#"):
		end := strings.IndexByte(rest, ')')
		if end < 0 {
			return failf("invalid regular expression: parentheses () not balanced")
		}
		t.i += end + 1
		return nil
	case strings.HasPrefix(rest, "(?=") || strings.HasPrefix(rest, "(?!") || strings.HasPrefix(rest, "(?<"):
		return notInRE2("look-ahead and look-behind")
	case strings.HasPrefix(rest, "(?"):
		return failf("invalid regular expression: quantifier operand invalid")
	}
	t.out.WriteByte('(')
	t.i++
	return nil
}

// What \w, \s and \d mean, as the inside of a bracket expression. PostgreSQL's follow the locale, here C.UTF-8: letters
// and blanks of all scripts, but ASCII digits only.
const (
	classWord  = `\p{L}\p{N}\p{M}_`
	classSpace = `\t-\r \x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}\x{2028}\x{2029}\x{205f}\x{3000}`
	classDigit = `0-9`
)

func classOf(letter byte) string {
	switch letter {
	case 'w':
		return classWord
	case 's':
		return classSpace
	case 'd':
		return classDigit
	}
	return ""
}

// escape reads an escape outside of brackets.
func (t *translator) escape() *dataflow.Error {
	if t.i+1 >= len(t.src) {
		return failf(`invalid regular expression: invalid escape \ sequence`)
	}
	c := t.src[t.i+1]
	switch c {
	case 'w', 's', 'd':
		t.out.WriteString("[" + classOf(c) + "]")
		t.i += 2
		return nil
	case 'W', 'S', 'D':
		t.out.WriteString("[^" + classOf(c|0x20) + "]")
		t.i += 2
		return nil
	case 'A':
		t.out.WriteString(`\A`)
		t.i += 2
		return nil
	case 'Z':
		t.out.WriteString(`\z`)
		t.i += 2
		return nil
	case 'y':
		t.out.WriteString(`\b`)
		t.i += 2
		return nil
	case 'Y':
		t.out.WriteString(`\B`)
		t.i += 2
		return nil
	case 'm', 'M':
		return notInRE2(`\m and \M`).WithHint(`\y is a word's start or end`)
	}
	if c >= '1' && c <= '9' {
		return notInRE2("back references")
	}
	r, err := t.character()
	if err != nil {
		return err
	}
	t.out.WriteString(regexp.QuoteMeta(string(r)))
	return nil
}

// character reads an escape that stands for one character.
func (t *translator) character() (rune, *dataflow.Error) {
	bad := failf(`invalid regular expression: invalid escape \ sequence`)
	t.i++ // the backslash
	if t.i >= len(t.src) {
		return 0, bad
	}
	r, n := utf8.DecodeRuneInString(t.src[t.i:])
	t.i += n
	hex := func(digits int) (rune, *dataflow.Error) {
		if t.i+digits > len(t.src) {
			return 0, bad
		}
		u, err := strconv.ParseUint(t.src[t.i:t.i+digits], 16, 32)
		if err != nil || !utf8.ValidRune(rune(u)) {
			return 0, bad
		}
		t.i += digits
		return rune(u), nil
	}
	switch r {
	case 'a':
		return 7, nil
	case 'b':
		return 8, nil
	case 'B':
		return '\\', nil
	case 'e':
		return 27, nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'v':
		return '\v', nil
	case 'u':
		return hex(4)
	case 'U':
		return hex(8)
	case 'x':
		digits := 0
		for t.i+digits < len(t.src) && isHex(t.src[t.i+digits]) {
			digits++
		}
		if digits == 0 || digits > 8 {
			return 0, bad
		}
		return hex(digits)
	case '0':
		return 0, nil
	case 'c':
		if t.i >= len(t.src) {
			return 0, bad
		}
		r, n := utf8.DecodeRuneInString(t.src[t.i:])
		t.i += n
		return r & 0x1f, nil
	}
	if r < utf8.RuneSelf && (isLetter(byte(r)) || isDigit(byte(r))) {
		return 0, bad
	}
	return r, nil
}

func isHex(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

// bracket reads a bracket expression.
func (t *translator) bracket() *dataflow.Error {
	open := failf("invalid regular expression: brackets [] not balanced")
	badRange := failf("invalid regular expression: invalid character range")
	t.i++
	t.out.WriteByte('[')
	if t.i < len(t.src) && t.src[t.i] == '^' {
		t.i++
		t.out.WriteByte('^')
		if t.newline {
			t.out.WriteString(`\n`)
		}
	}
	for first := true; ; first = false {
		if t.i >= len(t.src) {
			return open
		}
		rest := t.src[t.i:]
		switch {
		case rest[0] == ']' && !first:
			t.i++
			t.out.WriteByte(']')
			return nil
		case strings.HasPrefix(rest, "[:"):
			end := strings.Index(rest, ":]")
			if end < 0 {
				return open
			}
			class := posixClass(rest[2:end])
			if class == "" {
				if rest[2:end] == "<" || rest[2:end] == ">" {
					return notInRE2("[[:<:]] and [[:>:]]").WithHint(`\y is a word's start or end`)
				}
				return failf("invalid regular expression: invalid character class")
			}
			t.out.WriteString(class)
			t.i += end + 2
			continue
		case strings.HasPrefix(rest, "[.") || strings.HasPrefix(rest, "[="):
			return notInRE2("collating elements")
		case len(rest) > 1 && rest[0] == '\\' && classOf(rest[1]) != "":
			t.out.WriteString(classOf(rest[1]))
			t.i += 2
			continue
		}
		lo, err := t.member()
		if err != nil {
			return err
		}
		if t.i+1 < len(t.src) && t.src[t.i] == '-' && t.src[t.i+1] != ']' {
			t.i++
			hi, err := t.member()
			if err != nil {
				return err
			}
			if hi < lo {
				return badRange
			}
			t.out.WriteString(quoteMember(lo) + "-" + quoteMember(hi))
			continue
		}
		t.out.WriteString(quoteMember(lo))
	}
}

// member reads one character of a bracket expression.
func (t *translator) member() (rune, *dataflow.Error) {
	if t.i >= len(t.src) {
		return 0, failf("invalid regular expression: brackets [] not balanced")
	}
	if t.src[t.i] == '\\' {
		return t.character()
	}
	r, n := utf8.DecodeRuneInString(t.src[t.i:])
	t.i += n
	return r, nil
}

func quoteMember(r rune) string { return `\x{` + strconv.FormatInt(int64(r), 16) + `}` }

func posixClass(name string) string {
	switch name {
	case "alpha":
		return `\p{L}\p{M}`
	case "alnum":
		return `\p{L}\p{N}\p{M}`
	case "upper":
		return `\p{Lu}`
	case "lower":
		return `\p{Ll}`
	case "digit":
		return classDigit
	case "xdigit":
		return "0-9A-Fa-f"
	case "space":
		return classSpace
	case "blank":
		return ` \t`
	case "punct":
		return `\p{P}\p{S}`
	case "cntrl":
		return `\x00-\x1f\x7f-\x{9f}`
	case "word":
		return classWord
	}
	return ""
}
