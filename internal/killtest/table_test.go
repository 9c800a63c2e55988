package killtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
)

// null stands for NULL in keys and rows as text.
const null = `\N`

// model folds the rows of a pipeline's stream as its SQL says. Keys and rows are text: the columns, separated by a bar;
// TEXT is quoted, TIMESTAMPTZ is in microseconds.
type model interface {
	apply(row any)
	row(table, key string) (text string, ok bool)
	keys(table string) iter.Seq[string]
	// grown returns the part of a row that never shrinks, as table.grows names it; 0 for no row.
	grown(table, key string) int64
	// totals returns what table.totalsSQL asks for.
	totals(table string) string
}

// columnKind says how a value is written as text.
type columnKind uint8

const (
	textColumn columnKind = iota
	numberColumn
	timeColumn
)

type column struct {
	name string
	kind columnKind
}

// table is a table of one of the two programs.
type table struct {
	pipeline, name string
	columns        []column
	keys           int // the first columns are the key
	grows          int // a column that never shrinks while rows are added; -1 = none
	totalsSQL      string
}

func (t *table) String() string { return t.pipeline + "." + t.name }

func tables() []*table {
	return []*table{
		{pipeline: "wordcount", name: "counts", keys: 1, grows: 1,
			columns:   []column{{"word", textColumn}, {"n", numberColumn}},
			totalsSQL: "SELECT count(*) AS rows, sum(n) AS total FROM wordcount.counts"},
		{pipeline: "orders", name: "by_day", keys: 2, grows: 2,
			columns: []column{{"country", textColumn}, {"day", timeColumn}, {"orders", numberColumn}, {"total", numberColumn},
				{"least", numberColumn}, {"latest", timeColumn}},
			totalsSQL: "SELECT count(*) AS rows, sum(orders) AS total FROM orders.by_day"},
		{pipeline: "orders", name: "by_item", keys: 2, grows: 2,
			columns:   []column{{"item", numberColumn}, {"country", textColumn}, {"orders", numberColumn}, {"balance", numberColumn}},
			totalsSQL: "SELECT count(*) AS rows, sum(orders) AS total FROM orders.by_item"},
		{pipeline: "orders", name: "in_debt", keys: 2, grows: -1,
			columns:   []column{{"item", numberColumn}, {"country", textColumn}, {"balance", numberColumn}},
			totalsSQL: "SELECT count(*) AS rows, sum(balance) AS total FROM orders.in_debt"},
		{pipeline: "orders", name: "debts", keys: 1, grows: -1,
			columns:   []column{{"item", numberColumn}, {"countries", numberColumn}, {"debt", numberColumn}},
			totalsSQL: "SELECT count(*) AS rows, sum(countries) AS total FROM orders.debts"},
	}
}

// totalsColumns are those of totalsSQL.
var totalsColumns = []column{{"rows", numberColumn}, {"total", numberColumn}}

// row is a row of an answer.
type row struct {
	key, text string
	grown     int64
}

// parse reads a row of an answer.
func (t *table) parse(text []byte) (row, error) {
	parts, err := parseColumns(t.columns, text)
	if err != nil {
		return row{}, fmt.Errorf("%s: row %s: %w", t, text, err)
	}
	r := row{key: strings.Join(parts[:t.keys], "|"), text: strings.Join(parts, "|")}
	if t.grows >= 0 {
		r.grown, err = strconv.ParseInt(parts[t.grows], 10, 64)
	}
	return r, err
}

func parseColumns(columns []column, text []byte) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var obj map[string]any
	if err := dec.Decode(&obj); err != nil {
		return nil, err
	}
	if len(obj) != len(columns) {
		return nil, fmt.Errorf("%d columns of %d", len(obj), len(columns))
	}
	parts := make([]string, len(columns))
	for i, c := range columns {
		v, ok := obj[c.name]
		if !ok {
			return nil, fmt.Errorf("no column %s", c.name)
		}
		switch v := v.(type) {
		case nil:
			parts[i] = null
		case json.Number:
			if c.kind != numberColumn {
				return nil, fmt.Errorf("%s is a number", c.name)
			}
			parts[i] = v.String()
		case string:
			switch c.kind {
			case textColumn:
				parts[i] = strconv.Quote(v)
			case timeColumn:
				at, err := time.Parse(time.RFC3339Nano, v)
				if err != nil {
					return nil, err
				}
				parts[i] = strconv.FormatInt(at.UnixMicro(), 10)
			default:
				return nil, fmt.Errorf("%s is a string", c.name)
			}
		default:
			return nil, fmt.Errorf("%s is %v", c.name, v)
		}
	}
	return parts, nil
}

// compareRows compares rows of an answer with the model's rows whose keys are wanted. It names the first few that differ.
func compareRows(t *table, m model, got []row, wanted func(key string) bool) error {
	var diff []string
	note := func(format string, args ...any) { diff = append(diff, fmt.Sprintf(format, args...)) }
	seen := make(map[string]bool, len(got))
	for _, r := range got {
		if seen[r.key] {
			note("key %s is there twice", r.key)
		}
		seen[r.key] = true
		switch want, ok := m.row(t.name, r.key); {
		case !wanted(r.key):
			note("row %s was not asked for", r.text)
		case !ok:
			note("row %s is not in the model", r.text)
		case want != r.text:
			note("row %s must be %s", r.text, want)
		}
	}
	for key := range m.keys(t.name) {
		if wanted(key) && !seen[key] {
			want, _ := m.row(t.name, key)
			note("row %s is missing", want)
		}
	}
	if len(diff) == 0 {
		return nil
	}
	const show = 8
	if n := len(diff) - show; n > 0 {
		diff = append(diff[:show], fmt.Sprintf("and %d more", n))
	}
	return fmt.Errorf("%s differs from the model:\n    %s", t, strings.Join(diff, "\n    "))
}

func anyKey(string) bool { return true }
