package agg

import (
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// Signature says how an aggregate is written.
type Signature struct {
	Name string
	// Args is how many values of a row it takes: x, or x and y.
	Args int
	// Param is the type of a constant behind them; TypeUnknown for none.
	Param dataflow.Type
	// Within says that x stands in WITHIN GROUP (ORDER BY x).
	Within bool
	// Ordered says that ORDER BY may stand behind the arguments.
	Ordered bool
	// Arrival says that it goes by the order in which rows arrived: on its own, or between rows that its arguments do not
	// tell apart.
	Arrival bool
	// Descending says that what stands behind the first argument is ordered from the greatest down.
	Descending bool
	// NeedsArrival says that there must be such an order.
	NeedsArrival bool
	Distinct     Distinct
}

// Distinct says what DISTINCT does in an aggregate.
type Distinct uint8

const (
	DistinctNot   Distinct = iota // it cannot be written
	DistinctSame                  // it changes nothing
	DistinctFolds                 // each value counts once
)

// Signatures returns all aggregates, the common ones first.
func Signatures() []Signature {
	return []Signature{
		{Name: "count", Args: 1, Distinct: DistinctFolds},
		{Name: "sum", Args: 1, Distinct: DistinctFolds},
		{Name: "avg", Args: 1, Distinct: DistinctFolds},
		{Name: "min", Args: 1, Distinct: DistinctSame},
		{Name: "max", Args: 1, Distinct: DistinctSame},
		{Name: "bool_and", Args: 1, Distinct: DistinctSame},
		{Name: "bool_or", Args: 1, Distinct: DistinctSame},
		{Name: "every", Args: 1, Distinct: DistinctSame},
		{Name: "min_by", Args: 2, Arrival: true},
		{Name: "max_by", Args: 2, Arrival: true},
		{Name: "arg_min", Args: 2, Arrival: true},
		{Name: "arg_max", Args: 2, Arrival: true},
		{Name: "first", Args: 1, Arrival: true, NeedsArrival: true},
		{Name: "last", Args: 1, Arrival: true, NeedsArrival: true},
		{Name: "string_agg", Args: 1, Param: dataflow.TypeText, Ordered: true, Arrival: true, Distinct: DistinctFolds},
		{Name: "array_agg", Args: 1, Ordered: true, Arrival: true, Distinct: DistinctFolds},
		{Name: "top_k", Args: 2, Param: dataflow.TypeBigInt, Arrival: true, Descending: true},
		{Name: "bottom_k", Args: 2, Param: dataflow.TypeBigInt, Arrival: true},
		{Name: "approx_count_distinct", Args: 1, Distinct: DistinctSame},
		{Name: "approx_percentile", Args: 1, Param: dataflow.TypeDouble},
		{Name: "percentile_cont", Args: 1, Param: dataflow.TypeDouble, Within: true},
		{Name: "percentile_disc", Args: 1, Param: dataflow.TypeDouble, Within: true},
		{Name: "mode", Args: 1, Within: true},
		{Name: "variance", Args: 1},
		{Name: "var_samp", Args: 1},
		{Name: "var_pop", Args: 1},
		{Name: "stddev", Args: 1},
		{Name: "stddev_samp", Args: 1},
		{Name: "stddev_pop", Args: 1},
		{Name: "bit_and", Args: 1, Distinct: DistinctSame},
		{Name: "bit_or", Args: 1, Distinct: DistinctSame},
		{Name: "bit_xor", Args: 1},
	}
}

// Lookup returns how the aggregate called name is written.
func Lookup(name string) (Signature, bool) {
	for _, s := range Signatures() {
		if s.Name == name {
			return s, true
		}
	}
	return Signature{}, false
}

// Names returns the names of all aggregates, the common ones first.
func Names() []string {
	var names []string
	for _, s := range Signatures() {
		names = append(names, s.Name)
	}
	return append(names, pairedNames[:]...)
}

// IsAggregate reports whether name is the name of an aggregate.
func IsAggregate(name string) bool {
	_, ok := Lookup(name)
	return ok || IsPaired(name)
}

// Resolve returns the aggregate called name for an argument of type arg, or for * when star is set, and the type of its
// result: PostgreSQL's, so that sum(BIGINT) and avg(BIGINT) are NUMERIC. An argument of TypeUnknown is a bare NULL, which
// min and max take for TEXT; the caller coerces it. The error is SQL_TYPE or SQL_UNSUPPORTED.
func Resolve(name string, star bool, arg dataflow.Type) (Fn, dataflow.Type, error) {
	if star {
		if name == "count" {
			return CountStar, dataflow.TypeBigInt, nil
		}
		return 0, 0, dataflow.Errorf(dataflow.ReasonSQLType, "%s(*) is no aggregate", name).WithHint("only count takes *")
	}
	switch name {
	case "count":
		return Count, dataflow.TypeBigInt, nil
	case "sum":
		return resolveSum(Sum, name, arg)
	case "avg":
		return resolveSum(Avg, name, arg)
	case "min":
		return resolveBest(Min, name, arg)
	case "max":
		return resolveBest(Max, name, arg)
	case "bool_and", "every":
		return resolveBool(BoolAnd, name, arg)
	case "bool_or":
		return resolveBool(BoolOr, name, arg)
	case "min_by", "arg_min", "first":
		return resolvePick(MinBy, name, arg)
	case "max_by", "arg_max", "last":
		return resolvePick(MaxBy, name, arg)
	case "string_agg":
		if arg == dataflow.TypeText || arg == dataflow.TypeUnknown {
			return StringAgg, dataflow.TypeText, nil
		}
		return 0, 0, noSuch(name, arg, "TEXT: cast it, x::text")
	case "array_agg":
		return resolveArray(ArrayAgg, name, arg)
	case "top_k", "bottom_k":
		return resolveArray(TopK, name, arg)
	case "approx_count_distinct":
		if !arg.Ordered() && arg != dataflow.TypeUnknown {
			return 0, 0, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "%s(%s) is not there yet", name, arg)
		}
		return ApproxCount, dataflow.TypeBigInt, nil
	case "approx_percentile":
		return resolveDouble(ApproxPercentile, name, arg)
	case "percentile_cont":
		return resolveDouble(PercentileCont, name, arg)
	case "percentile_disc":
		return resolveOrdered(PercentileDisc, name, arg)
	case "mode":
		return resolveOrdered(Mode, name, arg)
	case "var_pop":
		return resolveSum(VarPop, name, arg)
	case "var_samp", "variance":
		return resolveSum(VarSamp, name, arg)
	case "stddev_pop":
		return resolveSum(StddevPop, name, arg)
	case "stddev_samp", "stddev":
		return resolveSum(StddevSamp, name, arg)
	case "bit_and":
		return resolveBits(BitAnd, name, arg)
	case "bit_or":
		return resolveBits(BitOr, name, arg)
	case "bit_xor":
		return resolveBits(BitXor, name, arg)
	}
	return 0, 0, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "there is no aggregate %s", name).
		WithHint("there are %s", strings.Join(Names(), ", "))
}

func resolveSum(fn Fn, name string, arg dataflow.Type) (Fn, dataflow.Type, error) {
	switch arg {
	case dataflow.TypeBigInt, dataflow.TypeNumeric:
		return fn, dataflow.TypeNumeric, nil
	case dataflow.TypeDouble:
		return fn, dataflow.TypeDouble, nil
	case dataflow.TypeInterval:
		return 0, 0, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "%s(INTERVAL) is not there yet", name)
	}
	return 0, 0, noSuch(name, arg, "BIGINT, DOUBLE PRECISION or NUMERIC")
}

func resolveBest(fn Fn, name string, arg dataflow.Type) (Fn, dataflow.Type, error) {
	switch arg {
	case dataflow.TypeBigInt, dataflow.TypeDouble, dataflow.TypeText, dataflow.TypeTimestamp, dataflow.TypeNumeric, dataflow.TypeDate:
		return fn, arg, nil
	case dataflow.TypeUnknown:
		return fn, dataflow.TypeText, nil
	case dataflow.TypeInterval:
		return 0, 0, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "%s(%s) is not there yet", name, arg)
	}
	if arg.Form() == dataflow.FormList {
		return 0, 0, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "%s(%s) is not there yet", name, arg)
	}
	err := noSuch(name, arg, "BIGINT, DOUBLE PRECISION, TEXT, TIMESTAMPTZ, DATE or NUMERIC")
	if arg == dataflow.TypeBool {
		instead := "bool_and"
		if fn == Max {
			instead = "bool_or"
		}
		return 0, 0, err.WithHint("PostgreSQL has no %s(BOOLEAN) either: write %s(x)", name, instead)
	}
	return 0, 0, err
}

func resolveBool(fn Fn, name string, arg dataflow.Type) (Fn, dataflow.Type, error) {
	if arg == dataflow.TypeBool || arg == dataflow.TypeUnknown {
		return fn, dataflow.TypeBool, nil
	}
	return 0, 0, noSuch(name, arg, "BOOLEAN")
}

func resolvePick(fn Fn, _ string, arg dataflow.Type) (Fn, dataflow.Type, error) {
	if arg == dataflow.TypeUnknown {
		return fn, dataflow.TypeText, nil
	}
	return fn, arg, nil
}

func resolveArray(fn Fn, name string, arg dataflow.Type) (Fn, dataflow.Type, error) {
	if arg == dataflow.TypeUnknown {
		arg = dataflow.TypeText
	}
	if out := dataflow.ArrayOf(arg); out != dataflow.TypeUnknown {
		return fn, out, nil
	}
	return 0, 0, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "%s(%s) is not there yet", name, arg)
}

func resolveDouble(fn Fn, name string, arg dataflow.Type) (Fn, dataflow.Type, error) {
	if arg == dataflow.TypeDouble {
		return fn, dataflow.TypeDouble, nil
	}
	return 0, 0, noSuch(name, arg, "BIGINT, DOUBLE PRECISION or NUMERIC")
}

func resolveOrdered(fn Fn, name string, arg dataflow.Type) (Fn, dataflow.Type, error) {
	if arg.Ordered() {
		return fn, arg, nil
	}
	return 0, 0, noSuch(name, arg, "what can be sorted")
}

func resolveBits(fn Fn, name string, arg dataflow.Type) (Fn, dataflow.Type, error) {
	if arg == dataflow.TypeBigInt {
		return fn, arg, nil
	}
	return 0, 0, noSuch(name, arg, "BIGINT")
}

// OverTable says why the aggregate cannot be over a table, whose rows are taken back; "" if it can.
func OverTable(fn Fn, arg dataflow.Type) string {
	switch {
	case fn == ApproxCount:
		return "its sketch cannot forget a row: write count(DISTINCT x), or compute it over the stream"
	case (fn == VarPop || fn == VarSamp || fn == StddevPop || fn == StddevSamp) && arg == dataflow.TypeDouble:
		return "taking back a DOUBLE PRECISION leaves rounding behind: cast it to NUMERIC, or compute it over the stream"
	}
	return ""
}

func noSuch(name string, arg dataflow.Type, want string) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonSQLType, "there is no %s(%s)", name, arg).WithHint("%s takes %s", name, want)
}
