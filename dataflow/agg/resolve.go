package agg

import (
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// Names returns the names of all aggregates, the common ones first.
func Names() []string {
	return []string{"count", "sum", "avg", "min", "max", "bool_and", "bool_or", "every", "min_by", "max_by", "arg_min", "arg_max", "first", "last"}
}

// IsAggregate reports whether name is the name of an aggregate.
func IsAggregate(name string) bool {
	for _, n := range Names() {
		if n == name {
			return true
		}
	}
	return false
}

// Arity returns how many arguments the aggregate called name takes.
func Arity(name string) int {
	switch name {
	case "min_by", "max_by", "arg_min", "arg_max":
		return 2
	}
	return 1
}

// ByArrival reports whether the aggregate called name goes by the order in which a stream's rows arrived.
func ByArrival(name string) bool { return name == "first" || name == "last" }

// CanBeDistinct reports whether DISTINCT changes what the aggregate called name gives, and whether it can be written.
func CanBeDistinct(name string) (changes, can bool) {
	switch name {
	case "count", "sum", "avg":
		return true, true
	case "min", "max", "bool_and", "bool_or", "every":
		return false, true
	}
	return true, false
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

func noSuch(name string, arg dataflow.Type, want string) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonSQLType, "there is no %s(%s)", name, arg).WithHint("%s takes %s", name, want)
}
