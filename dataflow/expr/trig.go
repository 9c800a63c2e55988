package expr

import (
	"math"

	"github.com/weirdb/weir/dataflow"
)

// trigFunctions are those of angles, in radians.
func trigFunctions() []function {
	one, two := []dataflow.Type{tFlt}, []dataflow.Type{tFlt, tFlt}
	const last = "the last digit may differ"
	plain := func(fn func(x float64) float64) func(f *frame) {
		return float1(func(x float64) (float64, *dataflow.Error) { return fn(x), nil })
	}
	// of refuses what lies outside -1 to 1; finite refuses infinities.
	of := func(fn func(x float64) float64) func(f *frame) {
		return float1(func(x float64) (float64, *dataflow.Error) {
			if x < -1 || x > 1 {
				return 0, failf("input is out of range")
			}
			return fn(x), nil
		})
	}
	finite := func(fn func(x float64) float64) func(f *frame) {
		return float1(func(x float64) (float64, *dataflow.Error) {
			if math.IsInf(x, 0) {
				return 0, failf("input is out of range")
			}
			return fn(x), nil
		})
	}
	return []function{
		{name: "sin", args: one, result: tFlt, eval: finite(math.Sin), doc: "Sine.", example: "round(sin(1)::numeric, 10)", differs: last},
		{name: "cos", args: one, result: tFlt, eval: finite(math.Cos), doc: "Cosine.", example: "cos(0)", differs: last},
		{name: "tan", args: one, result: tFlt, eval: finite(math.Tan), doc: "Tangent.", example: "tan(0)", differs: last},
		{name: "cot", args: one, result: tFlt, eval: finite(func(x float64) float64 { return 1 / math.Tan(x) }), doc: "Cotangent.", example: "round(cot(1)::numeric, 10)", differs: last},
		{name: "asin", args: one, result: tFlt, eval: of(math.Asin), doc: "Inverse sine.", example: "asin(0)", differs: last},
		{name: "acos", args: one, result: tFlt, eval: of(math.Acos), doc: "Inverse cosine.", example: "acos(1)", differs: last},
		{name: "atan", args: one, result: tFlt, eval: plain(math.Atan), doc: "Inverse tangent.", example: "atan(0)", differs: last},
		{name: "atan2", args: two, result: tFlt, eval: func(f *frame) {
			a, b := f.args[0], f.args[1]
			f.each(func(i int) *dataflow.Error { f.out.Floats[i] = math.Atan2(a.flt(i), b.flt(i)); return nil })
		}, doc: "Inverse tangent of a quotient, in the right quadrant.", example: "atan2(0, 1)", differs: last},
		{name: "sinh", args: one, result: tFlt, eval: plain(math.Sinh), doc: "Hyperbolic sine.", example: "sinh(0)", differs: last},
		{name: "cosh", args: one, result: tFlt, eval: plain(math.Cosh), doc: "Hyperbolic cosine.", example: "cosh(0)", differs: last},
		{name: "tanh", args: one, result: tFlt, eval: plain(math.Tanh), doc: "Hyperbolic tangent.", example: "tanh(0)", differs: last},
		{name: "asinh", args: one, result: tFlt, eval: plain(math.Asinh), doc: "Inverse hyperbolic sine.", example: "asinh(0)", differs: last},
		{name: "acosh", args: one, result: tFlt, eval: float1(func(x float64) (float64, *dataflow.Error) {
			if x < 1 {
				return 0, failf("input is out of range")
			}
			return math.Acosh(x), nil
		}), doc: "Inverse hyperbolic cosine.", example: "acosh(1)", differs: last},
		{name: "atanh", args: one, result: tFlt, eval: of(math.Atanh), doc: "Inverse hyperbolic tangent.", example: "atanh(0)", differs: last},
	}
}
