package expr

import (
	"strings"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
)

// This file is to_number. It follows NUM_processor of PostgreSQL's formatting.c, as to_char of numbers does.

// numReader reads one number.
type numReader struct {
	*numFormat
	text      string
	at        int
	sign      byte // 0 = none yet
	digits    []byte
	pre, post int  // digits read
	point     bool // read
}

func (r *numReader) over() bool { return r.at >= len(r.text) }

// read returns the number that text is in the format.
func (n *numFormat) read(text string) (*apd.Decimal, *dataflow.Error) {
	r := &numReader{numFormat: n, text: text}
	for _, part := range n.parts {
		if r.over() {
			break
		}
		r.part(part)
	}
	number := strings.TrimSuffix(string(r.digits), ".")
	sign := " "
	if r.sign != 0 {
		sign = string(r.sign)
	}
	if number == "" {
		return nil, badSyntax("numeric", sign)
	}
	d, err := parseNumeric(sign + number)
	if err != nil {
		return nil, err
	}
	if n.pre+r.post == 0 && d.Sign() != 0 {
		return nil, failf("numeric field overflow").WithHint("the format has no 9 and no 0")
	}
	return d, fitNumeric(dataflow.NumericMod{Precision: uint16(n.pre + r.post), Scale: int16(r.post)}, d)
}

// part reads what stands for a part of the format.
func (r *numReader) part(part numPart) {
	c := r.text[r.at]
	switch part.pattern {
	case "":
		r.at += runeLength(r.text[r.at:])
	case "9", "0", ".":
		r.numeral(part.pattern)
		r.at++
	case ",":
		if c == ',' && !r.fill {
			r.at++
		}
	case "MI", "PL", "SG":
		if c == '-' && part.pattern != "PL" || c == '+' && part.pattern != "MI" {
			r.sign = c
			r.at++
			return
		}
		if !strings.ContainsRune("0123456789.,+-", rune(c)) {
			r.at += runeLength(r.text[r.at:])
		}
	}
}

// numeral reads what stands for a digit or the point: either, and a sign.
func (r *numReader) numeral(pattern string) {
	if r.text[r.at] == ' ' {
		r.at++
	}
	if r.over() {
		return
	}
	if r.sign == 0 && pattern != "." && r.pre+r.post == 0 {
		r.leadingSign()
	}
	if r.over() {
		return
	}
	read := false
	switch c := r.text[r.at]; {
	case isDigit(c):
		if r.point && r.post == r.numFormat.post {
			return
		}
		r.digits = append(r.digits, c)
		if r.point {
			r.post++
		} else {
			r.pre++
		}
		read = true
	case r.decimal && !r.point && c == '.':
		r.digits = append(r.digits, '.')
		r.point, read = true, true
	}
	if r.sign == 0 && r.pre+r.post > 0 {
		r.trailingSign(read)
	}
}

func (r *numReader) leadingSign() {
	c := r.text[r.at]
	anchored := r.numFormat.sign == signBefore
	switch {
	case c == '-' || c == '<' && r.bracket && !anchored:
		r.sign = '-'
		r.at++
	case c == '+':
		r.sign = '+'
		r.at++
	}
}

// trailingSign reads a sign behind the last digit. read says that a digit or the point has been read.
func (r *numReader) trailingSign(read bool) {
	switch {
	case r.numFormat.sign != signNone && read && r.at+1 < len(r.text) && !isDigit(r.text[r.at+1]):
		if c := r.text[r.at+1]; c == '-' || c == '+' {
			r.sign = c
			r.at++
		}
	case !read && r.numFormat.sign == signNone && (r.plus || r.minus):
		if c := r.text[r.at]; c == '-' || c == '+' {
			r.sign = c
		}
	}
}

func evalToNumber(f *frame) {
	a, format := f.args[0], f.args[1]
	constant, _ := f.call.prep.(*numFormat)
	f.each(func(i int) *dataflow.Error {
		n := constant
		if n == nil {
			var err *dataflow.Error
			if n, err = parseNumFormat(string(format.text(i))); err != nil {
				return err
			}
		}
		if len(format.text(i)) == 0 { // as in PostgreSQL
			f.null(i)
			return nil
		}
		d, err := n.read(string(a.text(i)))
		if err != nil {
			return err
		}
		f.out.Decs[i].Set(d)
		return nil
	})
}
