package expr

import (
	"math"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// MaxRowMemory is the most bytes that all the values may take that are made while one row goes through the expressions
// of a view or a query, the rows unnested from it included. A row that needs more fails with TOO_LARGE. Why not smaller:
// a row of 1 MiB may pass through dozens of functions. Why not larger: each shard may be busy with such a row.
const MaxRowMemory = 64 << 20

// BatchMemory is how many bytes the values of a batch may take before it is better cut in pieces. It is no limit of
// anything a user can see: where a batch is cut changes no result.
const BatchMemory = 16 << 20

// room counts the bytes of the vectors that evaluations make. What a batch takes is never less than what a row of it
// takes alone: so whether a row is over MaxRowMemory, which is judged alone, does not depend on its neighbours (P10).
type room struct {
	limit int64 // 0 = none
	used  int64
	over  bool
	void  map[dataflow.Type]*batch.Vector // what is returned once over: NULLs
}

// Begin allows the evaluations to come limit bytes for what they make; 0 sets no limit. Without a call there is none.
func (env *Env) Begin(limit int64) {
	env.room.limit, env.room.used, env.room.over = limit, 0, env.stopped != nil
}

// Over reports whether the evaluations since Begin would take more than they may. They then have stopped early: their
// results and the failures that they reported mean nothing. A batch of several rows is to be cut and evaluated again; a
// single row has failed. It is also true once the evaluations are interrupted: see Interrupted.
func (env *Env) Over() bool { return env.room.over }

// Used returns how many bytes the evaluations since Begin have made.
func (env *Env) Used() int64 { return env.room.used }

// Take counts n bytes that the caller makes itself of the results, before it does; false means that it must not.
func (env *Env) Take(n int64) bool {
	r := &env.room
	r.used += n
	if r.limit > 0 && r.used > r.limit {
		r.over = true
	}
	return !r.over
}

// left returns how many bytes may still be made.
func (env *Env) left() int64 {
	if env.room.limit == 0 {
		return math.MaxInt64
	}
	return env.room.limit - env.room.used
}

// nothing returns a result for an evaluation that is over.
func (env *Env) nothing(t dataflow.Type, n int) *batch.Vector {
	r := &env.room
	if v := r.void[t]; v != nil && v.Len() == n && t != dataflow.TypeInterval {
		return v
	}
	if r.void == nil {
		r.void = make(map[dataflow.Type]*batch.Vector)
	}
	r.void[t] = nullVector(t, n)
	return r.void[t]
}

// width is what a row of a vector takes at least.
func width(t dataflow.Type) int64 {
	switch t.Form() {
	case dataflow.FormBytes, dataflow.FormList:
		return 4
	case dataflow.FormDecimal:
		return 48
	case dataflow.FormInterval:
		return 24
	}
	return 8
}

// RowMemory returns what row i of v takes in another vector.
func RowMemory(v *batch.Vector, i int) int64 {
	n := width(v.Type)
	switch v.Type.Form() {
	case dataflow.FormBytes:
		n += int64(v.Offs[i+1] - v.Offs[i])
	case dataflow.FormDecimal:
		n += digitBytes(v, i)
	case dataflow.FormList:
		from, to := int(v.Lists[i]), int(v.Lists[i+1])
		e := v.Elems
		n += width(e.Type) * int64(to-from)
		switch e.Type.Form() {
		case dataflow.FormBytes:
			n += int64(e.Offs[to] - e.Offs[from])
		case dataflow.FormDecimal:
			for j := from; j < to; j++ {
				n += digitBytes(e, j)
			}
		}
	}
	return n
}

// digitBytes is what the digits of a NUMERIC row take.
func digitBytes(v *batch.Vector, i int) int64 { return int64(v.Decs[i].Coeff.BitLen() / 8) }

// grows reports whether rows of a type take more than their width.
func grows(t dataflow.Type) bool {
	switch t.Form() {
	case dataflow.FormBytes, dataflow.FormList, dataflow.FormDecimal:
		return true
	}
	return false
}

// grown is what the rows of the result take beyond their width, so far.
func (f *frame) grown() int64 {
	switch f.out.Type.Form() {
	case dataflow.FormBytes:
		return int64(len(f.out.Data))
	case dataflow.FormList:
		e := f.out.Elems
		return int64(len(e.Data)) + width(e.Type)*int64(e.Len()+1) + f.digits
	}
	return f.digits
}

// bounded returns fn with a look, after each row, at what the result takes. Where it is too much the frame ends.
func (f *frame) bounded(fn func(i int) *dataflow.Error) func(i int) *dataflow.Error {
	left := f.env.left()
	return func(i int) *dataflow.Error {
		err := fn(i)
		switch {
		case f.out.Type == dataflow.TypeNumeric:
			f.digits += digitBytes(f.out, i)
		case f.out.Type == dataflow.TypeNumericArray && len(f.out.Lists) == i+2:
			for j := int(f.out.Lists[i]); j < int(f.out.Lists[i+1]); j++ {
				f.digits += digitBytes(f.out.Elems, j)
			}
		}
		if f.grown() <= left {
			return err
		}
		f.env.room.over = true
		return errTooMuch()
	}
}

// errTooMuch ends a frame that is over; nobody sees it.
func errTooMuch() *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonTooLarge, "over the memory of the batch")
}

// ErrRowMemory is the error of a row that is over MaxRowMemory.
func ErrRowMemory() *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonTooLarge, "the values made of this row take more than %d bytes", MaxRowMemory).
		WithHint("make shorter texts of it, or bring fewer columns along through UNNEST")
}
