package grouptest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// logger returns what the nodes of a schedule log to.
func (w *world) logger() *slog.Logger {
	if *logs == "" {
		return slog.New(newComplaints(w))
	}
	f, err := os.Create(filepath.Join(*logs, fmt.Sprintf("seed-%d.log", w.seed)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := f.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return slog.New(slog.NewMultiHandler(newComplaints(w), slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

// complaints is the log of a schedule's nodes: errors go to the test's own. No disk is damaged here, so a replica that a node calls
// damaged is a defect (T8), also where it is rebuilt from another one and nobody has read it.
type complaints struct {
	w    *world
	text slog.Handler
}

var _ slog.Handler = (*complaints)(nil)

func newComplaints(w *world) *complaints {
	return &complaints{w: w, text: slog.NewTextHandler(testLog{w}, &slog.HandlerOptions{Level: slog.LevelError})}
}

// Enabled implements slog.Handler.
func (c *complaints) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

// WithAttrs implements slog.Handler.
func (c *complaints) WithAttrs(as []slog.Attr) slog.Handler {
	return &complaints{c.w, c.text.WithAttrs(as)}
}

// WithGroup implements slog.Handler.
func (c *complaints) WithGroup(name string) slog.Handler {
	return &complaints{c.w, c.text.WithGroup(name)}
}

// Handle implements slog.Handler.
func (c *complaints) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "damaged") {
		c.w.errorf("T8: a node says: %s", r.Message)
	}
	return c.text.Handle(ctx, r)
}

// testLog writes to the test's log.
type testLog struct{ w *world }

func (l testLog) Write(p []byte) (int, error) {
	l.w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
