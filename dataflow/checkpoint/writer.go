package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/phase"
)

// Log takes the deltas of one shard. Its calls return when the shard's log has committed the entry.
type Log interface {
	AppendDelta(ctx context.Context, d dataflow.DeltaID, chunk int, data []byte) error
	EndDelta(ctx context.Context, d dataflow.DeltaID, chunks int, digest uint64) (dataflow.LogIndex, error)
}

// Base says where a shard's state stands when an incarnation begins: at the base cut.
type Base struct {
	// Index is the shard log's index that the base needs.
	Index dataflow.LogIndex
}

// Ack says that a shard's part of an attempt is durable.
type Ack struct {
	ID          dataflow.CheckpointID
	Incarnation dataflow.Incarnation
	Shard       dataflow.ShardID
	// Seq, Digest and Index name the shard's newest delta of the incarnation; Seq is 0 when there is none yet, and Index
	// is then the base's.
	Seq    dataflow.DeltaSeq
	Digest uint64
	Index  dataflow.LogIndex
	// Positions are those of the shard's sources.
	Positions dataflow.Positions
	// Skipped counts the rows that the shard's sources have left out since the pipeline was deployed.
	Skipped uint64
	// Bytes is the size of the attempt's delta.
	Bytes int64
}

// WriterConfig describes the writer of one shard of one run.
type WriterConfig struct {
	Pipeline    dataflow.PipelineUID
	Shard       dataflow.ShardID
	Incarnation dataflow.Incarnation
	Base        Base
	Tables      int // keyed tasks on the shard
	Sources     int // source tasks on the shard
	Log         Log
	Ack         func(Ack)       // must not block
	Phases      *phase.Recorder // records deltas; optional
	MaxChunks   int             // of a delta; default state.MaxDeltaChunks
}

func (c *WriterConfig) maxChunks() int { return cmp.Or(c.MaxChunks, state.MaxDeltaChunks) }

// Writer turns what the tasks of one shard froze at a barrier into one delta of the shard's log, and acknowledges the
// attempt once that delta's end entry is committed (P2).
//
// Attempts are written in the order of their barriers: every task freezes for n before it freezes for n+1, so n is
// complete first. An attempt that the coordinator gave up is written all the same: its delta counts for the next.
type Writer struct {
	cfg WriterConfig

	mu struct {
		sync.Mutex
		open []*attempt // oldest first; bounded by the attempts that barriers are under way for
	}
	ready chan *attempt // complete attempts, in order
}

// queued is how many complete attempts may wait for the log. More would hide a slow log from the tasks, fewer would
// make a task wait for one slow fsync.
const queued = 4

// attempt collects one attempt's parts.
type attempt struct {
	id        dataflow.CheckpointID
	tables    int // tables that have delivered all of their part
	sources   int // sources that have reported
	positions dataflow.Positions
	skipped   uint64
	delta     *state.DeltaWriter
}

// Part is some of what a table froze for an attempt: keys with the values of that moment, nil for a deleted key. The
// zero Part is empty.
type Part struct {
	arena []byte
	ends  []partEnd
}

type partEnd struct {
	key, val int // where they end in the arena
	deleted  bool
}

// Add copies one change.
func (p *Part) Add(key, val []byte) {
	p.arena = append(p.arena, key...)
	k := len(p.arena)
	p.arena = append(p.arena, val...)
	p.ends = append(p.ends, partEnd{key: k, val: len(p.arena), deleted: val == nil})
}

// Reset empties the part and keeps its memory.
func (p *Part) Reset() { p.arena, p.ends = p.arena[:0], p.ends[:0] }

// NewWriter returns a writer. Run must be called for it to do anything.
func NewWriter(cfg WriterConfig) *Writer {
	return &Writer{cfg: cfg, ready: make(chan *attempt, queued)}
}

func (w *Writer) attemptLocked(n dataflow.CheckpointID) *attempt {
	for _, a := range w.mu.open {
		if a.id == n {
			return a
		}
	}
	a := &attempt{id: n, positions: make(dataflow.Positions), delta: state.NewDeltaWriter()}
	w.mu.open = append(w.mu.open, a)
	return a
}

// Position reports where a source put barrier n in, and how many rows it has left out so far. It never blocks: a source
// reports before the tables can be complete.
func (w *Writer) Position(n dataflow.CheckpointID, at dataflow.StreamShard, pos dataflow.Offset, skipped uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.attemptLocked(n)
	a.positions[at] = pos
	a.skipped += skipped
	a.sources++
}

// Add takes a part of what a stage's table froze for n, and copies it. last says that the table has no more for n. Add
// blocks while the log is behind by several attempts.
func (w *Writer) Add(ctx context.Context, n dataflow.CheckpointID, stage dataflow.StageID, p *Part, last bool) error {
	w.mu.Lock()
	a := w.attemptLocked(n)
	from := 0
	for _, e := range p.ends {
		val := p.arena[e.key:e.val:e.val]
		if e.deleted {
			val = nil
		}
		a.delta.Add(stage, p.arena[from:e.key], val)
		from = e.val
	}
	if !last {
		w.mu.Unlock()
		return nil
	}
	a.tables++
	if a.tables < w.cfg.Tables {
		w.mu.Unlock()
		return nil
	}
	if a != w.mu.open[0] || a.sources != w.cfg.Sources {
		w.mu.Unlock()
		return fmt.Errorf("attempt %d is complete on shard %d before an older one, or without its positions", n, w.cfg.Shard)
	}
	w.mu.open = w.mu.open[1:]
	w.mu.Unlock()
	select {
	case w.ready <- a:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run writes complete attempts until ctx ends. A log that refuses a delta ends the run with its error: the incarnation
// is over, or the shard has another leader.
func (w *Writer) Run(ctx context.Context) error {
	last := Ack{Incarnation: w.cfg.Incarnation, Shard: w.cfg.Shard, Index: w.cfg.Base.Index}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-w.ready:
			ack := last
			ack.ID, ack.Positions, ack.Skipped, ack.Bytes = a.id, a.positions, a.skipped, 0
			if a.delta.Len() > 0 {
				if err := w.write(ctx, a, &ack); err != nil {
					return fmt.Errorf("write delta %d of shard %d: %w", ack.Seq, w.cfg.Shard, err)
				}
			}
			last = ack
			w.cfg.Ack(ack)
		}
	}
}

// write writes an attempt's changes as a delta, or as several when they are many: the ack names the last one (P2).
func (w *Writer) write(ctx context.Context, a *attempt, ack *Ack) error {
	w.cfg.Phases.Enter(phase.Delta)
	defer w.cfg.Phases.Leave(phase.Delta)
	var chunks int // of the delta that is being written
	var digest dataflow.DeltaDigest
	id := func() dataflow.DeltaID {
		return dataflow.DeltaID{Pipeline: w.cfg.Pipeline, Incarnation: w.cfg.Incarnation, Seq: ack.Seq}
	}
	end := func() error {
		return persist(ctx, func() error {
			index, err := w.cfg.Log.EndDelta(ctx, id(), chunks, uint64(digest))
			ack.Digest, ack.Index = uint64(digest), index
			return err
		})
	}
	ack.Seq++
	_, _, err := a.delta.Finish(func(_ int, data []byte) error {
		if chunks == w.cfg.maxChunks() {
			if err := end(); err != nil {
				return err
			}
			ack.Seq++
			chunks, digest = 0, 0
		}
		ack.Bytes += int64(len(data))
		if err := persist(ctx, func() error { return w.cfg.Log.AppendDelta(ctx, id(), chunks, data) }); err != nil {
			return err
		}
		chunks, digest = chunks+1, digest.Add(data)
		return nil
	})
	if err != nil {
		return err
	}
	return end()
}

// persistPause is the pause before an entry is proposed again, when the log does not say.
const persistPause = 20 * time.Millisecond

// persist proposes an entry until the log has an answer. A full queue passes: ingest is refused for it, a running
// pipeline's delta waits. An unknown outcome is asked again: the log recognises a chunk or an end that it has.
func persist(ctx context.Context, propose func() error) error {
	for {
		err := propose()
		var e *dataflow.Error
		if !errors.As(err, &e) {
			return err
		}
		if k := e.Reason.Kind(); k != dataflow.KindOverloaded && k != dataflow.KindUnknown {
			return err
		}
		pause := e.RetryAfter
		if pause <= 0 {
			pause = persistPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
