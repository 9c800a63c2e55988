package expr

import (
	"bytes"
	"cmp"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// order says which outcomes of a comparison make an operator true.
type order struct{ less, equal, greater bool }

func (o order) holds(c int) bool {
	switch {
	case c < 0:
		return o.less
	case c > 0:
		return o.greater
	}
	return o.equal
}

func compareFunctions() []function {
	both := []dataflow.Type{typeAny, typeAny}
	return []function{
		{name: "=", args: both, result: tBool, eval: evalCompare(order{equal: true}),
			doc: "Equal. Text compares by bytes; NaN equals NaN.", example: "1 = 1.0"},
		{name: "<>", args: both, result: tBool, eval: evalCompare(order{less: true, greater: true}),
			doc: "Not equal; also written !=.", example: "'a' <> 'b'"},
		{name: "<", args: both, result: tBool, check: checkOrdered, eval: evalCompare(order{less: true}),
			doc: "Less. Text compares by bytes (collation C); NaN is greater than every number.", example: "'B' < 'a'"},
		{name: "<=", args: both, result: tBool, check: checkOrdered, eval: evalCompare(order{less: true, equal: true}),
			doc: "Less or equal.", example: "2 <= 2"},
		{name: ">", args: both, result: tBool, check: checkOrdered, eval: evalCompare(order{greater: true}),
			doc: "Greater.", example: "'NaN'::double precision > 1e300"},
		{name: ">=", args: both, result: tBool, check: checkOrdered, eval: evalCompare(order{equal: true, greater: true}),
			doc: "Greater or equal.", example: "2 >= 3"},
		{name: "is distinct from", args: both, result: tBool, nullable: true, eval: evalDistinct(true),
			doc: "Not equal, where NULL equals NULL only.", example: "1 IS DISTINCT FROM NULL"},
		{name: "is not distinct from", args: both, result: tBool, nullable: true, eval: evalDistinct(false),
			doc: "Equal, where NULL equals NULL only.", example: "NULL IS NOT DISTINCT FROM NULL"},
		{name: "in", args: both, variadic: true, result: tBool, nullable: true, check: checkIn, eval: evalIn(true),
			doc: "Whether the value is in the list; NULL if it is not and the list has a NULL.", example: "2 IN (1, 2, 3)"},
		{name: "not in", args: both, variadic: true, result: tBool, nullable: true, check: checkIn, eval: evalIn(false),
			doc: "The opposite of IN; NULL if the list has a NULL and not the value.", example: "4 NOT IN (1, 2, 3)"},
	}
}

// checkOrdered refuses to order values that have no order.
func checkOrdered(c *Call) *dataflow.Error {
	for _, a := range c.args {
		if t := a.Type(); t == tJSON || t.Elem() == tJSON {
			return dataflow.Errorf(dataflow.ReasonSQLUnsupported, "%s values have no order here: operator %s", t, c.fn.name).
				WithHint("compare a part of it: (payload ->> 'n')::numeric > 5")
		}
	}
	return nil
}

func evalCompare(o order) func(f *frame) {
	return func(f *frame) {
		a, b, out := f.args[0], f.args[1], f.out.Ints
		switch t := a.v.Type; t {
		case tBool, tInt, tTime, tDate:
			compareIntColumns(out, a, b, o)
			zeroNulls(out, f.nulls)
		case tText, tBytes:
			if o.less == o.greater {
				equalTexts(f, a, b, o.equal)
				return
			}
			f.each(func(i int) *dataflow.Error {
				out[i] = boolInt(o.holds(bytes.Compare(a.text(i), b.text(i))))
				return nil
			})
		default:
			compare := comparer(t)
			f.each(func(i int) *dataflow.Error { out[i] = boolInt(o.holds(compare(&a, i, &b, i))); return nil })
		}
	}
}

// compareIntColumns compares all rows, also those that do not count: that is faster than to choose.
func compareIntColumns(out []int64, a, b operand, o order) {
	if a.constant() && !b.constant() {
		a, b = b, a
		o.less, o.greater = o.greater, o.less
	}
	if !b.constant() || a.constant() {
		for i := range out {
			out[i] = boolInt(o.holds(cmp.Compare(a.int(i), b.int(i))))
		}
		return
	}
	k := b.int(0)
	xs := a.v.Ints[:len(out)]
	switch o {
	case order{equal: true}:
		for i, x := range xs {
			out[i] = boolInt(x == k)
		}
	case order{less: true, greater: true}:
		for i, x := range xs {
			out[i] = boolInt(x != k)
		}
	case order{less: true}:
		for i, x := range xs {
			out[i] = boolInt(x < k)
		}
	case order{less: true, equal: true}:
		for i, x := range xs {
			out[i] = boolInt(x <= k)
		}
	case order{greater: true}:
		for i, x := range xs {
			out[i] = boolInt(x > k)
		}
	case order{greater: true, equal: true}:
		for i, x := range xs {
			out[i] = boolInt(x >= k)
		}
	}
}

// zeroNulls zeroes the elements of NULL rows, as vectors must have them.
func zeroNulls(out []int64, nulls batch.Bitmap) {
	for w, bits := range nulls {
		if bits == 0 {
			continue
		}
		for i := w * 64; i < min(w*64+64, len(out)); i++ {
			if bits&(1<<(uint(i)&63)) != 0 {
				out[i] = 0
			}
		}
	}
}

// equalTexts decides = (equal is set) and <> of texts.
func equalTexts(f *frame, a, b operand, equal bool) {
	out := f.out.Ints
	if a.constant() {
		a, b = b, a
	}
	if f.sel == nil && b.constant() && !a.constant() {
		want := b.text(0)
		n := uint32(len(want))
		offs := a.v.Offs[:f.n+1]
		for i := range out {
			from, to := offs[i], offs[i+1]
			out[i] = boolInt((to-from == n && bytes.Equal(a.v.Data[from:to], want)) == equal)
		}
		zeroNulls(out, f.nulls)
		return
	}
	f.each(func(i int) *dataflow.Error {
		out[i] = boolInt(bytes.Equal(a.text(i), b.text(i)) == equal)
		return nil
	})
}

func evalDistinct(distinct bool) func(f *frame) {
	return func(f *frame) {
		a, b := f.args[0], f.args[1]
		compare := comparer(a.v.Type)
		f.each(func(i int) *dataflow.Error {
			an, bn := a.null(i), b.null(i)
			same := an && bn || !an && !bn && compare(&a, i, &b, i) == 0
			f.out.Ints[i] = boolInt(same != distinct)
			return nil
		})
	}
}

// inSet is the list of an IN whose items are constants.
type inSet struct {
	ints  map[int64]struct{}
	texts map[string]struct{}
	null  bool
}

// checkIn turns a list of constants into a set.
func checkIn(c *Call) *dataflow.Error {
	var set inSet
	switch c.args[0].Type() {
	case tBool, tInt, tTime, tDate:
		set.ints = make(map[int64]struct{})
	case tText, tBytes:
		set.texts = make(map[string]struct{})
	default:
		return nil
	}
	for _, a := range c.args[1:] {
		k, ok := a.(*Const)
		switch {
		case !ok:
			return nil
		case k.value.Null:
			set.null = true
		case set.ints != nil:
			set.ints[k.value.Int] = struct{}{}
		default:
			set.texts[k.value.Str] = struct{}{}
		}
	}
	c.prep = &set
	return nil
}

// evalIn decides IN (found = true) and NOT IN.
func evalIn(found bool) func(f *frame) {
	return func(f *frame) {
		x := f.args[0]
		set, _ := f.call.prep.(*inSet)
		compare := comparer(x.v.Type)
		f.each(func(i int) *dataflow.Error {
			if x.null(i) {
				f.null(i)
				return nil
			}
			hit, null := false, false
			switch {
			case set == nil:
				for k := 1; k < len(f.args) && !hit; k++ {
					if f.args[k].null(i) {
						null = true
						continue
					}
					hit = compare(&x, i, &f.args[k], i) == 0
				}
			case set.ints != nil:
				_, hit = set.ints[x.int(i)]
				null = set.null
			default:
				_, hit = set.texts[string(x.text(i))]
				null = set.null
			}
			if !hit && null {
				f.null(i)
				return nil
			}
			f.out.Ints[i] = boolInt(hit == found)
			return nil
		})
	}
}
