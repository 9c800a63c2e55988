package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/pause"
)

// countingReader counts what was read.
type countingReader struct {
	in io.Reader
	n  atomic.Int64
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	r.n.Add(int64(n))
	return n, err
}

// progressEvery is how often progress is shown.
const progressEvery = 200 * time.Millisecond

// watchIngest shows how far an ingest is, and says when the server is away. The function that it returns ends it.
func (c *cli) watchIngest(ctx context.Context, show *progress, p *weir.Producer, in *countingReader, size int64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		told := false
		start := time.Now()
		for pause.For(ctx, progressEvery) == nil {
			s := p.Stats()
			if s.Trouble != nil {
				if !told {
					show.done()
					fmt.Fprintf(c.stderr, "waiting for the server: %v\n", s.Trouble)
				}
				told = true
				continue
			}
			told = false
			total := s.Appended + s.Duplicates + s.Skipped
			line := fmt.Sprintf("%s, %s/s", rows(total), grouped(uint64(float64(total)/time.Since(start).Seconds())))
			if size > 0 {
				line = fmt.Sprintf("%3d%%  %s", min(100, 100*in.n.Load()/size), line)
			}
			show.set("%s", line)
		}
	}()
	return func() { cancel(); <-done }
}

// waitingAfter is how long a server may be silent before it is said that it is waited for.
const waitingAfter = time.Second

// tellWaiting says once, when the server has not answered for a while, that it is waited for. The function that it
// returns ends it.
func (c *cli) tellWaiting(ctx context.Context, d time.Duration) (stop func()) {
	if d < waitingAfter {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if pause.For(ctx, waitingAfter) == nil {
			fmt.Fprintf(c.stderr, "waiting for a server at %s, for up to %s\n", c.client.addr, d)
		}
	}()
	return func() { cancel(); <-done }
}
