package plan

import (
	"bytes"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// frame says which rows of a partition a window function sees, from the row that it is computed for.
type frame struct {
	mode       sql.FrameMode
	start, end frameBound
}

// frameBound is one end of a frame.
type frameBound struct {
	kind sql.BoundKind
	n    int64 // of Preceding and Following, but in a RANGE
	// Of Preceding and Following in a RANGE: what ORDER BY has at the bound, for each row.
	value expr.Expr
	text  string // the distance
	at    sql.Span
	col   int // of the window's input, where value stands
}

func (b frameBound) String() string {
	n := b.text
	if b.value == nil {
		n = strconv.FormatInt(b.n, 10)
	}
	switch b.kind {
	case sql.UnboundedPreceding:
		return "unbounded preceding"
	case sql.Preceding:
		return n + " preceding"
	case sql.Following:
		return n + " following"
	case sql.UnboundedFollowing:
		return "unbounded following"
	}
	return "current row"
}

func (f *frame) String() string {
	return fmt.Sprintf("%s between %s and %s", strings.ToLower(f.mode.String()), f.start, f.end)
}

// frame binds the frame of a window whose ORDER BY is bound; the default one is nil. Where it has distances, ORDER BY becomes
// an expression that they can be added to without a failure.
func (b *binder) frame(w *windowCall, f *sql.Frame) (*frame, error) {
	if f == nil || f.Mode == sql.FrameRange && f.Start.Kind == sql.UnboundedPreceding && f.End.Kind == sql.CurrentRow {
		return nil, nil
	}
	out := &frame{mode: f.Mode}
	bound := b.frameBound
	if f.Mode == sql.FrameRange && (f.Start.N != nil || f.End.N != nil) {
		distance, err := b.measured(w, f)
		if err != nil {
			return nil, err
		}
		bound = func(at sql.Bound) (frameBound, error) { return b.rangeBound(w, at, distance) }
	}
	var err error
	if out.start, err = bound(f.Start); err != nil {
		return nil, err
	}
	out.end, err = bound(f.End)
	return out, err
}

// measured makes the one expression of ORDER BY one that distances are measured by, and returns their type.
func (b *binder) measured(w *windowCall, f *sql.Frame) (distance dataflow.Type, err error) {
	x := w.order[0]
	to := x.Type()
	switch to {
	case dataflow.TypeBigInt: // whose sums would overflow
		to, distance = dataflow.TypeNumeric, dataflow.TypeNumeric
	case dataflow.TypeNumeric, dataflow.TypeDouble, dataflow.TypeInterval:
		distance = to
	case dataflow.TypeDate:
		to, distance = dataflow.TypeTimestamp, dataflow.TypeInterval
	case dataflow.TypeTimestamp:
		distance = dataflow.TypeInterval
	default:
		return distance, b.errorf(f.At, "RANGE with a distance needs an ORDER BY of a number, a time or an INTERVAL, this is %s: write ROWS or GROUPS", to)
	}
	if to != x.Type() {
		if w.order[0], err = expr.NewCast(x, to); err != nil {
			return distance, b.at(err, w.orderAt[0])
		}
	}
	return distance, nil
}

// rangeBound binds a bound that is a distance from what ORDER BY has in the row.
func (b *binder) rangeBound(w *windowCall, at sql.Bound, t dataflow.Type) (frameBound, error) {
	if at.N == nil {
		return frameBound{kind: at.Kind}, nil
	}
	v, err := b.boundValue(at, t, "a distance")
	if err != nil {
		return frameBound{}, err
	}
	zero := dataflow.BigInt(0)
	if t == dataflow.TypeInterval {
		zero = dataflow.Value{Type: t}
	}
	negative, err := expr.NewCall("<", expr.NewConst(v), expr.NewConst(zero))
	if err != nil {
		return frameBound{}, b.at(err, at.N.Span())
	}
	text := expr.FormatValue(v)
	switch is, err := expr.EvalRow(negative, nil, nil, 0); {
	case err != nil:
		return frameBound{}, b.at(err, at.N.Span())
	case is.Int != 0:
		return frameBound{}, b.errorf(at.N.Span(), negativeBound)
	case text == "NaN" || text == "Infinity":
		return frameBound{}, b.errorf(at.N.Span(), "a frame's distance is a finite number: write UNBOUNDED for all rows")
	}
	op := "-"
	if (at.Kind == sql.Following) != w.by[0].desc {
		op = "+"
	}
	x, err := expr.NewCall(op, w.order[0], expr.NewConst(v))
	if err != nil {
		return frameBound{}, b.at(err, at.N.Span())
	}
	return frameBound{kind: at.Kind, value: x, text: text, at: at.At}, nil
}

const negativeBound = "a frame's bound must not be negative: write FOLLOWING instead of PRECEDING, or the other way round"

func (b *binder) frameBound(at sql.Bound) (frameBound, error) {
	out := frameBound{kind: at.Kind}
	if at.N == nil {
		return out, nil
	}
	v, err := b.boundValue(at, dataflow.TypeBigInt, "a number of rows")
	switch {
	case err != nil:
		return out, err
	case v.Int < 0:
		return out, b.errorf(at.N.Span(), negativeBound)
	}
	out.n = v.Int
	return out, nil
}

// boundValue evaluates the constant of a bound.
func (b *binder) boundValue(at sql.Bound, t dataflow.Type, what string) (v dataflow.Value, err error) {
	if n := firstName(at.N); n != nil {
		return v, b.errorf(n.At, "a frame's bound is %s, a constant, not a column", what)
	}
	if q := firstSubquery(at.N); q != nil {
		return v, b.refuse(q.At, "a frame's bound is %s, a constant, not a subquery", what)
	}
	bind := &binder{src: b.src, scope: &scope{}, noAggregate: "a frame's bound is " + what + ", a constant"}
	x, err := bind.bind(at.N)
	if err != nil {
		return v, err
	}
	if x, err = expr.Coerce(x, t); err != nil {
		return v, b.at(err, at.N.Span())
	}
	v, err = expr.EvalRow(x, nil, nil, 0)
	switch {
	case err != nil:
		return v, b.at(err, at.N.Span())
	case v.Null:
		return v, b.errorf(at.N.Span(), "a frame's bound must not be NULL")
	}
	return v, nil
}

// frames finds the frames of the rows of a partition, one after the other.
type frames struct {
	*frame
	run      *windowRun
	from, to int
	groups   []int // where each group of peers begins, and the end; for RANGE and GROUPS
	group    int   // of the row that was asked for last
	buf      []byte
}

func (f *windowRun) frames(from, to int) *frames {
	fr := &frames{frame: f.call.frame, run: f, from: from, to: to}
	if fr.mode != sql.FrameRows && !fr.measured() {
		for at := from; at < to; at = f.peers(at, to) {
			fr.groups = append(fr.groups, at)
		}
		fr.groups = append(fr.groups, to)
	}
	return fr
}

// of returns the frame of the row at at: rows lo to hi-1, none if hi is not greater. Rows are asked for in their order.
func (f *frames) of(at int) (lo, hi int) {
	if f.mode == sql.FrameRows {
		lo, hi = f.move(f.start, at, f.from, f.to), f.move(f.end, at, f.from, f.to)
		if hi < f.to || f.end.kind == sql.CurrentRow {
			hi++ // the row is within
		}
		return max(lo, f.from), min(max(hi, f.from), f.to)
	}
	if f.measured() {
		return f.edge(f.start, at, false), f.edge(f.end, at, true)
	}
	for f.group+2 < len(f.groups) && f.groups[f.group+1] <= at {
		f.group++
	}
	last := len(f.groups) - 1 // the end
	first, end := f.move(f.start, f.group, 0, last), f.move(f.end, f.group, 0, last)
	if end < last {
		end++
	}
	return f.groups[min(max(first, 0), last)], f.groups[min(max(end, 0), last)]
}

// move returns the place n before or behind at, at least low-1 and at most high.
func (f *frames) move(b frameBound, at, low, high int) int {
	switch b.kind {
	case sql.UnboundedPreceding:
		return low
	case sql.Preceding:
		return int(max(int64(at)-min(b.n, int64(high-low)+1), int64(low)-1))
	case sql.Following:
		return int(min(int64(at)+min(b.n, int64(high-low)+1), int64(high)))
	case sql.UnboundedFollowing:
		return high
	}
	return at
}

// measured reports whether a bound is a distance from what ORDER BY has in the row.
func (f *frame) measured() bool { return f.start.value != nil || f.end.value != nil }

// edge returns the first row of the partition that ORDER BY does not place before a bound of the row at at; behind it, if
// behind is set. NULL is at no distance from anything but NULL: then the bound is NULL too.
func (f *frames) edge(b frameBound, at int, behind bool) int {
	w, set := f.run.w, f.run.set
	bound := f.run.rows[at].order
	switch b.kind {
	case sql.UnboundedPreceding:
		return f.from
	case sql.UnboundedFollowing:
		return f.to
	case sql.Preceding, sql.Following:
		by := set.order[0]
		by.col = b.col
		f.buf = (&sorter{order: []orderBy{by}}).appendOrder(f.buf[:0], w.rows, int(f.run.rows[at].row))
		bound = f.buf
	}
	return f.from + sort.Search(f.to-f.from, func(i int) bool {
		c := bytes.Compare(f.run.rows[f.from+i].order, bound)
		return c > 0 || c == 0 && !behind
	})
}
