package expr

import (
	"math"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// dateFunctions are those of DATE, and what INTERVAL has beyond arithmetic. Everything that takes a TIMESTAMPTZ takes a
// DATE too, which becomes its midnight in UTC.
func dateFunctions() []function {
	ints := func(n int) []dataflow.Type {
		list := make([]dataflow.Type, n)
		for i := range list {
			list[i] = tInt
		}
		return list
	}
	clock := append(ints(5), tFlt)
	return []function{
		{name: "+", args: []dataflow.Type{tDate, tInt}, result: tDate, eval: evalDateAdd(0, 1, 1),
			doc: "A date so many days later.", example: "'2026-11-29'::date + 7"},
		{name: "+", args: []dataflow.Type{tInt, tDate}, result: tDate, eval: evalDateAdd(1, 0, 1)},
		{name: "-", args: []dataflow.Type{tDate, tInt}, result: tDate, eval: evalDateAdd(0, 1, -1),
			doc: "A date so many days before, or the days between two dates. With an interval a DATE becomes a TIMESTAMPTZ.", example: "'2026-11-29'::date - '2026-11-01'::date"},
		{name: "-", args: []dataflow.Type{tDate, tDate}, result: tInt, eval: func(f *frame) {
			a, b := f.args[0], f.args[1]
			f.each(func(i int) *dataflow.Error { f.out.Ints[i] = a.int(i) - b.int(i); return nil })
		}},
		{name: "extract", args: []dataflow.Type{tText, tDate}, result: tNum, check: checkUnit(dateFields), eval: evalExtract(dateField, tNum),
			doc: "extract(field FROM date): the fields of a time that are no part of the day.", example: "extract(isodow FROM '2026-11-29'::date)"},
		{name: "make_date", args: ints(3), result: tDate, eval: evalMakeDate,
			doc: "A date of year, month and day.", example: "make_date(2026, 11, 29)"},
		{name: "make_timestamptz", args: clock, result: tTime, eval: evalMakeTime,
			doc: "A time of year, month, day, hour, minute and seconds, in UTC.", example: "make_timestamptz(2026, 11, 29, 10, 20, 30.5)"},
		{name: "age", args: []dataflow.Type{tTime, tTime}, result: tIvl, eval: evalAge,
			doc: "The interval between two times in years, months, days and time.", example: "age('2026-11-29', '2025-10-01')"},
		{name: "justify_hours", args: []dataflow.Type{tIvl}, result: tIvl, eval: interval1(justifyHours),
			doc: "24 hours become a day.", example: "justify_hours('50 hours')"},
		{name: "justify_days", args: []dataflow.Type{tIvl}, result: tIvl, eval: interval1(justifyDays),
			doc: "30 days become a month.", example: "justify_days('65 days')"},
		{name: "justify_interval", args: []dataflow.Type{tIvl}, result: tIvl, eval: interval1(justifyInterval),
			doc: "Both, and all parts of one sign.", example: "justify_interval('1 mon -1 hour')"},
		{name: "date_trunc", args: []dataflow.Type{tText, tIvl}, result: tIvl, check: checkUnit(intervalTrunc), eval: evalIntervalTrunc,
			doc: "An interval cut to a unit.", example: "date_trunc('hour', interval '2 days 03:04:05')"},
	}
}

var dateFields = unitTable{"date", " day week month quarter year decade century millennium" + notUnits}

func dateField(u timeUnit, a *operand, i int) field {
	day := a.int(i)
	switch u {
	case "epoch":
		return field{v: day * (microsPerDay / microsPerSecond)}
	case "julian":
		return field{v: day + 2440588}
	}
	midnight := operand{v: &batch.Vector{Type: tTime, Ints: []int64{day * microsPerDay}}}
	return timeField(u, &midnight, 0)
}

func evalDateAdd(at, n int, sign int64) func(f *frame) {
	return func(f *frame) {
		a, d := f.args[at], f.args[n]
		f.each(func(i int) *dataflow.Error {
			if k := d.int(i); k > maxDate-minDate || k < minDate-maxDate {
				return errDateRange
			}
			day, ok := dateOf(a.int(i) + sign*d.int(i))
			if !ok {
				return errDateRange
			}
			f.out.Ints[i] = day
			return nil
		})
	}
}

// civilDate checks a year, 1 BC being -1, a month and a day.
func civilDate(y, m, d int64) (civil, *dataflow.Error) {
	bad := func() (civil, *dataflow.Error) {
		return civil{}, failf("date field value out of range: %d-%02d-%02d", y, m, d)
	}
	if y == 0 || y < -5000 || y > 300000 || m < 1 || m > 12 {
		return bad()
	}
	year := y
	if year < 0 {
		year++
	}
	if d < 1 || d > daysInMonth(year, m) {
		return bad()
	}
	return civil{year: year, month: m, day: d}, nil
}

func evalMakeDate(f *frame) {
	y, m, d := f.args[0], f.args[1], f.args[2]
	f.each(func(i int) *dataflow.Error {
		c, err := civilDate(y.int(i), m.int(i), d.int(i))
		if err != nil {
			return err
		}
		day, ok := dateOf(daysFromCivil(c.year, c.month, c.day))
		if !ok {
			return failf("date out of range: %d-%02d-%02d", y.int(i), m.int(i), d.int(i))
		}
		f.out.Ints[i] = day
		return nil
	})
}

func evalMakeTime(f *frame) {
	a := f.args
	f.each(func(i int) *dataflow.Error {
		c, err := civilDate(a[0].int(i), a[1].int(i), a[2].int(i))
		if err != nil {
			return err
		}
		h, m, s := a[3].int(i), a[4].int(i), a[5].flt(i)
		whole := h == 24 && m == 0 && s == 0
		if h < 0 || h > 23 && !whole || m < 0 || m > 59 || !(s >= 0 && s <= 60) {
			return failf("time field value out of range: %d:%02d:%02g", h, m, s)
		}
		c.hour, c.minute, c.micros = h, m, int64(math.RoundToEven(s*1e6))
		ts, ok := c.timestamp()
		if !ok {
			return errTimeRange
		}
		f.out.Ints[i] = ts
		return nil
	})
}

// evalAge takes the parts of two times from each other and carries as the calendar of the earlier time has it.
func evalAge(f *frame) {
	a, b := f.args[0], f.args[1]
	f.each(func(i int) *dataflow.Error {
		f.out.Ivls[i] = timestampAge(a.int(i), b.int(i))
		return nil
	})
}

func timestampAge(a, b int64) dataflow.Interval {
	x, y := civilOf(a), civilOf(b)
	negative := a < b
	timeOf := func(c civil) int64 { return c.hour*microsPerHour + c.minute*microsPerMinute + c.micros }
	micros, days := timeOf(x)-timeOf(y), x.day-y.day
	months := (x.year-y.year)*12 + x.month - y.month
	earlier := y
	if negative {
		micros, days, months = -micros, -days, -months
		earlier = x
	}
	if micros < 0 {
		micros += microsPerDay
		days--
	}
	for days < 0 {
		days += daysInMonth(earlier.year, earlier.month)
		months--
	}
	if negative {
		micros, days, months = -micros, -days, -months
	}
	return dataflow.Interval{Months: int32(months), Days: int32(days), Micros: micros}
}

func interval1(fn func(iv dataflow.Interval) (dataflow.Interval, bool)) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		f.each(func(i int) *dataflow.Error { return f.setInterval(i)(fn(a.ivl(i))) })
	}
}

// carry moves whole units of the smaller part to the larger one, and then one more where the signs differ.
func carry(large, small, unit int64) (int64, int64) {
	large, small = large+small/unit, small%unit
	switch {
	case large > 0 && small < 0:
		return large - 1, small + unit
	case large < 0 && small > 0:
		return large + 1, small - unit
	}
	return large, small
}

func makeInterval(months, days, micros int64) (dataflow.Interval, bool) {
	iv := dataflow.Interval{Months: int32(months), Days: int32(days), Micros: micros}
	return iv, int64(iv.Months) == months && int64(iv.Days) == days && iv.Valid()
}

func justifyHours(iv dataflow.Interval) (dataflow.Interval, bool) {
	days, micros := carry(int64(iv.Days), iv.Micros, microsPerDay)
	return makeInterval(int64(iv.Months), days, micros)
}

func justifyDays(iv dataflow.Interval) (dataflow.Interval, bool) {
	months, days := carry(int64(iv.Months), int64(iv.Days), 30)
	return makeInterval(months, days, iv.Micros)
}

func justifyInterval(iv dataflow.Interval) (dataflow.Interval, bool) {
	days, micros := int64(iv.Days)+iv.Micros/microsPerDay, iv.Micros%microsPerDay
	months := int64(iv.Months) + days/30
	days %= 30
	switch {
	case months > 0 && (days < 0 || days == 0 && micros < 0):
		months, days = months-1, days+30
	case months < 0 && (days > 0 || days == 0 && micros > 0):
		months, days = months+1, days-30
	}
	switch {
	case days > 0 && micros < 0:
		days, micros = days-1, micros+microsPerDay
	case days < 0 && micros > 0:
		days, micros = days+1, micros-microsPerDay
	}
	return makeInterval(months, days, micros)
}

var intervalTrunc = unitTable{"interval", " microseconds milliseconds second minute hour day month quarter year decade century millennium "}

func evalIntervalTrunc(f *frame) {
	a := f.args[1]
	f.each(func(i int) *dataflow.Error {
		u, err := f.unitAt(i)
		if err == nil {
			f.out.Ivls[i] = truncInterval(u, a.ivl(i))
		}
		return err
	})
}

func truncInterval(u timeUnit, iv dataflow.Interval) dataflow.Interval {
	months := func(n int32) dataflow.Interval { return dataflow.Interval{Months: iv.Months / n * n} }
	switch u {
	case "millennium":
		return months(12000)
	case "century":
		return months(1200)
	case "decade":
		return months(120)
	case "year":
		return months(12)
	case "quarter":
		return months(3)
	case "month":
		return months(1)
	case "day":
		iv.Micros = 0
	case "hour":
		iv.Micros -= iv.Micros % microsPerHour
	case "minute":
		iv.Micros -= iv.Micros % microsPerMinute
	case "second":
		iv.Micros -= iv.Micros % microsPerSecond
	case "milliseconds":
		iv.Micros -= iv.Micros % 1000
	}
	return iv
}
