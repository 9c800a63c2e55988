package rowfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Format is how rows are written in a file.
type Format string

// The formats.
const (
	Lines  Format = "lines"  // a line is a row's one TEXT
	NDJSON Format = "ndjson" // a line is a JSON object
	CSV    Format = "csv"    // the first line names the columns
)

// FormatOf returns the format of a file by its extension: what is not known is lines.
func FormatOf(name string) Format {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".csv":
		return CSV
	case ".ndjson", ".jsonl", ".json":
		return NDJSON
	}
	return Lines
}

// Reader yields rows.
type Reader interface {
	// Next returns the next rows, or io.EOF after the last. The batch belongs to the caller. An error is final; rows
	// before the line at fault have been returned.
	Next() (*batch.Batch, error)
}

// Config says how to read.
type Config struct {
	Name   string // of the file, for errors
	Format Format
	Schema dataflow.Schema
	Column string // the column that lines fill; empty = the stream's only column
}

const (
	// batchRows and batchBytes bound a batch: enough to be handled at small cost per row.
	batchRows  = 4096
	batchBytes = 1 << 20
	// maxLine bounds a line: the largest row, with room for the names and quotes of JSON.
	maxLine = 2*dataflow.MaxRowBytes + 64<<10
)

// Open returns a reader of in. It reads the header of a CSV file. When in is a *Source and it pauses, Next returns the rows
// that came before the pause.
func Open(in io.Reader, cfg Config) (Reader, error) {
	s := &lineScanner{name: cfg.Name, in: bufio.NewReaderSize(in, 256<<10)}
	s.source, _ = in.(*Source) // others are read without regard to pauses
	switch cfg.Format {
	case Lines:
		return openLines(s, cfg)
	case NDJSON:
		return &jsonReader{s: s, schema: cfg.Schema}, nil
	case CSV:
		return openCSV(s, cfg)
	}
	return nil, fmt.Errorf("%q is not a format", cfg.Format)
}

// lineScanner yields lines without their ends. It drops a byte order mark at the start.
type lineScanner struct {
	name string
	in   *bufio.Reader
	line int // number of the line that was returned last, from 1
	long []byte

	source *Source   // nil = nothing is known of pauses
	idle   time.Time // when the input was first seen to have no line ready for this batch
}

// paused reports that no line has come for a short while, and that a batch that has rows already should be handed over.
func (s *lineScanner) paused(rows int) bool {
	if s.source == nil {
		return false
	}
	if rows == 0 {
		s.idle = time.Time{}
		return false
	}
	for {
		n := s.in.Buffered()
		if b, _ := s.in.Peek(n); n == s.in.Size() || bytes.IndexByte(b, '\n') >= 0 { // what is buffered can be peeked
			return false
		}
		if s.idle.IsZero() {
			s.idle = time.Now()
		}
		if !s.source.Wait(linger - time.Since(s.idle)) {
			return true
		}
		if _, err := s.in.Peek(n + 1); err != nil {
			return false // the next read says it
		}
	}
}

// next returns the next line, with what ends it (\n, \r\n or nothing) cut off. It is valid until the next call.
func (s *lineScanner) next() ([]byte, error) {
	raw, err := s.raw()
	return trimEnd(raw), err
}

func trimEnd(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
		if n > 1 && b[n-2] == '\r' {
			b = b[:n-2]
		}
	}
	return b
}

// raw returns the next line with its end.
func (s *lineScanner) raw() ([]byte, error) {
	if s.line == 0 {
		if b, _ := s.in.Peek(3); string(b) == "\xef\xbb\xbf" {
			_, _ = s.in.Discard(3) // what was peeked is there
		}
	}
	b, err := s.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		s.long = append(s.long[:0], b...)
		for errors.Is(err, bufio.ErrBufferFull) && len(s.long) <= maxLine {
			b, err = s.in.ReadSlice('\n')
			s.long = append(s.long, b...)
		}
		b = s.long
	}
	atEnd := errors.Is(err, io.EOF)
	if err != nil && !atEnd && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("read %s: %w", s.name, err)
	}
	if atEnd && len(b) == 0 {
		return nil, io.EOF
	}
	s.line++
	if len(b) > maxLine {
		return nil, s.failAt(s.line, dataflow.ReasonTooLarge, "the line is longer than %d bytes", maxLine)
	}
	return b, nil
}

// failAt returns an error about a line.
func (s *lineScanner) failAt(line int, r dataflow.Reason, format string, args ...any) error {
	return dataflow.Errorf(r, "%s, line %d: %w", s.name, line, fmt.Errorf(format, args...)).WithMeta("line", fmt.Sprint(line))
}

func (s *lineScanner) fail(format string, args ...any) error {
	return s.failAt(s.line, dataflow.ReasonRowInvalid, format, args...)
}
