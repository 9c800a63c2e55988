package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
)

// The timestamps that can be written as RFC 3339: years 1 to 9999.
var (
	minTimestamp = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	maxTimestamp = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC).UnixMicro()
)

func timestampInRange(micros int64) bool { return micros >= minTimestamp && micros <= maxTimestamp }

func describeTimestampRange(micros int64) string {
	return fmt.Sprintf("timestamp %d µs is outside the years 1 to 9999", micros)
}

// maxNumericText bounds a NUMERIC's text. Why not larger: nobody has such a number, and parsing is not linear. Why not
// smaller: PostgreSQL's declared precision goes up to 1000 digits on either side of the point.
const maxNumericText = 2100

// parseNumeric reads a NUMERIC and returns what is wrong with it, or "".
func parseNumeric(s string) (*apd.Decimal, string) {
	if len(s) > maxNumericText {
		return nil, fmt.Sprintf("a NUMERIC of %d characters is over the limit of %d", len(s), maxNumericText)
	}
	v, err := expr.ParseValue(dataflow.TypeNumeric, s)
	if err != nil {
		return nil, err.Error()
	}
	return v.Dec, ""
}

// parseNumericMod reads a NUMERIC of a column with a precision and scale.
func parseNumericMod(mod dataflow.NumericMod, s string) (*apd.Decimal, string) {
	d, msg := parseNumeric(s)
	if msg != "" || mod == (dataflow.NumericMod{}) {
		return d, msg
	}
	if err := expr.FitNumeric(mod, d); err != nil {
		return nil, err.Error()
	}
	return d, ""
}

// parseTimestamp reads a TIMESTAMPTZ in RFC 3339 or one of PostgreSQL's spellings, in microseconds since 1970 UTC, and
// returns what is wrong with it, or "".
func parseTimestamp(s string) (int64, string) {
	// Almost all times come like this, and time.Parse reads it an order of magnitude faster. Digits after the
	// microseconds need PostgreSQL's rounding.
	if n := len(s); n >= len("2006-01-02T15:04:05Z") && n <= len("2006-01-02T15:04:05.999999Z") && s[n-1] == 'Z' && s[10] == 'T' && s[0] != '0' {
		if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
			return t.UnixMicro(), ""
		}
	}
	v, err := expr.ParseValue(dataflow.TypeTimestamp, s)
	if err != nil {
		return 0, err.Error()
	}
	if !timestampInRange(v.Int) {
		return 0, fmt.Sprintf("%s is outside the years 1 to 9999", quoteShort(s))
	}
	return v.Int, ""
}

// quoteShort quotes s for a message, cut to a readable length.
func quoteShort(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(s[:most], ""))
	}
	return fmt.Sprintf("%q", s)
}
