package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	weir "github.com/weirdb/weir/clients/go"
)

// loadSQL is the plan of all benchmarks that have ingest: counts is what is read, shards tells how fresh each shard is.
// PARTITION BY spreads the rows of every moment over all shards.
const loadSQL = `
CREATE STREAM events (k BIGINT NOT NULL, t BIGINT NOT NULL, pad TEXT NOT NULL) PARTITION BY (k);
CREATE MATERIALIZED VIEW counts AS
SELECT k, count(*) AS n, max(t) AS t FROM events GROUP BY k;
CREATE MATERIALIZED VIEW shards AS
SELECT _shard AS shard, count(*) AS n, max(t) AS t FROM events GROUP BY _shard;
`

// loadCheck adds the table of counts up.
const loadCheck = `SELECT sum(n) AS rows, sum(n * k) AS sum, count(*) AS keys FROM bench.counts`

// session is a node with a client, a producer and the plan.
type session struct {
	r        *runner
	flags    NodeFlags
	node     *child // nil if there is a group
	group    *group
	client   *weir.Client
	producer *weir.Producer
	load     *load
	foreign  uint64       // rows of the load that were not sent by the producer
	stop     func() error // of the client's profile
}

// openSession starts a node, deploys sql as pipeline bench if it is not empty, and opens a producer on events.
func (r *runner) openSession(ctx context.Context, profileName, sql string, options map[string]string, keys uint64) (s *session, err error) {
	return r.openSessionWithin(ctx, 0, profileName, sql, options, keys)
}

// openSessionWithin is openSession of a node with a budget for its live tables; 0 = its default.
func (r *runner) openSessionWithin(ctx context.Context, memory int64, profileName, sql string, options map[string]string, keys uint64) (s *session, err error) {
	s = &session{r: r, load: newLoad(keys), flags: NodeFlags{DataDir: r.dataDir(), Memory: memory, Profile: r.cfg.Profile, ProfileName: profileName}}
	if s.stop, err = profile(r.cfg.Profile, profileName+".client"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.node, err = r.startNode(ctx, s.flags); err != nil {
		return s, err
	}
	s.flags.GRPCAddr = s.node.addr
	if s.client, err = weir.Dial(s.node.addr); err != nil {
		return s, err
	}
	if _, err = s.client.Deploy(ctx, weir.Deploy{Pipeline: "bench", SQL: sql, Options: options}); err != nil {
		return s, err
	}
	s.producer, err = s.client.OpenProducer(ctx, "events", weir.ProducerConfig{Name: "bench"})
	return s, err
}

// openFilled opens a session over the load's plan with a row of state per key, and finds out the most that it sustains.
func (r *runner) openFilled(ctx context.Context, profileName string, keys uint64) (s *session, most float64, err error) {
	return r.openFilledWithin(ctx, 0, profileName, keys)
}

// openFilledWithin is openFilled of a node with a budget for its live tables; 0 = its default.
func (r *runner) openFilledWithin(ctx context.Context, memory int64, profileName string, keys uint64) (s *session, most float64, err error) {
	if s, err = r.openSessionWithin(ctx, memory, profileName, loadSQL, nil, keys); err != nil {
		return nil, 0, err
	}
	if err = s.fill(ctx); err == nil {
		most, err = s.maximum(ctx, r.maximumTime(keys))
	}
	if err != nil {
		return nil, 0, errors.Join(err, s.close())
	}
	return s, most, nil
}

// maximumTime is how long rows are sent to find the most that is sustained. Rows of large states, whose keys are spread over all
// of it, have costs that come later: layers are folded every ten to thirty seconds, and compactions follow.
func (r *runner) maximumTime(keys uint64) time.Duration {
	if keys >= 10_000_000 {
		return max(2*r.size.window, 30*time.Second)
	}
	return 2 * r.size.window
}

// closeTimeout bounds how long a producer may still flush: after a good run there is nothing left, after a failure nothing
// to hope for.
const closeTimeout = 5 * time.Second

// close ends everything that is open.
func (s *session) close() error {
	var errs []error
	if s.producer != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		errs = append(errs, s.producer.Close(ctx))
	}
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.node != nil {
		errs = append(errs, s.node.stop())
	}
	if s.group != nil {
		errs = append(errs, s.group.stop())
	}
	return errors.Join(append(errs, s.stop())...)
}

// send appends rows of the load as fast as they are taken, until the time is over or, when it is 0, until every key has
// been sent once; then it waits until they are acknowledged.
func (s *session) send(ctx context.Context, d time.Duration) error {
	for began := time.Now(); ; {
		if d > 0 && time.Since(began) >= d || d == 0 && s.load.rows >= s.load.keys {
			return s.producer.Flush(ctx)
		}
		if err := s.producer.Append(ctx, s.load.next(1024, time.Now())); err != nil {
			return err
		}
	}
}

// fill sends every key once and waits until they are committed.
func (s *session) fill(ctx context.Context) error {
	s.r.progress("%d keys", s.load.keys)
	if err := s.send(ctx, 0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_, err := s.client.WaitCommitted(ctx, s.producer.Token())
	return err
}

// maximum sends as fast as possible for a time and waits until the rows are processed: the rows per second are the most
// that the node sustains with its plan. What was sent before is waited for first.
func (s *session) maximum(ctx context.Context, d time.Duration) (rate float64, err error) {
	s.r.progress("maximum rate")
	if err := s.settle(ctx); err != nil {
		return 0, err
	}
	before, began := s.load.rows, time.Now()
	if err := s.send(ctx, d); err != nil {
		return 0, err
	}
	if err := s.settle(ctx); err != nil {
		return 0, err
	}
	return float64(s.load.rows-before) / time.Since(began).Seconds(), nil
}

// settle waits until everything that was sent is acknowledged and processed.
func (s *session) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := s.producer.Flush(ctx); err != nil {
		return err
	}
	token := s.producer.Token()
	if token == "" {
		return nil // nothing was sent
	}
	_, err := s.client.WaitProcessed(ctx, token)
	return err
}

// check ends the run: everything sent is acknowledged, committed once, and adds up (B2).
func (s *session) check(ctx context.Context, sql string) error {
	s.r.progress("check")
	if err := s.producer.Flush(ctx); err != nil {
		return err
	}
	if st := s.producer.Stats(); st.Appended+st.Duplicates+s.foreign != s.load.rows {
		return voidf("%d rows were sent and %d acknowledged", s.load.rows-s.foreign, st.Appended+st.Duplicates)
	}
	return s.load.check(ctx, s.client, sql, s.producer.Token())
}

// tick is how often an open loop sends what is due: seldom enough that rows share a batch, often enough that a row is not
// late by more than it takes to be acknowledged.
const tick = 2 * time.Millisecond

// pace is an open loop of rows: at every tick it sends what is due by then, with the time that it was due. When the node is
// slow the rows keep their times (B3).
type pace struct {
	s    *session
	quit chan struct{}
	done chan error
	sent func(rows uint64, due time.Time) // told how many rows have been sent in all; optional
}

// startPace begins to send rate rows per second. stop must follow.
func (s *session) startPace(ctx context.Context, rate float64, sent func(uint64, time.Time)) *pace {
	p := &pace{s: s, quit: make(chan struct{}), done: make(chan error, 1), sent: sent}
	go func() { p.done <- p.run(ctx, rate) }()
	return p
}

func (p *pace) run(ctx context.Context, rate float64) error {
	began, count := time.Now(), 0.0
	for i := 1; ; i++ {
		due := began.Add(time.Duration(i) * tick)
		select {
		case <-time.After(time.Until(due)):
		case <-p.quit:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		for want := rate * (time.Duration(i) * tick).Seconds(); count+1 <= want; {
			n := min(int(want-count), maxLoadBatch)
			if err := p.s.producer.Append(ctx, p.s.load.next(n, due)); err != nil {
				return fmt.Errorf("append: %w", err)
			}
			count += float64(n)
			if p.sent != nil {
				p.sent(p.s.load.rows, due)
			}
		}
	}
}

// stop ends the loop and waits for it.
func (p *pace) stop() error {
	close(p.quit)
	return <-p.done
}

// during runs body under a load of rate rows per second.
func (s *session) during(ctx context.Context, rate float64, body func(context.Context) error) error {
	p := s.startPace(ctx, rate, nil)
	return errors.Join(body(ctx), p.stop())
}
