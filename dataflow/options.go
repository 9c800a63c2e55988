package dataflow

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Option is one setting as a user wrote it: SET name = value, WITH (name = value) or --set name=value.
type Option struct{ Name, Value string }

// OnError says what happens to a row that makes an expression fail. Stored: append-only.
type OnError uint8

const (
	OnErrorFail OnError = 0 // the pipeline becomes FAILED and names the row
	OnErrorSkip OnError = 1 // the row is left out and counted
)

// PipelineOptions are the settings of a pipeline, parsed. The meta FSM parses them too: what a text means never changes.
type PipelineOptions struct {
	// Interval is the time between two checkpoint triggers; 0 = off, only triggered ones. Default 1 s.
	Interval time.Duration
	// Timeout is how long an attempt may take before it is given up. Default 10 min.
	Timeout time.Duration
	// MinPause is the least time between the end of one attempt and the trigger of the next. Default 0.
	MinPause time.Duration
	// MaxConcurrent is how many attempts may be under way at once. Only 1 is possible yet.
	MaxConcurrent int
	// TolerableFailures is how many attempts in a row may fail before the pipeline is restarted. Default 10.
	TolerableFailures int
	// Retained is how many of the newest cuts stay readable. Default 3: enough to look back, little to hold.
	Retained int
	// Guarantee is what checkpoint.mode asks for.
	Guarantee Guarantee
	OnError   OnError
}

// DefaultPipelineOptions returns the options of a pipeline that sets none.
func DefaultPipelineOptions() PipelineOptions {
	return PipelineOptions{
		Interval: time.Second, Timeout: 10 * time.Minute, MaxConcurrent: 1, TolerableFailures: 10, Retained: 3,
		Guarantee: GuaranteeExactlyOnce,
	}
}

// pipelineOption describes one option: how its text is read and shown.
type pipelineOption struct {
	name string
	set  func(o *PipelineOptions, v string) error
	get  func(o PipelineOptions) string
}

// The least interval bounds how many entries per second one pipeline puts in the meta log; retained bounds its records.
const (
	minCheckpointInterval = 10 * time.Millisecond
	maxRetainedCuts       = 1000
	maxOptionDuration     = 100 * 365 * 24 * time.Hour
)

func pipelineOptions() []pipelineOption {
	return []pipelineOption{
		{"checkpoint.interval", func(o *PipelineOptions, v string) error {
			if v == "off" {
				o.Interval = 0
				return nil
			}
			return parseDurationIn(v, minCheckpointInterval, maxOptionDuration, &o.Interval)
		}, func(o PipelineOptions) string {
			if o.Interval == 0 {
				return "off"
			}
			return FormatDuration(o.Interval)
		}},
		{"checkpoint.max_concurrent", func(o *PipelineOptions, v string) error { return parseIntIn(v, 1, 1, &o.MaxConcurrent) },
			func(o PipelineOptions) string { return strconv.Itoa(o.MaxConcurrent) }},
		{"checkpoint.min_pause", func(o *PipelineOptions, v string) error {
			return parseDurationIn(v, 0, maxOptionDuration, &o.MinPause)
		}, func(o PipelineOptions) string { return FormatDuration(o.MinPause) }},
		{"checkpoint.mode", func(o *PipelineOptions, v string) error {
			switch v {
			case "exactly_once":
				o.Guarantee = GuaranteeExactlyOnce
				return nil
			case "at_least_once", "none":
				return fmt.Errorf("%q is not there yet; use 'exactly_once'", v)
			}
			return fmt.Errorf("%q is not a mode; use 'exactly_once'", v)
		}, func(o PipelineOptions) string { return o.Guarantee.String() }},
		{"checkpoint.retained", func(o *PipelineOptions, v string) error { return parseIntIn(v, 1, maxRetainedCuts, &o.Retained) },
			func(o PipelineOptions) string { return strconv.Itoa(o.Retained) }},
		{"checkpoint.timeout", func(o *PipelineOptions, v string) error {
			return parseDurationIn(v, minCheckpointInterval, maxOptionDuration, &o.Timeout)
		}, func(o PipelineOptions) string { return FormatDuration(o.Timeout) }},
		{"checkpoint.tolerable_failures", func(o *PipelineOptions, v string) error {
			return parseIntIn(v, 0, 1_000_000, &o.TolerableFailures)
		}, func(o PipelineOptions) string { return strconv.Itoa(o.TolerableFailures) }},
		{"on_error", func(o *PipelineOptions, v string) error {
			switch v {
			case "fail":
				o.OnError = OnErrorFail
			case "skip":
				o.OnError = OnErrorSkip
			default:
				return fmt.Errorf("%q is not 'fail' or 'skip'", v)
			}
			return nil
		}, func(o PipelineOptions) string {
			if o.OnError == OnErrorSkip {
				return "skip"
			}
			return "fail"
		}},
	}
}

// With returns o changed by opts, in order. It refuses unknown names and bad values with OPTION_INVALID.
func (o PipelineOptions) With(opts []Option) (PipelineOptions, error) {
	table := pipelineOptions()
	for _, opt := range opts {
		i := slices.IndexFunc(table, func(p pipelineOption) bool { return p.name == opt.Name })
		if i < 0 {
			names := make([]string, len(table))
			for j := range table {
				names[j] = table[j].name
			}
			return o, unknownOption("pipeline", opt.Name, names)
		}
		if err := table[i].set(&o, strings.TrimSpace(opt.Value)); err != nil {
			return o, Errorf(ReasonOptionInvalid, "option %s: %v", opt.Name, err).WithMeta("option", opt.Name)
		}
	}
	return o, nil
}

// List returns all options with their effective values, by name.
func (o PipelineOptions) List() []Option {
	table := pipelineOptions()
	out := make([]Option, len(table))
	for i, p := range table {
		out[i] = Option{p.name, p.get(o)}
	}
	return out
}

// StreamOptions are the settings of a stream, parsed.
type StreamOptions struct {
	// Retention is how long rows are kept after they were appended; 0 = for ever. Default 7 days.
	Retention time.Duration
	// MaxBytes bounds the stored bytes of the stream over all shards; 0 = unbounded, the default.
	MaxBytes int64
	// Grace is how long a pipeline that does not run, or lags, holds rows past their retention. Default 7 days.
	Grace time.Duration
}

// DefaultStreamOptions returns the options of a stream that sets none.
func DefaultStreamOptions() StreamOptions {
	return StreamOptions{Retention: 7 * 24 * time.Hour, Grace: 7 * 24 * time.Hour}
}

// With returns o changed by opts, in order. It refuses unknown names and bad values with OPTION_INVALID.
func (o StreamOptions) With(opts []Option) (StreamOptions, error) {
	for _, opt := range opts {
		v := strings.TrimSpace(opt.Value)
		var err error
		switch opt.Name {
		case "retention":
			if v == "forever" {
				o.Retention = 0
			} else {
				err = parseDurationIn(v, time.Second, maxOptionDuration, &o.Retention)
			}
		case "max_bytes":
			if v == "unbounded" {
				o.MaxBytes = 0
			} else if o.MaxBytes, err = ParseBytes(v); err == nil && o.MaxBytes < 1 {
				err = fmt.Errorf("%q is below 1 byte", v)
			}
		case "retention.grace":
			err = parseDurationIn(v, 0, maxOptionDuration, &o.Grace)
		default:
			return o, unknownOption("stream", opt.Name, []string{"max_bytes", "retention", "retention.grace"})
		}
		if err != nil {
			return o, Errorf(ReasonOptionInvalid, "option %s: %v", opt.Name, err).WithMeta("option", opt.Name)
		}
	}
	return o, nil
}

// List returns all options with their effective values, by name.
func (o StreamOptions) List() []Option {
	bytes, retention := "unbounded", "forever"
	if o.MaxBytes > 0 {
		bytes = strconv.FormatInt(o.MaxBytes, 10)
	}
	if o.Retention > 0 {
		retention = FormatDuration(o.Retention)
	}
	return []Option{{"max_bytes", bytes}, {"retention", retention}, {"retention.grace", FormatDuration(o.Grace)}}
}

func unknownOption(of, name string, known []string) *Error {
	hint := "the options are " + strings.Join(known, ", ")
	if near := Nearest(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return Errorf(ReasonOptionInvalid, "there is no %s option %q", of, name).WithHint("%s", hint).WithMeta("option", name)
}

func parseDurationIn(v string, low, high time.Duration, out *time.Duration) error {
	d, err := ParseDuration(v)
	if err != nil {
		return err
	}
	if d < low || d > high {
		return fmt.Errorf("%q is not between %s and %s", v, FormatDuration(low), FormatDuration(high))
	}
	*out = d
	return nil
}

func parseIntIn(v string, low, high int, out *int) error {
	n, err := strconv.Atoi(v)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", v)
	}
	if n < low || n > high {
		if low == high {
			return fmt.Errorf("%d is not possible yet; only %d is", n, low)
		}
		return fmt.Errorf("%d is not between %d and %d", n, low, high)
	}
	*out = n
	return nil
}

// ParseDuration reads a length of time as people write it: '100 ms', '7 days', '1 h 30 min', '1h30m'. A day has 24 hours. The result
// is in whole microseconds.
func ParseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a length of time such as '100 ms' or '7 days'", s)
	rest := strings.TrimSpace(s)
	if rest == "0" {
		return 0, nil
	}
	if rest == "" {
		return 0, bad
	}
	var total time.Duration
	for rest != "" {
		n, unit, tail := splitNumberUnit(rest)
		f, err := strconv.ParseFloat(n, 64)
		if err != nil {
			return 0, bad
		}
		u := durationUnit(unit)
		if u == 0 {
			return 0, bad
		}
		part := f * float64(u)
		if part > float64(maxOptionDuration-total) {
			return 0, fmt.Errorf("%q is longer than 100 years", s)
		}
		total += time.Duration(math.Round(part/float64(time.Microsecond))) * time.Microsecond
		rest = tail
	}
	return total, nil
}

// FormatDuration writes a length of time, of at least 0 and in whole microseconds, as people write it and ParseDuration
// reads it: '7 days', '1 h 30 min', '100 ms'.
func FormatDuration(d time.Duration) string {
	units := []struct {
		size      time.Duration
		one, many string
	}{
		{24 * time.Hour, "day", "days"}, {time.Hour, "h", "h"}, {time.Minute, "min", "min"}, {time.Second, "s", "s"},
		{time.Millisecond, "ms", "ms"}, {time.Microsecond, "us", "us"},
	}
	var parts []string
	for _, u := range units {
		switch n := d / u.size; {
		case n == 0:
			continue
		case n == 1:
			parts = append(parts, "1 "+u.one)
		default:
			parts = append(parts, strconv.FormatInt(int64(n), 10)+" "+u.many)
		}
		d %= u.size
	}
	if len(parts) == 0 {
		return "0 s"
	}
	return strings.Join(parts, " ")
}

func durationUnit(u string) time.Duration {
	switch u {
	case "us", "µs", "microsecond", "microseconds":
		return time.Microsecond
	case "ms", "millisecond", "milliseconds":
		return time.Millisecond
	case "s", "sec", "second", "seconds":
		return time.Second
	case "m", "min", "minute", "minutes":
		return time.Minute
	case "h", "hour", "hours":
		return time.Hour
	case "d", "day", "days":
		return 24 * time.Hour
	}
	return 0
}

// ParseBytes reads a size as people write it: '512', '64 MB' (10⁶), '1 GiB' (2³⁰).
func ParseBytes(s string) (int64, error) {
	bad := fmt.Errorf("%q is not a size such as '64 MiB' or '10 GB'", s)
	n, unit, tail := splitNumberUnit(strings.TrimSpace(s))
	f, err := strconv.ParseFloat(n, 64)
	if err != nil || tail != "" {
		return 0, bad
	}
	var u float64
	switch strings.ToLower(unit) {
	case "", "b", "byte", "bytes":
		u = 1
	case "kb":
		u = 1e3
	case "mb":
		u = 1e6
	case "gb":
		u = 1e9
	case "tb":
		u = 1e12
	case "kib":
		u = 1 << 10
	case "mib":
		u = 1 << 20
	case "gib":
		u = 1 << 30
	case "tib":
		u = 1 << 40
	default:
		return 0, bad
	}
	if f*u >= 1<<62 {
		return 0, fmt.Errorf("%q is too large a size", s)
	}
	return int64(f * u), nil
}

// splitNumberUnit cuts "30 min 5 s" into "30", "min" and "5 s".
func splitNumberUnit(s string) (number, unit, rest string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	number, s = s[:i], strings.TrimLeft(s[i:], " ")
	i = 0
	for i < len(s) && s[i] != ' ' && (s[i] < '0' || s[i] > '9') {
		i++
	}
	return number, s[:i], strings.TrimLeft(s[i:], " ")
}
