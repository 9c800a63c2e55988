package expr_test

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

// benchBatch has the columns n BIGINT, f DOUBLE PRECISION, line TEXT, at TIMESTAMPTZ, d NUMERIC.
func benchBatch() *batch.Batch {
	rng := rand.New(rand.NewSource(1))
	words := strings.Fields("The Rays which differ in Colour, differ also in degrees of Refrangibility; and whale 42 weir of the")
	schema := dataflow.Schema{
		{Name: "n", Type: dataflow.TypeBigInt}, {Name: "f", Type: dataflow.TypeDouble}, {Name: "line", Type: dataflow.TypeText},
		{Name: "at", Type: dataflow.TypeTimestamp}, {Name: "d", Type: dataflow.TypeNumeric},
	}
	rows := make([]dataflow.Row, batch.TargetRows)
	for i := range rows {
		line := make([]string, 12)
		for k := range line {
			line[k] = words[rng.Intn(len(words))]
		}
		d, _ := expr.ParseValue(dataflow.TypeNumeric, fmt.Sprintf("%d.%02d", rng.Intn(10000), rng.Intn(100)))
		rows[i] = dataflow.Row{dataflow.BigInt(rng.Int63n(1000)), dataflow.Double(rng.Float64()), dataflow.Text(strings.Join(line, " ")), dataflow.Timestamp(rng.Int63n(1 << 50)), d}
	}
	return columns(schema, rows)
}

func BenchmarkEval(b *testing.B) {
	data := benchBatch()
	for _, text := range []string{
		"n + 1", "n + n", "n * 3", "n / 7", "n > 500", "n = 500 and f > 0.5::double precision", "f * f", "d + 1.5", "d * 2",
		"line = 'whale'", "lower(line)", "length(line)", "regexp_split_to_array(line, '[^a-z0-9]+')",
		"regexp_split_to_array(lower(line), '[^a-z0-9]+')", "regexp_split_to_array(line, '[^[:alnum:]]+')", "line like '%whale%'", "line ~ 'whale'",
		"case when n > 500 then n else 0 end", "coalesce(n, 0)", "date_trunc('minute', at)", "date_bin('1 minute', at, '2026-01-01')", "date_trunc('month', at)",
		"extract(hour from at)", "n::text", "substr(line, 1, 10)", "n in (1, 2, 3)", "split_part(line, ' ', 2)", "md5(line)",
	} {
		b.Run(strings.ReplaceAll(text, " ", "_"), func(b *testing.B) {
			p := parser{literal: constant, column: func(name string) (expr.Expr, bool) {
				i := data.Schema.Index(name)
				if i < 0 {
					return nil, false
				}
				return expr.NewColumn(i, name, data.Schema[i].Type), true
			}}
			e, err := p.parse(text)
			if err != nil {
				b.Fatal(err)
			}
			env := expr.Env{Fail: func(_ int, err *dataflow.Error) { b.Fatal(err) }}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				e.Eval(&env, data, nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(data.N), "ns/row")
		})
	}
}
