package expr

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
)

// This file is to_char of numbers. It follows NUM_processor of PostgreSQL's formatting.c, step by step, because its answers
// are defined by nothing else. The locale is C: the point is a point, groups are separated by commas, no currency.

// numPart is one part of a format of numbers: a pattern, or a character that stands for itself.
type numPart struct {
	pattern string // "9", "0", "." (also D), "," (also G), "S", "MI", "PL", "SG"; "" = literal
	text    string
}

// numFormat is a format of numbers.
type numFormat struct {
	parts     []numPart
	pre, post int // digits before and behind the point
	decimal   bool
	fill      bool // FM: without padding
	zero      bool // there is a 0 before the point
	zeroStart int  // digits before the first 0, if there is one
	zeroEnd   int  // digits up to the last 0
	plus      bool // PL or SG
	minus     bool // MI or SG
	bracket   bool // PR
	sign      signPlace
	preSign   int // digits before S
}

// signPlace is where S stands.
type signPlace uint8

const (
	signNone signPlace = iota
	signBefore
	signBehind
)

// numPatterns are the patterns of numbers, longer ones before their beginnings.
var numPatterns = [...]string{"EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH", ",", ".", "0", "9", "B", "C", "D", "G", "L", "S", "V"}

// parseNumFormat reads a format of numbers.
func parseNumFormat(format string) (*numFormat, *dataflow.Error) {
	n := &numFormat{}
	for i := 0; i < len(format); {
		rest := format[i:]
		if rest[0] == '"' {
			end := strings.IndexByte(rest[1:], '"')
			if end < 0 {
				end = len(rest) - 1
			}
			n.parts = append(n.parts, numPart{text: rest[1 : 1+end]})
			i += min(end+2, len(rest))
			continue
		}
		pattern := ""
		for _, p := range numPatterns {
			if len(rest) >= len(p) && strings.EqualFold(rest[:len(p)], p) {
				pattern = p
				break
			}
		}
		if pattern == "" {
			n.parts = append(n.parts, numPart{text: rest[:1]})
			i++
			continue
		}
		i += len(pattern)
		if err := n.add(pattern); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// add appends a pattern.
func (n *numFormat) add(pattern string) *dataflow.Error {
	switch pattern {
	case "9", "0":
		if n.bracket {
			return failf(`"%s" must be ahead of "PR"`, pattern)
		}
		if pattern == "0" {
			if !n.zero && !n.decimal {
				n.zero, n.zeroStart = true, n.pre
			}
			n.zeroEnd = n.pre + n.post + 1
		}
		if n.decimal {
			n.post++
		} else {
			n.pre++
		}
	case ".", "D":
		if n.decimal {
			return failf("multiple decimal points")
		}
		n.decimal, pattern = true, "."
	case "G":
		pattern = ","
	case ",":
	case "FM":
		n.fill = true
		return nil
	case "S":
		switch {
		case n.sign != signNone:
			return failf(`cannot use "S" twice`)
		case n.plus || n.minus || n.bracket:
			return failf(`cannot use "S" and "PL"/"MI"/"SG"/"PR" together`)
		case n.decimal:
			n.sign = signBehind
		default:
			n.sign, n.preSign = signBefore, n.pre
		}
		return nil
	case "MI", "PL", "SG":
		if n.sign != signNone {
			return failf(`cannot use "S" and "%s" together`, pattern)
		}
		n.minus = n.minus || pattern != "PL"
		n.plus = n.plus || pattern != "MI"
	case "PR":
		if n.sign != signNone || n.plus || n.minus {
			return failf(`cannot use "PR" and "S"/"PL"/"MI"/"SG" together`)
		}
		n.bracket = true
		return nil
	default:
		return dataflow.Errorf(dataflow.ReasonSQLUnsupported, "to_char pattern %q of numbers is not supported", pattern).
			WithHint("there are 9 0 . D , G S MI PL SG PR FM; text stands in double quotes")
	}
	n.parts = append(n.parts, numPart{pattern: pattern})
	return nil
}

// numPrinter writes one number.
type numPrinter struct {
	*numFormat
	dst      []byte
	negative bool
	number   []byte // its digits and point, without the sign
	at       int    // in number
	blanks   int    // digits of the format that the number does not have
	relevant int    // the last digit that is shown, of FM with a point; -1 = all are
	wrote    bool   // the sign is written, or need not be
	place    signPlace
	brackets bool
	digit    int // of the format
	count    int
	begun    bool // a digit is written
	end      int  // of what is shown of dst; -1 = all
}

// append writes a number of the given digits, such as 12.50, in the format.
func (n *numFormat) append(dst, digits []byte) []byte {
	p := numPrinter{numFormat: n, dst: dst, relevant: -1, end: -1, place: n.sign, brackets: n.bracket}
	p.number, p.negative = bytes.CutPrefix(digits, []byte("-"))
	whole := bytes.IndexByte(p.number, '.')
	if whole < 0 {
		whole = len(p.number)
	}
	switch {
	case whole < n.pre:
		p.blanks = n.pre - whole
	case whole > n.pre: // it does not fit
		p.number = bytes.Repeat([]byte{'#'}, n.pre+n.post+1)
		p.number[n.pre] = '.'
	}
	switch {
	case n.plus || n.minus:
		p.wrote = !n.plus || n.minus
	default:
		if n.fill && !p.negative {
			p.brackets = false
			p.wrote = n.sign == signNone
		}
		if p.place == signBefore && n.pre == n.preSign {
			p.place = signBehind
		}
	}
	p.count = n.pre + n.post - 1
	if n.fill && n.decimal {
		p.relevant = lastRelevant(p.number)
		if p.relevant >= 0 && n.zeroEnd > p.blanks {
			p.relevant = max(p.relevant, min(len(p.number)-1, n.zeroEnd-p.blanks))
		}
	}
	if !p.wrote && p.blanks == 0 {
		p.count++
	}
	for _, part := range n.parts {
		if p.part(part); p.end >= 0 {
			return p.dst[:p.end]
		}
	}
	return p.dst
}

// lastRelevant returns the last digit behind the point that is not 0, or the point; -1 if there is none.
func lastRelevant(number []byte) int {
	point := bytes.IndexByte(number, '.')
	if point < 0 {
		return -1
	}
	last := point
	for i := point + 1; i < len(number); i++ {
		if number[i] != '0' {
			last = i
		}
	}
	return last
}

// signByte is the sign of the number.
func (p *numPrinter) signByte() byte {
	if p.negative {
		return '-'
	}
	return '+'
}

// padded writes a byte, or where there is nothing to write a blank unless FM says otherwise.
func (p *numPrinter) padded(c byte, is bool) {
	switch {
	case is:
		p.dst = append(p.dst, c)
	case !p.fill:
		p.dst = append(p.dst, ' ')
	}
}

func (p *numPrinter) part(part numPart) {
	switch part.pattern {
	case "":
		p.dst = append(p.dst, part.text...)
	case ",":
		p.padded(',', p.begun)
	case "MI":
		p.padded('-', p.negative)
	case "PL":
		p.padded('+', !p.negative)
	case "SG":
		p.dst = append(p.dst, p.signByte())
	default:
		p.numeral(part.pattern)
	}
}

// pointOnly reports whether the last relevant part of the number is its point.
func (p *numPrinter) pointOnly() bool { return p.relevant >= 0 && p.number[p.relevant] == '.' }

// bare reports whether the 0 before the point is not shown: 9.9 gives ".1".
func (p *numPrinter) bare() bool {
	return !p.zero && p.at == 0 && p.at < len(p.number) && p.number[0] == '0' && p.post != 0
}

// numeral writes what stands for a 9, a 0 or the point.
func (p *numPrinter) numeral(pattern string) {
	p.begun = false
	if !p.wrote && (p.digit >= p.blanks || p.zero && p.zeroStart == p.digit) && (!p.bare() || p.pointOnly()) {
		p.leadingSign()
	}
	switch {
	case p.digit < p.blanks && (!p.zero || p.zeroStart > p.digit):
		p.padded(0, false)
	case p.digit < p.blanks:
		p.dst = append(p.dst, '0')
		p.begun = true
	default:
		p.character(pattern)
	}
	end := p.count
	if p.blanks > 0 {
		end++
	}
	if p.decimal {
		end++
	}
	if p.relevant >= 0 && p.relevant == p.at {
		end = p.digit
	}
	if p.digit+1 == end {
		switch {
		case p.wrote && p.brackets:
			p.dst = append(p.dst, map[bool]byte{true: '>', false: ' '}[p.negative])
		case p.place == signBehind:
			p.dst = append(p.dst, p.signByte())
		}
	}
	p.digit++
}

// leadingSign writes the sign before the number.
func (p *numPrinter) leadingSign() {
	switch {
	case p.place == signBefore:
		p.dst = append(p.dst, p.signByte())
	case p.place == signBehind:
		return
	case p.brackets:
		p.dst = append(p.dst, map[bool]byte{true: '<', false: ' '}[p.negative])
	default:
		p.padded('-', p.negative)
	}
	p.wrote = true
}

// character writes the next character of the number.
func (p *numPrinter) character(pattern string) {
	if p.at >= len(p.number) {
		if p.relevant < 0 || p.at <= p.relevant || pattern == "0" {
			p.end = len(p.dst) // PostgreSQL writes the byte behind its number, a zero, and shows nothing that follows
		}
		return
	}
	switch c := p.number[p.at]; {
	case c == '.':
		if !p.pointOnly() || p.fill {
			p.dst = append(p.dst, '.')
		}
	case p.relevant >= 0 && p.at > p.relevant && pattern != "0":
	case p.bare():
		p.padded('0', p.fill && p.pointOnly())
	default:
		p.dst = append(p.dst, c)
		p.begun = true
	}
	p.at++
}

func checkNumFormat(c *Call) *dataflow.Error {
	k, ok := c.args[1].(*Const)
	if !ok || k.value.Null {
		return nil
	}
	format, err := parseNumFormat(k.value.Str)
	if err != nil {
		return err
	}
	c.prep = format
	return nil
}

// evalNumFormat writes numbers whose digits, with so many behind the point, the given function makes.
func evalNumFormat(digits func(a *operand, i int, n *numFormat) ([]byte, *numFormat, *dataflow.Error)) func(f *frame) {
	return func(f *frame) {
		a, format := f.args[0], f.args[1]
		constant, _ := f.call.prep.(*numFormat)
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
			n := constant
			if n == nil {
				var err *dataflow.Error
				if n, err = parseNumFormat(string(format.text(i))); err != nil {
					return dst, err
				}
			}
			text, n, err := digits(&a, i, n)
			if err != nil {
				return dst, err
			}
			return n.append(dst, text), nil
		})
	}
}

func bigintDigits(a *operand, i int, n *numFormat) ([]byte, *numFormat, *dataflow.Error) {
	text := strconv.AppendInt(nil, a.int(i), 10)
	if n.post > 0 {
		text = append(append(text, '.'), strings.Repeat("0", n.post)...)
	}
	return text, n, nil
}

func decimalDigits(a *operand, i int, n *numFormat) ([]byte, *numFormat, *dataflow.Error) {
	d := a.dec(i)
	if d.Form != apd.Finite {
		return formatNumeric(nil, d), n, nil
	}
	var x apd.Decimal
	roundTo(&x, d, int64(n.post))
	return formatNumeric(nil, &x), n, nil
}

// doubleDigits gives the 15 digits that a DOUBLE PRECISION has for sure.
func doubleDigits(a *operand, i int, n *numFormat) ([]byte, *numFormat, *dataflow.Error) {
	const sure = 15
	f := a.flt(i)
	whole := len(strconv.FormatFloat(max(f, -f), 'f', 0, 64))
	if post := max(0, min(n.post, sure-whole)); post != n.post {
		shorter := *n
		shorter.post, n = post, &shorter
	}
	return strconv.AppendFloat(nil, f, 'f', n.post, 64), n, nil
}
