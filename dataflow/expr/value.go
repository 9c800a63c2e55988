package expr

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// pgSpace is what PostgreSQL skips around numbers.
const pgSpace = " \t\n\v\f\r"

// ParseValue reads the text form of a value of type t, in the spellings that PostgreSQL accepts, which include RFC 3339
// for times. The error is a *dataflow.Error of reason EXPRESSION_FAILED with PostgreSQL's message; callers that parse a
// key or a row give it their own reason.
func ParseValue(t dataflow.Type, s string) (dataflow.Value, error) {
	v, err := parseValue(t, s)
	if err != nil {
		e := *err // callers may add to it
		return dataflow.NullValue(t), &e
	}
	return v, nil
}

func parseValue(t dataflow.Type, s string) (dataflow.Value, *dataflow.Error) {
	v := dataflow.Value{Type: t}
	var err *dataflow.Error
	switch t {
	case dataflow.TypeBool:
		var b bool
		if b, err = parseBool(s); b {
			v.Int = 1
		}
	case dataflow.TypeBigInt:
		v.Int, err = parseBigInt([]byte(s))
	case dataflow.TypeDouble:
		v.Flt, err = parseDouble(s)
	case dataflow.TypeText:
		v.Str, err = s, checkText(s)
	case dataflow.TypeTimestamp:
		v.Int, err = parseTimestamp(s)
	case dataflow.TypeNumeric:
		v.Dec, err = parseNumeric(s)
	case dataflow.TypeInterval:
		v.Ivl, err = parseInterval(s)
	case dataflow.TypeJSONB:
		v.Str, err = parseJSONB(s)
	case dataflow.TypeBytea:
		v.Str, err = parseBytea(s)
	case dataflow.TypeDate:
		v.Int, err = parseDate(s)
	default:
		if e := t.Elem(); e != dataflow.TypeUnknown {
			v.Arr, err = parseArray(e, s)
			break
		}
		err = dataflow.Errorf(dataflow.ReasonSQLType, "a value of type %s cannot be written as text", typeName(t))
	}
	return v, err
}

// FormatValue returns the text form of a value, as PostgreSQL's CAST to TEXT prints it. NULL gives the empty string:
// callers that must tell it from empty text look at v.Null.
func FormatValue(v dataflow.Value) string {
	if v.Null {
		return ""
	}
	switch v.Type {
	case dataflow.TypeText:
		return v.Str
	case dataflow.TypeBigInt:
		return strconv.FormatInt(v.Int, 10)
	}
	return string(appendValue(nil, v))
}

// appendValue appends the text form of a value that is not NULL.
func appendValue(dst []byte, v dataflow.Value) []byte {
	switch v.Type {
	case dataflow.TypeBool:
		return strconv.AppendBool(dst, v.Int != 0)
	case dataflow.TypeBigInt:
		return strconv.AppendInt(dst, v.Int, 10)
	case dataflow.TypeDouble:
		return appendDouble(dst, v.Flt)
	case dataflow.TypeText:
		return append(dst, v.Str...)
	case dataflow.TypeTimestamp:
		return appendTimestamp(dst, v.Int)
	case dataflow.TypeNumeric:
		return formatNumeric(dst, v.Dec)
	case dataflow.TypeInterval:
		return appendInterval(dst, v.Ivl)
	case dataflow.TypeJSONB:
		return append(dst, v.Str...)
	case dataflow.TypeBytea:
		return appendBytea(dst, v.Str)
	case dataflow.TypeDate:
		return appendDate(dst, v.Int)
	}
	if v.Type.Form() != dataflow.FormList {
		return dst
	}
	dst = append(dst, '{')
	for i, e := range v.Arr {
		if i > 0 {
			dst = append(dst, ',')
		}
		if e.Null {
			dst = append(dst, "NULL"...)
			continue
		}
		if e.Type == dataflow.TypeBool {
			dst = append(dst, "ft"[e.Int]) // as PostgreSQL has it in arrays
			continue
		}
		dst = appendElemText(dst, appendValue(nil, e))
	}
	return append(dst, '}')
}

// appendVector appends the text form of row i of v, which is not NULL.
func appendVector(dst []byte, v *batch.Vector, i int) []byte {
	switch v.Type {
	case dataflow.TypeBool:
		return strconv.AppendBool(dst, v.Ints[i] != 0)
	case dataflow.TypeBigInt:
		return strconv.AppendInt(dst, v.Ints[i], 10)
	case dataflow.TypeDouble:
		return appendDouble(dst, v.Floats[i])
	case dataflow.TypeText:
		return append(dst, v.Text(i)...)
	case dataflow.TypeTimestamp:
		return appendTimestamp(dst, v.Ints[i])
	case dataflow.TypeNumeric:
		return formatNumeric(dst, &v.Decs[i])
	case dataflow.TypeInterval:
		return appendInterval(dst, v.Ivls[i])
	case dataflow.TypeJSONB:
		return append(dst, v.Text(i)...)
	case dataflow.TypeBytea:
		return appendBytea(dst, v.Text(i))
	case dataflow.TypeDate:
		return appendDate(dst, v.Ints[i])
	}
	if v.Type.Form() != dataflow.FormList {
		return dst
	}
	dst = append(dst, '{')
	var buf []byte
	for j := int(v.Lists[i]); j < int(v.Lists[i+1]); j++ {
		if j > int(v.Lists[i]) {
			dst = append(dst, ',')
		}
		if elemNull(v.Elems, j) {
			dst = append(dst, "NULL"...)
			continue
		}
		if v.Elems.Type == dataflow.TypeBool {
			dst = append(dst, "ft"[v.Elems.Ints[j]])
			continue
		}
		buf = appendVector(buf[:0], v.Elems, j)
		dst = appendElemText(dst, buf)
	}
	return append(dst, '}')
}

// parseBool takes what PostgreSQL takes: unique prefixes of true, false, yes and no, on, off, 1 and 0.
func parseBool(s string) (bool, *dataflow.Error) {
	t := strings.ToLower(strings.Trim(s, pgSpace))
	prefix := func(word string, least int) bool { return len(t) >= least && strings.HasPrefix(word, t) }
	switch {
	case prefix("true", 1), prefix("yes", 1), t == "on", t == "1":
		return true, nil
	case prefix("false", 1), prefix("no", 1), prefix("off", 2), t == "0":
		return false, nil
	}
	return false, badSyntax("boolean", s)
}

// parseBigInt reads a decimal integer with an optional sign, blanks around it.
func parseBigInt(s []byte) (int64, *dataflow.Error) {
	t := bytes.Trim(s, pgSpace)
	negative := false
	if len(t) > 0 && (t[0] == '-' || t[0] == '+') {
		negative = t[0] == '-'
		t = t[1:]
	}
	if len(t) == 0 {
		return 0, badSyntax("bigint", string(s))
	}
	var u uint64
	over := false
	for _, c := range t {
		if c < '0' || c > '9' {
			return 0, badSyntax("bigint", string(s))
		}
		if u > (math.MaxInt64+1)/10 {
			over = true
			continue
		}
		u = u*10 + uint64(c-'0')
	}
	switch {
	case over, !negative && u > math.MaxInt64, u > math.MaxInt64+1:
		return 0, outOfRange("bigint", string(s))
	case negative:
		return -int64(u), nil
	}
	return int64(u), nil
}

// parseDouble reads a decimal floating-point number, NaN or an infinity.
func parseDouble(s string) (float64, *dataflow.Error) {
	t := strings.Trim(s, pgSpace)
	switch strings.ToLower(strings.TrimLeft(t, "+-")) {
	case "nan":
		if t[0] != '+' && t[0] != '-' {
			return math.NaN(), nil
		}
		return 0, badSyntax("double precision", s)
	case "inf", "infinity":
		if len(t) > 1 && (t[1] == '+' || t[1] == '-') {
			return 0, badSyntax("double precision", s)
		}
		if t[0] == '-' {
			return math.Inf(-1), nil
		}
		return math.Inf(1), nil
	}
	if strings.ContainsAny(t, "_xXpP") {
		return 0, badSyntax("double precision", s)
	}
	f, err := strconv.ParseFloat(t, 64)
	switch {
	case err != nil && math.IsInf(f, 0), err == nil && f == 0 && hasDigit(t):
		return 0, failf(`"%s" is out of range for type double precision`, abridge(t))
	case err != nil:
		return 0, badSyntax("double precision", s)
	}
	return f, nil
}

// hasDigit reports whether the mantissa of a number has a digit other than 0: then the number is not 0.
func hasDigit(s string) bool {
	for i := 0; i < len(s) && s[i] != 'e' && s[i] != 'E'; i++ {
		if s[i] >= '1' && s[i] <= '9' {
			return true
		}
	}
	return false
}

// appendDouble appends the shortest text that reads back as f, in PostgreSQL's choice of form.
func appendDouble(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	abs := math.Abs(f)
	if abs == 0 || abs >= 1e-4 && abs < 1e15 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if abs < 1<<53 || abs >= 1<<140 {
		return dst
	}
	// Go takes a text that lies halfway to the next double, since reading rounds it to even; PostgreSQL does not, and
	// shows a digit more. Only integers have such texts.
	for digits := mantissaDigits(dst[from:]); isHalfway(dst[from:], f) && digits < 17; digits++ {
		dst = strconv.AppendFloat(dst[:from], f, 'e', digits, 64)
	}
	return dst
}

// mantissaDigits returns the number of digits before the exponent of a number written 1.5e+20.
func mantissaDigits(s []byte) int {
	n := 0
	for _, c := range s {
		switch {
		case c == 'e':
			return n
		case isDigit(c):
			n++
		}
	}
	return n
}

// isHalfway reports whether the text s, an integer, lies in the middle between the integer f and a neighbour of it.
func isHalfway(s []byte, f float64) bool {
	d, err := parseNumeric(string(s))
	if err != nil {
		return false
	}
	exact, _ := new(big.Float).SetFloat64(math.Abs(f)).Int(nil)
	diff := exact.Sub(exact, d.Coeff.MathBigInt())
	frac, exp := math.Frexp(math.Abs(f))
	half := exp - 53 - 1 // a double has 53 bits: its neighbours are 2^(exp-53) away
	if frac == 0.5 && diff.Sign() > 0 {
		half-- // except below a power of two
	}
	return half >= 0 && diff.CmpAbs(new(big.Int).Lsh(big.NewInt(1), uint(half))) == 0
}

// checkText refuses what TEXT cannot hold.
func checkText(s string) *dataflow.Error {
	if !utf8.ValidString(s) {
		return failf(`invalid byte sequence for encoding "UTF8"`)
	}
	if strings.IndexByte(s, 0) >= 0 {
		return failf(`invalid byte sequence for encoding "UTF8": 0x00`)
	}
	return nil
}
