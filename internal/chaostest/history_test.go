package chaostest

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"time"
)

// history is what happened, as text, one event per line.
type history struct {
	mu    sync.Mutex
	f     *os.File
	w     *bufio.Writer
	began time.Time
}

func openHistory(path string) (*history, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &history{f: f, w: bufio.NewWriter(f), began: time.Now()}, nil
}

func (h *history) log(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(h.w, "%s %9.3f  ", time.Now().UTC().Format("15:04:05.000"), time.Since(h.began).Seconds())
	fmt.Fprintf(h.w, format, args...)
	_ = h.w.WriteByte('\n') // errors stay with the writer, until close
}

func (h *history) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.w.Flush(); err != nil {
		return err
	}
	return h.f.Close()
}

// violationError says that Weir broke a rule, as opposed to that the test could not ask.
type violationError struct{ text string }

func (e *violationError) Error() string { return e.text }

func violation(format string, args ...any) error {
	return &violationError{fmt.Sprintf(format, args...)}
}
