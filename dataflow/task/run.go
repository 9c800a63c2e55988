package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
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

// Links carries the edges between this node and the nodes of the other shards, for one run. Package link has it.
type Links interface {
	// Out returns the sender of an edge that leads to a shard of another node. Rows on it have the columns of schema.
	Out(id exchange.EdgeID, schema dataflow.Schema) (exchange.Sender, error)
	// In lets an edge that comes from a shard of another node deliver to an edge of an inbox of this node.
	In(id exchange.EdgeID, schema dataflow.Schema, to *exchange.Edge, check func(exchange.Message) error) error
	// Run connects the nodes, calls linked once that is done, and carries messages until ctx ends or a node is lost, which ends
	// the run (T4). It is called once, after all edges are known. What is sent before it has connected waits.
	Run(ctx context.Context, linked func()) error
}

// Config describes a run. All fields are needed unless they say otherwise.
type Config struct {
	Pipeline    dataflow.PipelineUID
	Name        string // the pipeline's name, for messages
	Plan        *plan.Plan
	Incarnation dataflow.Incarnation
	Shards      int                          // shards of the group
	Local       []dataflow.ShardID           // shards whose tasks run here
	Links       Links                        // to the nodes of the other shards; nil = all shards are local
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
	// FillPatience is how long the part of a checkpoint that partials are in waits for the end of the filling of its table, which
	// makes them whole for less than looking them up costs; 0 = not at all.
	FillPatience time.Duration
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
	linked  chan struct{} // closed when the nodes of the run are connected
	spoiled atomic.Bool
}

// Start builds the graph and starts its tasks. They run until Stop or the first failure.
func Start(cfg Config) (*Run, error) {
	ctx, cancel := context.WithCancel(context.Background())
	g, gctx := errgroup.WithContext(ctx)
	r := &Run{cfg: cfg, tasks: gctx, cancel: cancel, done: make(chan struct{}), linked: make(chan struct{}), writers: make(map[dataflow.ShardID]*checkpoint.Writer)}
	if err := r.build(); err != nil {
		cancel()
		return nil, err
	}
	r.markers.init(len(r.keyed))
	r.barrier.init(len(r.keyed), cfg.Phases)
	if cfg.Links == nil {
		close(r.linked)
	} else {
		g.Go(r.guarded("the links between nodes", func() error { return cfg.Links.Run(gctx, func() { close(r.linked) }) }))
	}
	for _, w := range r.writers {
		g.Go(r.guarded("the writer of deltas", func() error { return w.Run(gctx) }))
	}
	for _, k := range r.keyed {
		g.Go(r.guarded(k.name(), func() error { return k.loop(gctx) }))
	}
	for _, s := range r.sources {
		g.Go(r.guarded("the source of "+s.stream.Name, func() error { return s.loop(gctx) }))
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

// guarded is guarded, and notes what spoils the run's tables, also when the run ends for another reason.
func (r *Run) guarded(task string, f func() error) func() error {
	f = guarded(task, f)
	return func() error {
		err := f()
		var panicked *PanicError
		if errors.As(err, &panicked) || dataflow.ReasonOf(err) == dataflow.ReasonCorrupt {
			r.spoiled.Store(true)
		}
		return err
	}
}

// Spoiled says whether a task panicked or met damage: what its tables hold is of no use then. It is final once the run has ended.
func (r *Run) Spoiled() bool { return r.spoiled.Load() }

// ending returns an error once the tasks are to end: what they compute is not wanted any more.
func (r *Run) ending() error { return r.tasks.Err() }

// Inject puts barrier n into every source of this node. Ids must increase from call to call. Every node of the run must be given
// the same ids: a task waits for the barrier of every edge, and ends the run when an edge brings a later one. With hold the sources
// read nothing behind the barrier for dataflow.HoldTime, or until the next one: a run that ends meanwhile has read nothing that is not in
// the cut.
func (r *Run) Inject(n dataflow.CheckpointID, hold bool) {
	r.barrier.open(n)
	for _, s := range r.sources {
		s.inject(command{barrier: n, hold: hold})
	}
}

// GoOn lets sources that are held read on.
func (r *Run) GoOn() {
	for _, s := range r.sources {
		s.inject(command{goOn: true})
	}
}

// Linked waits until this node is connected with the other nodes of the run: whoever starts a run has to start it on all of them.
// It returns ctx's error, or why the run has ended.
func (r *Run) Linked(ctx context.Context) error {
	select {
	case <-r.linked:
		return nil
	case <-r.tasks.Done():
		return context.Cause(r.tasks)
	case <-ctx.Done():
		return fmt.Errorf("connect to the other nodes of the run: %w", ctx.Err())
	}
}

// Incarnation returns the run's incarnation.
func (r *Run) Incarnation() dataflow.Incarnation { return r.cfg.Incarnation }

// Table returns the live table of a stage on a local shard.
func (r *Run) Table(stage dataflow.StageID, shard dataflow.ShardID) *state.Table {
	return r.cfg.Table(stage, shard)
}

// Positions returns how far the sources of this node have read. Rows below may still be on their way to the tables; Processed waits
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

// Done is closed when every goroutine of the run has ended.
func (r *Run) Done() <-chan struct{} { return r.done }

// Stop ends the run and waits for its goroutines (T5). Failed is not called.
func (r *Run) Stop() {
	r.cancel()
	<-r.done
}

// idleWait is how long a source waits for news of its log before it looks again: a net under the notification, never
// its replacement.
const idleWait = time.Second
