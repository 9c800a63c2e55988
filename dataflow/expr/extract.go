package expr

import (
	"math"
	"strings"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
)

// timeUnit names a field of a time or an interval.
type timeUnit string

// canonicalUnit returns the full name of a unit, "" if there is none of that name.
func canonicalUnit(s string) timeUnit {
	s = strings.ToLower(s)
	switch s {
	case "epoch", "dow", "doy", "isodow", "isoyear", "julian", "timezone", "timezone_hour", "timezone_minute":
		return timeUnit(s)
	case "j", "jd":
		return "julian"
	}
	u, ok := unitOf(s)
	switch {
	case !ok:
		return ""
	case u.months == 12000:
		return "millennium"
	case u.months == 1200:
		return "century"
	case u.months == 120:
		return "decade"
	case u.months == 12:
		return "year"
	case u.months == 3:
		return "quarter"
	case u.months == 1:
		return "month"
	case u.days == 7:
		return "week"
	case u.days == 1:
		return "day"
	case u.micros == 3600e6:
		return "hour"
	case u.micros == 60e6:
		return "minute"
	case u.micros == 1e6:
		return "second"
	case u.micros == 1e3:
		return "milliseconds"
	}
	return "microseconds"
}

// unitTable says which units a function takes, for which type.
type unitTable struct {
	typ  string
	have string // names with blanks around them
}

var (
	truncUnits     = unitTable{timestampName, " microseconds milliseconds second minute hour day week month quarter year decade century millennium "}
	timeFields     = unitTable{timestampName, truncUnits.have + notUnits + "timezone timezone_hour timezone_minute "}
	intervalFields = unitTable{"interval", " microseconds milliseconds second minute hour day month quarter year decade century millennium epoch "}
)

// notUnits are fields of a time that are no units of time.
const notUnits = " epoch dow doy isodow isoyear julian "

func (t unitTable) unit(s string) (timeUnit, *dataflow.Error) {
	u := canonicalUnit(s)
	switch {
	case u == "" || t == truncUnits && strings.Contains(notUnits, " "+string(u)+" "):
		return "", failf(`unit "%s" not recognized for type %s`, abridge(s), t.typ).WithHint("there are %s", strings.Join(strings.Fields(t.have), ", "))
	case !strings.Contains(t.have, " "+string(u)+" "):
		return "", failf(`unit "%s" not supported for type %s`, abridge(s), t.typ)
	}
	return u, nil
}

// unitArg is what checkUnit prepares: the table, and the unit if it is constant.
type unitArg struct {
	table unitTable
	unit  timeUnit
}

func checkUnit(t unitTable) func(c *Call) *dataflow.Error {
	return func(c *Call) *dataflow.Error {
		arg := &unitArg{table: t}
		c.prep = arg
		k, ok := c.args[0].(*Const)
		if !ok || k.value.Null {
			return nil
		}
		u, err := t.unit(k.value.Str)
		if err != nil {
			err.Reason = dataflow.ReasonSQLType
			return err
		}
		arg.unit = u
		return nil
	}
}

// unitAt returns the unit of row i.
func (f *frame) unitAt(i int) (timeUnit, *dataflow.Error) {
	arg := f.call.prep.(*unitArg)
	if arg.unit != "" {
		return arg.unit, nil
	}
	return arg.table.unit(string(f.args[0].text(i)))
}

// field is the value of a field: an integer with so many digits after the point.
type field struct {
	v     int64
	scale int32
	exact *apd.Decimal // set for fields that are no such integer (julian)
}

func evalExtract(get func(u timeUnit, a *operand, i int) field, result dataflow.Type) func(f *frame) {
	return func(f *frame) {
		a := f.args[1]
		f.each(func(i int) *dataflow.Error {
			u, err := f.unitAt(i)
			if err != nil {
				return err
			}
			x := get(u, &a, i)
			switch {
			case result == tNum && x.exact != nil:
				f.out.Decs[i].Set(x.exact)
			case result == tNum:
				f.out.Decs[i].SetFinite(x.v, -x.scale)
			case x.exact != nil:
				f.out.Floats[i], _ = x.exact.Float64()
			case u == "second" || u == "milliseconds":
				// Whole seconds and the rest are added as doubles, which may round otherwise than one division.
				rest, unit := x.v%microsPerSecond, math.Pow10(int(x.scale))
				f.out.Floats[i] = float64(x.v-rest)/unit + float64(rest)/unit
			default:
				f.out.Floats[i] = float64(x.v) / math.Pow10(int(x.scale))
			}
			return nil
		})
	}
}

// eraOf returns the number of the span of years that a year lies in; spans before Christ are negative, none is 0.
func eraOf(year, span int64) int64 {
	if year > 0 {
		return (year + span - 1) / span
	}
	return -((span - 1 - (year - 1)) / span)
}

func timeField(u timeUnit, a *operand, i int) field {
	ts := a.int(i)
	day := floorDiv(ts, microsPerDay)
	c := civilOf(ts)
	signed := func(year int64) field {
		if year <= 0 {
			year-- // 1 BC is -1
		}
		return field{v: year}
	}
	switch u {
	case "epoch":
		return field{v: ts, scale: 6}
	case "microseconds":
		return field{v: c.micros}
	case "milliseconds":
		return field{v: c.micros, scale: 3}
	case "second":
		return field{v: c.micros, scale: 6}
	case "minute":
		return field{v: c.minute}
	case "hour":
		return field{v: c.hour}
	case "day":
		return field{v: c.day}
	case "dow":
		return field{v: isoDayOfWeek(day) % 7}
	case "isodow":
		return field{v: isoDayOfWeek(day)}
	case "doy":
		return field{v: day - daysFromCivil(c.year, 1, 1) + 1}
	case "week":
		_, w := isoWeek(day)
		return field{v: w}
	case "isoyear":
		y, _ := isoWeek(day)
		return signed(y)
	case "month":
		return field{v: c.month}
	case "quarter":
		return field{v: (c.month-1)/3 + 1}
	case "year":
		return signed(c.year)
	case "decade":
		return field{v: floorDiv(c.year, 10)}
	case "century":
		return field{v: eraOf(c.year, 100)}
	case "millennium":
		return field{v: eraOf(c.year, 1000)}
	case "julian":
		return field{exact: julian(day, ts-day*microsPerDay)}
	}
	return field{} // the time zone's offset
}

// julian returns the Julian day with its fraction.
func julian(day, micros int64) *apd.Decimal {
	d := apd.New(day+2440588, 0)
	var frac apd.Decimal
	// Neither fails: the operands are small.
	if numericQuo(&frac, apd.New(micros, 0), apd.New(microsPerDay, 0)) != nil || numericAdd(d, apd.New(day+2440588, 0), &frac) != nil {
		setNaN(d)
	}
	return d
}

func intervalField(u timeUnit, a *operand, i int) field {
	iv := a.ivl(i)
	years, months := int64(iv.Months)/12, int64(iv.Months)%12
	ofMinute := iv.Micros % microsPerMinute
	switch u {
	case "epoch":
		// A year counts as 365.25 days, a month as 30. This may pass 64 bits for intervals of millions of years.
		secs := (years*1461+months*120)*21600 + int64(iv.Days)*86400
		d := apd.New(secs, 0)
		if numericAdd(d, apd.New(secs, 0), apd.New(iv.Micros, -6)) != nil {
			setNaN(d)
		}
		return field{exact: d}
	case "microseconds":
		return field{v: ofMinute}
	case "milliseconds":
		return field{v: ofMinute, scale: 3}
	case "second":
		return field{v: ofMinute, scale: 6}
	case "minute":
		return field{v: iv.Micros / microsPerMinute % 60}
	case "hour":
		return field{v: iv.Micros / microsPerHour}
	case "day":
		return field{v: int64(iv.Days)}
	case "month":
		return field{v: months}
	case "quarter":
		return field{v: months/3 + 1}
	case "year":
		return field{v: years}
	case "decade":
		return field{v: years / 10}
	case "century":
		return field{v: years / 100}
	}
	return field{v: years / 1000}
}
