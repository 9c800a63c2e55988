package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// folds are differences in how a value is printed that are meant to be; a case names those that it meets. Both answers are
// printed so.
var folds = map[string]string{
	"numeric-zeros": "a NUMERIC in a key has no trailing zeros: 1.0 and 1.00 are one key (P10), and which of the two arrived first must not show",
	"negative-zero": "in a key −0 is 0 (P10); PostgreSQL shows the one that came first",
	"double-sum":    "a sum of DOUBLE depends on the order of its additions, which batches and shards change (P10): twelve digits are compared",
}

// differences are answers that are meant to differ; a case names the one that it shows.
var differences = map[string]string{
	"double-overflow": "a sum of DOUBLE that is out of range is Infinity, where PostgreSQL fails: no statement is there that could fail, and the row would stop the pipeline",
	"no-integer":      "PostgreSQL's integer is BIGINT here, so a sum of it is NUMERIC instead of BIGINT",
}

// table is an answer.
type table struct {
	cols []column
	rows [][]cell
	err  string // instead
}

type column struct{ name, typ string }

type cell struct {
	text string
	null bool
}

// print writes the answer as files hold it.
func (a *table) print(c *block) string {
	if a.err != "" {
		return "error: " + a.err + "\n"
	}
	var b strings.Builder
	for i, col := range a.cols {
		if i > 0 {
			b.WriteString(" | ")
		}
		b.WriteString(col.name + " " + col.typ)
	}
	b.WriteString("\n")
	lines := a.lines(c)
	if !c.digest {
		for _, l := range lines {
			b.WriteString(l + "\n")
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%d rows, xxhash %016x\n", len(lines), xxhash.Sum64String(strings.Join(lines, "\n")))
	for _, l := range lines[:min(10, len(lines))] {
		b.WriteString(l + "\n")
	}
	return b.String()
}

// lines prints the rows: in their order when it means something, else sorted.
func (a *table) lines(c *block) []string {
	out := make([]string, len(a.rows))
	for i, row := range a.rows {
		cells := make([]string, len(row))
		for j, v := range row {
			cells[j] = a.cols[j].print(v, c.folds)
		}
		out[i] = strings.Join(cells, " | ")
	}
	if !c.ordered {
		slices.Sort(out)
	}
	return out
}

// print writes a value: numbers and times alike for both systems, texts quoted where they would be unclear.
func (col column) print(v cell, folds []string) string {
	if v.null {
		return "NULL"
	}
	switch col.typ {
	case "BOOLEAN":
		switch v.text {
		case "t":
			return "true"
		case "f":
			return "false"
		}
	case "DOUBLE PRECISION":
		f, err := strconv.ParseFloat(v.text, 64)
		if err != nil {
			return "?" + v.text
		}
		if slices.Contains(folds, "negative-zero") && f == 0 {
			f = 0
		}
		if slices.Contains(folds, "double-sum") {
			return strconv.FormatFloat(f, 'g', 12, 64)
		}
		return strconv.FormatFloat(f, 'g', -1, 64)
	case "NUMERIC":
		if slices.Contains(folds, "numeric-zeros") && strings.Contains(v.text, ".") {
			return strings.TrimRight(strings.TrimRight(v.text, "0"), ".")
		}
	case "TIMESTAMPTZ":
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999Z07"} {
			if at, err := time.Parse(layout, v.text); err == nil {
				return at.UTC().Format(time.RFC3339Nano)
			}
		}
		return "?" + v.text
	case "TEXT":
		q := strconv.Quote(v.text)
		if v.text == "" || v.text == "NULL" || q != `"`+v.text+`"` || strings.Contains(v.text, "|") || strings.TrimSpace(v.text) != v.text {
			return q
		}
	}
	return v.text
}

// columnsOf names the columns of an answer of Weir.
func columnsOf(cols []*weirv1.Column) []column {
	out := make([]column, len(cols))
	for i, c := range cols {
		out[i] = column{c.GetName(), wire.TypeFrom(c.GetType()).String()}
	}
	return out
}

// answered turns rows, JSON objects, into a table.
func answered[S string | []byte](t *testing.T, cols []column, rows []S) *table {
	t.Helper()
	out := &table{cols: cols}
	for _, row := range rows {
		dec := json.NewDecoder(strings.NewReader(string(row)))
		dec.UseNumber()
		if _, err := dec.Token(); err != nil { // {
			t.Fatalf("row %s: %v", row, err)
		}
		var cells []cell
		for _, c := range cols {
			name, err := dec.Token()
			if err != nil || name != c.name {
				t.Fatalf("row %s: expected column %s, found %v: %v", row, c.name, name, err)
			}
			if c.typ == "JSONB" {
				var raw json.RawMessage
				if err := dec.Decode(&raw); err != nil {
					t.Fatalf("row %s: %v", row, err)
				}
				cells = append(cells, cell{text: string(raw), null: string(raw) == "null"})
				continue
			}
			v, err := dec.Token()
			if err != nil {
				t.Fatalf("row %s: %v", row, err)
			}
			cells = append(cells, cellOf(v))
		}
		if end, err := dec.Token(); err != nil || end != json.Delim('}') {
			t.Fatalf("row %s has more than its columns", row)
		}
		out.rows = append(out.rows, cells)
	}
	return out
}

func cellOf(v json.Token) cell {
	switch v := v.(type) {
	case nil:
		return cell{null: true}
	case bool:
		return cell{text: strconv.FormatBool(v)}
	case json.Number:
		return cell{text: v.String()}
	case string:
		return cell{text: v}
	}
	return cell{text: fmt.Sprintf("?%v", v)}
}

// diff shows the first lines that differ.
func diff(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var b strings.Builder
	shown := 0
	for i := 0; i < max(len(g), len(w)) && shown < 5; i++ {
		have, wanted := lineAt(g, i), lineAt(w, i)
		if have != wanted {
			fmt.Fprintf(&b, "  line %d: %s\n    instead of %s\n", i+1, have, wanted)
			shown++
		}
	}
	return b.String()
}

func lineAt(lines []string, i int) string {
	if i >= len(lines) {
		return "(nothing)"
	}
	return lines[i]
}
