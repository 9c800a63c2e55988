package task

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/checkpoint"
	"github.com/weirdb/weir/dataflow/exchange"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/phase"
)

// RowLog is what a source task reads: the applied rows of one shard.
type RowLog interface {
	// Read returns batches that follow each other and cover from, at most about maxRows rows; none at the end of the
	// stream. The first may begin before from. The data is shared: it is not modified.
	Read(stream dataflow.StreamID, from dataflow.Offset, maxRows int) ([]Rows, error)
	// Changed returns a channel that is closed when more may have been applied than at the time of the call.
	Changed() <-chan struct{}
}

// Rows is one batch of a stream as the log holds it.
type Rows struct {
	First      dataflow.Offset
	Count      int
	AppendTime int64  // microseconds
	Data       []byte // batch.Encode
}

// Config describes a run. All fields are needed unless they say otherwise.
type Config struct {
	Pipeline    dataflow.PipelineUID
	Name        string // the pipeline's name, for messages
	Plan        *plan.Plan
	Incarnation dataflow.Incarnation
	Shards      int                          // shards of the group
	Local       []dataflow.ShardID           // shards whose tasks run here
	Streams     map[string]dataflow.StreamID // by the names in Plan.Reads

	// Start holds the base cut's positions.
	Start dataflow.Positions
	// Bases holds each local shard's delta reference at the base cut.
	Bases map[dataflow.ShardID]checkpoint.Base
	// Skipped counts, per local shard, the rows left out up to the base cut.
	Skipped map[dataflow.ShardID]uint64
	// SkipRows are rows that an operator has told the pipeline to leave out.
	SkipRows map[dataflow.SourceRow]struct{}
	OnError  dataflow.OnError

	// Table returns the table of a stage on a local shard. It holds the base cut, or is being filled from it and says of the
	// keys that are not there yet that they are to be looked up.
	Table func(stage dataflow.StageID, shard dataflow.ShardID) *state.Table
	// View opens a committed cut of a local shard, to look up keys that a table does not hold. It is not called while all
	// tables are complete.
	View func(shard dataflow.ShardID, cut dataflow.CheckpointID) (*state.View, error)
	// Memory is the budget that the tables share; nil = they have none. Sources wait while it is pressed.
	Memory *state.Budget
	// Rows returns the row log of a local shard.
	Rows func(shard dataflow.ShardID) RowLog
	// Deltas returns the log that takes a local shard's deltas.
	Deltas func(shard dataflow.ShardID) checkpoint.Log

	// Ack is told when a shard's part of an attempt is durable. It is called from the shard's writer and must not block.
	Ack func(checkpoint.Ack)
	// Failed is told, once, why the run ended by itself. It is called from a goroutine of the run and must not wait for
	// the run's end.
	Failed func(error)
	// Phases records barriers and deltas; optional.
	Phases *phase.Recorder
	Logger *slog.Logger
}

// Run is one incarnation of a pipeline, running.
type Run struct {
	cfg     Config
	cancel  context.CancelFunc
	tasks   context.Context // the tasks' lifetime: until Stop or the first failure
	done    chan struct{}
	sources []*source
	keyed   []*keyed
	writers map[dataflow.ShardID]*checkpoint.Writer
	markers markers
	barrier barriers
}

// Start builds the graph and starts its tasks. They run until Stop or the first failure.
func Start(cfg Config) (*Run, error) {
	ctx, cancel := context.WithCancel(context.Background())
	g, gctx := errgroup.WithContext(ctx)
	r := &Run{cfg: cfg, tasks: gctx, cancel: cancel, done: make(chan struct{}), writers: make(map[dataflow.ShardID]*checkpoint.Writer)}
	if err := r.build(); err != nil {
		cancel()
		return nil, err
	}
	r.markers.init(len(r.keyed))
	r.barrier.init(len(r.keyed), cfg.Phases)
	for _, w := range r.writers {
		g.Go(guarded("the writer of deltas", func() error { return w.Run(gctx) }))
	}
	for _, k := range r.keyed {
		g.Go(guarded(k.name(), func() error { return k.loop(gctx) }))
	}
	for _, s := range r.sources {
		g.Go(guarded("the source of "+s.stream.Name, func() error { return s.loop(gctx) }))
	}
	go func() {
		err := g.Wait()
		r.markers.close()
		r.barrier.close()
		stopped := ctx.Err() != nil
		cancel()
		if !stopped && err != nil {
			cfg.Failed(err)
		}
		close(r.done)
	}()
	return r, nil
}

// build makes the tasks and the edges between them. Edge order is fixed by the plan: inputs in order, shards in order.
func (r *Run) build() error {
	cfg := &r.cfg
	plans := cfg.Plan
	type node struct{ tasks map[dataflow.ShardID]*keyed }
	stages := make([]node, len(plans.Stages))
	edges := make([]int, len(plans.Stages)) // edges into each task of a stage
	for i, st := range plans.Stages {
		edges[i] = len(st.Inputs) * cfg.Shards
		stages[i].tasks = make(map[dataflow.ShardID]*keyed)
	}
	for _, shard := range cfg.Local {
		base := cfg.Bases[shard]
		w := checkpoint.NewWriter(checkpoint.WriterConfig{
			Pipeline: cfg.Pipeline, Shard: shard, Incarnation: cfg.Incarnation, Base: base,
			Tables: len(plans.Stages), Sources: len(plans.Reads),
			Log: cfg.Deltas(shard), Ack: cfg.Ack, Phases: cfg.Phases,
		})
		r.writers[shard] = w
		for i, st := range plans.Stages {
			k := newKeyed(r, st, shard, exchange.NewInbox(edges[i], exchange.Credits), cfg.Table(st.ID, shard), w)
			stages[i].tasks[shard] = k
			r.keyed = append(r.keyed, k)
		}
	}
	// connect returns a router from the producing shard into every task of the stage by the stage's input in.
	connect := func(st *plan.Stage, in int, from dataflow.ShardID) ([]*exchange.Edge, error) {
		out := make([]*exchange.Edge, cfg.Shards)
		for s := range cfg.Shards {
			k := stages[st.ID].tasks[dataflow.ShardID(s)]
			if k == nil {
				return nil, fmt.Errorf("shard %d of pipeline %s does not run on this node", s, cfg.Name)
			}
			out[s] = k.inbox.Edge(in*cfg.Shards + int(from))
		}
		return out, nil
	}
	for _, shard := range cfg.Local {
		bySource := make(map[string]*source)
		for _, st := range plans.Reads {
			s := newSource(r, st, shard, r.writers[shard])
			bySource[st.Name] = s
			r.sources = append(r.sources, s)
		}
		for _, st := range plans.Stages {
			for i, in := range st.Inputs {
				out, err := connect(st, i, shard)
				if err != nil {
					return err
				}
				rt := newRoute(r, st, in, shard, out)
				if in.FromStage {
					k := stages[in.From].tasks[shard]
					k.routes = append(k.routes, rt)
				} else {
					bySource[in.Stream].routes = append(bySource[in.Stream].routes, rt)
				}
			}
		}
	}
	return nil
}

// ending returns an error once the tasks are to end: what they compute is not wanted any more.
func (r *Run) ending() error { return r.tasks.Err() }

// Inject puts barrier n into every source of this node. Ids must increase from call to call.
func (r *Run) Inject(n dataflow.CheckpointID) {
	r.barrier.open(n)
	for _, s := range r.sources {
		s.inject(command{barrier: n})
	}
}

// Incarnation returns the run's incarnation.
func (r *Run) Incarnation() dataflow.Incarnation { return r.cfg.Incarnation }

// Table returns the live table of a stage on a local shard.
func (r *Run) Table(stage dataflow.StageID, shard dataflow.ShardID) *state.Table {
	return r.cfg.Table(stage, shard)
}

// Positions returns how far the sources have read. Rows below may still be on their way to the tables; Processed waits
// for them.
func (r *Run) Positions() dataflow.Positions {
	p := make(dataflow.Positions, len(r.sources))
	for _, s := range r.sources {
		p[s.at] = dataflow.Offset(s.pos.Load())
	}
	return p
}

// ReadBeyond reports whether the sources have read rows that p does not cover.
func (r *Run) ReadBeyond(p dataflow.Positions) bool {
	for _, s := range r.sources {
		if dataflow.Offset(s.pos.Load()) > p[s.at] {
			return true
		}
	}
	return false
}

// Processed waits until every table of the run holds the effect of all rows below want (P9), and returns positions,
// at least want, that the tables then covered. It returns ctx's error, or errStopped when the run ends first.
func (r *Run) Processed(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error) {
	id, done := r.markers.open()
	defer r.markers.drop(id)
	for _, s := range r.sources {
		s.inject(command{marker: id, until: want[s.at]})
	}
	select {
	case <-done:
	case <-r.done:
		return nil, ErrStopped
	case <-ctx.Done():
		for _, s := range r.sources { // let the marker go, so that nothing waits for it for ever
			s.release(id)
		}
		return nil, ctx.Err()
	}
	p, ok := r.markers.result(id)
	if !ok {
		return nil, ErrStopped
	}
	return p, nil
}

// Done is closed when every goroutine of the run has ended.
func (r *Run) Done() <-chan struct{} { return r.done }

// Stop ends the run and waits for its goroutines (T5). Failed is not called.
func (r *Run) Stop() {
	r.cancel()
	<-r.done
}

// markers collects, per marker, the positions that every keyed task reported.
type markers struct {
	mu struct {
		sync.Mutex
		next   uint64
		open   map[uint64]*openMarker
		closed bool
	}
	tasks int
}

type openMarker struct {
	missing   int
	positions dataflow.Positions
	done      chan struct{}
}

func (m *markers) init(tasks int) {
	m.tasks = tasks
	m.mu.open = make(map[uint64]*openMarker)
}

func (m *markers) open() (uint64, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.next++
	o := &openMarker{missing: m.tasks, done: make(chan struct{})}
	if m.mu.closed {
		close(o.done)
		return m.mu.next, o.done
	}
	m.mu.open[m.mu.next] = o
	return m.mu.next, o.done
}

// reached says that one task holds everything below p that its inputs carry.
func (m *markers) reached(id uint64, p dataflow.Positions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.mu.open[id]
	if o == nil {
		return
	}
	if o.positions == nil {
		o.positions = p.Clone()
	} else {
		for k, v := range p { // the minimum over the tasks that read the stream
			if old, ok := o.positions[k]; !ok || v < old {
				o.positions[k] = v
			}
		}
	}
	if o.missing--; o.missing == 0 {
		close(o.done)
	}
}

func (m *markers) result(id uint64) (dataflow.Positions, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.mu.open[id]
	if o == nil || o.missing > 0 {
		return nil, false
	}
	return o.positions, true
}

func (m *markers) drop(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.open, id)
}

func (m *markers) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	for id, o := range m.mu.open {
		if o.missing > 0 {
			close(o.done)
		}
		delete(m.mu.open, id)
	}
}

// idleWait is how long a source waits for news of its log before it looks again: a net under the notification, never
// its replacement.
const idleWait = time.Second
