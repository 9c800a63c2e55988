package rowfile

import (
	"context"
	"errors"
	"io"
	"testing"
)

// openPiped returns a reader of what is written to the pipe.
func openPiped(t *testing.T, ctx context.Context, format Format, header string) (Reader, *io.PipeWriter) {
	t.Helper()
	in, out := io.Pipe()
	t.Cleanup(func() { _ = out.Close() })
	go func() { _, _ = io.WriteString(out, header) }()
	cfg := Config{Name: "pipe", Format: format, Schema: schemas["lines"]}
	r, err := Open(NewSource(ctx, in), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r, out
}

func write(t *testing.T, out io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(out, text); err != nil {
		t.Fatal(err)
	}
}

func TestRowsAreHandedOverWhenTheInputPauses(t *testing.T) {
	for _, f := range []struct {
		format        Format
		header        string
		first, second string
	}{
		{Lines, "", "a\nb\nc", "\nd\n"}, // c is not a line yet
		{NDJSON, "", "{\"line\":\"a\"}\n{\"line\":\"b\"}\n{", "\"line\":\"c\"}\n{\"line\":\"d\"}\n"},
		{CSV, "line\n", "a\nb\nc", "\nd\n"},
	} {
		r, out := openPiped(t, t.Context(), f.format, f.header)
		for _, text := range []string{f.first, f.second} {
			write(t, out, text)
			b, err := r.Next() // no end of the input comes
			if err != nil || b.N != 2 {
				t.Fatalf("%s: %+v, %v", f.format, b, err)
			}
		}
		if err := out.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", f.format, err)
		}
	}
}

func TestWhatWasReadBeforeAnInterruptIsHandedOver(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	r, out := openPiped(t, ctx, Lines, "")
	write(t, out, "a\nb\n")
	write(t, out, "c\nhalf a li") // the pipe has no buffer: what came before has been taken
	interrupt()
	n := 0
	for {
		b, err := r.Next()
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			break
		}
		n += b.N
	}
	if n < 2 {
		t.Errorf("%d rows", n)
	}
}
