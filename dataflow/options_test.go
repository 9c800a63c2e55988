package dataflow

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestDurationsAreReadAsPeopleWriteThem(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"100 ms": 100 * time.Millisecond, "100ms": 100 * time.Millisecond, "7 days": 168 * time.Hour, "1 day": 24 * time.Hour,
		"1h30m": 90 * time.Minute, "1 h 30 min": 90 * time.Minute, "0": 0, "1.5 s": 1500 * time.Millisecond, " 2 sec ": 2 * time.Second,
		"10m0s": 10 * time.Minute, "3µs": 3 * time.Microsecond, "0.0000001 s": 0, "1.001s": 1001 * time.Millisecond,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "5", "ms", "-1 s", "1 fortnight", "1 s s", "1e9 s", "101 years", "1..2 s", "36600 days", "99999999999999999999 days", "NaN s", "1 s,"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q is accepted as %v", in, got)
		}
	}
}

func TestBytesAreReadAsPeopleWriteThem(t *testing.T) {
	for in, want := range map[string]int64{"512": 512, "64 MB": 64e6, "64MiB": 64 << 20, "1.5 KiB": 1536, "10 gb": 10e9, "1 TiB": 1 << 40} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "MB", "-1", "1 PB", "1 MB 2 KB", "99999999 TiB", "1 M"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("%q is accepted as %v", in, got)
		}
	}
}

// The meta log's snapshots hold options as text.
func TestOptionsSurviveTheirText(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		micros := func(limit int64) time.Duration { return time.Duration(rnd.Int64N(limit)) * time.Microsecond }
		p := PipelineOptions{Interval: 10*time.Millisecond + micros(1e15), Timeout: 10*time.Millisecond + micros(1e9), MinPause: micros(1e6),
			MaxConcurrent: 1, TolerableFailures: rnd.IntN(1000), Retained: 1 + rnd.IntN(1000), Guarantee: GuaranteeExactlyOnce, OnError: OnError(rnd.IntN(2))}
		if rnd.IntN(5) == 0 {
			p.Interval = 0
		}
		if got, err := DefaultPipelineOptions().With(p.List()); err != nil || got != p {
			t.Fatalf("%+v became %+v, %v", p, got, err)
		}
		s := StreamOptions{Retention: time.Second + micros(1e15), MaxBytes: rnd.Int64N(1 << 50), Grace: micros(1e15)}
		if rnd.IntN(5) == 0 {
			s.Retention = 0
		}
		if got, err := DefaultStreamOptions().With(s.List()); err != nil || got != s {
			t.Fatalf("%+v became %+v, %v", s, got, err)
		}
	}
}

func TestWrongOptionsAreNamedWithTheRightOnes(t *testing.T) {
	for _, o := range []Option{{"checkpoint.interval", "1 ms"}, {"checkpoint.interval", "often"}, {"checkpoint.max_concurrent", "2"}, {"checkpoint.mode", "none"},
		{"checkpoint.mode", "maybe"}, {"checkpoint.retained", "0"}, {"checkpoint.retained", "x"}, {"on_error", "ignore"}, {"checkpoint.colour", "red"}, {"", ""}} {
		before := DefaultPipelineOptions()
		_, err := before.With([]Option{o})
		if ReasonOf(err) != ReasonOptionInvalid || !strings.Contains(err.Error(), o.Name) {
			t.Errorf("%v: %v", o, err)
		}
	}
	if _, err := DefaultPipelineOptions().With([]Option{{"interval", "1 s"}}); err == nil || !strings.Contains(err.Error(), "checkpoint.interval") {
		t.Errorf("an unknown option's error does not list the known ones: %v", err)
	}
	if _, err := DefaultStreamOptions().With([]Option{{"max_bytes", "0"}}); ReasonOf(err) != ReasonOptionInvalid {
		t.Errorf("max_bytes = 0: %v", err)
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"100 ms", "7 days", "1h30m", "off", "1.5e3 s", "0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil {
			return
		}
		if again, err := ParseDuration(FormatDuration(d)); d < 0 || d > maxOptionDuration || err != nil || again != d {
			t.Fatalf("%q is %v, which is %v, %v", s, d, again, err)
		}
	})
}

func TestDurationsAreWrittenAsPeopleWriteThem(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0 s": 0, "7 days": 168 * time.Hour, "1 day": 24 * time.Hour, "1 h 30 min": 90 * time.Minute, "100 ms": 100 * time.Millisecond,
		"1 s 500 ms": 1500 * time.Millisecond, "1 us": time.Microsecond, "10 min": 10 * time.Minute,
	} {
		got := FormatDuration(d)
		if again, err := ParseDuration(got); got != want || err != nil || again != d {
			t.Errorf("%s: %q, want %q; read again %s, %v", d, got, want, again, err)
		}
	}
}
