package killtest

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
	fmt.Fprintf(h.w, "%10.4f  ", time.Since(h.began).Seconds())
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
