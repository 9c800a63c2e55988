package expr

import (
	"github.com/weirdb/weir/dataflow"
)

// Limits of DATE: those of TIMESTAMPTZ, so that every date has its midnight. PostgreSQL's last date is in the year
// 5874897.
const (
	minDate = minTimestamp / microsPerDay
	maxDate = 106751991 // 294247-01-10
)

var errDateRange = dataflow.Errorf(dataflow.ReasonExpressionFailed, "date out of range")

// parseDate reads a date in the spellings of parseTimestamp. A time of day and a zone may follow and mean nothing, as in
// PostgreSQL.
func parseDate(s string) (int64, *dataflow.Error) {
	r := timeReader{text: s, date: true}
	ts, err := r.read()
	if err != nil {
		return 0, err
	}
	return floorDiv(ts, microsPerDay), nil
}

// appendDate appends 2026-11-29, years before Christ with BC behind.
func appendDate(dst []byte, days int64) []byte {
	year, month, day := civilFromDays(days)
	bc := year <= 0
	if bc {
		year = 1 - year
	}
	dst = appendPadded(dst, year, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, month, 2)
	dst = append(dst, '-')
	dst = appendPadded(dst, day, 2)
	if bc {
		dst = append(dst, " BC"...)
	}
	return dst
}

// dateOf returns a date by its number of days, if there is such a date.
func dateOf(days int64) (int64, bool) { return days, days >= minDate && days <= maxDate }
