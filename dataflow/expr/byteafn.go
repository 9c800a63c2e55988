package expr

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"

	"github.com/weirdb/weir/dataflow"
)

// byteaFunctions are those of BYTEA.
func byteaFunctions() []function {
	one, text2 := []dataflow.Type{tBytes}, []dataflow.Type{tText, tText}
	from, span := []dataflow.Type{tBytes, tInt}, []dataflow.Type{tBytes, tInt, tInt}
	hash := func(sum func(b []byte) []byte) func(f *frame) {
		return text1fn(func(dst, b []byte) []byte { return append(dst, sum(b)...) })
	}
	return []function{
		{name: "encode", args: []dataflow.Type{tBytes, tText}, result: tText, eval: evalEncode,
			doc: "Bytes as text, in hex, base64 (a line break after 76 characters, as in PostgreSQL) or escape.", example: `encode('\x00ff', 'base64')`},
		{name: "decode", args: text2, result: tBytes, eval: evalDecode,
			doc: "The bytes of such a text.", example: "decode('AP8=', 'base64')"},
		{name: "length", args: one, result: tInt, eval: textInt1(func(b []byte) int64 { return int64(len(b)) }),
			doc: "The number of bytes.", example: `length('\x00ff'::bytea)`},
		{name: "octet_length", args: one, result: tInt, eval: textInt1(func(b []byte) int64 { return int64(len(b)) }),
			doc: "The same.", example: `octet_length('\x00ff'::bytea)`},
		{name: "substring", args: from, result: tBytes, eval: evalSubbytes,
			doc: "From the byte of that number (the first is 1), so many bytes or to the end.", example: `substring('\x00ff10'::bytea FROM 2)`},
		{name: "substring", args: span, result: tBytes, eval: evalSubbytes},
		{name: "substr", args: from, result: tBytes, eval: evalSubbytes,
			doc: "The same as substring.", example: `substr('\x00ff10'::bytea, 2, 1)`},
		{name: "substr", args: span, result: tBytes, eval: evalSubbytes},
		{name: "get_byte", args: from, result: tInt, eval: evalGetByte,
			doc: "A byte by its number from 0.", example: `get_byte('\x00ff'::bytea, 1)`},
		{name: "||", args: []dataflow.Type{tBytes, tBytes}, result: tBytes, eval: jsonMake2(func(dst, a, b []byte) []byte { return append(append(dst, a...), b...) }),
			doc: "Bytes joined.", example: `'\x00'::bytea || '\xff'::bytea`},
		{name: "md5", args: one, result: tText, eval: text1fn(func(dst, b []byte) []byte {
			sum := md5.Sum(b)
			return hex.AppendEncode(dst, sum[:])
		}), doc: "The MD5 hash in hexadecimal.", example: `md5('\x00'::bytea)`},
		{name: "sha224", args: one, result: tBytes, eval: hash(func(b []byte) []byte { s := sha256.Sum224(b); return s[:] }),
			doc: "The SHA-224 hash.", example: "sha224('abc'::bytea)"},
		{name: "sha256", args: one, result: tBytes, eval: hash(func(b []byte) []byte { s := sha256.Sum256(b); return s[:] }),
			doc: "The SHA-256 hash.", example: "sha256('abc'::bytea)"},
		{name: "sha384", args: one, result: tBytes, eval: hash(func(b []byte) []byte { s := sha512.Sum384(b); return s[:] }),
			doc: "The SHA-384 hash.", example: "length(sha384('abc'::bytea))"},
		{name: "sha512", args: one, result: tBytes, eval: hash(func(b []byte) []byte { s := sha512.Sum512(b); return s[:] }),
			doc: "The SHA-512 hash.", example: "length(sha512('abc'::bytea))"},
		{name: "convert_to", args: text2, result: tBytes, eval: evalConvertTo,
			doc: "The bytes of a text in an encoding, of which there is only UTF8.", example: "convert_to('é', 'UTF8')"},
		{name: "convert_from", args: []dataflow.Type{tBytes, tText}, result: tText, eval: evalConvertFrom,
			doc: "The text of bytes in UTF8.", example: `convert_from('\xc3a9', 'UTF8')`},
	}
}

func badEncoding(name []byte) *dataflow.Error {
	return failf(`unrecognized encoding: "%s"`, abridge(string(name))).WithHint("there are hex, base64 and escape")
}

func evalEncode(f *frame) {
	a, format := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		b := a.text(i)
		switch string(bytes.ToLower(format.text(i))) {
		case "hex":
			return hex.AppendEncode(dst, b), nil
		case "base64":
			const lineBytes = 57 // 76 characters
			for ; len(b) > lineBytes; b = b[lineBytes:] {
				dst = append(base64.StdEncoding.AppendEncode(dst, b[:lineBytes]), '\n')
			}
			return base64.StdEncoding.AppendEncode(dst, b), nil
		case "escape":
			for _, c := range b {
				switch {
				case c == 0 || c >= 0x80:
					dst = append(dst, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
				case c == '\\':
					dst = append(dst, `\\`...)
				default:
					dst = append(dst, c)
				}
			}
			return dst, nil
		}
		return dst, badEncoding(format.text(i))
	})
}

func evalDecode(f *frame) {
	a, format := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		switch string(bytes.ToLower(format.text(i))) {
		case "hex":
			b, err := parseHex(string(a.text(i)))
			return append(dst, b...), err
		case "base64":
			text := bytes.Map(func(r rune) rune {
				if r == ' ' || r == '\t' || r == '\n' || r == '\r' {
					return -1
				}
				return r
			}, a.text(i))
			b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
			n, err := base64.StdEncoding.Decode(b, text)
			if err != nil {
				return dst, failf("invalid base64 end sequence").WithHint("the text is no base64")
			}
			return append(dst, b[:n]...), nil
		case "escape":
			b, err := parseBytea(string(a.text(i)))
			return append(dst, b...), err
		}
		return dst, badEncoding(format.text(i))
	})
}

func evalSubbytes(f *frame) {
	a, from := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		b := a.text(i)
		start, end := from.int(i), int64(len(b))+1
		if len(f.args) == 3 {
			n := f.args[2].int(i)
			if n < 0 {
				return dst, failf("negative substring length not allowed")
			}
			if to, over := addInt64(start, n); !over {
				end = min(end, to)
			}
		}
		if start = max(start, 1); start >= end {
			return dst, nil
		}
		return append(dst, b[start-1:end-1]...), nil
	})
}

func evalGetByte(f *frame) {
	a, n := f.args[0], f.args[1]
	f.each(func(i int) *dataflow.Error {
		b, k := a.text(i), n.int(i)
		if k < 0 || k >= int64(len(b)) {
			return failf("index %d out of valid range, 0..%d", k, len(b)-1)
		}
		f.out.Ints[i] = int64(b[k])
		return nil
	})
}

func checkUTF8(name []byte) *dataflow.Error {
	switch string(bytes.ToLower(name)) {
	case "utf8", "utf-8", "unicode":
		return nil
	}
	return failf("there is no encoding %s", abridge(string(name))).WithHint("write 'UTF8'")
}

func evalConvertTo(f *frame) {
	a, enc := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		return append(dst, a.text(i)...), checkUTF8(enc.text(i))
	})
}

func evalConvertFrom(f *frame) {
	a, enc := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		if err := checkUTF8(enc.text(i)); err != nil {
			return dst, err
		}
		if err := checkText(string(a.text(i))); err != nil {
			return dst, err
		}
		return append(dst, a.text(i)...), nil
	})
}
