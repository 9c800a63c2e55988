package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
)

//go:embed demo.sql
var demoSQL string

const (
	pipeline = "demo"
	stream   = "page_views"
	table    = pipeline + ".by_page"
)

// Config configures the demo.
type Config struct {
	// Dir keeps the data; empty = a temporary directory that is removed.
	Dir string
	// Rate is how many rows are sent per second.
	Rate int
	// Duration ends the demo; 0 = when it is quit.
	Duration time.Duration
	// Once sends Rate × Duration rows and crashes the dataflow twice among them.
	Once bool
	// Keys are the keys that a person presses; nil = nobody does. Screen redraws in place instead of printing lines.
	Keys   <-chan byte
	Screen bool
	Out    io.Writer
	// Program is what printed commands begin with.
	Program, Version string
}

const (
	frameEvery = 200 * time.Millisecond
	// lineEvery is how often a line is printed where no screen is redrawn.
	lineEvery = time.Second
	// settleTime bounds what must come by itself: the start, a recovery, the last commit.
	settleTime = time.Minute
	onceCrash  = 2
	// recoverPoll is short, because recovering takes milliseconds and the step back is to be seen.
	recoverPoll = time.Millisecond
	// crashRetry bounds how long a crash waits for the pipeline to run again.
	crashRetry = 5 * time.Second
)

// demo is one run.
type demo struct {
	cfg    Config
	w      *weir.Client // for what must succeed
	look   *weir.Client // for what is shown as it is: it does not try again
	send   *sender
	before *counts
	out    *screen

	crashes   int
	crashing  bool
	highest   uint64 // the largest live count since the last crash
	crashed   chan crash
	crashWait sync.WaitGroup
}

// crash is what became of one.
type crash struct {
	incarnation uint64  // the new one
	live        *counts // the first live read of it
	err         error
}

// Run runs the demo until it is quit, ctx ends or its duration is over, and says what it found.
func Run(ctx context.Context, cfg Config) (r Result, err error) {
	dir := cfg.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return r, err
	}
	srv, err := startServer(ctx, dir, cfg.Version)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	d := &demo{cfg: cfg, crashed: make(chan crash, 1), out: &screen{out: cfg.Out, redraw: cfg.Screen}}
	if d.w, err = weir.Open(weir.Config{Addrs: []string{srv.n.GRPCAddr()}}); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.w.Close()) }()
	if d.look, err = weir.Open(weir.Config{Addrs: []string{srv.n.GRPCAddr()}, RetryFor: -1}); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.look.Close()) }()
	return d.run(ctx, srv)
}

func (d *demo) run(ctx context.Context, srv *server) (Result, error) {
	if err := d.deploy(ctx); err != nil {
		return Result{}, err
	}
	if err := d.introduce(srv.n.GRPCAddr(), srv.n.HTTPAddr()); err != nil {
		return Result{}, err
	}
	p, err := d.w.OpenProducer(ctx, stream, weir.ProducerConfig{})
	if err != nil {
		return Result{}, err
	}
	limit := uint64(0)
	if d.cfg.Once {
		limit = max(1, uint64(float64(d.cfg.Rate)*d.cfg.Duration.Seconds()))
	}
	d.send = startSender(ctx, p, newGenerator(uint64(time.Now().UnixNano()), p.Schema()), d.cfg.Rate, limit)
	loopErr := d.loop(ctx, srv, limit)
	d.crashWait.Wait()
	sendErr := d.send.finish()
	// From here on ctx may have ended: what was sent is counted all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	closeErr := p.Close(ctx)
	r, err := d.verdict(ctx, p.Token())
	return r, errors.Join(loopErr, sendErr, closeErr, err)
}

// deploy deploys the file and notes what an earlier run has left in the table.
func (d *demo) deploy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if _, err := d.w.Deploy(ctx, weir.Deploy{Pipeline: pipeline, SQL: demoSQL}); err != nil {
		return err
	}
	for {
		before, err := readCounts(ctx, d.w, dataflow.ReadCommitted)
		if err != nil {
			return err
		}
		if before.cut.GetBehindRows() == 0 {
			d.before = before
			if before.total > 0 {
				d.out.note(fmt.Sprintf("earlier runs left %d rows here, which these lines count too", before.total))
			}
			return nil
		}
		if err := pause.For(ctx, frameEvery); err != nil {
			return fmt.Errorf("wait for the rows of an earlier run: %w", err)
		}
	}
}

// loop shows the counts and obeys keys until the demo is over.
func (d *demo) loop(ctx context.Context, srv *server, limit uint64) error {
	every := lineEvery
	if d.cfg.Screen || d.cfg.Once {
		every = frameEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var over <-chan time.Time
	if d.cfg.Duration > 0 && !d.cfg.Once {
		t := time.NewTimer(d.cfg.Duration)
		defer t.Stop()
		over = t.C
	}
	hold := time.Now().Add(d.cfg.Duration + settleTime)
	sent := d.send.done
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-over:
			return nil
		case <-srv.done:
			return fmt.Errorf("the node has stopped: %w", srv.err)
		case k, open := <-d.cfg.Keys:
			if !open {
				d.cfg.Keys = nil
			} else if d.key(ctx, k) {
				return nil
			}
		case c := <-d.crashed:
			d.recovered(c)
			f := d.observe(ctx)
			if c.live != nil {
				f.live = c.live // as it was a moment ago: the rows are counted again faster than frames are drawn
			}
			if err := d.out.draw(f, true); err != nil {
				return err
			}
			if sent == nil && (c.err != nil || d.crashAgain(ctx)) {
				return c.err
			}
		case <-sent:
			sent = nil
			if d.send.err != nil || !d.cfg.Once || d.crashAgain(ctx) {
				return d.send.err
			}
		case <-tick.C:
			f := d.observe(ctx)
			if err := d.out.draw(f, d.cfg.Once || d.cfg.Screen); err != nil {
				return err
			}
			if d.cfg.Once {
				d.crashInMidStream(ctx, f, limit)
				if time.Now().After(hold) {
					return errors.New("the demo has not come to its end in time")
				}
			}
		}
	}
}

// key obeys a key, and returns true for the one that ends the demo.
func (d *demo) key(ctx context.Context, k byte) (quit bool) {
	const ctrlC, ctrlD = 3, 4 // in raw mode these are keys
	switch k {
	case 'q', 'Q', ctrlC, ctrlD:
		return true
	case 'p', 'P':
		if d.send.pause() {
			d.out.note("paused: the committed count catches up with the live one; p goes on")
		} else {
			d.out.note("sending")
		}
	case 'c', 'C':
		d.crash(ctx)
	}
	return false
}

// crashInMidStream crashes the dataflow after each third of the rows, while there is something to roll back.
func (d *demo) crashInMidStream(ctx context.Context, f frame, limit uint64) {
	due := limit * uint64(d.crashes+1) / (onceCrash + 1)
	if d.crashes < onceCrash && f.sent >= due && f.live != nil && f.committed != nil && f.live.total > f.committed.total {
		d.crash(ctx)
	}
}

// crashAgain makes the crashes that a short run had no time for, once everything is sent. It returns true when they have
// all been made.
func (d *demo) crashAgain(ctx context.Context) (done bool) {
	if d.crashes >= onceCrash {
		return true
	}
	if !d.crashing {
		d.crash(ctx)
	}
	return false
}

// crash fails the dataflow, once at a time, and reports when the next incarnation runs.
func (d *demo) crash(ctx context.Context) {
	if d.crashing {
		d.out.note("still recovering from the last crash")
		return
	}
	d.crashing = true
	d.out.note("crashing the dataflow …")
	d.crashWait.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
		d.crashed <- d.crashAndWait(ctx) // has room: one crash at a time, each read before the next or left behind at the end
	})
}

// crashAndWait crashes the dataflow and reads the live counts as soon as its next incarnation has some.
func (d *demo) crashAndWait(ctx context.Context) crash {
	old, err := d.w.FailPipeline(ctx, pipeline)
	for began := time.Now(); dataflow.ReasonOf(err) == dataflow.ReasonPipelineState && time.Since(began) < crashRetry && pause.For(ctx, recoverPoll) == nil; {
		old, err = d.w.FailPipeline(ctx, pipeline) // it is just about to have recovered from the last one
	}
	if err != nil {
		return crash{err: err}
	}
	for {
		live, err := readCounts(ctx, d.look, dataflow.ReadUncommitted)
		if err == nil && live.cut.GetIncarnation() > old {
			return crash{incarnation: live.cut.GetIncarnation(), live: live}
		}
		if err := pause.For(ctx, recoverPoll); err != nil {
			return crash{err: fmt.Errorf("wait for the recovery: %w", err)}
		}
	}
}

func (d *demo) recovered(c crash) {
	d.crashing = false
	if c.err != nil {
		d.out.note("the crash did not happen: " + c.err.Error())
		return
	}
	d.crashes++
	text := fmt.Sprintf("crash %d: incarnation %d goes on from the last cut", d.crashes, c.incarnation)
	if c.live.total < d.highest {
		text += fmt.Sprintf("; live stepped back from %d to %d", d.highest, c.live.total)
	} else {
		text += "; the rows behind it were counted again before anybody looked"
	}
	d.highest = c.live.total
	d.out.note(text)
}

// observe reads both columns. What cannot be read now is shown as such.
func (d *demo) observe(ctx context.Context) frame {
	ctx, cancel := context.WithTimeout(ctx, lineEvery)
	defer cancel()
	var f frame
	f.committed, f.committedErr = readCounts(ctx, d.look, dataflow.ReadCommitted)
	f.live, f.liveErr = readCounts(ctx, d.look, dataflow.ReadUncommitted)
	f.truth, f.sent = d.send.truth() // after the others, so that it is never less than they are
	for page, n := range d.before.byPage {
		f.truth[page] += n
	}
	f.total = f.sent + d.before.total
	if f.live != nil {
		d.highest = max(d.highest, f.live.total)
	}
	return f
}

// verdict waits until everything sent is committed, and compares.
func (d *demo) verdict(ctx context.Context, token string) (Result, error) {
	select {
	case c := <-d.crashed: // the last one, when the demo was quit meanwhile
		d.recovered(c)
	default:
	}
	if token != "" {
		if _, err := d.w.WaitCommitted(ctx, token, pipeline); err != nil {
			return Result{}, err
		}
	}
	now, err := readCounts(ctx, d.w, dataflow.ReadCommitted)
	if err != nil {
		return Result{}, err
	}
	truth, sent := d.send.truth()
	r := compare(truth, sent, d.before, now)
	r.Crashes = d.crashes
	return r, d.out.draw(d.observe(ctx), true)
}
