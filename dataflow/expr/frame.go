package expr

import (
	"math/bits"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// operand is an argument's values: a vector with a row per row of the batch, or a constant in a vector of one row. The
// mask makes both look alike: row i stands at i&mask.
type operand struct {
	v    *batch.Vector
	mask int
}

func evalOperand(e Expr, env *Env, b *batch.Batch, sel Sel) operand {
	if c, ok := e.(*Const); ok {
		return operand{v: c.vec}
	}
	return operand{v: e.Eval(env, b, sel), mask: -1}
}

func (o *operand) constant() bool              { return o.mask == 0 }
func (o *operand) null(i int) bool             { return o.v.Nulls.Get(i & o.mask) }
func (o *operand) int(i int) int64             { return o.v.Ints[i&o.mask] }
func (o *operand) flt(i int) float64           { return o.v.Floats[i&o.mask] }
func (o *operand) dec(i int) *apd.Decimal      { return &o.v.Decs[i&o.mask] }
func (o *operand) ivl(i int) dataflow.Interval { return o.v.Ivls[i&o.mask] }
func (o *operand) text(i int) []byte           { i &= o.mask; return o.v.Data[o.v.Offs[i]:o.v.Offs[i+1]] }
func (o *operand) list(i int) (from, to int) {
	i &= o.mask
	return int(o.v.Lists[i]), int(o.v.Lists[i+1])
}

// elems returns the elements of an array operand as an operand of their own, by the numbers that list gives.
func (o *operand) elems() operand { return operand{v: o.v.Elems, mask: -1} }

func (o *operand) appendText(d []byte, i int) []byte { return appendVector(d, o.v, i&o.mask) }

// span returns the bytes of the n rows of a TEXT vector, and offsets into them. The vector may be a slice of a larger
// one, whose bytes it shares.
func (o *operand) span(n int) (data []byte, offs []uint32) {
	offs = o.v.Offs[:n+1]
	from := offs[0]
	data = o.v.Data[from:offs[n]]
	if from != 0 {
		moved := make([]uint32, n+1)
		for i, at := range offs {
			moved[i] = at - from
		}
		offs = moved
	}
	return data, offs
}

// frame is one evaluation of a call over a batch: arguments in, rows out.
type frame struct {
	call  *Call
	env   *Env
	b     *batch.Batch
	n     int
	sel   Sel
	args  []operand
	nulls batch.Bitmap // rows with a NULL argument; nil for nullable functions
	out   *batch.Vector
	// digits is what the NUMERIC rows of out take beyond their width.
	digits int64
}

// each calls fn for every selected row whose arguments are not NULL. A row for which fn returns an error is reported
// and becomes NULL; fn must not have set it. Rows are left out once the evaluation is over (Env.Over).
func (f *frame) each(fn func(i int) *dataflow.Error) {
	if grows(f.out.Type) {
		fn = f.bounded(fn)
	}
	fn = f.watched(fn)
	switch {
	case f.sel != nil:
		for _, i := range f.sel {
			if !f.nulls.Get(int(i)) {
				if err := fn(int(i)); err != nil && !f.fail(int(i), err) {
					return
				}
			}
		}
	case f.nulls == nil:
		for i := 0; i < f.n; i++ {
			if err := fn(i); err != nil && !f.fail(i, err) {
				return
			}
		}
	default:
		for w := 0; w*64 < f.n; w++ {
			live := ^f.nulls[w]
			if rest := f.n - w*64; rest < 64 {
				live &= 1<<uint(rest) - 1
			}
			for ; live != 0; live &= live - 1 {
				i := w*64 + bits.TrailingZeros64(live)
				if err := fn(i); err != nil && !f.fail(i, err) {
					return
				}
			}
		}
	}
}

// maxText is the most bytes that one row of a result of texts or arrays can have.
const maxText = dataflow.MaxRowBytes

// each with a TEXT result: fn appends row i's text to dst, or returns an error and whatever it likes.
func (f *frame) eachText(fn func(dst []byte, i int) ([]byte, *dataflow.Error)) {
	out := f.out
	f.each(func(i int) *dataflow.Error {
		fillTo(out, i)
		from := len(out.Data)
		data, err := fn(out.Data, i)
		if err == nil {
			err = checkTextSize(len(data) - from)
		}
		if err != nil {
			out.Offs = append(out.Offs, uint32(from))
			return err
		}
		out.Data = data
		out.Offs = append(out.Offs, uint32(len(data)))
		return nil
	})
}

// checkTextSize refuses a row's result beyond the limit.
func checkTextSize(row int) *dataflow.Error {
	if row > maxText {
		return dataflow.Errorf(dataflow.ReasonTooLarge, "result of %d bytes is over the limit of %d bytes", row, maxText)
	}
	return nil
}

// setList sets row i of a TEXT[] result; nil elements are NULL.
func (f *frame) setList(i int, elems []*string) *dataflow.Error {
	size := 0
	for _, e := range elems {
		if e != nil {
			size += len(*e)
		}
	}
	if err := checkTextSize(size); err != nil {
		return err
	}
	fillTo(f.out, i)
	for _, e := range elems {
		appendElem(f.out.Elems, e)
	}
	f.out.Lists = append(f.out.Lists, uint32(f.out.Elems.Len()))
	return nil
}

// set sets row i of the result to x, which is not NULL.
func (f *frame) set(i int, x dataflow.Value) *dataflow.Error {
	out := f.out
	switch out.Type.Form() {
	case dataflow.FormInt:
		out.Ints[i] = x.Int
	case dataflow.FormFloat:
		out.Floats[i] = x.Flt
	case dataflow.FormDecimal:
		out.Decs[i].Set(x.Dec)
	case dataflow.FormInterval:
		out.Ivls[i] = x.Ivl
	case dataflow.FormBytes:
		if err := checkTextSize(len(x.Str)); err != nil {
			return err
		}
		fillTo(out, i)
		out.Data = append(out.Data, x.Str...)
		out.Offs = append(out.Offs, uint32(len(out.Data)))
	case dataflow.FormList:
		if err := checkTextSize(valueBytes(x)); err != nil {
			return err
		}
		fillTo(out, i)
		for _, e := range x.Arr {
			out.Elems.AppendValue(e)
		}
		out.Lists = append(out.Lists, uint32(out.Elems.Len()))
	}
	return nil
}

// valueBytes is what the elements of an array take.
func valueBytes(x dataflow.Value) int {
	n := 0
	for _, e := range x.Arr {
		n += len(e.Str)
		if e.Dec != nil {
			n += e.Dec.Coeff.BitLen() / 8
		}
	}
	return n
}

// null makes row i NULL.
func (f *frame) null(i int) { setNull(f.out, i, f.n) }

// fail reports row i and makes it NULL. It returns false when the evaluation is over instead.
func (f *frame) fail(i int, err *dataflow.Error) bool {
	if f.env.Over() {
		return false
	}
	setNull(f.out, i, f.n)
	f.env.fail(i, err)
	return true
}
