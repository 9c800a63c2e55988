package rowfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

var schemas = map[string]dataflow.Schema{
	"lines": {{Name: "line", Type: dataflow.TypeText}},
	"two":   {{Name: "line", Type: dataflow.TypeText}, {Name: "n", Type: dataflow.TypeBigInt}},
	"orders": {{Name: "country", Type: dataflow.TypeText}, {Name: "n", Type: dataflow.TypeBigInt, NotNull: true},
		{Name: "at", Type: dataflow.TypeTimestamp}, {Name: "ok", Type: dataflow.TypeBool}, {Name: "price", Type: dataflow.TypeNumeric}},
}

// readAll returns all rows as JSON, and the error that ended them, nil at the end of the file.
func readAll(in io.Reader, cfg Config) (rows []string, err error) {
	r, err := Open(in, cfg)
	if err != nil {
		return nil, err
	}
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		for i := range b.N {
			rows = append(rows, string(wire.AppendRowJSON(nil, b, i, weirv1.Numbers_NUMBERS_JSON)))
		}
	}
}

// TestFiles runs testdata/*: the command is a format, with the stream's schema and the column; the input is the file,
// with \r \n \x.. as Go writes them inside a line.
func TestFiles(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			cfg := Config{Name: "file", Format: Format(d.Cmd), Schema: schemas["lines"]}
			for _, a := range d.CmdArgs {
				switch a.Key {
				case "stream":
					cfg.Schema = schemas[a.Vals[0]]
				case "column":
					cfg.Column = a.Vals[0]
				}
			}
			input := unescape(d.Input)
			rows, err := readAll(strings.NewReader(input), cfg)
			slow, slowErr := readAll(iotest.OneByteReader(strings.NewReader(input)), cfg)
			if fmt.Sprint(rows, err) != fmt.Sprint(slow, slowErr) {
				t.Errorf("%s: read byte by byte it is %v, %v", d.Pos, slow, slowErr)
			}
			var b strings.Builder
			for _, r := range rows {
				b.WriteString(r + "\n")
			}
			var e *dataflow.Error
			if errors.As(err, &e) {
				fmt.Fprintf(&b, "%s: %s\n", e.Reason, e.Message)
				if e.Hint != "" {
					fmt.Fprintf(&b, "hint: %s\n", e.Hint)
				}
			} else if err != nil {
				fmt.Fprintf(&b, "error: %v\n", err)
			}
			return b.String()
		})
	})
}

func unescape(s string) string {
	return strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\xff`, "\xff", `\x00`, "\x00", `\ufeff`, "\ufeff", `\t`, "\t").Replace(s)
}

func TestBatchesAreBoundedAndCompleteForLargeFiles(t *testing.T) {
	var lines, objects, csv bytes.Buffer
	csv.WriteString("line\n")
	const n = 3*batchRows + 17
	for i := range n {
		fmt.Fprintf(&lines, "row %d\n", i)
		fmt.Fprintf(&objects, "{\"line\":\"row %d\"}\n", i)
		fmt.Fprintf(&csv, "row %d\n", i)
	}
	for format, in := range map[Format]*bytes.Buffer{Lines: &lines, NDJSON: &objects, CSV: &csv} {
		r, err := Open(in, Config{Name: "f", Format: format, Schema: schemas["lines"]})
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for {
			b, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if b.N > batchRows {
				t.Fatalf("%s: a batch of %d rows", format, b.N)
			}
			for i := range b.N {
				if got := string(b.Cols[0].Text(i)); got != fmt.Sprint("row ", at) {
					t.Fatalf("%s: row %d is %q", format, at, got)
				}
				at++
			}
		}
		if at != n {
			t.Errorf("%s: %d rows of %d", format, at, n)
		}
	}
}

func TestOverlongLinesAreRefusedWithTheirLine(t *testing.T) {
	long := strings.Repeat("a", 4<<20)
	for format, head := range map[Format]string{Lines: "ok\n", NDJSON: `{"line":"ok"}` + "\n", CSV: "line\nok\n"} {
		rows, err := readAll(strings.NewReader(head+long), Config{Name: "f", Format: format, Schema: schemas["lines"]})
		if len(rows) != 1 || dataflow.ReasonOf(err) != dataflow.ReasonTooLarge || !strings.Contains(err.Error(), fmt.Sprintf("line %d", strings.Count(head, "\n")+1)) {
			t.Errorf("%s: %v, %v", format, rows, err)
		}
	}
	if _, err := readAll(strings.NewReader("line\n\""+long+"\n"+long), Config{Name: "f", Format: CSV, Schema: schemas["lines"]}); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge {
		t.Errorf("a quoted field without end: %v", err)
	}
}

func TestFailedReadsAreReported(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, format := range []Format{Lines, NDJSON, CSV} {
		in := io.MultiReader(strings.NewReader("line\n\"a"), iotest.ErrReader(broken))
		if format == NDJSON {
			in = iotest.ErrReader(broken)
		}
		if _, err := readAll(in, Config{Name: "f", Format: format, Schema: schemas["lines"]}); !errors.Is(err, broken) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

func TestFormatFollowsTheExtension(t *testing.T) {
	for name, want := range map[string]Format{"a.CSV": CSV, "x/b.ndjson": NDJSON, "c.jsonl": NDJSON, "d.json": NDJSON, "e.txt": Lines, "-": Lines, "log": Lines} {
		if got := FormatOf(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func FuzzReaders(f *testing.F) {
	for _, s := range []string{"", "a\r\n\nb", "{\"line\":\"x\"}\n[1]", "line\n\"a\"\"b\nc\",d\n", "\ufeffline\n\"", "country,n\n,1\n\"\",x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, format := range []Format{Lines, NDJSON, CSV} {
			for _, schema := range schemas {
				rows, err := readAll(bytes.NewReader(in), Config{Name: "f", Format: format, Schema: schema})
				if format == Lines && err == nil && len(schema) == 1 && len(rows) > bytes.Count(in, []byte("\n"))+1 {
					t.Fatalf("%d rows of %q", len(rows), in)
				}
			}
		}
	})
}

func TestBatchesOfShortTextsOfLongNumbersAreBounded(t *testing.T) {
	schema := dataflow.Schema{{Name: "n", Type: dataflow.TypeNumeric}}
	r, err := Open(strings.NewReader("n\n"+strings.Repeat("1e131071\n", batchRows)), Config{Format: CSV, Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if size := b.RowBytes(0) * b.N; size > 2*batchBytes {
		t.Errorf("a batch of %d rows, %d bytes", b.N, size)
	}
}
