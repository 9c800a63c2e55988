package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// readParams is what every read can ask for, in a URL or in a body.
type readParams struct {
	isolation    weirv1.Read
	minToken     string
	sessionToken string
	maxWait      *durationpb.Duration
	maxStaleness *durationpb.Duration
	checkpoint   *uint64
	numbers      weirv1.Numbers
}

// readNames are the parameters of readParams.
var readNames = [...]string{"isolation", "min_token", "session_token", "max_wait", "max_staleness", "checkpoint_id", "numbers"}

// params reads a URL's parameters one by one and remembers the first error.
type params struct {
	values url.Values
	err    error
}

// newParams parses the query string. Parameters other than known and those of every read are refused.
func newParams(r *http.Request, known ...string) *params {
	p := &params{}
	p.values, p.err = url.ParseQuery(r.URL.RawQuery)
	if p.err != nil {
		p.err = bad("", "the query string is not well formed")
	}
	for name := range p.values {
		if !slices.Contains(known, name) && !slices.Contains(readNames[:], name) {
			p.fail(name, "there is no parameter %.60q", name)
		}
	}
	return p
}

func bad(field, format string, args ...any) error {
	e := dataflow.Errorf(dataflow.ReasonRequestInvalid, format, args...)
	if field != "" {
		e.Violations = []dataflow.Violation{{Field: field, Description: e.Message}}
	}
	return e
}

func (p *params) fail(field, format string, args ...any) {
	if p.err == nil {
		p.err = bad(field, format, args...)
	}
}

// text returns the only value of a parameter, "" when it is absent.
func (p *params) text(name string) string {
	v := p.values[name]
	if len(v) > 1 {
		p.fail(name, "%s comes %d times", name, len(v))
	}
	if len(v) == 0 {
		return ""
	}
	return v[0]
}

// given returns the only value of a parameter whose values are no texts, "" when it is absent. Given without a value it
// is refused: what was meant by it is not known.
func (p *params) given(name string) string {
	t := p.text(name)
	if t == "" && p.has(name) {
		p.fail(name, "%s is empty: give it a value or leave it out", name)
	}
	return t
}

func (p *params) has(name string) bool { return len(p.values[name]) > 0 }

func (p *params) int64(name string) int64 {
	t := p.given(name)
	if t == "" {
		return 0
	}
	n, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		p.fail(name, "%s: %.60q is not a whole number", name, t)
	}
	return n
}

func (p *params) int32(name string) int32 {
	return int32(max(min(p.int64(name), 1<<31-1), -1<<31)) // the server clamps or refuses it
}

func (p *params) uint64(name string) uint64 {
	t := p.given(name)
	if t == "" {
		return 0
	}
	n, err := strconv.ParseUint(t, 10, 64)
	if err != nil {
		p.fail(name, "%s: %.60q is not a whole number", name, t)
	}
	return n
}

func (p *params) bool(name string) bool {
	switch t := p.given(name); t {
	case "", "false":
		return false
	case "true":
		return true
	default:
		p.fail(name, "%s: %.60q is not true or false", name, t)
		return false
	}
}

// read returns the parameters of every read.
func (p *params) read() readParams {
	rp := readParams{minToken: p.text("min_token"), sessionToken: p.text("session_token")}
	var err error
	if rp.isolation, err = parseIsolation(p.given("isolation")); err != nil && p.err == nil {
		p.err = err
	}
	if rp.numbers, err = parseNumbers(p.given("numbers")); err != nil && p.err == nil {
		p.err = err
	}
	if rp.maxWait, err = parseTime("max_wait", p.given("max_wait")); err != nil && p.err == nil {
		p.err = err
	}
	if rp.maxStaleness, err = parseTime("max_staleness", p.given("max_staleness")); err != nil && p.err == nil {
		p.err = err
	}
	if p.has("checkpoint_id") {
		id := p.uint64("checkpoint_id")
		rp.checkpoint = &id
	}
	return rp
}

func parseIsolation(s string) (weirv1.Read, error) {
	if s == "" {
		return weirv1.Read_READ_UNSPECIFIED, nil
	}
	v, ok := weirv1.Read_value[strings.ToUpper(s)]
	if !ok {
		return 0, bad("isolation", "isolation: %.60q is not READ_COMMITTED or READ_UNCOMMITTED", s)
	}
	return weirv1.Read(v), nil
}

func parseNumbers(s string) (weirv1.Numbers, error) {
	switch s {
	case "":
		return weirv1.Numbers_NUMBERS_UNSPECIFIED, nil
	case "json", "NUMBERS_JSON":
		return weirv1.Numbers_NUMBERS_JSON, nil
	case "string", "NUMBERS_STRING":
		return weirv1.Numbers_NUMBERS_STRING, nil
	}
	return 0, bad("numbers", "numbers: %.60q is not json or string", s)
}

func parseTime(field, s string) (*durationpb.Duration, error) {
	if s == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return nil, bad(field, "%s: %.60q is not a length of time such as 5s", field, s)
	}
	return durationpb.New(d), nil
}
