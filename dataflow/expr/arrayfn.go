package expr

import "github.com/weirdb/weir/dataflow"

// quantified returns "op any": whether the comparison holds for an element.
func quantified(op string, o order, doc string) function {
	example := ""
	if doc != "" {
		example = "2 = ANY ('{1,2}'::bigint[])"
	}
	fn := function{name: op + " any", args: []dataflow.Type{typeItem, typeList}, result: tBool, nullable: true, eval: evalQuantified(o, true), doc: doc, example: example}
	if doc == "" {
		fn.doc = op + " with any element."
	}
	if op != "=" && op != "<>" {
		fn.check = checkOrdered
	}
	return fn
}

// allOf returns "op all": whether the comparison holds for all elements.
func allOf(op string, o order) function {
	fn := quantified(op, o, "")
	fn.name, fn.eval, fn.doc = op+" all", evalQuantified(o, false), op+" with every element."
	return fn
}

func evalQuantified(o order, any bool) func(f *frame) {
	return func(f *frame) {
		x, a := f.args[0], f.args[1]
		compare, elems := comparer(x.v.Type), a.elems()
		f.each(func(i int) *dataflow.Error {
			if a.null(i) {
				f.null(i)
				return nil
			}
			from, to := a.list(i)
			null := x.null(i) && from < to
			for j := from; j < to; j++ {
				if null = null || elemNull(elems.v, j); x.null(i) || elemNull(elems.v, j) {
					continue
				}
				if o.holds(compare(&x, i, &elems, j)) == any {
					f.out.Ints[i] = boolInt(any)
					return nil
				}
			}
			if null {
				f.null(i)
				return nil
			}
			f.out.Ints[i] = boolInt(!any)
			return nil
		})
	}
}

// beginList gives the rows before i that were left out no elements; elements of row i are appended after it.
func (f *frame) beginList(i int) { fillTo(f.out, i) }

// endList ends a row of arrays: it has what was appended to the elements since beginList.
func (f *frame) endList() { f.out.Lists = append(f.out.Lists, uint32(f.out.Elems.Len())) }

func evalArray(f *frame) {
	f.each(func(i int) *dataflow.Error {
		f.beginList(i)
		for k := range f.args {
			appendItem(f, &f.args[k], i)
		}
		f.endList()
		return nil
	})
}

// appendItem appends row i of an argument to the elements of the result.
func appendItem(f *frame, a *operand, i int) { f.out.Elems.AppendFrom(a.v, i&a.mask) }

// appendItems appends the elements of row i of an array.
func appendItems(f *frame, a *operand, i int) {
	from, to := a.list(i)
	for j := from; j < to; j++ {
		if elemNull(a.v.Elems, j) {
			f.out.Elems.AppendNull()
		} else {
			f.out.Elems.AppendFrom(a.v.Elems, j)
		}
	}
}

func evalSubscript(f *frame) {
	a, n := f.args[0], f.args[1]
	f.each(func(i int) *dataflow.Error {
		from, to := a.list(i)
		if k := n.int(i); k < 1 || k > int64(to-from) || elemNull(a.v.Elems, from+int(k)-1) {
			f.null(i)
			return nil
		}
		copyRow(f.out, i, a.v.Elems, from+int(n.int(i))-1)
		return nil
	})
}

func evalArrayBound(bound func(n int64) int64) func(f *frame) {
	return func(f *frame) {
		a, dim := f.args[0], f.args[1]
		f.each(func(i int) *dataflow.Error {
			from, to := a.list(i)
			if dim.int(i) != 1 || from == to {
				f.null(i)
			} else {
				f.out.Ints[i] = bound(int64(to - from))
			}
			return nil
		})
	}
}

func evalArrayPosition(f *frame) {
	a, x := f.args[0], f.args[1]
	compare, elems := comparer(x.v.Type), a.elems()
	f.each(func(i int) *dataflow.Error {
		if a.null(i) {
			f.null(i)
			return nil
		}
		from, to := a.list(i)
		for k := from; k < to; k++ {
			null := elemNull(elems.v, k)
			if null && x.null(i) || !null && !x.null(i) && compare(&elems, k, &x, i) == 0 {
				f.out.Ints[i] = int64(k - from + 1)
				return nil
			}
		}
		f.null(i)
		return nil
	})
}

// evalArrayJoin joins two arguments, each an array or an element.
func evalArrayJoin(left, right bool) func(f *frame) {
	return func(f *frame) {
		a, b := f.args[0], f.args[1]
		f.each(func(i int) *dataflow.Error {
			if left && right && a.null(i) && b.null(i) {
				f.null(i)
				return nil
			}
			f.beginList(i)
			for k, x := range []*operand{&a, &b} {
				switch list := k == 0 && left || k == 1 && right; {
				case !list:
					appendItem(f, x, i)
				case !x.null(i):
					appendItems(f, x, i)
				}
			}
			f.endList()
			return nil
		})
	}
}

func evalArrayContains(whole, part int) func(f *frame) {
	return func(f *frame) {
		a, b := f.args[whole], f.args[part]
		x, y := a.elems(), b.elems()
		compare := comparer(x.v.Type)
		f.each(func(i int) *dataflow.Error {
			from, to := a.list(i)
			j, end := b.list(i)
			for ; j < end; j++ {
				found := false
				for k := from; k < to && !found && !elemNull(y.v, j); k++ {
					found = !elemNull(x.v, k) && compare(&x, k, &y, j) == 0
				}
				if !found {
					return nil
				}
			}
			f.out.Ints[i] = 1
			return nil
		})
	}
}

func evalSubscripts(f *frame) {
	a, dim := f.args[0], f.args[1]
	f.each(func(i int) *dataflow.Error {
		f.beginList(i)
		if from, to := a.list(i); dim.int(i) == 1 {
			for n := range to - from {
				f.out.Elems.AppendInt(int64(n + 1))
			}
		}
		f.endList()
		return nil
	})
}
