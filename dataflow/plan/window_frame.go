package plan

import (
	"fmt"
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
	n    int64 // of Preceding and Following
}

func (b frameBound) String() string {
	switch b.kind {
	case sql.UnboundedPreceding:
		return "unbounded preceding"
	case sql.Preceding:
		return fmt.Sprintf("%d preceding", b.n)
	case sql.Following:
		return fmt.Sprintf("%d following", b.n)
	case sql.UnboundedFollowing:
		return "unbounded following"
	}
	return "current row"
}

func (f *frame) String() string {
	return fmt.Sprintf("%s between %s and %s", strings.ToLower(f.mode.String()), f.start, f.end)
}

// frame binds a frame; the default one is nil.
func (b *binder) frame(f *sql.Frame) (*frame, error) {
	if f == nil || f.Mode == sql.FrameRange && f.Start.Kind == sql.UnboundedPreceding && f.End.Kind == sql.CurrentRow {
		return nil, nil
	}
	out := &frame{mode: f.Mode}
	var err error
	if out.start, err = b.frameBound(f.Start); err != nil {
		return nil, err
	}
	out.end, err = b.frameBound(f.End)
	return out, err
}

func (b *binder) frameBound(at sql.Bound) (frameBound, error) {
	out := frameBound{kind: at.Kind}
	if at.N == nil {
		return out, nil
	}
	if n := firstName(at.N); n != nil {
		return out, b.errorf(n.At, "a frame's bound is a constant number of rows, not a column")
	}
	if q := firstSubquery(at.N); q != nil {
		return out, b.refuse(q.At, "a frame's bound is a constant number of rows, not a subquery")
	}
	bind := &binder{src: b.src, scope: &scope{}, noAggregate: "a frame's bound is a constant number of rows"}
	x, err := bind.bind(at.N)
	if err != nil {
		return out, err
	}
	if x, err = expr.Coerce(x, dataflow.TypeBigInt); err != nil {
		return out, b.at(err, at.N.Span())
	}
	v, err := expr.EvalRow(x, nil, nil, 0)
	switch {
	case err != nil:
		return out, b.at(err, at.N.Span())
	case v.Null:
		return out, b.errorf(at.N.Span(), "a frame's bound must not be NULL")
	case v.Int < 0:
		return out, b.errorf(at.N.Span(), "a frame's bound must not be negative: write FOLLOWING instead of PRECEDING, or the other way round")
	}
	out.n = v.Int
	return out, nil
}

// frames finds the frames of the rows of a partition, one after the other.
type frames struct {
	*frame
	run      *windowRun
	from, to int
	groups   []int // where each group of peers begins, and the end; for RANGE and GROUPS
	group    int   // of the row that was asked for last
}

func (f *windowRun) frames(from, to int) *frames {
	fr := &frames{frame: f.call.frame, run: f, from: from, to: to}
	if fr.mode != sql.FrameRows {
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
