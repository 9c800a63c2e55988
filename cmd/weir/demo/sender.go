package demo

import (
	"context"
	"maps"
	"sync"
	"time"

	weir "github.com/weirdb/weir/clients/go"
)

// sendEvery is how often a part of the rate is sent.
const sendEvery = 10 * time.Millisecond

// sender sends page views at a rate, until it is stopped or has sent its limit.
type sender struct {
	p    *weir.Producer
	rate int

	mu struct {
		sync.Mutex
		gen    *generator
		limit  uint64 // rows to send in all; 0 = no limit
		paused bool
	}
	stop chan struct{}
	done chan struct{}
	err  error // after done
}

func startSender(ctx context.Context, p *weir.Producer, gen *generator, rate int, limit uint64) *sender {
	s := &sender{p: p, rate: rate, stop: make(chan struct{}), done: make(chan struct{})}
	s.mu.gen, s.mu.limit = gen, limit
	go func() {
		defer close(s.done)
		// Not ended by ctx: rows that are half handed over would be rows that nobody knows of.
		s.err = s.run(context.WithoutCancel(ctx))
	}()
	return s
}

func (s *sender) run(ctx context.Context) error {
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	start, offered := time.Now(), 0.0
	for {
		select {
		case <-s.stop:
			return nil
		case <-tick.C:
		}
		due := float64(s.rate) * time.Since(start).Seconds()
		whole := int(due - offered)
		n, more := s.room(whole)
		if !more {
			return nil
		}
		offered += float64(whole)
		if n <= 0 {
			continue
		}
		s.mu.Lock()
		b := s.mu.gen.batch(n)
		s.mu.gen.add(b) // before they are sent: no count may be ahead of what was sent
		s.mu.Unlock()
		if err := s.p.Append(ctx, b); err != nil {
			return err
		}
	}
}

// room returns how many of n rows may be sent now, and whether there are ever more.
func (s *sender) room(n int) (now int, more bool) {
	const most = 100_000 // after a pause of the whole process
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, most)
	if s.mu.paused {
		return 0, true
	}
	if s.mu.limit > 0 {
		left := s.mu.limit - s.mu.gen.total
		return int(min(uint64(max(n, 0)), left)), left > 0
	}
	return n, true
}

// pause stops or continues sending, and returns whether it is paused now.
func (s *sender) pause() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.paused = !s.mu.paused
	return s.mu.paused
}

// truth returns what has been sent.
func (s *sender) truth() (byPage map[string]uint64, total uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.gen.truth), s.mu.gen.total
}

// finish ends the sending and waits for it.
func (s *sender) finish() error {
	close(s.stop)
	<-s.done
	return s.err
}
