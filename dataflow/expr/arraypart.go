package expr

import "github.com/weirdb/weir/dataflow"

// This file is parts of arrays: slices, and elements by their value.

// appendPart makes row i of the result the elements from to to of row i of an array.
func (f *frame) appendPart(a *operand, i, from, to int) {
	f.beginList(i)
	for j := from; j < to; j++ {
		f.appendElem(a, j)
	}
	f.endList()
}

// appendElem appends element j of an array's elements to those of the result.
func (f *frame) appendElem(a *operand, j int) {
	if elemNull(a.v.Elems, j) {
		f.out.Elems.AppendNull()
	} else {
		f.out.Elems.AppendFrom(a.v.Elems, j)
	}
}

func evalSlice(f *frame) {
	a, lo, hi := f.args[0], f.args[1], f.args[2]
	f.each(func(i int) *dataflow.Error {
		from, to := a.list(i)
		n := int64(to - from)
		first, last := max(lo.int(i), 1), min(hi.int(i), n)
		if first > last {
			first, last = 1, 0
		}
		f.appendPart(&a, i, from+int(first)-1, from+int(last))
		return nil
	})
}

func evalTrimArray(f *frame) {
	a, n := f.args[0], f.args[1]
	f.each(func(i int) *dataflow.Error {
		from, to := a.list(i)
		if k := n.int(i); k < 0 || k > int64(to-from) {
			return failf("number of elements to trim must be between 0 and %d", to-from)
		}
		f.appendPart(&a, i, from, to-int(n.int(i)))
		return nil
	})
}

// equalsElem returns whether element j of an array equals row i of a value; NULL equals NULL.
func equalsElem(a, x *operand) func(j, i int) bool {
	compare, elems := comparer(x.v.Type), a.elems()
	return func(j, i int) bool {
		if null := elemNull(elems.v, j); null || x.null(i) {
			return null && x.null(i)
		}
		return compare(&elems, j, x, i) == 0
	}
}

// eachItem makes a list of each array: item is called for its elements j, in order, and appends what is to be in the list. from
// is the first of them. Of NULL the result is NULL.
func (f *frame) eachItem(a *operand, item func(i, j, from int)) {
	f.each(func(i int) *dataflow.Error {
		if a.null(i) {
			f.null(i)
			return nil
		}
		f.beginList(i)
		from, to := a.list(i)
		for j := from; j < to; j++ {
			item(i, j, from)
		}
		f.endList()
		return nil
	})
}

func evalArrayRemove(f *frame) {
	a, x := f.args[0], f.args[1]
	equal := equalsElem(&a, &x)
	f.eachItem(&a, func(i, j, _ int) {
		if !equal(j, i) {
			f.appendElem(&a, j)
		}
	})
}

func evalArrayPositions(f *frame) {
	a, x := f.args[0], f.args[1]
	equal := equalsElem(&a, &x)
	f.eachItem(&a, func(i, j, from int) {
		if equal(j, i) {
			f.out.Elems.AppendInt(int64(j - from + 1))
		}
	})
}

func evalArrayReplace(f *frame) {
	a, x, y := f.args[0], f.args[1], f.args[2]
	equal := equalsElem(&a, &x)
	f.eachItem(&a, func(i, j, _ int) {
		if equal(j, i) {
			appendItem(f, &y, i)
		} else {
			f.appendElem(&a, j)
		}
	})
}

func evalArrayDims(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error {
		if from, to := a.list(i); from == to {
			f.null(i)
		} else {
			f.out.Ints[i] = 1
		}
		return nil
	})
}

func evalArrayOverlap(f *frame) {
	a, b := f.args[0], f.args[1]
	x, y := a.elems(), b.elems()
	compare := comparer(x.v.Type)
	f.each(func(i int) *dataflow.Error {
		from, to := a.list(i)
		other, end := b.list(i)
		for j := from; j < to; j++ {
			for k := other; k < end; k++ {
				if !elemNull(x.v, j) && !elemNull(y.v, k) && compare(&x, j, &y, k) == 0 {
					f.out.Ints[i] = 1
					return nil
				}
			}
		}
		return nil
	})
}
