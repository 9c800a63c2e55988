package bench

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"
)

// Figure is one result: the median of some measurements, with their spread.
type Figure struct {
	Bench, Case, Metric, Unit string
	Value                     float64 // the median
	Min, Max                  float64
	Runs                      int // measurements; 1 = Value alone
}

// AppendJSON appends the figure as one line per value, without spread when there is none:
//
//	{"bench":"engine","case":"keys=1000000","metric":"rows_per_second","value":1234567,"unit":"rows/s"}
//
// The least and the greatest measurement follow as metrics of their own, with _min and _max.
func (f Figure) AppendJSON(dst []byte) []byte {
	dst = f.line(dst, "", f.Value)
	if f.Runs > 1 {
		dst = f.line(dst, "_min", f.Min)
		dst = f.line(dst, "_max", f.Max)
	}
	return dst
}

func (f Figure) line(dst []byte, suffix string, value float64) []byte {
	field := func(name, text string) {
		b, err := json.Marshal(text)
		if err != nil { // a string always has a JSON form
			panic(err)
		}
		dst = append(append(append(append(dst, '"'), name...), '"', ':'), b...)
	}
	dst = append(dst, '{')
	field("bench", f.Bench)
	dst = append(dst, ',')
	field("case", f.Case)
	dst = append(dst, ',')
	field("metric", f.Metric+suffix)
	dst = append(dst, `,"value":`...)
	dst = append(dst, FormatValue(value)...)
	dst = append(dst, ',')
	field("unit", f.Unit)
	return append(dst, '}', '\n')
}

// FormatValue writes a value with as many digits as it is worth: four, or all of a greater whole part.
func FormatValue(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	digits := 3 - int(math.Floor(math.Log10(math.Abs(v))))
	if digits <= 0 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	for s[len(s)-1] == '0' {
		s = s[:len(s)-1]
	}
	if s[len(s)-1] == '.' {
		s = s[:len(s)-1]
	}
	return s
}

// figures collects what one case has found.
type figures struct {
	bench, name string
	list        []Figure
}

// add reports measurements of one metric. Without any there is no figure.
func (f *figures) add(metric, unit string, values ...float64) {
	if len(values) == 0 {
		return
	}
	v := slices.Sorted(slices.Values(values))
	f.list = append(f.list, Figure{
		Bench: f.bench, Case: f.name, Metric: metric, Unit: unit, Runs: len(v),
		Value: median(v), Min: v[0], Max: v[len(v)-1],
	})
}

// addLatency reports the median and the 99th percentile of latencies, in milliseconds. Each element of runs holds those of
// one measurement.
func (f *figures) addLatency(metric string, runs ...latencies) {
	for _, p := range []struct {
		name string
		q    float64
	}{{"_p50", 0.5}, {"_p99", 0.99}} {
		var values []float64
		for _, r := range runs {
			if len(r) > 0 {
				values = append(values, milliseconds(r.quantile(p.q)))
			}
		}
		f.add(metric+p.name, "ms", values...)
	}
}

// median returns the middle of sorted values, or the mean of the two in the middle.
func median(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// latencies are measured times.
type latencies []time.Duration

// quantile returns the least latency that a share q of all does not exceed.
func (l latencies) quantile(q float64) time.Duration {
	s := slices.Sorted(slices.Values(l))
	i := int(math.Ceil(q*float64(len(s)))) - 1
	return s[min(max(i, 0), len(s)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
