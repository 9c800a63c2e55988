package rowfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/wire"
)

// jsonReader makes a row of every line that is not blank.
type jsonReader struct {
	s      *lineScanner
	schema dataflow.Schema
	ended  error
}

// Next implements Reader.
func (r *jsonReader) Next() (*batch.Batch, error) {
	for r.ended == nil {
		text, lines, err := r.gather()
		r.ended = err
		if len(lines) == 0 {
			continue
		}
		b, err := wire.DecodeJSONRows(context.Background(), r.schema, text)
		if err == nil && b.N == len(lines) {
			return b, nil
		}
		return r.oneByOne(text, lines)
	}
	return nil, r.ended
}

// gather returns a batch's worth of lines and their numbers.
func (r *jsonReader) gather() (text []byte, lines []int, err error) {
	for len(lines) < batchRows && len(text) < batchBytes && !r.s.paused(len(lines)) {
		line, err := r.s.next()
		if err != nil {
			return text, lines, err
		}
		start := bytes.TrimSpace(line)
		if len(start) == 0 {
			continue
		}
		if start[0] == '[' {
			return text, lines, r.s.fail("an array; NDJSON has one object per line")
		}
		text = append(append(text, line...), '\n')
		lines = append(lines, r.s.line)
	}
	return text, lines, nil
}

// oneByOne finds the line that is at fault.
func (r *jsonReader) oneByOne(text []byte, lines []int) (*batch.Batch, error) {
	good := batch.NewBatch(r.schema)
	for i, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		b, err := wire.DecodeJSONRows(context.Background(), r.schema, line)
		if err == nil && b.N != 1 {
			err = fmt.Errorf("%d objects on one line; NDJSON has one", b.N)
		}
		if err != nil {
			return endWith(good, r.lineError(lines[i], err), &r.ended)
		}
		for c, v := range good.Cols {
			v.AppendFrom(b.Cols[c], 0)
		}
		good.N++
	}
	return good, nil
}

// lineError names the line instead of the row's number, which is 0.
func (r *jsonReader) lineError(line int, err error) error {
	var e *dataflow.Error
	if !errors.As(err, &e) {
		return r.s.failAt(line, dataflow.ReasonRowInvalid, "%w", err)
	}
	out := r.s.failAt(line, e.Reason, "%s", strings.TrimPrefix(withoutRow(e.Message), "."))
	return out
}

// withoutRow cuts rows[0] off a message about a single row.
func withoutRow(msg string) string {
	msg = strings.TrimPrefix(msg, "rows[0]")
	return strings.TrimPrefix(msg, ": ")
}
