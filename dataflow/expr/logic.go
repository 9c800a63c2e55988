package expr

import (
	"bytes"
	"cmp"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/jsonb"
)

const (
	tBool  = dataflow.TypeBool
	tInt   = dataflow.TypeBigInt
	tFlt   = dataflow.TypeDouble
	tText  = dataflow.TypeText
	tTime  = dataflow.TypeTimestamp
	tNum   = dataflow.TypeNumeric
	tArray = dataflow.TypeTextArray
	tIvl   = dataflow.TypeInterval
	tJSON  = dataflow.TypeJSONB
	tBytes = dataflow.TypeBytea
	tDate  = dataflow.TypeDate
)

func logicFunctions() []function {
	return []function{
		{name: "and", args: []dataflow.Type{tBool}, variadic: true, result: tBool, lazy: evalAnd,
			doc: "True if all are true, false if one is false, else NULL. Later ones are not evaluated once one is false.", example: "true AND NULL"},
		{name: "or", args: []dataflow.Type{tBool}, variadic: true, result: tBool, lazy: evalOr,
			doc: "True if one is true, false if all are false, else NULL. Later ones are not evaluated once one is true.", example: "true OR NULL"},
		{name: "not", args: []dataflow.Type{tBool}, result: tBool, eval: evalNot,
			doc: "The opposite; NULL stays NULL.", example: "NOT true"},

		{name: "is null", args: []dataflow.Type{typeEach}, result: tBool, nullable: true, eval: evalIs(func(null bool, _ int64) bool { return null }),
			doc: "Whether the value is NULL.", example: "NULL IS NULL"},
		{name: "is not null", args: []dataflow.Type{typeEach}, result: tBool, nullable: true, eval: evalIs(func(null bool, _ int64) bool { return !null }),
			doc: "Whether the value is not NULL.", example: "1 IS NOT NULL"},
		{name: "is true", args: []dataflow.Type{tBool}, result: tBool, nullable: true, eval: evalIs(func(null bool, v int64) bool { return !null && v != 0 }),
			doc: "True for true, false for false and NULL.", example: "(1 = 1) IS TRUE"},
		{name: "is not true", args: []dataflow.Type{tBool}, result: tBool, nullable: true, eval: evalIs(func(null bool, v int64) bool { return null || v == 0 }),
			doc: "False for true, true for false and NULL.", example: "(1 = 2) IS NOT TRUE"},
		{name: "is false", args: []dataflow.Type{tBool}, result: tBool, nullable: true, eval: evalIs(func(null bool, v int64) bool { return !null && v == 0 }),
			doc: "True for false, false for true and NULL.", example: "(1 = 2) IS FALSE"},
		{name: "is not false", args: []dataflow.Type{tBool}, result: tBool, nullable: true, eval: evalIs(func(null bool, v int64) bool { return null || v != 0 }),
			doc: "False for false, true for true and NULL.", example: "NULL::boolean IS NOT FALSE"},
		{name: "is unknown", args: []dataflow.Type{tBool}, result: tBool, nullable: true, eval: evalIs(func(null bool, _ int64) bool { return null }),
			doc: "Whether a BOOLEAN is NULL.", example: "NULL::boolean IS UNKNOWN"},
		{name: "is not unknown", args: []dataflow.Type{tBool}, result: tBool, nullable: true, eval: evalIs(func(null bool, _ int64) bool { return !null }),
			doc: "Whether a BOOLEAN is not NULL.", example: "true IS NOT UNKNOWN"},

		{name: "num_nulls", args: []dataflow.Type{typeEach}, variadic: true, result: tInt, nullable: true, eval: evalCountNulls(true),
			doc: "How many arguments are NULL.", example: "num_nulls(1, NULL, 'a')"},
		{name: "num_nonnulls", args: []dataflow.Type{typeEach}, variadic: true, result: tInt, nullable: true, eval: evalCountNulls(false),
			doc: "How many arguments are not NULL.", example: "num_nonnulls(1, NULL, 'a')"},
		{name: "coalesce", args: []dataflow.Type{typeAny}, variadic: true, result: typeAny, lazy: evalCoalesce,
			doc: "The first argument that is not NULL; those behind it are not evaluated.", example: "coalesce(NULL, 2)"},
		{name: "nullif", args: []dataflow.Type{typeAny, typeAny}, result: typeAny, nullable: true, eval: evalNullIf,
			doc: "NULL if both are equal, else the first.", example: "nullif('-', '-')"},
		{name: "greatest", args: []dataflow.Type{typeAny}, variadic: true, result: typeAny, nullable: true, check: checkOrdered, eval: evalGreatest(1),
			doc: "The greatest argument; NULLs are ignored.", example: "greatest(1, NULL, 3)"},
		{name: "least", args: []dataflow.Type{typeAny}, variadic: true, result: typeAny, nullable: true, check: checkOrdered, eval: evalGreatest(-1),
			doc: "The least argument; NULLs are ignored.", example: "least(1, NULL, 3)"},
	}
}

func evalAnd(c *Call, env *Env, b *batch.Batch, sel Sel) *batch.Vector {
	return evalJunction(c, env, b, sel, 0)
}

func evalOr(c *Call, env *Env, b *batch.Batch, sel Sel) *batch.Vector {
	return evalJunction(c, env, b, sel, 1)
}

// evalJunction is AND (decisive = 0) and OR (decisive = 1): an argument of the decisive value settles a row.
func evalJunction(c *Call, env *Env, b *batch.Batch, sel Sel, decisive int64) *batch.Vector {
	out := newVector(tBool, b.N)
	rest := allRows(sel, b.N)
	var unknown batch.Bitmap
	for k, a := range c.args {
		if len(rest) == 0 {
			break
		}
		if k > 0 {
			sel = rest // the first argument sees sel as it came: kernels are fastest without one
		}
		arg := evalOperand(a, env, b, sel)
		open := make(Sel, 0, len(rest))
		for _, i := range rest {
			if !arg.null(int(i)) && arg.int(int(i)) == decisive {
				out.Ints[i] = decisive
				if unknown != nil {
					unknown.Clear(int(i))
				}
				continue
			}
			if arg.null(int(i)) {
				if unknown == nil {
					unknown = batch.NewBitmap(b.N)
				}
				unknown.Set(int(i))
			}
			if k == len(c.args)-1 && !unknown.Get(int(i)) {
				out.Ints[i] = 1 - decisive
			}
			open = append(open, i)
		}
		rest = open
	}
	out.Nulls = unknown
	return out
}

func evalNot(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error { f.out.Ints[i] = 1 - a.int(i); return nil })
}

// evalIs tells apart what a value is, NULL included. The value is passed for BOOLEAN only.
func evalIs(is func(null bool, v int64) bool) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		boolean := a.v.Type == tBool
		f.each(func(i int) *dataflow.Error {
			null, v := a.null(i), int64(0)
			if boolean {
				v = a.int(i)
			}
			f.out.Ints[i] = boolInt(is(null, v))
			return nil
		})
	}
}

func evalCoalesce(c *Call, env *Env, b *batch.Batch, sel Sel) *batch.Vector {
	m := newMerge(env, c.typ, b.N)
	rest := allRows(sel, b.N)
	for k, a := range c.args {
		if len(rest) == 0 {
			break
		}
		if k > 0 {
			sel = rest
		}
		arg := evalOperand(a, env, b, sel)
		have, open := make(Sel, 0, len(rest)), make(Sel, 0, len(rest))
		for _, i := range rest {
			if arg.null(int(i)) {
				open = append(open, i)
			} else {
				have = append(have, i)
			}
		}
		m.add(arg, have)
		rest = open
	}
	return m.vector()
}

func evalNullIf(f *frame) {
	a, b := f.args[0], f.args[1]
	compare := comparer(f.call.typ)
	f.each(func(i int) *dataflow.Error {
		if a.null(i) || !b.null(i) && compare(&a, i, &b, i) == 0 {
			f.null(i)
		} else {
			copyRow(f.out, i, a.v, i&a.mask)
			return nil
		}
		return nil
	})
}

// evalGreatest keeps the greatest argument (sign = 1) or the least (sign = -1).
func evalGreatest(sign int) func(f *frame) {
	return func(f *frame) {
		compare := comparer(f.call.typ)
		f.each(func(i int) *dataflow.Error {
			var best *operand
			for k := range f.args {
				a := &f.args[k]
				if !a.null(i) && (best == nil || sign*compare(a, i, best, i) > 0) {
					best = a
				}
			}
			if best == nil {
				f.null(i)
				return nil
			}
			copyRow(f.out, i, best.v, i&best.mask)
			return nil
		})
	}
}

// comparer returns the order of a type: negative, zero or positive, as row i of a compares with row j of b.
func comparer(t dataflow.Type) func(a *operand, i int, b *operand, j int) int {
	switch t.Form() {
	case dataflow.FormInt:
		return func(a *operand, i int, b *operand, j int) int { return cmp.Compare(a.int(i), b.int(j)) }
	case dataflow.FormFloat:
		return func(a *operand, i int, b *operand, j int) int { return compareDoubles(a.flt(i), b.flt(j)) }
	case dataflow.FormDecimal:
		return func(a *operand, i int, b *operand, j int) int { return compareNumeric(a.dec(i), b.dec(j)) }
	case dataflow.FormInterval:
		return func(a *operand, i int, b *operand, j int) int { return compareIntervals(a.ivl(i), b.ivl(j)) }
	case dataflow.FormList:
		return compareArrays(comparer(t.Elem()))
	}
	if t == dataflow.TypeJSONB {
		return func(a *operand, i int, b *operand, j int) int {
			return int(1 - boolInt(jsonb.Equal(a.text(i), b.text(j))))
		}
	}
	return func(a *operand, i int, b *operand, j int) int { return bytes.Compare(a.text(i), b.text(j)) }
}

// compareDoubles orders NaN above all and equal to itself, as PostgreSQL does; -0 equals 0.
func compareDoubles(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return 0
	}
	return int(boolInt(a != a) - boolInt(b != b))
}

// compareArrays orders by the first element that differs, NULL being greatest, then by length.
func compareArrays(elem func(a *operand, i int, b *operand, j int) int) func(a *operand, i int, b *operand, j int) int {
	return func(a *operand, i int, b *operand, j int) int {
		af, at := a.list(i)
		bf, bt := b.list(j)
		x, y := a.elems(), b.elems()
		for ; af < at && bf < bt; af, bf = af+1, bf+1 {
			an, bn := elemNull(x.v, af), elemNull(y.v, bf)
			if an || bn {
				if an != bn {
					return int(boolInt(an) - boolInt(bn))
				}
				continue
			}
			if c := elem(&x, af, &y, bf); c != 0 {
				return c
			}
		}
		return cmp.Compare(int64(at-af), int64(bt-bf))
	}
}

// evalCountNulls counts the arguments that are NULL, or those that are not.
func evalCountNulls(null bool) func(f *frame) {
	return func(f *frame) {
		f.each(func(i int) *dataflow.Error {
			for k := range f.args {
				if f.args[k].null(i) == null {
					f.out.Ints[i]++
				}
			}
			return nil
		})
	}
}
