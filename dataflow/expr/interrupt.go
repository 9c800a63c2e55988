package expr

import "github.com/weirdb/weir/dataflow"

// Interrupted returns the error of Interrupt when it has ended the evaluations; nil otherwise. Their results and failures
// then mean nothing, and no smaller batch helps: whoever evaluates returns the error instead.
func (env *Env) Interrupted() error { return env.stopped }

// look asks Interrupt, and reports whether to go on.
func (env *Env) look() bool {
	if env.Interrupt != nil && env.stopped == nil {
		if env.stopped = env.Interrupt(); env.stopped != nil {
			env.room.over = true
		}
	}
	return env.stopped == nil
}

// Work is counted in bytes of arguments, and these for each row beside them.
const (
	// lookBytes is after how much work a frame looks whether it is interrupted. Why not more: a regular expression may take
	// microseconds per byte. Why not less: a look costs as much as a hundred bytes compared.
	lookBytes = 4 << 10
	// numericWork is what a row with a NUMERIC counts: a root or a power of many digits takes milliseconds.
	numericWork = 512
	// rowWork is what any other row counts.
	rowWork = 64
)

// watched returns fn with looks whether the frame is interrupted. It returns fn where no row takes long: then the look
// before each frame is enough.
func (f *frame) watched(fn func(i int) *dataflow.Error) func(i int) *dataflow.Error {
	if f.env.Interrupt == nil {
		return fn
	}
	perRow := int64(rowWork)
	heavy := grows(f.out.Type)
	var texts []*operand
	for k := range f.args {
		a := &f.args[k]
		switch a.v.Type {
		case dataflow.TypeText, dataflow.TypeTextArray:
			texts = append(texts, a)
			heavy = true
		case dataflow.TypeNumeric:
			perRow = numericWork
			heavy = true
		}
	}
	if !heavy {
		return fn
	}
	work := int64(0)
	return func(i int) *dataflow.Error {
		for _, a := range texts {
			work += a.textBytes(i)
		}
		if work += perRow; work >= lookBytes {
			work = 0
			if !f.env.look() {
				return errTooMuch()
			}
		}
		return fn(i)
	}
}

// textBytes is how many bytes of text row i has, those of its elements if it is a list.
func (o *operand) textBytes(i int) int64 {
	i &= o.mask
	if o.v.Type == dataflow.TypeTextArray {
		return int64(o.v.Elems.Offs[o.v.Lists[i+1]] - o.v.Elems.Offs[o.v.Lists[i]])
	}
	return int64(o.v.Offs[i+1] - o.v.Offs[i])
}
