package agg

import (
	"fmt"
	"strconv"
	"strings"

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
	BoolAnd   Fn = 7 // bool_and(x), every(x)
	BoolOr    Fn = 8 // bool_or(x)
	// MinBy and MaxBy are the x of the row that comes first or last in Order: min_by(x, y), first(x).
	MinBy Fn = 9
	MaxBy Fn = 10

	StringAgg        Fn = 11 // string_agg(x, sep)
	ArrayAgg         Fn = 12 // array_agg(x): NULLs too
	ApproxCount      Fn = 13 // approx_count_distinct(x)
	ApproxPercentile Fn = 14 // approx_percentile(x, p)
	PercentileCont   Fn = 15 // percentile_cont(p) WITHIN GROUP (ORDER BY x)
	PercentileDisc   Fn = 16 // percentile_disc(p) WITHIN GROUP (ORDER BY x)
	Mode             Fn = 17 // mode() WITHIN GROUP (ORDER BY x)
	VarPop           Fn = 18
	VarSamp          Fn = 19
	StddevPop        Fn = 20
	StddevSamp       Fn = 21
	BitAnd           Fn = 22
	BitOr            Fn = 23
	BitXor           Fn = 24
	TopK             Fn = 25 // top_k(x, y, k), bottom_k(x, y, k), row_number() OVER (…) <= k: the first Limit of array_agg(x ORDER BY y)
)

// fnNames are the names of the functions by number.
var fnNames = [...]string{
	CountStar: "count(*)", Count: "count", Sum: "sum", Min: "min", Max: "max", Avg: "avg", Any: "any", BoolAnd: "bool_and", BoolOr: "bool_or",
	MinBy: "min_by", MaxBy: "max_by", StringAgg: "string_agg", ArrayAgg: "array_agg", ApproxCount: "approx_count_distinct",
	ApproxPercentile: "approx_percentile", PercentileCont: "percentile_cont", PercentileDisc: "percentile_disc", Mode: "mode",
	VarPop: "var_pop", VarSamp: "var_samp", StddevPop: "stddev_pop", StddevSamp: "stddev_samp", BitAnd: "bit_and", BitOr: "bit_or", BitXor: "bit_xor", TopK: "top_k",
}

func (f Fn) String() string {
	if int(f) < len(fnNames) {
		return fnNames[f]
	}
	return fmt.Sprintf("fn(%d)", uint8(f))
}

// Spec is one aggregate of a stage.
type Spec struct {
	Fn      Fn
	Arg     int           // column of the stage's input batch; -1 for count(*)
	ArgType dataflow.Type // type of that column
	Out     dataflow.Type // type of the result
	// Distinct folds each value once. For Count, Sum, Avg, StringAgg and ArrayAgg.
	Distinct bool
	// Retract says that rows are taken back: the input is a table. Min, Max, MinBy, MaxBy, BitAnd and BitOr keep all values
	// then.
	Retract bool
	// Order is what MinBy and MaxBy go by, and the order of StringAgg, ArrayAgg, TopK, PercentileDisc and Mode. Rows that it does
	// not tell apart are ordered by the argument.
	Order []Order
	// Filtered says that rows count only where the BOOLEAN column Filter is true. For those that keep NULLs; others get a
	// NULL for what does not count.
	Filtered bool
	Filter   int
	// Limit is how many values TopK gives at most; above 0.
	Limit int64
	Sep   string  // of StringAgg
	P     float64 // of the percentiles, 0 to 1
}

// Order is one column that values are ordered by.
type Order struct {
	Col              int           // of the stage's input batch
	Type             dataflow.Type // of that column; needed by TopK only
	Desc, NullsFirst bool
}

func (s Spec) String() string {
	if s.Fn == CountStar {
		return s.Fn.String()
	}
	var b strings.Builder
	b.WriteString(s.Fn.String() + "(")
	if s.Distinct {
		b.WriteString("distinct ")
	}
	fmt.Fprintf(&b, "#%d %s", s.Arg, s.ArgType)
	for _, o := range s.Order {
		fmt.Fprintf(&b, ", #%d%s", o.Col, o.String())
	}
	b.WriteString(s.Options() + ")")
	if s.Retract {
		b.WriteString(" retracting")
	}
	fmt.Fprintf(&b, " %s", s.Out)
	return b.String()
}

// String says the direction when it is not the usual one.
func (o Order) String() string {
	text := ""
	if o.Desc {
		text += " desc"
	}
	if o.NullsFirst != o.Desc {
		text += " nulls first"
		if o.Desc {
			text = " desc nulls last"
		}
	}
	return text
}

// Options are the constants of the aggregate, as arguments.
func (s Spec) Options() string {
	switch s.Fn {
	case StringAgg:
		return fmt.Sprintf(", %q", s.Sep)
	case TopK:
		return ", " + strconv.FormatInt(s.Limit, 10)
	case ApproxPercentile, PercentileCont, PercentileDisc:
		return ", " + strconv.FormatFloat(s.P, 'g', -1, 64)
	}
	return ""
}

// Name is the aggregate as a user knows it.
func (s Spec) Name() string {
	if s.Distinct {
		return s.Fn.String() + "(DISTINCT …)"
	}
	return s.Fn.String() + "(…)"
}

// KeepsAll reports whether the aggregate keeps values in a bag: all those of a group, so that a group has a limit, or as many
// as a TopK gives.
func (s Spec) KeepsAll() bool {
	switch s.Fn {
	case Count, Sum, Avg:
		return s.Distinct
	case Min, Max, MinBy, MaxBy, BitAnd, BitOr:
		return s.Retract
	case StringAgg, ArrayAgg, TopK, ApproxPercentile, PercentileCont, PercentileDisc, Mode:
		return true
	}
	return false
}

// skipsNullOrder reports whether a row does not count where the first column of Order is NULL.
func (s Spec) skipsNullOrder() bool { return s.Fn == MinBy || s.Fn == MaxBy }

// keepsNull reports whether a row counts where the argument is NULL.
func (s Spec) keepsNull() bool {
	return s.Fn == MinBy || s.Fn == MaxBy || s.Fn == ArrayAgg || s.Fn == TopK
}

// Bounded reports whether the bag of the aggregate holds no more values than it gives: no row is taken back that could make
// room for one that was left out.
func (s Spec) Bounded() bool { return s.Fn == TopK && !s.Retract }

// KeepsText reports whether the aggregate's state holds texts as they are, so that their length matters.
func (s Spec) KeepsText() bool {
	return s.KeepsAll() || s.Fn == Min || s.Fn == Max || s.Fn == Any || s.Fn == MinBy || s.Fn == MaxBy
}
