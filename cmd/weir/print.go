package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// printJSON writes one message as one line of JSON.
func (c *cli) printJSON(m proto.Message) error {
	return c.printLine(wire.AppendJSON(nil, m))
}

func (c *cli) printLine(line []byte) error {
	_, err := c.stdout.Write(append(line, '\n'))
	return err
}

// cell is one value of a printed table.
type cell struct {
	text  string
	right bool // numbers stand right
}

func text(s string) cell { return cell{text: oneLine(s)} }
func number[N ~int | ~int64 | ~uint32 | ~uint64](n N) cell {
	return cell{text: fmt.Sprint(n), right: true}
}

// oneLine makes control characters visible, so that no value breaks the table or the terminal.
func oneLine(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// table prints rows under headings. It holds rows back until blockRows are there, to find the widths; later blocks may
// be wider.
type table struct {
	out     io.Writer
	heading []string
	widths  []int
	rows    [][]cell
	begun   bool
}

const blockRows = 1000

func newTable(out io.Writer, heading ...string) *table {
	return &table{out: out, heading: heading, widths: make([]int, len(heading))}
}

func (t *table) add(cells ...cell) error {
	t.rows = append(t.rows, cells)
	if len(t.rows) >= blockRows {
		return t.flush()
	}
	return nil
}

// flush prints what is held back, and the heading before the first row.
func (t *table) flush() error {
	var b bytes.Buffer
	head := make([]cell, len(t.heading))
	for i, h := range t.heading {
		head[i] = cell{text: h, right: len(t.rows) > 0 && t.rows[0][i].right}
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(h))
	}
	for _, r := range t.rows {
		for i, c := range r {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c.text))
		}
	}
	if !t.begun {
		t.begun = true
		t.line(&b, head)
	}
	for _, r := range t.rows {
		t.line(&b, r)
	}
	t.rows = t.rows[:0]
	_, err := t.out.Write(b.Bytes())
	return err
}

func (t *table) line(b *bytes.Buffer, cells []cell) {
	for i, c := range cells {
		pad := t.widths[i] - utf8.RuneCountInString(c.text)
		if i > 0 {
			b.WriteString("  ")
		}
		if c.right {
			b.WriteString(strings.Repeat(" ", pad))
		}
		b.WriteString(c.text)
		if !c.right && i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", pad))
		}
	}
	b.WriteByte('\n')
}

// rowCells returns the names and values of a row's JSON object, in its order.
func rowCells(row []byte) (names []string, cells []cell, err error) {
	bad := func(err error) ([]string, []cell, error) {
		return nil, nil, fmt.Errorf("read a row of the answer: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(row))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return bad(cmp.Or(err, errors.New("it is not an object")))
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return bad(err)
		}
		var v any
		if err := dec.Decode(&v); err != nil {
			return bad(err)
		}
		names = append(names, fmt.Sprint(name))
		switch v := v.(type) {
		case nil:
			cells = append(cells, text("NULL"))
		case json.Number:
			cells = append(cells, cell{text: v.String(), right: true})
		case string:
			cells = append(cells, text(v))
		default:
			cells = append(cells, text(fmt.Sprint(v)))
		}
	}
	if _, err := dec.Token(); err != nil { // }
		return bad(err)
	}
	return names, cells, nil
}

// cutLine says in one line which input an answer reflects.
func cutLine(c *weirv1.Cut) string {
	if c == nil {
		return "no cut: no table was read"
	}
	var b strings.Builder
	if c.GetSpeculative() {
		fmt.Fprintf(&b, "live, incarnation %d of %s over cut %d; a recovery may take this back", c.GetIncarnation(), c.GetPipeline(), c.GetCheckpointId())
	} else {
		fmt.Fprintf(&b, "cut %d of %s", c.GetCheckpointId(), c.GetPipeline())
		if c.GetCommittedAt() != nil {
			fmt.Fprintf(&b, ", committed %s ago", age(c.GetAgeMs()))
		}
	}
	switch {
	case c.GetBehindRows() > 0:
		fmt.Fprintf(&b, ", %s behind (%s)", rows(c.GetBehindRows()), age(c.GetBehindMs()))
	default:
		b.WriteString(", covers everything acknowledged")
	}
	if c.GetCatchingUp() {
		b.WriteString(", catching up")
	}
	if n := c.GetSkippedRows(); n > 0 {
		fmt.Fprintf(&b, ", %s skipped", rows(n))
	}
	if s := c.GetPipelineState(); s != weirv1.PipelineState_PIPELINE_STATE_RUNNING {
		fmt.Fprintf(&b, ", pipeline %s", stateName(s))
	}
	return b.String()
}

func stateName(s weirv1.PipelineState) string {
	return strings.TrimPrefix(s.String(), "PIPELINE_STATE_")
}

func age(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return d.String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// rows writes a count of rows.
func rows(n uint64) string {
	if n == 1 {
		return "1 row"
	}
	return grouped(n) + " rows"
}

// grouped writes 1234567 as 1,234,567.
func grouped(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// bytesText writes a number of bytes for people.
func bytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, prefix := float64(n)/unit, 0
	for f >= unit && prefix < len("KMGTP")-1 {
		f /= unit
		prefix++
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[prefix])
}
