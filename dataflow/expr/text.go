package expr

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

func textFunctions() []function {
	text1, text2, text3 := []dataflow.Type{tText}, []dataflow.Type{tText, tText}, []dataflow.Type{tText, tText, tText}
	textInt := []dataflow.Type{tText, tInt}
	return []function{
		{name: "||", args: text2, result: tText, eval: evalConcatOp,
			doc: "Joins texts; a value of another type is converted. NULL if one is NULL: concat() ignores NULLs.", example: "'route ' || 66"},
		{name: "||", args: []dataflow.Type{tText, typeEach}, result: tText, eval: evalConcatOp},
		{name: "||", args: []dataflow.Type{typeEach, tText}, result: tText, eval: evalConcatOp},
		{name: "length", args: text1, result: tInt, eval: evalLength,
			doc: "The number of characters (code points).", example: "length('Wörter')"},
		{name: "char_length", args: text1, result: tInt, eval: evalLength,
			doc: "The same as length.", example: "char_length('Wörter')"},
		{name: "character_length", args: text1, result: tInt, eval: evalLength},
		{name: "octet_length", args: text1, result: tInt, eval: textInt1(func(s []byte) int64 { return int64(len(s)) }),
			doc: "The number of bytes in UTF-8.", example: "octet_length('Wörter')"},
		{name: "bit_length", args: text1, result: tInt, eval: textInt1(func(s []byte) int64 { return 8 * int64(len(s)) }),
			doc: "The number of bits in UTF-8.", example: "bit_length('ab')"},
		{name: "lower", args: text1, result: tText, eval: evalLower,
			doc: "Lower case, character by character.", example: "lower('ÄRGER')", differs: "a few characters whose case depends on PostgreSQL's locale; Weir's is C.UTF-8"},
		{name: "upper", args: text1, result: tText, eval: evalUpper,
			doc: "Upper case, character by character.", example: "upper('straße')"},
		{name: "initcap", args: text1, result: tText, eval: text1fn(appendInitcap),
			doc: "Each word with a capital and lower-case letters; a word is a run of letters and digits.", example: "initcap('hello WORLD')"},
		{name: "btrim", args: text1, result: tText, eval: evalTrim(true, true),
			doc: "Without blanks, or the characters of the second argument, at both ends. Also trim(BOTH c FROM s).", example: "btrim('xxaxx', 'x')"},
		{name: "btrim", args: text2, result: tText, eval: evalTrim(true, true)},
		{name: "trim", args: text1, result: tText, eval: evalTrim(true, true),
			doc: "The same as btrim.", example: "trim('  a ')"},
		{name: "trim", args: text2, result: tText, eval: evalTrim(true, true)},
		{name: "ltrim", args: text1, result: tText, eval: evalTrim(true, false),
			doc: "Likewise at the start only. Also trim(LEADING c FROM s).", example: "ltrim('00120', '0')"},
		{name: "ltrim", args: text2, result: tText, eval: evalTrim(true, false)},
		{name: "rtrim", args: text1, result: tText, eval: evalTrim(false, true),
			doc: "Likewise at the end only. Also trim(TRAILING c FROM s).", example: "rtrim('1200', '0')"},
		{name: "rtrim", args: text2, result: tText, eval: evalTrim(false, true)},
		{name: "substr", args: textInt, result: tText, eval: evalSubstr,
			doc: "From the character of that number (the first is 1), so many characters or to the end.", example: "substr('weirdb', 2, 3)"},
		{name: "substr", args: []dataflow.Type{tText, tInt, tInt}, result: tText, eval: evalSubstr},
		{name: "substring", args: textInt, result: tText, eval: evalSubstr,
			doc: "The same as substr, also substring(s FROM a FOR b). With a TEXT, the part that matches the regular expression, or its first group.", example: "substring('weirdb' FROM 'd.')"},
		{name: "substring", args: []dataflow.Type{tText, tInt, tInt}, result: tText, eval: evalSubstr},
		{name: "substring", args: text2, result: tText, check: checkPattern(1, -1), eval: evalSubstringPattern},
		{name: "left", args: textInt, result: tText, eval: evalLeft,
			doc: "The first n characters; all but the last -n if n is negative.", example: "left('weirdb', 4)"},
		{name: "right", args: textInt, result: tText, eval: evalRight,
			doc: "The last n characters; all but the first -n if n is negative.", example: "right('weirdb', 2)"},
		{name: "lpad", args: textInt, result: tText, eval: evalPad(true),
			doc: "Filled at the start with blanks, or the third argument, to so many characters; cut at the end if it is longer.", example: "lpad('7', 3, '0')"},
		{name: "lpad", args: []dataflow.Type{tText, tInt, tText}, result: tText, eval: evalPad(true)},
		{name: "rpad", args: textInt, result: tText, eval: evalPad(false),
			doc: "Filled at the end likewise.", example: "rpad('hi', 5, 'xy')"},
		{name: "rpad", args: []dataflow.Type{tText, tInt, tText}, result: tText, eval: evalPad(false)},
		{name: "repeat", args: textInt, result: tText, eval: evalRepeat,
			doc: "The text n times.", example: "repeat('ab', 3)"},
		{name: "replace", args: text3, result: tText, eval: evalReplace,
			doc: "With every occurrence of the second argument replaced by the third.", example: "replace('a-b-c', '-', '+')"},
		{name: "translate", args: text3, result: tText, eval: evalTranslate,
			doc: "With each character of the second argument replaced by the one at its place in the third, or removed if there is none.", example: "translate('12345', '143', 'ax')"},
		{name: "position", args: text2, result: tInt, eval: evalPosition(1, 0),
			doc: "position(a IN b): where a first stands in b, counted in characters from 1; 0 if it does not.", example: "position('d' IN 'weirdb')"},
		{name: "strpos", args: text2, result: tInt, eval: evalPosition(0, 1),
			doc: "The same with the text first.", example: "strpos('weirdb', 'd')"},
		{name: "split_part", args: []dataflow.Type{tText, tText, tInt}, result: tText, eval: evalSplitPart,
			doc: "The n-th part between delimiters, from the end if n is negative; empty if there is none.", example: "split_part('a,b,c', ',', 2)"},
		{name: "starts_with", args: text2, result: tBool, eval: func(f *frame) {
			a, b := f.args[0], f.args[1]
			f.each(func(i int) *dataflow.Error {
				f.out.Ints[i] = boolInt(bytes.HasPrefix(a.text(i), b.text(i)))
				return nil
			})
		}, doc: "Whether the first text starts with the second.", example: "starts_with('weirdb', 'weir')"},
		{name: "reverse", args: text1, result: tText, eval: text1fn(appendReverse),
			doc: "The characters in reverse order.", example: "reverse('abc')"},
		{name: "concat", args: []dataflow.Type{typeEach}, variadic: true, result: tText, nullable: true, eval: evalConcat(false),
			doc: "Joins values of any type; NULLs are ignored.", example: "concat('a', NULL, 1, true)"},
		{name: "concat_ws", args: []dataflow.Type{tText, typeEach}, variadic: true, result: tText, nullable: true, eval: evalConcat(true),
			doc: "Joins values of any type with the first argument between them; NULLs are left out.", example: "concat_ws(',', 'a', NULL, 2)"},
		{name: "ascii", args: text1, result: tInt, eval: textInt1(func(s []byte) int64 {
			if len(s) == 0 {
				return 0
			}
			r, _ := utf8.DecodeRune(s)
			return int64(r)
		}), doc: "The code point of the first character; 0 for empty text.", example: "ascii('x')"},
		{name: "chr", args: []dataflow.Type{tInt}, result: tText, eval: evalChr,
			doc: "The character with a code point.", example: "chr(8364)"},
		{name: "md5", args: text1, result: tText, eval: text1fn(func(dst, s []byte) []byte {
			sum := md5.Sum(s)
			return hex.AppendEncode(dst, sum[:])
		}), doc: "The MD5 hash in hexadecimal.", example: "md5('abc')"},
		{name: "to_hex", args: []dataflow.Type{tInt}, result: tText, eval: func(f *frame) {
			a := f.args[0]
			f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
				return strconv.AppendUint(dst, uint64(a.int(i)), 16), nil
			})
		}, doc: "Hexadecimal, negative numbers as two's complement.", example: "to_hex(255)"},
	}
}

func textInt1(fn func(s []byte) int64) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		f.each(func(i int) *dataflow.Error { f.out.Ints[i] = fn(a.text(i)); return nil })
	}
}

// text1fn makes a function that appends its result to dst into the code of an entry.
func text1fn(fn func(dst, s []byte) []byte) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) { return fn(dst, a.text(i)), nil })
	}
}

func evalLength(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error { f.out.Ints[i] = int64(utf8.RuneCount(a.text(i))); return nil })
}

func appendReverse(dst, s []byte) []byte {
	for len(s) > 0 {
		_, n := utf8.DecodeLastRune(s)
		dst = append(dst, s[len(s)-n:]...)
		s = s[:len(s)-n]
	}
	return dst
}

func evalConcatOp(f *frame) {
	a, b := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		return b.appendText(a.appendText(dst, i), i), nil
	})
}

func evalConcat(separated bool) func(f *frame) {
	return func(f *frame) {
		args := f.args
		if separated {
			args = args[1:]
		}
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
			if separated && f.args[0].null(i) {
				f.null(i)
				return dst, nil
			}
			start, any := len(dst), false
			for k := range args {
				a := &args[k]
				if a.null(i) {
					continue
				}
				if any && separated {
					dst = append(dst, f.args[0].text(i)...)
				}
				any = true
				switch a.v.Type {
				case tBool: // as PostgreSQL's concat has it, unlike a CAST
					dst = append(dst, "ft"[a.int(i)])
				default:
					dst = a.appendText(dst, i)
				}
				if len(dst)-start > maxText {
					return dst, errTooLong()
				}
			}
			return dst, nil
		})
	}
}

func evalChr(f *frame) {
	a := f.args[0]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		switch c := a.int(i); {
		case c < 0:
			return dst, failf("character number must be positive")
		case c == 0:
			return dst, failf("null character not permitted")
		case c > unicode.MaxRune:
			return dst, failf("requested character too large for encoding: %d", c)
		case !utf8.ValidRune(rune(c)):
			return dst, failf("requested character not valid for encoding: %d", c)
		default:
			return utf8.AppendRune(dst, rune(c)), nil
		}
	})
}
