package wire

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// MaxJSONBytes bounds the JSON of one append: names and quotes take about as much again as the rows themselves.
const MaxJSONBytes = 2 * dataflow.MaxBatchBytes

// DecodeJSONRows returns JSON rows as a batch that fits schema. The text is one object per row, separated by white space
// (NDJSON), or one array of objects. A column that an object leaves out is NULL. BIGINT and NUMERIC may be numbers or
// strings, TIMESTAMPTZ, DATE and INTERVAL are strings, BYTEA is base64, JSONB any value, an array an array; DOUBLE also takes "NaN", "Infinity" and "-Infinity".
//
// Text may be far smaller than what it stands for, and quick to send and slow to read (1e130000): reading ends at the first
// row beyond MaxBatchBytes, and between two rows when ctx does.
//
// Errors: ROW_INVALID with a violation per wrong value, TOO_LARGE, REQUEST_INVALID for no rows, that of ctx.
func DecodeJSONRows(ctx context.Context, schema dataflow.Schema, text []byte) (*batch.Batch, error) {
	if len(text) > MaxJSONBytes {
		return nil, tooLarge("rows", "%d bytes of JSON are over the limit of %d per append", len(text), MaxJSONBytes)
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	d := newJSONDecoder(schema)
	s := &jsonScanner{b: text}
	array := s.space() == '['
	if array {
		s.i++
	}
	for first := true; ; first = false {
		c := s.space()
		if !array && s.i >= len(s.b) {
			break
		}
		if array {
			if c == ']' && first {
				s.i++
				break
			}
			if !first {
				if c == ']' {
					s.i++
					break
				}
				if !s.expect(',') {
					break
				}
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if d.n == dataflow.MaxBatchRows {
			return nil, tooLarge("rows", "more than %d rows in one append", dataflow.MaxBatchRows)
		}
		if !d.object(s) {
			break
		}
	}
	if d.size > dataflow.MaxBatchBytes {
		return nil, upToHere(fmt.Sprintf("rows[%d]", d.n))
	}
	if array && s.err == nil {
		if s.space(); s.i < len(s.b) {
			s.fail("expected the end after the array, found %s", s.found())
		}
	}
	if s.err != nil {
		d.bad.addRow(d.n, "%v", s.err)
	}
	if err := d.bad.err(); err != nil {
		return nil, err
	}
	if d.n == 0 {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "no rows: an append needs at least one")
	}
	return d.finish()
}

// jsonDecoder fills columns row by row.
type jsonDecoder struct {
	schema dataflow.Schema
	byName map[string]int
	cols   []*batch.Vector
	seen   []int // the row in which a column was last set, plus 1
	n      int   // complete rows
	size   int   // of the values, without what is fixed per row: at most what vectorBytes finds
	bad    violations
}

func newJSONDecoder(schema dataflow.Schema) *jsonDecoder {
	d := &jsonDecoder{schema: schema, byName: make(map[string]int, len(schema)), cols: make([]*batch.Vector, len(schema)),
		seen: make([]int, len(schema))}
	for i, c := range schema {
		d.byName[c.Name] = i
		d.cols[i] = batch.NewVector(c.Type, 0)
	}
	return d
}

// object reads one row. It returns false when the text is broken, so that there is no next row to find.
func (d *jsonDecoder) object(s *jsonScanner) bool {
	if !s.expect('{') {
		return false
	}
	for first := true; ; first = false {
		if s.space() == '}' && s.i < len(s.b) {
			s.i++
			break
		}
		if !first && !s.expect(',') {
			return false
		}
		if c := s.space(); s.i >= len(s.b) || c != '"' {
			s.fail("expected a column name in quotes, found %s", s.found())
			return false
		}
		name := s.string()
		if s.err != nil {
			return false
		}
		col, known := d.byName[string(name)]
		if !known && !d.bad.full() {
			d.bad.addRow(d.n, "the stream has no column %s; it has %s", quoteShort(string(name)), d.schema)
		} else if !known {
			d.bad.total++
		}
		if !s.expect(':') {
			return false
		}
		s.space()
		from := s.i
		kind, text := s.value()
		if s.err != nil {
			return false
		}
		if known {
			d.set(col, kind, text, s.b[from:s.i])
		}
		if d.size > dataflow.MaxBatchBytes {
			return false
		}
	}
	for i, c := range d.schema {
		if d.seen[i] != d.n+1 {
			if c.NotNull {
				d.bad.addCell(d.n, c.Name, "column %s is NOT NULL and missing", c.Name)
			}
			d.cols[i].AppendNull()
		}
	}
	d.n++
	return true
}

// set appends the value of one column of the current row, or a NULL and a violation. raw is its JSON text.
func (d *jsonDecoder) set(col int, kind jsonKind, text, raw []byte) {
	c, v := d.schema[col], d.cols[col]
	if d.seen[col] == d.n+1 {
		d.bad.addCell(d.n, c.Name, "column %s comes twice", c.Name)
		return
	}
	d.seen[col] = d.n + 1
	if kind == jsonNull {
		if c.NotNull {
			d.bad.addCell(d.n, c.Name, "column %s is NOT NULL", c.Name)
		}
		v.AppendNull()
		return
	}
	if d.bad.full() && mayGrow(c.Type) {
		v.AppendNull()
		return
	}
	if msg := appendJSON(c, v, kind, text, raw); msg != "" {
		d.bad.addCell(d.n, c.Name, "%s", msg)
		v.AppendNull()
		return
	}
	switch c.Type.Form() {
	case dataflow.FormBytes, dataflow.FormDecimal, dataflow.FormList:
		d.size += v.RowBytes(d.n)
	}
}

func (d *jsonDecoder) finish() (*batch.Batch, error) {
	b := &batch.Batch{Schema: d.schema, N: d.n, Cols: d.cols}
	total := BatchBytes(b)
	if total > dataflow.MaxBatchBytes {
		return nil, tooLarge("rows", "rows of %d bytes are over the limit of %d per append", total, dataflow.MaxBatchBytes)
	}
	return b, checkRows(b, total)
}

// mayGrow reports whether the text of a value may stand for far more than it is long. Such a value is not read any more when
// as many violations are known as are listed: those that do not fit weigh nothing, so that MaxBatchBytes does not end them.
func mayGrow(t dataflow.Type) bool {
	return t == dataflow.TypeJSONB || t.Form() == dataflow.FormDecimal || t.Form() == dataflow.FormList
}

// upToHere is the refusal of an append of which the value or row at field is the first beyond MaxBatchBytes.
func upToHere(field string) error {
	return tooLarge(field, "the rows up to %s are over the limit of %d bytes per append", field, dataflow.MaxBatchBytes)
}

// appendJSON appends a value that is not null. It returns what is wrong with it, having appended nothing then.
func appendJSON(c dataflow.Column, v *batch.Vector, kind jsonKind, text, raw []byte) string {
	wrong := func() string { return fmt.Sprintf("%s column, found %s", article(v.Type), kind) }
	switch {
	case v.Type == dataflow.TypeJSONB:
		return appendJSONB(v, raw)
	case v.Type.Form() == dataflow.FormList:
		return appendJSONList(v, kind, text, raw)
	case kind == jsonObject || kind == jsonArray:
		return wrong()
	}
	switch v.Type {
	case dataflow.TypeBool:
		if kind != jsonBool {
			return wrong()
		}
		if text[0] == 't' {
			v.AppendInt(1)
		} else {
			v.AppendInt(0)
		}
	case dataflow.TypeBigInt:
		if kind != jsonNumber && kind != jsonString {
			return wrong()
		}
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return fmt.Sprintf("%s is not a whole number between -9223372036854775808 and 9223372036854775807", quoteShort(string(text)))
		}
		v.AppendInt(n)
	case dataflow.TypeDouble:
		f, msg := parseDouble(kind, text)
		if msg != "" {
			return msg
		}
		v.AppendFloat(f)
	case dataflow.TypeNumeric:
		if kind != jsonNumber && kind != jsonString {
			return wrong()
		}
		n, msg := parseNumericMod(c.Mod, string(text))
		if msg != "" {
			return msg
		}
		v.AppendDec(n)
	case dataflow.TypeBytea:
		if kind != jsonString {
			return wrong() + "; write it as a string in base64"
		}
		b, err := base64.StdEncoding.Strict().DecodeString(string(text))
		if err != nil {
			return fmt.Sprintf("%s is not base64", quoteShort(string(text)))
		}
		v.AppendText(b)
	case dataflow.TypeDate:
		if kind != jsonString {
			return wrong() + "; write it as a string, for example \"2026-11-29\""
		}
		return appendParsed(v, text)
	case dataflow.TypeInterval:
		if kind != jsonString {
			return wrong() + "; write it as a string, for example \"1 day 02:03:04\""
		}
		return appendParsed(v, text)
	case dataflow.TypeTimestamp:
		if kind != jsonString {
			return wrong() + "; write it as a string, for example \"2026-11-29T12:00:00Z\""
		}
		t, msg := parseTimestamp(string(text))
		if msg != "" {
			return msg
		}
		v.AppendInt(t)
	case dataflow.TypeText:
		if kind != jsonString {
			return wrong()
		}
		if msg := describeBadText(text); msg != "" {
			return msg
		}
		v.AppendText(text)
	default:
		return fmt.Sprintf("columns of type %s cannot be filled from JSON", v.Type)
	}
	return ""
}

func article(t dataflow.Type) string { return "this is a " + t.String() }

func parseDouble(kind jsonKind, text []byte) (float64, string) {
	switch {
	case kind == jsonNumber:
	case kind == jsonString && string(text) == "NaN":
		return math.NaN(), ""
	case kind == jsonString && string(text) == "Infinity":
		return math.Inf(1), ""
	case kind == jsonString && string(text) == "-Infinity":
		return math.Inf(-1), ""
	default:
		return 0, fmt.Sprintf("this is a DOUBLE PRECISION column, found %s", kind)
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return 0, fmt.Sprintf("%s is out of range for DOUBLE PRECISION", quoteShort(string(text)))
	}
	return f, ""
}
