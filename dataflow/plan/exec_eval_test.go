package plan_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/plan"
)

// keyTable has n rows with k = key-0000000 and so on and v = 0, 1, …
func keyTable(n int) *table {
	tb := &table{Table: plan.Table{Pipeline: "p", Name: "t", KeyCols: []int{0}, Schema: dataflow.Schema{
		{Name: "k", Type: dataflow.TypeText}, {Name: "v", Type: dataflow.TypeBigInt},
	}}}
	tb.rows = batch.NewBatch(tb.Schema)
	for i := range n {
		tb.rows.AppendRow(dataflow.Row{dataflow.Text(fmt.Sprintf("key-%07d", i)), dataflow.BigInt(int64(i))})
	}
	return tb
}

// runWhole pushes all rows at once, into a run that may hold maxBytes.
func runWhole(t *testing.T, tb *table, text string, maxBytes int64) (*batch.Batch, error) {
	t.Helper()
	q, err := bind(tables{"p.t": tb}, text)
	if err != nil {
		t.Fatal(err)
	}
	return q.Run(&memory{ts: tables{"p.t": tb}, size: tb.rows.N}, plan.ExecOptions{MaxBytes: maxBytes})
}

func TestValuesBetweenStepsAreMadeInPieces(t *testing.T) {
	tb := keyTable(250) // of each of which 660,000 bytes are made
	for _, text := range []string{
		"SELECT length(repeat(k, 60000)) AS n FROM p.t LIMIT 1",
		"SELECT length(repeat(k, 60000)) AS n, count(*) FROM p.t WHERE length(repeat(k, 50000)) > 0 GROUP BY n",
		"SELECT n FROM (SELECT length(x) AS n FROM (SELECT repeat(k, 60000) AS x FROM p.t) AS a) AS b ORDER BY n LIMIT 1",
		"SELECT length(x) AS n FROM (SELECT repeat(k, 60000) AS x FROM p.t ORDER BY v DESC LIMIT 1) AS a",
	} {
		rows, err := runWhole(t, tb, text, 64<<20)
		if err != nil || rows.N != 1 || rows.Cols[0].Ints[0] != 660_000 {
			t.Errorf("%s: %v, %v", text, rows, err)
		}
	}
}

func TestTheMemoryOfValuesBetweenStepsIsTheQuerys(t *testing.T) {
	tb := keyTable(10)
	if _, err := runWhole(t, tb, "SELECT length(repeat(k, 60000)) FROM p.t", 100_000); dataflow.ReasonOf(err) != dataflow.ReasonScanLimit {
		t.Errorf("a value larger than the query's memory: %v", err)
	}
	many := "SELECT length(concat(repeat(k, 90000)" + strings.Repeat(", left(repeat(k, 90000), 1)", 80) + ")) FROM p.t"
	if _, err := runWhole(t, tb, many, 1<<30); dataflow.ReasonOf(err) != dataflow.ReasonTooLarge || !strings.Contains(err.Error(), "of this row") {
		t.Errorf("a row that needs more than a row may: %v", err)
	}
}

func TestARowBehindTheLimitCannotFailTheQuery(t *testing.T) {
	tb := keyTable(100)
	for _, text := range []string{
		"SELECT 1 / (50 - v) AS x FROM p.t LIMIT 50",
		"SELECT v FROM p.t WHERE 1 / (50 - v) >= 0 LIMIT 50",
		"SELECT 1 / (50 - v) AS x FROM p.t WHERE v >= 0 LIMIT 20 OFFSET 30",
	} {
		if _, err := runWhole(t, tb, text, 0); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		next := strings.NewReplacer("LIMIT 50", "LIMIT 51", "LIMIT 20", "LIMIT 21").Replace(text)
		if _, err := runWhole(t, tb, next, 0); dataflow.ReasonOf(err) != dataflow.ReasonExpressionFailed {
			t.Errorf("%s: %v", next, err)
		}
	}
}

// wanted is an empty table that notes how many rows are asked for.
type wanted struct{ most int }

func (w *wanted) Open(plan.Table, plan.Access) (plan.Rows, error) { return w, nil }
func (w *wanted) Check() error                                    { return nil }
func (w *wanted) Close() error                                    { return nil }
func (w *wanted) Next(most int) (*batch.Batch, error) {
	w.most = most
	return nil, nil
}

func TestAReaderIsToldHowManyRowsAreWanted(t *testing.T) {
	tb := keyTable(10)
	for text, want := range map[string]int{
		"SELECT v FROM p.t LIMIT 3 OFFSET 2":                   5,
		"SELECT v FROM p.t LIMIT 0":                            -1,
		"SELECT v FROM p.t WHERE v > 3 LIMIT 3":                math.MaxInt32,
		"SELECT v FROM p.t ORDER BY v LIMIT 3":                 math.MaxInt32,
		"SELECT count(*) FROM p.t":                             math.MaxInt32,
		"SELECT v FROM p.t LIMIT 9223372036854775807 OFFSET 9": math.MaxInt32,
	} {
		q, err := bind(tables{"p.t": tb}, text)
		if err != nil {
			t.Fatal(err)
		}
		m := &wanted{most: -1}
		if _, err := q.Run(m, plan.ExecOptions{}); err != nil {
			t.Fatal(err)
		}
		if m.most != want {
			t.Errorf("%s: %d, want %d", text, m.most, want)
		}
	}
}

func TestAnInterruptEndsARun(t *testing.T) {
	enough := errors.New("enough")
	for _, text := range []string{
		"SELECT count(*) FROM p.t WHERE md5(k) ~ 'x'",             // while rows come
		"SELECT count(*) FROM p.t GROUP BY k HAVING md5(k) ~ 'x'", // at the end
	} {
		q, err := bind(tables{"p.t": keyTable(2000)}, text)
		if err != nil {
			t.Fatal(err)
		}
		looks := 0
		tb := keyTable(2000)
		_, err = q.Run(&memory{ts: tables{"p.t": tb}, size: tb.rows.N}, plan.ExecOptions{Interrupt: func() error {
			if looks++; looks > 5 {
				return enough
			}
			return nil
		}})
		if !errors.Is(err, enough) || looks != 6 {
			t.Errorf("%s: %v after %d looks", text, err, looks)
		}
	}
}
