package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
)

// recover kills the node under load and starts it again at once, and measures from the kill.
func (r *runner) recover(ctx context.Context) error {
	for _, keys := range r.size.recover {
		f := &figures{bench: "recover", name: fmt.Sprintf("keys=%d", keys)}
		if !r.wants(f.name) {
			continue
		}
		if err := r.recoverCase(ctx, keys, f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := r.cfg.Report(f.list); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) recoverCase(ctx context.Context, keys uint64, f *figures) (err error) {
	s, most, err := r.openFilled(ctx, "recover", keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var committed, live, fresh []float64
	if err := s.during(ctx, most/2, func(ctx context.Context) error {
		for i := range r.size.windows {
			if err := s.caughtUp(ctx); err != nil {
				return err
			}
			if err := pause.For(ctx, 2*time.Second); err != nil { // checkpoints as usual
				return err
			}
			r.progress("recover %s: kill %d", f.name, i+1)
			t, err := s.killAndWatch(ctx)
			if err != nil {
				return err
			}
			committed = append(committed, t.committed.Seconds())
			live = append(live, t.live.Seconds())
			fresh = append(fresh, t.fresh.Seconds())
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.check(ctx, loadCheck); err != nil {
		return err
	}
	f.add("ingest", "rows/s", most/2)
	f.add("first_committed_answer", "s", committed...)
	f.add("first_new_live_row", "s", live...)
	f.add("lag_below_one_second", "s", fresh...)
	return nil
}

// recovered holds times from the kill.
type recovered struct {
	committed time.Duration // a committed read was answered
	live      time.Duration // a row that was due after the kill showed in a live read
	fresh     time.Duration // the live rows of every shard were less than a second old
}

// recoverLook is how long a look at a recovering node waits before the next. Why not less: what the looks cost, the recovery
// lacks.
const recoverLook = 20 * time.Millisecond

// killAndWatch kills the node, starts it again, and watches it with a client that does not retry by itself.
func (s *session) killAndWatch(ctx context.Context) (t recovered, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.node.kill(); err != nil {
		return t, err
	}
	killed := time.Now()
	s.node = nil // until it runs again there is none to stop
	if s.node, err = s.r.startNode(ctx, s.flags); err != nil {
		return t, err
	}
	c, err := weir.Open(weir.Config{Addrs: []string{s.node.addr}, RetryFor: -1})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	watch := &session{client: c}
	until := func(is func() (bool, error)) (time.Duration, error) { return untilSince(ctx, killed, is) }
	if t.committed, err = until(func() (bool, error) {
		_, err := c.Get(ctx, "bench.counts", weir.Key(0), weir.ReadOptions{})
		return err == nil, err
	}); err != nil {
		return t, fmt.Errorf("wait for a committed answer: %w", err)
	}
	if t.live, err = until(func() (bool, error) {
		due, err := watch.newest(ctx, dataflow.ReadUncommitted)
		return slices.ContainsFunc(due, func(t time.Time) bool { return t.After(killed) }), err
	}); err != nil {
		return t, fmt.Errorf("wait for a new live row: %w", err)
	}
	if t.fresh, err = until(func() (bool, error) {
		age, err := watch.age(ctx, dataflow.ReadUncommitted)
		return age < time.Second, err
	}); err != nil {
		return t, fmt.Errorf("wait until the lag is below a second: %w", err)
	}
	return t, nil
}

// untilSince looks again and again, and returns the time since a kill when what is looked for is there. Errors other than a wrong
// answer are what a node answers that recovers.
func untilSince(ctx context.Context, killed time.Time, is func() (bool, error)) (time.Duration, error) {
	for {
		ok, err := is()
		switch {
		case err != nil && (Void(err) || ctx.Err() != nil):
			return 0, err
		case err == nil && ok:
			return time.Since(killed), nil
		}
		if perr := pause.For(ctx, recoverLook); perr != nil {
			return 0, errors.Join(perr, err)
		}
	}
}

// caughtUp waits until the live rows of every shard are less than a second old.
func (s *session) caughtUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		age, err := s.age(ctx, dataflow.ReadUncommitted)
		if err != nil {
			return err
		}
		if age < time.Second {
			return nil
		}
		if err := pause.For(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}
