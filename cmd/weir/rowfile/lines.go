package rowfile

import (
	"errors"
	"io"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// linesReader makes a row of every line, empty ones too.
type linesReader struct {
	s      *lineScanner
	schema dataflow.Schema
	column int
	ended  error
}

func openLines(s *lineScanner, cfg Config) (Reader, error) {
	r := &linesReader{s: s, schema: cfg.Schema, column: -1}
	if cfg.Column != "" {
		if r.column = cfg.Schema.Index(cfg.Column); r.column < 0 {
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "the stream has no column %q; it has %s", cfg.Column, cfg.Schema)
		}
		if t := cfg.Schema[r.column].Type; t != dataflow.TypeText {
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "column %s is %s; lines fill a TEXT column", cfg.Column, t)
		}
	} else {
		if len(cfg.Schema) != 1 || cfg.Schema[0].Type != dataflow.TypeText {
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "lines need a stream of one TEXT column; this one has %s", cfg.Schema).
				WithHint("name the column that they fill with --column, or use --format csv or --format ndjson")
		}
		r.column = 0
	}
	for i, c := range cfg.Schema {
		if i != r.column && c.NotNull {
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "column %s is NOT NULL, and lines fill %s only", c.Name, cfg.Schema[r.column].Name).
				WithHint("use --format csv or --format ndjson")
		}
	}
	return r, nil
}

// Next implements Reader.
func (r *linesReader) Next() (*batch.Batch, error) {
	if r.ended != nil {
		return nil, r.ended
	}
	b := batch.NewBatch(r.schema)
	for size := 0; b.N < batchRows && size < batchBytes && !r.s.paused(b.N); {
		line, err := r.s.next()
		if err == nil && !batch.ValidText(line) {
			err = r.s.fail("the text is not valid UTF-8, or holds a NUL")
		}
		if err == nil && len(line) > dataflow.MaxRowBytes {
			err = r.s.failAt(r.s.line, dataflow.ReasonTooLarge, "a row of %d bytes is over the limit of %d", len(line), dataflow.MaxRowBytes)
		}
		if err != nil {
			return endWith(b, err, &r.ended)
		}
		for i, v := range b.Cols {
			if i == r.column {
				v.AppendText(line)
			} else {
				v.AppendNull()
			}
		}
		b.N++
		size += len(line)
	}
	return b, nil
}

// endWith returns the rows that came before an error, and the error with the next call.
func endWith(b *batch.Batch, err error, ended *error) (*batch.Batch, error) {
	*ended = err
	if b.N == 0 {
		return nil, err
	}
	return b, nil
}

var _, _, _ Reader = (*linesReader)(nil), (*jsonReader)(nil), (*csvReader)(nil)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
