package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/checkpoint"
	"github.com/weirdb/weir/dataflow/exchange"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

// ErrStopped is returned to those who wait for a run that has ended.
var ErrStopped = errors.New("the run has ended")

// source reads one stream of one shard.
type source struct {
	run    *Run
	at     dataflow.StreamShard
	stream plan.Stream
	log    RowLog
	routes []*route
	writer *checkpoint.Writer
	pseudo bool // some route reads _append_time, _shard or _offset

	times  []int64   // scratch of stamp
	short  time.Time // since when the source waits for memory; zero = it does not
	pieces batch.Pieces

	holdTo time.Time   // the source reads nothing until then; zero = it is not held
	timer  *time.Timer // of the loop

	pos     atomic.Uint64 // next offset to read; written by the task alone
	skipped uint64        // rows left out since the pipeline's beginning

	mail struct {
		sync.Mutex
		commands []command // barriers and markers to put in, oldest first; bounded by the attempts and waiters in flight
	}
	wake chan struct{} // capacity 1
}

// While the budget of the tables is pressed, a source reads a batch per maxMemoryWait only. It does not stop altogether,
// because a pipeline that has nothing to evict, next to one that has, must not stand still. It looks again every memoryLook:
// what one table gives up helps all.
const (
	memoryLook    = 50 * time.Millisecond
	maxMemoryWait = time.Second
)

// command is a barrier, or a marker that waits until the source has read up to until.
type command struct {
	barrier dataflow.CheckpointID
	hold    bool // the source reads nothing behind the barrier, for dataflow.HoldTime or until the next barrier
	goOn    bool // the source is held no longer
	marker  uint64
	until   dataflow.Offset
}

func newSource(r *Run, st plan.Stream, shard dataflow.ShardID, w *checkpoint.Writer) *source {
	s := &source{
		run: r, stream: st, writer: w, log: r.cfg.Rows(shard),
		at:   dataflow.StreamShard{Stream: r.cfg.Streams[st.Name], Shard: shard},
		wake: make(chan struct{}, 1),
	}
	s.pos.Store(uint64(r.cfg.Start[s.at]))
	if st.Name == r.cfg.Plan.Reads[0].Name { // one source of the shard carries on the shard's count
		s.skipped = r.cfg.Skipped[shard]
	}
	for _, stage := range r.cfg.Plan.Stages {
		for _, in := range stage.Inputs {
			if !in.FromStage && in.Stream == st.Name && in.Pseudo {
				s.pseudo = true
			}
		}
	}
	return s
}

func (s *source) inject(c command) {
	s.mail.Lock()
	s.mail.commands = append(s.mail.commands, c)
	s.mail.Unlock()
	s.notify()
}

// release lets a waiting marker go at the source's present position.
func (s *source) release(marker uint64) {
	s.mail.Lock()
	for i := range s.mail.commands {
		if s.mail.commands[i].marker == marker {
			s.mail.commands[i].until = 0
		}
	}
	s.mail.Unlock()
	s.notify()
}

func (s *source) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// due takes the commands that can be carried out at position pos: barriers at once, markers when they are reached.
func (s *source) due(pos dataflow.Offset) []command {
	s.mail.Lock()
	defer s.mail.Unlock()
	var due, rest []command
	for _, c := range s.mail.commands {
		if c.barrier != 0 || c.until <= pos {
			due = append(due, c)
		} else {
			rest = append(rest, c)
		}
	}
	s.mail.commands = rest
	return due
}

func (s *source) loop(ctx context.Context) error {
	timer := time.NewTimer(idleWait)
	defer timer.Stop()
	s.timer = timer
	for {
		if err := s.attend(ctx); err != nil {
			return err
		}
		if short, relief := s.run.cfg.Memory.Pressed(); short {
			if s.short.IsZero() {
				s.short = time.Now()
			}
			if left := maxMemoryWait - time.Since(s.short); left > 0 {
				timer.Reset(min(left, memoryLook))
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-relief:
				case <-s.wake:
				case <-timer.C:
				}
				continue
			}
		}
		s.short = time.Time{}
		changed := s.log.Changed() // before the read: what comes after it wakes us
		pos := dataflow.Offset(s.pos.Load())
		rows, err := s.log.Read(s.at.Stream, pos, batch.TargetRows)
		if err != nil {
			return fmt.Errorf("read stream %s, shard %d, from offset %d: %w", s.stream.Name, s.at.Shard, pos, err)
		}
		if len(rows) > 0 {
			for _, r := range rows {
				if err := s.take(ctx, r); err != nil {
					return err
				}
			}
			continue
		}
		timer.Reset(idleWait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// attend puts in what is due, and goes on doing so while the source is held.
func (s *source) attend(ctx context.Context) error {
	for {
		if err := s.carryOut(ctx); err != nil {
			return err
		}
		left := time.Until(s.holdTo)
		if left <= 0 {
			return nil
		}
		s.timer.Reset(left)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-s.timer.C:
		}
	}
}

// heldTo is until when the source is held after a command.
func (s *source) heldTo(c command) time.Time {
	switch {
	case c.hold:
		return time.Now().Add(dataflow.HoldTime)
	case c.goOn || c.barrier != 0:
		return time.Time{}
	}
	return s.holdTo // markers change nothing
}

// carryOut puts in the barriers and markers that are due.
func (s *source) carryOut(ctx context.Context) error {
	pos := dataflow.Offset(s.pos.Load())
	for _, c := range s.due(pos) {
		if s.holdTo = s.heldTo(c); c.goOn {
			continue
		}
		m := exchange.Message{Kind: exchange.KindMarker, Marker: c.marker, Positions: dataflow.Positions{s.at: pos}}
		if c.barrier != 0 {
			s.writer.Position(c.barrier, s.at, pos, s.skipped)
			m = exchange.Message{Kind: exchange.KindBarrier, Barrier: c.barrier}
		}
		for _, rt := range s.routes {
			if err := rt.broadcast(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// take runs the routes over one batch of the log, in parts of about batch.TargetRows rows, so that a barrier never
// waits for more than one part.
func (s *source) take(ctx context.Context, r Rows) error {
	b, err := batch.Decode(s.stream.Schema, r.Data)
	if err != nil {
		return fmt.Errorf("decode stream %s, shard %d, offset %d: %w", s.stream.Name, s.at.Shard, r.First, err)
	}
	from := 0
	if pos := dataflow.Offset(s.pos.Load()); pos > r.First {
		from = int(pos - r.First)
	}
	for from < b.N {
		to := min(from+batch.TargetRows, b.N)
		part := b
		if from > 0 || to < b.N {
			part = b.Slice(from, to)
		}
		first := r.First + dataflow.Offset(from)
		s.stamp(part, first, r.AppendTime)
		if err := s.feed(ctx, part); err != nil {
			return err
		}
		s.pos.Store(uint64(first) + uint64(part.N))
		if from = to; from < b.N {
			if err := s.attend(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// stamp gives the batch its place in the stream, its append time, and the pseudo columns when a route reads them.
func (s *source) stamp(b *batch.Batch, first dataflow.Offset, appendTime int64) {
	b.Stream, b.Shard, b.FirstOffset = s.at.Stream, s.at.Shard, first
	// The memory is used for every batch: routes do not pass append times on.
	if cap(s.times) < b.N {
		s.times = make([]int64, b.N)
	}
	b.AppendTime = s.times[:b.N]
	for i := range b.AppendTime {
		b.AppendTime[i] = appendTime
	}
	if !s.pseudo {
		return
	}
	times := slices.Clone(b.AppendTime) // a column may be passed on
	shard, offset := make([]int64, b.N), make([]int64, b.N)
	for i := range b.N {
		shard[i], offset[i] = int64(s.at.Shard), int64(first)+int64(i)
	}
	b.Schema = append(b.Schema[:len(b.Schema):len(b.Schema)],
		dataflow.Column{Name: dataflow.ColAppendTime, Type: dataflow.TypeTimestamp, NotNull: true},
		dataflow.Column{Name: dataflow.ColShard, Type: dataflow.TypeBigInt, NotNull: true},
		dataflow.Column{Name: dataflow.ColOffset, Type: dataflow.TypeBigInt, NotNull: true})
	b.Cols = append(b.Cols[:len(b.Cols):len(b.Cols)],
		&batch.Vector{Type: dataflow.TypeTimestamp, Ints: times},
		&batch.Vector{Type: dataflow.TypeBigInt, Ints: shard},
		&batch.Vector{Type: dataflow.TypeBigInt, Ints: offset})
}

// declared returns the batch without the pseudo columns: routes that do not read them count their columns without them.
func (s *source) declared(b *batch.Batch) *batch.Batch {
	if !s.pseudo {
		return b
	}
	d := *b
	d.Schema, d.Cols = b.Schema[:len(s.stream.Schema)], b.Cols[:len(s.stream.Schema)]
	return &d
}

// feed runs every route over the batch. A row that one of them cannot compute is left out of all of them, so that the
// tables of a pipeline agree on what their input was. What is too large to be computed at once is fed in pieces.
func (s *source) feed(ctx context.Context, b *batch.Batch) error {
	return s.pieces.Each(b, func(piece *batch.Batch) (bool, error) { return s.feedPiece(ctx, piece) })
}

// feedPiece feeds b, or does nothing when that does not fit.
func (s *source) feedPiece(ctx context.Context, b *batch.Batch) (fits bool, err error) {
	skip := s.skipByHand(b)
	outs := make([]*batch.Batch, len(s.routes))
	declared := s.declared(b)
	for {
		bad := batch.Bitmap(nil)
		for i, rt := range s.routes {
			in := declared
			if rt.pseudo {
				in = b
			}
			out, failed, fits, err := rt.compute(in, skip)
			if err != nil || !fits {
				return false, err
			}
			for _, f := range failed {
				if s.run.cfg.OnError == dataflow.OnErrorFail {
					return false, s.rowFailure(rt, b, f)
				}
				if bad == nil {
					bad = batch.NewBitmap(b.N)
				}
				bad.Set(f.Row)
			}
			outs[i] = out
		}
		if bad == nil {
			break
		}
		if skip == nil {
			skip = batch.NewBitmap(b.N)
		}
		for i := range skip {
			skip[i] |= bad[i]
		}
	}
	s.skipped += uint64(skip.Count())
	for i, rt := range s.routes {
		if outs[i].N == 0 {
			continue
		}
		if err := rt.send(ctx, outs[i]); err != nil {
			return false, err
		}
	}
	return true, nil
}

// skipByHand returns the rows of b that an operator has told the pipeline to leave out; nil when there are none.
func (s *source) skipByHand(b *batch.Batch) batch.Bitmap {
	if len(s.run.cfg.SkipRows) == 0 {
		return nil
	}
	var skip batch.Bitmap
	for ref := range s.run.cfg.SkipRows {
		if ref.Stream != s.at.Stream || ref.Shard != s.at.Shard || ref.Offset < b.FirstOffset || ref.Offset >= b.FirstOffset+dataflow.Offset(b.N) {
			continue
		}
		if skip == nil {
			skip = batch.NewBitmap(b.N)
		}
		skip.Set(int(ref.Offset - b.FirstOffset))
	}
	return skip
}

// RowFailure is a row for which an expression of a view fails: it will fail again, so a restart does not help.
type RowFailure struct {
	View         string // the view whose expression failed
	Line, Column int    // of the expression in the pipeline's text; 0 = not known
	Stream       string // "" when the row came from another view
	Row          dataflow.SourceRow
	Text         string // the row, as JSON, cut to a readable length
	Err          *dataflow.Error
}

func (f *RowFailure) Error() string {
	where := f.View
	if f.Line > 0 {
		where = fmt.Sprintf("%s (line %d, column %d)", f.View, f.Line, f.Column)
	}
	if f.Stream == "" {
		return fmt.Sprintf("view %s cannot compute the row %s: %s; with on_error = 'skip' such rows of a table are left out while they are there", where, f.Text, f.Err.Message)
	}
	return fmt.Sprintf("view %s cannot compute the row at stream %s, shard %d, offset %d: %s: %s", where, f.Stream, f.Row.Shard, f.Row.Offset, f.Text, f.Err.Message)
}

func (f *RowFailure) Unwrap() error { return f.Err }

func (s *source) rowFailure(rt *route, b *batch.Batch, f operator.RowError) error {
	return &RowFailure{
		View: rt.viewName(), Line: f.At.Line, Column: f.At.Column, Stream: s.stream.Name,
		Row:  dataflow.SourceRow{Stream: s.at.Stream, Shard: s.at.Shard, Offset: b.OffsetOf(f.Row)},
		Text: rowText(b, f.Row), Err: f.Err,
	}
}

// maxRowText bounds how much of a failing row an error message repeats.
const maxRowText = 512

// rowText prints a row as a JSON object for a message.
func rowText(b *batch.Batch, row int) string {
	out := []byte{'{'}
	for i, c := range b.Schema {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(expr.AppendTextJSON(out, c.Name), ':')
		out = expr.AppendCellJSON(out, b.Cols[i], row, false)
		if len(out) > maxRowText {
			return strings.ToValidUTF8(string(out[:maxRowText]), "") + "…" // the cut may fall into a character
		}
	}
	return string(append(out, '}'))
}
