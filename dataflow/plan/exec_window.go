package plan

import (
	"bytes"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

// windower holds all rows, and passes them on with the results of the window functions behind their columns. Rows that a
// window's ORDER BY does not tell apart come in the order of all their columns, so that the same rows get the same numbers
// whatever order they were pushed in.
type windower struct {
	r    *run
	next step
	plan *windowPlan
	rows *batch.Batch
}

func newWindower(r *run, next step, p *windowPlan) *windower {
	return &windower{r: r, next: next, plan: p, rows: batch.NewBatch(p.input.Schema)}
}

func (w *windower) push(b *batch.Batch) error {
	for i := range b.N {
		if err := w.r.mem.take(int64(b.RowBytes(i)) + resultRowOverhead); err != nil {
			return err
		}
		for c, v := range w.rows.Cols {
			v.AppendFrom(b.Cols[c], i)
		}
		w.rows.N++
	}
	return nil
}

func (w *windower) wants() int64 {
	if done(w.next) {
		return 0
	}
	return noLimit
}

func (w *windower) finish() error {
	if w.rows.N == 0 {
		return w.next.finish()
	}
	out := make([]*batch.Vector, len(w.plan.out))
	for i := range w.plan.sets {
		if err := w.compute(&w.plan.sets[i], out); err != nil {
			return err
		}
	}
	width := w.plan.width
	schema := append(w.plan.input.Schema[:width:width], w.plan.out...)
	all := w.rows.WithCols(schema, append(w.rows.Cols[:width:width], out...))
	for from := 0; from < all.N && !done(w.next); {
		to := from
		for size := 0; to < all.N && to-from < batch.TargetRows && size < partBytes; to++ {
			size += all.RowBytes(to)
		}
		if err := w.next.push(all.Slice(from, to)); err != nil {
			return err
		}
		from = to
	}
	return w.next.finish()
}

// windowRow is a row in the order of a window.
type windowRow struct {
	row       int32
	partition []byte
	order     []byte // what ORDER BY compares
	all       []byte // order, then all columns
}

const windowRowOverhead = 112

// compute computes the functions over one window.
func (w *windower) compute(s *windowSet, out []*batch.Vector) error {
	rows, held, err := w.sorted(s)
	if err != nil {
		return err
	}
	place := make([]int32, len(rows)) // where each row stands in the order
	for i, r := range rows {
		place[r.row] = int32(i)
	}
	for _, c := range s.calls {
		f := &windowRun{w: w, set: s, call: c, rows: rows, out: batch.NewVector(w.plan.out[c.at].Type, len(rows))}
		for from := 0; from < len(rows); {
			to := from + 1
			for to < len(rows) && bytes.Equal(rows[to].partition, rows[from].partition) {
				to++
			}
			if err := f.partition(from, to); err != nil {
				return err
			}
			from = to
		}
		for i := range rows {
			if err := w.r.mem.take(int64(f.out.RowBytes(i)) + resultRowOverhead); err != nil {
				return err
			}
		}
		out[c.at] = f.out.Gather(place)
	}
	w.r.mem.give(held)
	return nil
}

// sorted returns the rows in the order of a window, and how many bytes that takes.
func (w *windower) sorted(s *windowSet) ([]windowRow, int64, error) {
	rows := make([]windowRow, w.rows.N)
	sort := &sorter{order: s.order}
	held := int64(0)
	for i := range rows {
		var buf []byte
		for _, c := range s.partition {
			buf = key.AppendVector(buf, w.rows.Cols[c], i)
		}
		p := len(buf)
		buf = sort.appendOrder(buf, w.rows, i)
		o := len(buf)
		buf = appendColumns(buf, w.rows.Cols[:w.plan.width], i)
		rows[i] = windowRow{row: int32(i), partition: buf[:p:p], order: buf[p:o:o], all: buf[p:]}
		held += int64(len(buf)) + windowRowOverhead
		if err := w.r.mem.take(int64(len(buf)) + windowRowOverhead); err != nil {
			return nil, held, err
		}
	}
	slices.SortFunc(rows, func(a, b windowRow) int {
		if c := bytes.Compare(a.partition, b.partition); c != 0 {
			return c
		}
		return bytes.Compare(a.all, b.all)
	})
	return rows, held, nil
}

// windowRun computes one function. It appends its results in the order of the window.
type windowRun struct {
	w    *windower
	set  *windowSet
	call windowFn
	rows []windowRow
	out  *batch.Vector
	// worked counts the rows that frames have folded.
	worked int
}

// partition computes the rows from to to-1, which are one partition.
func (f *windowRun) partition(from, to int) error {
	if f.call.spec != nil {
		return f.aggregate(from, to)
	}
	switch f.call.fn {
	case "lag", "lead":
		f.neighbour(from, to)
		return nil
	case "ntile":
		return f.ntile(from, to)
	case "nth_value":
		return f.nth(from, to)
	case "first_value", "last_value":
		if f.call.frame != nil {
			f.ends(from, to)
			return nil
		}
	}
	dense, rows := int64(0), int64(to-from)
	for at := from; at < to; {
		end := f.peers(at, to)
		dense++
		for i := at; i < end; i++ {
			switch f.call.fn {
			case "row_number":
				f.out.AppendInt(int64(i-from) + 1)
			case "rank":
				f.out.AppendInt(int64(at-from) + 1)
			case "dense_rank":
				f.out.AppendInt(dense)
			case "percent_rank":
				f.out.AppendFloat(float64(at-from) / float64(max(rows-1, 1)))
			case "cume_dist":
				f.out.AppendFloat(float64(end-from) / float64(rows))
			case "first_value":
				f.value(from)
			case "last_value":
				f.value(end - 1)
			}
		}
		at = end
	}
	return nil
}

// peers returns where the rows end that ORDER BY does not tell from the one at at.
func (f *windowRun) peers(at, to int) int {
	end := at + 1
	for end < to && bytes.Equal(f.rows[end].order, f.rows[at].order) {
		end++
	}
	return end
}

// arg returns an argument of the row that stands at at.
func (f *windowRun) arg(n, at int) (*batch.Vector, int) {
	return f.w.rows.Cols[f.call.args[n]], int(f.rows[at].row)
}

// value appends the first argument of the row that stands at at.
func (f *windowRun) value(at int) { f.out.AppendFrom(f.arg(0, at)) }

// aggregate folds the rows up to each one and its peers, which is all of them without ORDER BY.
func (f *windowRun) aggregate(from, to int) error {
	if f.call.frame != nil {
		return f.framed(from, to)
	}
	layout := agg.NewLayout([]agg.Spec{*f.call.spec})
	acc := layout.New(nil)
	for at := from; at < to; {
		end := f.peers(at, to)
		for i := at; i < end; i++ {
			var err error
			if acc, err = layout.Update(acc, f.w.rows, int(f.rows[i].row), 1); err != nil {
				return err
			}
		}
		for range end - at {
			if err := layout.AppendResult(0, acc, f.out); err != nil {
				return err
			}
		}
		at = end
	}
	return nil
}

// framed folds the rows of each frame. Where frames only grow at their end, the rows are folded once; otherwise each frame
// is folded again.
func (f *windowRun) framed(from, to int) error {
	layout := agg.NewLayout([]agg.Spec{*f.call.spec})
	frames := f.frames(from, to)
	acc := layout.New(nil)
	have, end := from, from // the rows that acc holds
	for at := from; at < to; at++ {
		lo, hi := frames.of(at)
		if hi < lo {
			hi = lo
		}
		if lo != have || hi < end {
			acc = layout.New(acc[:0])
			have, end = lo, lo
		}
		for ; end < hi; end++ {
			var err error
			if acc, err = layout.Update(acc, f.w.rows, int(f.rows[end].row), 1); err != nil {
				return err
			}
			if f.worked++; f.worked%batch.TargetRows == 0 {
				if err := f.w.r.tables.Check(); err != nil {
					return err
				}
			}
		}
		if err := layout.AppendResult(0, acc, f.out); err != nil {
			return err
		}
	}
	return nil
}

// ends computes first_value and last_value over frames.
func (f *windowRun) ends(from, to int) {
	frames := f.frames(from, to)
	for at := from; at < to; at++ {
		lo, hi := frames.of(at)
		switch {
		case lo >= hi:
			f.out.AppendNull()
		case f.call.fn == "first_value":
			f.value(lo)
		default:
			f.value(hi - 1)
		}
	}
}

// nth computes nth_value.
func (f *windowRun) nth(from, to int) error {
	var fr *frames
	if f.call.frame != nil {
		fr = f.frames(from, to)
	}
	end := from // of the peers, without a frame
	for at := from; at < to; at++ {
		lo := from
		var hi int
		if fr != nil {
			lo, hi = fr.of(at)
		} else {
			if at >= end {
				end = f.peers(at, to)
			}
			hi = end
		}
		v, i := f.arg(1, at)
		switch {
		case v.IsNull(i):
			f.out.AppendNull()
		case v.Ints[i] <= 0:
			return f.w.r.q.src.Errorf(dataflow.ReasonExpressionFailed, f.call.span, "the number of a row of nth_value must be greater than zero, this is %d", v.Ints[i])
		case int64(hi-lo) < v.Ints[i]:
			f.out.AppendNull()
		default:
			f.value(lo + int(v.Ints[i]) - 1)
		}
	}
	return nil
}

// neighbour computes lag and lead.
func (f *windowRun) neighbour(from, to int) {
	for at := from; at < to; at++ {
		by := int64(1)
		if len(f.call.args) > 1 {
			v, i := f.arg(1, at)
			if v.IsNull(i) {
				f.out.AppendNull()
				continue
			}
			by = v.Ints[i]
		}
		if f.call.fn == "lag" {
			by = -by
		}
		switch {
		case by >= int64(from-at) && by < int64(to-at):
			f.value(at + int(by))
		case len(f.call.args) > 2:
			f.out.AppendFrom(f.arg(2, at))
		default:
			f.out.AppendNull()
		}
	}
}

// ntile numbers as many parts of nearly the same size as its argument says; the first row's counts.
func (f *windowRun) ntile(from, to int) error {
	v, i := f.arg(0, from)
	if v.IsNull(i) {
		for range to - from {
			f.out.AppendNull()
		}
		return nil
	}
	parts, rows := v.Ints[i], int64(to-from)
	if parts <= 0 {
		return f.w.r.q.src.Errorf(dataflow.ReasonExpressionFailed, f.call.span, "the argument of ntile must be greater than zero, this is %d", parts)
	}
	size, larger := rows/parts, rows%parts // the first ones have a row more
	for n := range rows {
		if n < larger*(size+1) {
			f.out.AppendInt(n/(size+1) + 1)
			continue
		}
		f.out.AppendInt(larger + (n-larger*(size+1))/size + 1)
	}
	return nil
}
