package rowfile

import (
	"context"
	"io"
	"time"
)

const (
	// sourceChunk is how much a Source reads at once, and sourceAhead how many pieces it reads ahead.
	sourceChunk, sourceAhead = 64 << 10, 2
	// linger is how long rows that were read wait for others when the input pauses: what follows a log shows up at once,
	// and a pipe that fills in small pieces is not cut into a batch for each.
	linger = 20 * time.Millisecond
)

// Source is an input that is read ahead, so that a reader of rows can hand over what it has while the input pauses, and
// an interrupt ends the reading behind what was read. It is for one goroutine.
type Source struct {
	ctx    context.Context
	pieces <-chan piece
	rest   []byte
	err    error // final
}

type piece struct {
	data []byte
	err  error
}

// NewSource returns a source that reads in until its end, or until ctx ends; then Read returns what was read, and
// ctx's error. A read of in that nothing can call off, as of a terminal, keeps a goroutine until it returns.
func NewSource(ctx context.Context, in io.Reader) *Source {
	pieces := make(chan piece, sourceAhead)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, sourceChunk)
			n, err := in.Read(b)
			if n == 0 && err == nil {
				continue
			}
			select {
			case pieces <- piece{b[:n], err}:
			case <-ctx.Done():
				// What was read last is handed over when there is room: nobody may be left to read it.
				select {
				case pieces <- piece{b[:n], ctx.Err()}:
				default:
				}
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return &Source{ctx: ctx, pieces: pieces}
}

// Read implements io.Reader.
func (s *Source) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		select {
		case got, ok := <-s.pieces: // also after ctx's end, what is there
			s.take(got, ok)
			continue
		default:
		}
		select {
		case got, ok := <-s.pieces:
			s.take(got, ok)
		case <-s.ctx.Done():
			s.err = s.ctx.Err()
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *Source) take(got piece, ok bool) {
	s.rest, s.err = got.data, got.err
	if !ok {
		s.err = s.ctx.Err()
	}
}

// Wait waits for at most d, and reports whether Read returns without waiting.
func (s *Source) Wait(d time.Duration) bool {
	if len(s.rest) > 0 || s.err != nil {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case got, ok := <-s.pieces:
		s.take(got, ok)
		return true
	case <-s.ctx.Done():
		return true
	case <-t.C:
		return false
	}
}
