package agg

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// Fn is an aggregate function. Stored layouts follow from it: the list is append-only.
type Fn uint8

const (
	CountStar Fn = 0 // count(*): rows
	Count     Fn = 1 // count(x): rows where x is not NULL
	Sum       Fn = 2 // sum(x)
	Min       Fn = 3 // min(x)
	Max       Fn = 4 // max(x)
	Avg       Fn = 5 // avg(x)
	Any       Fn = 6 // the value of the group's one row: a column of a view that keeps the key of the table it reads
)

func (f Fn) String() string {
	switch f {
	case CountStar:
		return "count(*)"
	case Count:
		return "count"
	case Sum:
		return "sum"
	case Min:
		return "min"
	case Max:
		return "max"
	case Avg:
		return "avg"
	case Any:
		return "any"
	}
	return fmt.Sprintf("fn(%d)", uint8(f))
}

// Spec is one aggregate of a stage.
type Spec struct {
	Fn      Fn
	Arg     int           // column of the stage's input batch; -1 for count(*)
	ArgType dataflow.Type // type of that column
	Out     dataflow.Type // type of the result
}

func (s Spec) String() string {
	if s.Fn == CountStar {
		return s.Fn.String()
	}
	return fmt.Sprintf("%s(#%d %s) %s", s.Fn, s.Arg, s.ArgType, s.Out)
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
	case "sum", "avg":
		fn := Sum
		if name == "avg" {
			fn = Avg
		}
		switch arg {
		case dataflow.TypeBigInt, dataflow.TypeNumeric:
			return fn, dataflow.TypeNumeric, nil
		case dataflow.TypeDouble:
			return fn, dataflow.TypeDouble, nil
		case dataflow.TypeInterval:
			return 0, 0, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "%s(INTERVAL) is not there yet", name)
		}
		return 0, 0, noSuch(name, arg, "BIGINT, DOUBLE PRECISION or NUMERIC")
	case "min", "max":
		fn := Min
		if name == "max" {
			fn = Max
		}
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
			return 0, 0, err.WithHint("PostgreSQL has no %s(BOOLEAN) either: write %s(CASE WHEN … THEN 1 ELSE 0 END)", name, name)
		}
		return 0, 0, err
	}
	return 0, 0, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "there is no aggregate %s", name).
		WithHint("there are %s", "count, sum, avg, min, max")
}

func noSuch(name string, arg dataflow.Type, want string) *dataflow.Error {
	return dataflow.Errorf(dataflow.ReasonSQLType, "there is no %s(%s)", name, arg).WithHint("%s takes %s", name, want)
}

// IsAggregate reports whether name is the name of an aggregate.
func IsAggregate(name string) bool {
	switch name {
	case "count", "sum", "avg", "min", "max":
		return true
	}
	return false
}

// Retractable reports whether fn can take a row back. Min and max cannot: the runner-up is not kept.
func Retractable(fn Fn) bool { return fn != Min && fn != Max }
