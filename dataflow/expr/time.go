package expr

import (
	"math"

	"github.com/weirdb/weir/dataflow"
)

func timeFunctions() []function {
	return []function{
		{name: "now", result: tTime, stable: true, eval: evalNow,
			doc: "In a view the row's append time, in a query the time of the query. Also CURRENT_TIMESTAMP.", differs: "PostgreSQL knows no append time"},
		{name: "+", args: []dataflow.Type{tTime, tIvl}, result: tTime, eval: evalTimeAdd(0, 1, 1),
			doc: "A time moved by an interval, or the sum of intervals: months first, then days, then the rest.", example: "'2026-01-31 10:00Z'::timestamptz + interval '1 month'"},
		{name: "+", args: []dataflow.Type{tIvl, tTime}, result: tTime, eval: evalTimeAdd(1, 0, 1)},
		{name: "+", args: []dataflow.Type{tIvl, tIvl}, result: tIvl, eval: interval2(intervalAdd)},
		{name: "-", args: []dataflow.Type{tTime, tIvl}, result: tTime, eval: evalTimeAdd(0, 1, -1),
			doc: "A time moved back, the interval between two times (in days and time), or the difference of intervals.", example: "'2026-11-29'::timestamptz - '2026-11-01 12:00'::timestamptz"},
		{name: "-", args: []dataflow.Type{tTime, tTime}, result: tIvl, eval: evalTimeDiff},
		{name: "-", args: []dataflow.Type{tIvl, tIvl}, result: tIvl, eval: interval2(func(a, b dataflow.Interval) (dataflow.Interval, bool) {
			n, ok := intervalNeg(b)
			if !ok {
				return n, false
			}
			return intervalAdd(a, n)
		})},
		{name: "-", args: []dataflow.Type{tIvl}, result: tIvl, eval: func(f *frame) {
			a := f.args[0]
			f.each(func(i int) *dataflow.Error { return f.setInterval(i)(intervalNeg(a.ivl(i))) })
		}},
		{name: "*", args: []dataflow.Type{tIvl, tFlt}, result: tIvl, eval: evalIntervalScale(0, 1, intervalMul),
			doc: "An interval times a number.", example: "interval '1 hour' * 1.5"},
		{name: "*", args: []dataflow.Type{tFlt, tIvl}, result: tIvl, eval: evalIntervalScale(1, 0, intervalMul)},
		{name: "/", args: []dataflow.Type{tIvl, tFlt}, result: tIvl, eval: evalIntervalDiv,
			doc: "An interval divided by a number.", example: "interval '1 day' / 4"},
		{name: "date_trunc", args: []dataflow.Type{tText, tTime}, result: tTime, check: checkUnit(truncUnits), eval: evalDateTrunc,
			doc: "The time cut to microseconds, milliseconds, second, minute, hour, day, week (Monday), month, quarter, year, decade, century or millennium, in UTC.", example: "date_trunc('hour', '2026-11-29 10:20:30Z'::timestamptz)"},
		{name: "date_bin", args: []dataflow.Type{tIvl, tTime, tTime}, result: tTime, eval: evalDateBin,
			doc: "The start of the interval that a time falls in, counted from the third argument.", example: "date_bin('15 minutes', '2026-11-29 10:20:30Z', '2026-01-01')"},
		{name: "extract", args: []dataflow.Type{tText, tTime}, result: tNum, check: checkUnit(timeFields), eval: evalExtract(timeField, tNum),
			doc: "extract(field FROM time or interval): century, day, decade, dow (Sunday is 0), doy, epoch, hour, isodow, isoyear, julian, microseconds, millennium, milliseconds, minute, month, quarter, second, week, year.", example: "extract(dow FROM '2026-11-29 10:20:30Z'::timestamptz)"},
		{name: "extract", args: []dataflow.Type{tText, tIvl}, result: tNum, check: checkUnit(intervalFields), eval: evalExtract(intervalField, tNum)},
		{name: "date_part", args: []dataflow.Type{tText, tTime}, result: tFlt, check: checkUnit(timeFields), eval: evalExtract(timeField, tFlt),
			doc: "The same as a DOUBLE PRECISION.", example: "date_part('hour', '2026-11-29 10:20:30Z'::timestamptz)"},
		{name: "date_part", args: []dataflow.Type{tText, tIvl}, result: tFlt, check: checkUnit(intervalFields), eval: evalExtract(intervalField, tFlt)},
		{name: "to_timestamp", args: []dataflow.Type{tFlt}, result: tTime, eval: evalToTimestamp,
			doc: "The time so many seconds after 1970-01-01 UTC; or the time that a text is in a format of to_char of times. Blanks and separators may be more or less than in the format, and digits fewer before a separator; FX before the format wants them exact. Fields that are not there are those of 0001-01-01 BC.", example: "to_timestamp(1764374400.5)"},
		{name: "to_timestamp", args: []dataflow.Type{tText, tText}, result: tTime, check: checkDateFormat(checkFromChar), eval: evalTimeFromChar,
			example: "to_timestamp('29 Nov 2026, 10:20', 'DD Mon YYYY, HH24:MI')"},
		{name: "to_date", args: []dataflow.Type{tText, tText}, result: tDate, check: checkDateFormat(checkFromChar), eval: evalDateFromChar,
			doc: "The date that a text is in a format, as of to_timestamp(text, text).", example: "to_date('29.11.2026', 'DD.MM.YYYY')"},
		{name: "to_char", args: []dataflow.Type{tTime, tText}, result: tText, check: checkDateFormat(nil), eval: evalToChar,
			doc: "The time in a format: YYYY YYY YY Y (year), Y,YYY, MM DD, Month Mon Day Dy in the case they are written in, HH24 HH12 MI SS MS US FF1 to FF6 (fractions), AM PM A.M., AD BC, Q CC WW W D DDD J SSSS RM, IYYY IW ID IDDD (ISO weeks), TZ TZH TZM OF; FM before one drops its padding, TH behind one adds the ending of its ordinal. Text stands in double quotes; other characters stand for themselves.", example: "to_char('2026-11-29 10:20:30Z'::timestamptz, 'YYYY-MM-DD HH24:MI')"},
		{name: "to_char", args: []dataflow.Type{tIvl, tText}, result: tText, check: checkDateFormat(checkIntervalFormat), eval: evalIntervalToChar,
			doc: "An interval in such a format, without the names, eras, weeks and zones that only a time has.", example: "to_char(interval '27 hours 5 minutes', 'HH24:MI')", differs: "J and the ISO patterns are refused"},
		{name: "to_char", args: []dataflow.Type{tInt, tText}, result: tText, check: checkNumFormat, eval: evalNumFormat(bigintDigits),
			doc: "A number in a format of 9 (a digit), 0 (a digit, or zero), . or D, comma or G, S MI PL SG PR (the sign), FM (no padding).", example: "to_char(-1234.5, 'FM9,999.00')", differs: "V, EEEE, RN, TH and L are refused"},
		{name: "to_char", args: []dataflow.Type{tNum, tText}, result: tText, check: checkNumFormat, eval: evalNumFormat(decimalDigits)},
		{name: "to_char", args: []dataflow.Type{tFlt, tText}, result: tText, check: checkNumFormat, eval: evalNumFormat(doubleDigits)},
		{name: "to_number", args: []dataflow.Type{tText, tText}, result: tNum, check: checkNumFormat, eval: evalToNumber,
			doc: "The number that a text is in a format of to_char of numbers.", example: "to_number('-1,234.50', '9,999.99')", differs: "V, EEEE, RN, TH and L are refused"},
	}
}

func evalNow(f *frame) {
	if f.b.AppendTime != nil {
		copy(f.out.Ints, f.b.AppendTime)
		return
	}
	for i := range f.out.Ints {
		f.out.Ints[i] = f.env.Now
	}
}

// setInterval returns what stores the result of interval arithmetic in row i.
func (f *frame) setInterval(i int) func(iv dataflow.Interval, ok bool) *dataflow.Error {
	return func(iv dataflow.Interval, ok bool) *dataflow.Error {
		if !ok {
			return errIvlRange
		}
		f.out.Ivls[i] = iv
		return nil
	}
}

func interval2(fn func(a, b dataflow.Interval) (dataflow.Interval, bool)) func(f *frame) {
	return func(f *frame) {
		a, b := f.args[0], f.args[1]
		f.each(func(i int) *dataflow.Error { return f.setInterval(i)(fn(a.ivl(i), b.ivl(i))) })
	}
}

// evalTimeAdd adds (sign = 1) or subtracts the interval of one argument to the time of another.
func evalTimeAdd(at, ivl int, sign int64) func(f *frame) {
	return func(f *frame) {
		a, d := f.args[at], f.args[ivl]
		f.each(func(i int) *dataflow.Error {
			iv := d.ivl(i)
			if sign < 0 {
				var ok bool
				if iv, ok = intervalNeg(iv); !ok {
					return errTimeRange
				}
			}
			ts, ok := addInterval(a.int(i), iv)
			if !ok {
				return errTimeRange
			}
			f.out.Ints[i] = ts
			return nil
		})
	}
}

func evalTimeDiff(f *frame) {
	a, b := f.args[0], f.args[1]
	f.each(func(i int) *dataflow.Error { return f.setInterval(i)(timestampDiff(a.int(i), b.int(i))) })
}

func evalIntervalScale(at, factor int, fn func(dataflow.Interval, float64) (dataflow.Interval, bool)) func(f *frame) {
	return func(f *frame) {
		a, x := f.args[at], f.args[factor]
		f.each(func(i int) *dataflow.Error { return f.setInterval(i)(fn(a.ivl(i), x.flt(i))) })
	}
}

func evalIntervalDiv(f *frame) {
	a, x := f.args[0], f.args[1]
	f.each(func(i int) *dataflow.Error {
		if x.flt(i) == 0 {
			return errDivisionByZero
		}
		return f.setInterval(i)(intervalDiv(a.ivl(i), x.flt(i)))
	})
}

func evalDateBin(f *frame) {
	stride, a, origin := f.args[0], f.args[1], f.args[2]
	f.each(func(i int) *dataflow.Error {
		ts, err := dateBin(stride.ivl(i), a.int(i), origin.int(i))
		if err == nil {
			f.out.Ints[i] = ts
		}
		return err
	})
}

func dateBin(stride dataflow.Interval, ts, origin int64) (int64, *dataflow.Error) {
	if stride.Months != 0 {
		return 0, failf("timestamps cannot be binned into intervals containing months or years")
	}
	width, over := mulInt64(int64(stride.Days), microsPerDay)
	if !over {
		width, over = addInt64(width, stride.Micros)
	}
	if over {
		return 0, errIvlRange
	}
	if width <= 0 {
		return 0, failf("stride must be greater than zero")
	}
	diff, over := subInt64(ts, origin)
	if over {
		return 0, errIvlRange
	}
	bin, ok := addTimestamp(origin, floorDiv(diff, width)*width)
	if !ok {
		return 0, errTimeRange
	}
	return bin, nil
}

func evalDateTrunc(f *frame) {
	a := f.args[1]
	f.each(func(i int) *dataflow.Error {
		u, err := f.unitAt(i)
		if err != nil {
			return err
		}
		ts, ok := truncTime(u, a.int(i))
		if !ok {
			return errTimeRange
		}
		f.out.Ints[i] = ts
		return nil
	})
}

// truncTime returns the start of the unit that ts lies in.
func truncTime(u timeUnit, ts int64) (int64, bool) {
	floor := func(unit int64) (int64, bool) {
		d := floorDiv(ts, unit)
		if d < minTimestamp/unit {
			return 0, false
		}
		return d * unit, d*unit >= minTimestamp
	}
	switch u {
	case "microseconds":
		return ts, true
	case "milliseconds":
		return floor(1000)
	case "second":
		return floor(microsPerSecond)
	case "minute":
		return floor(microsPerMinute)
	case "hour":
		return floor(microsPerHour)
	case "day":
		return floor(microsPerDay)
	case "week":
		day := floorDiv(ts, microsPerDay)
		return addMicros(day-isoDayOfWeek(day)+1, 0)
	}
	c := civilOf(ts)
	t := civil{year: c.year, month: 1, day: 1}
	// Decades begin with a year that 10 divides, centuries and millennia one year later.
	since := func(years int64) {
		if c.year > 0 {
			t.year = (c.year-1)/years*years + 1
		} else {
			t.year = -((years-1-(c.year-1))/years)*years + 1
		}
	}
	switch u {
	case "month":
		t.month = c.month
	case "quarter":
		t.month = (c.month-1)/3*3 + 1
	case "decade":
		t.year = floorDiv(c.year, 10) * 10
	case "century":
		since(100)
	case "millennium":
		since(1000)
	}
	return t.timestamp()
}

func evalToTimestamp(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error {
		x := a.flt(i)
		switch {
		case math.IsNaN(x):
			return failf("timestamp cannot be NaN")
		case math.IsInf(x, 0):
			return failf(`timestamp out of range: "%s"`, appendDouble(nil, x)).WithHint("Weir has no infinite timestamps")
		}
		// PostgreSQL counts from 2000: its rounding is that of the distance to then.
		const since2000 = 946684800
		micros := math.RoundToEven((x - since2000) * 1e6)
		if !(math.Abs(micros) < math.MaxInt64) {
			return failf(`timestamp out of range: "%s"`, appendDouble(nil, x))
		}
		ts, over := addInt64(int64(micros), since2000*microsPerSecond)
		if over || ts < minTimestamp {
			return failf(`timestamp out of range: "%s"`, appendDouble(nil, x))
		}
		f.out.Ints[i] = ts
		return nil
	})
}
