package operator

import (
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/plan"
)

// ChainRunner runs the chain of one input of a stage. One goroutine uses it at a time.
type ChainRunner struct {
	ops  []step
	lims limits
	run  chainRun // scratch of Run, kept for its memory
}

// step is an operator with what the steps after it need.
type step struct {
	op plan.Op
	// keep lists the columns of an Unnest's result that some later step reads; nil means all of them. The others are
	// not repeated for every element: a long text is not copied once per word.
	keep []bool
}

// RowError is a row of a batch for which a chain failed.
type RowError struct {
	Row int        // of the batch that was given to Run
	At  plan.Place // of the expression in the text; zero when the row is over a limit
	Err *dataflow.Error
}

// NewChainRunner returns a runner for in, an input of st.
func NewChainRunner(st *plan.Stage, in *plan.Input) *ChainRunner {
	c := &ChainRunner{ops: make([]step, len(in.Chain)), lims: newLimits(st)}
	var need map[int]bool // columns that later steps read; nil = all
	for i := len(in.Chain) - 1; i >= 0; i-- {
		c.ops[i].op = in.Chain[i]
		switch op := in.Chain[i].(type) {
		case *plan.Filter:
			need = alsoNeeds(need, op.Cond)
		case *plan.Project:
			need = alsoNeeds(make(map[int]bool), op.Exprs...)
		case *plan.Unnest:
			if need != nil {
				c.ops[i].keep = keepOf(need)
			}
			need = alsoNeeds(need, op.Array)
		}
	}
	return c
}

func alsoNeeds(need map[int]bool, exprs ...expr.Expr) map[int]bool {
	if need == nil {
		return nil
	}
	for _, e := range exprs {
		for _, col := range expr.Columns(e) {
			need[col] = true
		}
	}
	return need
}

func keepOf(need map[int]bool) []bool {
	n := 0
	for col := range need {
		n = max(n, col+1)
	}
	keep := make([]bool, n)
	for col := range need {
		keep[col] = true
	}
	return keep
}

// Run computes what the chain makes of b, except for the rows of b that skip names (nil: none) and those for which an
// expression fails. The latter are returned, each once, by row. The result may share memory with b and keeps its
// weights, append times and offsets. env.Fail is Run's while it runs.
//
// fits is false when the values made of b would take more than expr.BatchMemory: the caller cuts b in pieces then and runs
// them one by one (O5). A batch of one row always fits; it fails when it takes more than expr.MaxRowMemory.
//
// Once env.Interrupted returns an error, nothing that Run has returned means anything.
func (c *ChainRunner) Run(b *batch.Batch, skip batch.Bitmap, env *expr.Env) (out *batch.Batch, failed []RowError, fits bool) {
	r := &c.run
	r.start(b, skip, env)
	outer := env.Fail
	env.Fail = r.fail
	defer func() { env.Fail = outer }()
	if c.compute(r) {
		out, failed = r.finish()
		return out, failed, true
	}
	at := r.at
	*r = chainRun{}
	if b.N > 1 {
		return nil, nil, false
	}
	return &batch.Batch{}, []RowError{{At: at, Err: expr.ErrRowMemory()}}, true
}

// compute runs the operators; false means that they would take too much memory.
func (c *ChainRunner) compute(r *chainRun) bool {
	env := r.env
	for i := range c.ops {
		switch op := c.ops[i].op.(type) {
		case *plan.Filter:
			r.at = op.At
			r.filter(op.Cond.Eval(env, r.cur, r.sel))
		case *plan.Project:
			r.project(op, env)
		case *plan.Unnest:
			r.at = op.At
			arr := op.Array.Eval(env, r.cur, r.sel)
			if env.Over() {
				return false
			}
			r.dropFailed()
			r.unnest(op, arr, c.ops[i].keep)
		}
		if env.Over() {
			return false
		}
		r.dropFailed()
	}
	r.at = plan.Place{}
	c.lims.check(r)
	r.dropFailed()
	return r.sel == nil || env.Take(r.size(r.cur.Cols))
}

// chainRun is one run: the batch so far, the rows of it that are still in, and where they come from.
type chainRun struct {
	env  *expr.Env
	cur  *batch.Batch
	sel  []int32 // rows of cur that are in, ascending; nil = all
	src  []int32 // row of the source batch that each row of cur descends from; nil = the same
	rows int     // of the source batch

	at     plan.Place   // of the expression that is being evaluated
	bad    batch.Bitmap // source rows that failed; nil = none
	errs   []RowError
	sifted int // how many of errs have been dropped from sel
}

func (r *chainRun) start(b *batch.Batch, skip batch.Bitmap, env *expr.Env) {
	*r = chainRun{env: env, cur: b, rows: b.N}
	if b.N > 1 {
		env.Begin(expr.BatchMemory)
	} else {
		env.Begin(expr.MaxRowMemory)
	}
	if !skip.Any() {
		return
	}
	r.sel = make([]int32, 0, b.N)
	for i := range b.N {
		if !skip.Get(i) {
			r.sel = append(r.sel, int32(i))
		}
	}
}

// fail records that the source row of a row of cur has failed. Its first error counts.
func (r *chainRun) fail(row int, err *dataflow.Error) {
	if r.src != nil {
		row = int(r.src[row])
	}
	if r.bad == nil {
		r.bad = batch.NewBitmap(r.rows)
	}
	if !r.bad.Get(row) {
		r.bad.Set(row)
		r.errs = append(r.errs, RowError{Row: row, At: r.at, Err: err})
	}
}

// each calls fn for the rows that are in.
func (r *chainRun) each(fn func(row int)) {
	if r.sel != nil {
		for _, row := range r.sel {
			fn(int(row))
		}
		return
	}
	for row := range r.cur.N {
		fn(row)
	}
}

// size returns what the rows that are in take in other vectors.
func (r *chainRun) size(cols []*batch.Vector) int64 {
	n := int64(0)
	for _, v := range cols {
		if v != nil {
			r.each(func(row int) { n += expr.RowMemory(v, row) })
		}
	}
	return n
}

// keepIf leaves the rows in for which ok holds. The old selection may be shared with a vector's maker, so it is not
// written to.
func (r *chainRun) keepIf(ok func(row int) bool) {
	n := r.cur.N
	if r.sel != nil {
		n = len(r.sel)
	}
	sel := make([]int32, 0, n)
	r.each(func(row int) {
		if ok(row) {
			sel = append(sel, int32(row))
		}
	})
	if len(sel) < n {
		r.sel = sel
	}
}

// dropFailed takes out the rows whose source row has failed since the last call.
func (r *chainRun) dropFailed() {
	if len(r.errs) == r.sifted {
		return
	}
	r.sifted = len(r.errs)
	r.keepIf(func(row int) bool {
		if r.src != nil {
			row = int(r.src[row])
		}
		return !r.bad.Get(row)
	})
}

func (r *chainRun) filter(cond *batch.Vector) {
	if cond.Type != dataflow.TypeBool { // a bare NULL
		r.sel = []int32{}
		return
	}
	r.keepIf(func(row int) bool { return cond.Ints[row] != 0 && !cond.IsNull(row) })
}

func (r *chainRun) project(op *plan.Project, env *expr.Env) {
	cols := make([]*batch.Vector, len(op.Exprs))
	for i, e := range op.Exprs {
		r.at = plan.Place{}
		if i < len(op.At) {
			r.at = op.At[i]
		}
		cols[i] = e.Eval(env, r.cur, r.sel)
	}
	r.cur = r.cur.WithCols(op.Schema, cols)
}

// unnest makes a row per element of arr, if there is room for them.
func (r *chainRun) unnest(op *plan.Unnest, arr *batch.Vector, keep []bool) {
	n := 0
	each := func(fn func(row, from, to int)) {
		if arr.Type.Form() != dataflow.FormList { // a bare NULL
			return
		}
		r.each(func(row int) {
			if !arr.IsNull(row) {
				fn(row, int(arr.Lists[row]), int(arr.Lists[row+1]))
			}
		})
	}
	size := int64(0) // of what is made
	kept := make([]*batch.Vector, len(r.cur.Cols))
	for i, v := range r.cur.Cols {
		if v != nil && (keep == nil || i < len(keep) && keep[i]) {
			kept[i] = v
		}
	}
	each(func(row, from, to int) {
		n += to - from
		per := int64(unnestedMemory)
		for _, v := range kept {
			if v != nil {
				per += expr.RowMemory(v, row)
			}
		}
		size += per * int64(to-from)
		size += elemsMemory(arr, from, to)
	})
	if !r.env.Take(size) {
		return
	}
	parents, elems := make([]int32, 0, n), make([]int32, 0, n)
	each(func(row, from, to int) {
		for e := from; e < to; e++ {
			parents, elems = append(parents, int32(row)), append(elems, int32(e))
		}
	})

	schema := append(r.cur.Schema[:len(r.cur.Schema):len(r.cur.Schema)], op.Column)
	cols := make([]*batch.Vector, len(schema))
	last := len(schema) - 1
	for i, v := range kept {
		if v != nil {
			cols[i] = v.Gather(parents)
		}
	}
	switch {
	case keep != nil && (last >= len(keep) || !keep[last]):
	case n == 0:
		cols[last] = batch.NewVector(op.Column.Type, 0)
	case int(elems[n-1]-elems[0]) == n-1: // ascending, so nothing is left out in between
		cols[last] = arr.Elems.Slice(int(elems[0]), int(elems[n-1])+1)
	default:
		cols[last] = arr.Elems.Gather(elems)
	}
	src := parents
	if r.src != nil {
		src = make([]int32, n)
		for i, p := range parents {
			src[i] = r.src[p]
		}
	}
	r.cur, r.sel, r.src = r.cur.WithRows(schema, cols, parents), nil, src
}

// elemsMemory is what elements take beyond their width.
func elemsMemory(arr *batch.Vector, from, to int) int64 {
	if arr.Elems.Type.Form() == dataflow.FormBytes {
		return int64(arr.Elems.Offs[to] - arr.Elems.Offs[from])
	}
	n := int64(0)
	for j := from; j < to; j++ {
		n += expr.RowMemory(arr.Elems, j)
	}
	return n
}

// unnestedMemory is what a row that is unnested takes beside its columns: where it comes from, its weight, append time and
// offset.
const unnestedMemory = 32

func (r *chainRun) finish() (*batch.Batch, []RowError) {
	out, errs := r.cur, r.errs
	if r.sel != nil {
		out = out.Select(r.sel)
	}
	slices.SortFunc(errs, func(a, b RowError) int { return a.Row - b.Row })
	*r = chainRun{} // let go of the batch
	return out, errs
}

// limits is what a stage's rows may have at most.
type limits struct {
	keys    int
	texts   []int // TEXT arguments that accumulators keep
	maxText int
	buf     []byte
}

func newLimits(st *plan.Stage) limits {
	l := limits{keys: len(st.Key), maxText: agg.NewLayout(st.Aggs).MaxArgBytes()}
	for _, a := range st.Aggs {
		if !a.KeepsText() {
			continue
		}
		if f := a.ArgType.Form(); f == dataflow.FormBytes || f == dataflow.FormList || f == dataflow.FormDecimal && a.Fn == agg.TopK {
			l.texts = append(l.texts, a.Arg)
		}
		for _, o := range a.Order {
			l.texts = append(l.texts, o.Col)
		}
	}
	slices.Sort(l.texts)
	l.texts = slices.Compact(l.texts)
	return l
}

// partBytes bounds how long the part of a key is whose value takes so many bytes: none of them takes more than two, and the
// rest, like digits, is less than 16.
func partBytes(value int) int { return 2*value + 16 }

// check reports the rows that are over a limit to r.
func (l *limits) check(r *chainRun) {
	if keys := r.cur.Cols[:l.keys]; !within(keys) {
		r.each(func(row int) {
			n := 0
			for _, v := range keys {
				n += partBytes(v.RowBytes(row))
			}
			if n <= dataflow.MaxKeyBytes {
				return
			}
			l.buf = l.buf[:0]
			for _, v := range keys {
				l.buf = key.AppendVector(l.buf, v, row)
			}
			if n := len(l.buf); n > dataflow.MaxKeyBytes {
				r.fail(row, dataflow.Errorf(dataflow.ReasonTooLarge, "the key has %d bytes; a key may have %d", n, dataflow.MaxKeyBytes))
			}
		})
	}
	for _, col := range l.texts {
		v := r.cur.Cols[col]
		if f := v.Type.Form(); f != dataflow.FormList && f != dataflow.FormDecimal && (f != dataflow.FormBytes || len(v.Data) <= l.maxText) {
			continue
		}
		r.each(func(row int) {
			if n := v.RowBytes(row); n > l.maxText {
				r.fail(row, dataflow.Errorf(dataflow.ReasonTooLarge, "a value has %d bytes; this view can keep %d", n, l.maxText))
			}
		})
	}
}

// within reports whether all keys of these columns are within the limit for sure, by the longest value of each column.
func within(keys []*batch.Vector) bool {
	size := 0
	for _, v := range keys {
		switch v.Type.Form() {
		case dataflow.FormBytes:
			longest := uint32(0)
			for i := 1; i < len(v.Offs); i++ {
				longest = max(longest, v.Offs[i]-v.Offs[i-1])
			}
			size += partBytes(int(longest))
		case dataflow.FormDecimal:
			return false
		default:
			size += partBytes(16) // as many as an INTERVAL
		}
	}
	return size <= dataflow.MaxKeyBytes
}
