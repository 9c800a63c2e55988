package rowfile

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

// csvReader reads CSV as PostgreSQL's COPY does: the header names the columns, in any order; a column that it leaves out
// is NULL; an empty field is NULL, an empty field in quotes is the empty text.
type csvReader struct {
	s       *lineScanner
	schema  dataflow.Schema
	columns []int // of the schema, per field
	absent  []int // columns that no field fills
	rec     record
	ended   error
}

// record is one line of CSV, or several where a quoted field has line breaks.
type record struct {
	line   int // where it begins
	data   []byte
	ends   []int  // of the fields in data
	quoted []bool // per field
}

func (r *record) field(i int) []byte {
	from := 0
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.data[from:r.ends[i]]
}

func openCSV(s *lineScanner, cfg Config) (Reader, error) {
	r := &csvReader{s: s, schema: cfg.Schema}
	if err := r.read(); err != nil {
		if isEOF(err) {
			return nil, dataflow.Errorf(dataflow.ReasonRowInvalid, "%s is empty; the first line of CSV names the columns", s.name)
		}
		return nil, err
	}
	seen := make(map[int]bool)
	for i := range r.rec.ends {
		name := string(bytes.TrimSpace(r.rec.field(i)))
		at := cfg.Schema.Index(name)
		switch {
		case at < 0:
			return nil, s.fail("the header names %q; the stream has %s", name, cfg.Schema)
		case seen[at]:
			return nil, s.fail("the header names %q twice", name)
		}
		seen[at] = true
		r.columns = append(r.columns, at)
	}
	for i, c := range cfg.Schema {
		if seen[i] {
			continue
		}
		if c.NotNull {
			return nil, s.fail("the header leaves out %s, which is NOT NULL", c.Name)
		}
		r.absent = append(r.absent, i)
	}
	return r, nil
}

// Next implements Reader.
func (r *csvReader) Next() (*batch.Batch, error) {
	if r.ended != nil {
		return nil, r.ended
	}
	b := batch.NewBatch(r.schema)
	for size := 0; b.N < batchRows && size < batchBytes && !r.s.paused(b.N); {
		err := r.read()
		if err == nil {
			err = r.row(b)
		}
		if err != nil {
			return endWith(b, err, &r.ended)
		}
		size += max(len(r.rec.data), b.RowBytes(b.N-1)) // few characters may stand for a long number
	}
	return b, nil
}

// row appends the record as a row; nothing when it does not fit.
func (r *csvReader) row(b *batch.Batch) error {
	if len(r.rec.ends) != len(r.columns) {
		return r.s.failAt(r.rec.line, dataflow.ReasonRowInvalid, "the header has %d fields, this line %d", len(r.columns), len(r.rec.ends))
	}
	values := make([]dataflow.Value, len(r.columns))
	for i, at := range r.columns {
		c := r.schema[at]
		v, err := r.value(c, r.rec.field(i), r.rec.quoted[i])
		if err != nil {
			return r.s.failAt(r.rec.line, dataflow.ReasonRowInvalid, "%s: %w", c.Name, err)
		}
		values[i] = v
	}
	if len(r.rec.data) > dataflow.MaxRowBytes {
		return r.s.failAt(r.rec.line, dataflow.ReasonTooLarge, "a row of %d bytes is over the limit of %d", len(r.rec.data), dataflow.MaxRowBytes)
	}
	for i, at := range r.columns {
		b.Cols[at].AppendValue(values[i])
	}
	for _, at := range r.absent {
		b.Cols[at].AppendNull()
	}
	b.N++
	return nil
}

func (r *csvReader) value(c dataflow.Column, field []byte, quoted bool) (dataflow.Value, error) {
	if len(field) == 0 && !quoted {
		if c.NotNull {
			return dataflow.Value{}, errors.New("the column is NOT NULL and the field is empty")
		}
		return dataflow.NullValue(c.Type), nil
	}
	switch c.Type {
	case dataflow.TypeText:
		if !batch.ValidText(field) {
			return dataflow.Value{}, errors.New("the text is not valid UTF-8, or holds a NUL")
		}
		return dataflow.Text(string(field)), nil
	case dataflow.TypeBigInt:
		if n, err := strconv.ParseInt(string(field), 10, 64); err == nil {
			return dataflow.BigInt(n), nil
		}
	}
	v, err := expr.ParseValue(c.Type, string(field))
	if err == nil && c.Mod != (dataflow.NumericMod{}) {
		err = expr.FitNumeric(c.Mod, v.Dec)
	}
	return v, err
}

// read reads the next record. Blank lines are passed over.
func (r *csvReader) read() error {
	for {
		line, err := r.s.raw()
		if err != nil {
			return err
		}
		if len(trimEnd(line)) > 0 {
			return r.parse(line)
		}
		if len(r.columns) == 1 { // a blank line of a file of one column is a NULL
			r.rec = record{line: r.s.line, ends: append(r.rec.ends[:0], 0), quoted: append(r.rec.quoted[:0], false)}
			return nil
		}
	}
}

// parse cuts a line into fields (RFC 4180). A quoted field may go on over the following lines.
func (r *csvReader) parse(line []byte) error {
	rec := &r.rec
	*rec = record{line: r.s.line, data: rec.data[:0], ends: rec.ends[:0], quoted: rec.quoted[:0]}
	for {
		if len(line) > 0 && line[0] == '"' {
			rest, err := r.quotedField(line[1:])
			if err != nil {
				return err
			}
			line = rest
		} else {
			end := bytes.IndexByte(line, ',')
			if end < 0 {
				end = len(trimEnd(line))
			}
			if q := bytes.IndexByte(line[:end], '"'); q >= 0 {
				return r.s.failAt(r.s.line, dataflow.ReasonRowInvalid, "a quote in the middle of a field; quote the whole field and double the quote")
			}
			rec.data = append(rec.data, line[:end]...)
			rec.quoted = append(rec.quoted, false)
			line = line[end:]
		}
		rec.ends = append(rec.ends, len(rec.data))
		if len(line) == 0 || line[0] != ',' {
			return nil
		}
		line = line[1:]
	}
}

// quotedField reads a field after its opening quote and returns what follows the closing one.
func (r *csvReader) quotedField(line []byte) (rest []byte, err error) {
	rec, opened := &r.rec, r.s.line
	for {
		q := bytes.IndexByte(line, '"')
		if q < 0 {
			rec.data = append(rec.data, line...)
			if len(rec.data) > maxLine {
				return nil, r.s.failAt(opened, dataflow.ReasonTooLarge, "the field that opens here is longer than %d bytes; is its quote closed?", maxLine)
			}
			if line, err = r.s.raw(); isEOF(err) {
				return nil, r.s.failAt(opened, dataflow.ReasonRowInvalid, "the quote that opens here is not closed")
			} else if err != nil {
				return nil, err
			}
			continue
		}
		rec.data = append(rec.data, line[:q]...)
		line = line[q+1:]
		if len(line) > 0 && line[0] == '"' {
			rec.data = append(rec.data, '"')
			line = line[1:]
			continue
		}
		if after := trimEnd(line); len(after) > 0 && after[0] != ',' {
			return nil, r.s.failAt(r.s.line, dataflow.ReasonRowInvalid, "%s after a closing quote; a comma or the end of the line was expected", fmt.Sprintf("%q", after[:1]))
		}
		rec.quoted = append(rec.quoted, true)
		if line = trimEnd(line); len(line) == 0 {
			return nil, nil
		}
		return line, nil
	}
}
