package plan_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

// engine runs a plan over batches, one stage after the other, with state in maps.
type engine struct {
	t      *testing.T
	plan   *plan.Plan
	stages []*stageState
}

type stageState struct {
	*plan.Stage
	layout *agg.Layout
	fin    *operator.Finalizer
	accs   map[string][]byte
}

func newEngine(t *testing.T, p *plan.Plan) *engine {
	e := &engine{t: t, plan: p}
	for _, s := range p.Stages {
		e.stages = append(e.stages, &stageState{Stage: s, layout: agg.NewLayout(s.Aggs), fin: operator.NewFinalizer(s), accs: map[string][]byte{}})
	}
	return e
}

// push feeds rows of a stream through all stages.
func (e *engine) push(stream string, b *batch.Batch) {
	changes := make([]*batch.Batch, len(e.stages))
	for i, s := range e.stages {
		for _, in := range s.Inputs {
			rows := b
			switch {
			case in.FromStage:
				rows = changes[in.From]
			case in.Stream != stream:
				continue
			case in.Pseudo:
				rows = withPseudo(b)
			}
			if rows == nil || rows.N == 0 {
				continue
			}
			var env expr.Env
			out, failed, _ := operator.NewChainRunner(s.Stage, in).Run(rows, nil, &env)
			if len(failed) > 0 {
				e.t.Fatalf("row %d at %v: %v", failed[0].Row, failed[0].At, failed[0].Err)
			}
			changes[i] = s.fold(e.t, out)
		}
	}
}

// withPseudo appends the pseudo columns as a source does.
func withPseudo(b *batch.Batch) *batch.Batch {
	schema := append(slices.Clone(b.Schema), dataflow.Column{Name: dataflow.ColAppendTime, Type: dataflow.TypeTimestamp},
		dataflow.Column{Name: dataflow.ColShard, Type: dataflow.TypeBigInt}, dataflow.Column{Name: dataflow.ColOffset, Type: dataflow.TypeBigInt})
	cols := append(slices.Clone(b.Cols), batch.NewVector(dataflow.TypeTimestamp, b.N), batch.NewVector(dataflow.TypeBigInt, b.N), batch.NewVector(dataflow.TypeBigInt, b.N))
	for i := range b.N {
		cols[len(b.Cols)].AppendInt(b.AppendTime[i])
		cols[len(b.Cols)+1].AppendInt(int64(b.Shard))
		cols[len(b.Cols)+2].AppendInt(int64(b.OffsetOf(i)))
	}
	return b.WithCols(schema, cols)
}

// fold folds rows into the state and returns the changes of visible rows.
func (s *stageState) fold(t *testing.T, b *batch.Batch) *batch.Batch {
	t.Helper()
	before := map[string][]byte{}
	for i := range b.N {
		var k []byte
		for _, v := range b.Cols[:len(s.Key)] {
			k = key.AppendVector(k, v, i)
		}
		acc, have := s.accs[string(k)]
		if _, noted := before[string(k)]; !noted {
			before[string(k)] = slices.Clone(acc)
		}
		if !have {
			acc = s.layout.New(nil)
		}
		acc, err := s.layout.Update(acc, b, i, b.Weight(i))
		if err != nil {
			t.Fatal(err)
		}
		s.accs[string(k)] = acc
	}
	out := batch.NewBatch(s.Schema)
	keys := sortedKeys(before)
	for _, side := range []struct {
		weight int8
		accs   map[string][]byte
	}{{-1, before}, {1, s.accs}} {
		rows, visible := s.rows(t, keys, side.accs)
		for i := range rows.N {
			if visible.Get(i) {
				out.AppendRow(rows.Row(i))
				out.Weights = append(out.Weights, side.weight)
			}
		}
	}
	for _, k := range keys {
		if rows := s.layout.Rows(s.accs[k]); rows < 0 {
			t.Fatalf("stage %d: a group has %d rows", s.ID, rows)
		} else if rows == 0 {
			delete(s.accs, k)
		}
	}
	return out
}

func (s *stageState) rows(t *testing.T, keys []string, accs map[string][]byte) (*batch.Batch, batch.Bitmap) {
	t.Helper()
	var ks, as [][]byte
	for _, k := range keys {
		ks, as = append(ks, []byte(k)), append(as, accs[k])
	}
	rows, visible, _, err := s.fin.Batch(ks, as, dataflow.OnErrorFail)
	if err != nil {
		t.Fatal(err)
	}
	return rows, visible
}

func sortedKeys(m map[string][]byte) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// table prints the visible rows of a table, sorted.
func (e *engine) table(name string) []string {
	s, ok := e.plan.Table(name)
	if !ok {
		e.t.Fatalf("no table %s", name)
	}
	st := e.stages[s.ID]
	rows, visible := st.rows(e.t, sortedKeys(st.accs), st.accs)
	var sel []int32
	for i := range rows.N {
		if visible.Get(i) {
			sel = append(sel, int32(i))
		}
	}
	return sortedRows(rows.Select(sel))
}

func sortedRows(b *batch.Batch) []string {
	lines := strings.Split(strings.TrimSuffix(printRows(b), "\n"), "\n")
	slices.Sort(lines[1:])
	return lines
}

// TestViewsGiveWhatTheirQueriesGive folds random rows in random batches through views, and compares each table with the
// same SELECT run as a query over all rows.
func TestViewsGiveWhatTheirQueriesGive(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	cases := []struct{ name, views, query string }{
		{"groups", "CREATE MATERIALIZED VIEW m AS SELECT k1, count(*) AS n, sum(v) AS s, min(k2) AS lo, max(k2) AS hi, avg(v) AS mean FROM t GROUP BY k1",
			"SELECT k1, count(*) AS n, sum(v) AS s, min(k2) AS lo, max(k2) AS hi, avg(v) AS mean FROM p.t GROUP BY k1"},
		{"composite key, where, having", "CREATE MATERIALIZED VIEW m AS SELECT count(*) FILTER (WHERE k3) AS n, k2, k1 FROM t WHERE v > 3 GROUP BY k1, k2 HAVING sum(v) > 10",
			"SELECT count(*) FILTER (WHERE k3) AS n, k2, k1 FROM p.t WHERE v > 3 GROUP BY k1, k2 HAVING sum(v) > 10"},
		{"distinct", "CREATE MATERIALIZED VIEW m AS SELECT DISTINCT k3, k2 % 2 AS odd FROM t", "SELECT DISTINCT k3, k2 % 2 AS odd FROM p.t"},
		{"distinct values", "CREATE MATERIALIZED VIEW m AS SELECT k1, count(DISTINCT v) AS n, sum(DISTINCT k2) AS s, bool_and(k3) AS a, bool_or(v > 5) FILTER (WHERE k3) AS o FROM t GROUP BY k1",
			"SELECT k1, count(DISTINCT v) AS n, sum(DISTINCT k2) AS s, bool_and(k3) AS a, bool_or(v > 5) FILTER (WHERE k3) AS o FROM p.t GROUP BY k1"},
		{"the least of a table", "CREATE MATERIALIZED VIEW a AS SELECT k1, k2, count(*) AS n FROM t GROUP BY k1, k2; CREATE MATERIALIZED VIEW m AS SELECT n, min(k1) AS lo, max(k2) AS hi, max_by(k1, k2) AS of, count(DISTINCT k2) AS c FROM a GROUP BY n",
			"SELECT n, min(k1) AS lo, max(k2) AS hi, max_by(k1, k2) AS of, count(DISTINCT k2) AS c FROM (SELECT k1, k2, count(*) AS n FROM p.t GROUP BY k1, k2) AS a GROUP BY n"},
		{"global", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(v) AS s FROM t", "SELECT count(*) AS n, sum(v) AS s FROM p.t"},
		{"view over a view", "CREATE MATERIALIZED VIEW a AS SELECT k1, count(*) AS n FROM t GROUP BY k1; CREATE MATERIALIZED VIEW m AS SELECT n, count(*) AS c, sum(n) AS s FROM a GROUP BY n",
			"SELECT n, count(*) AS c, sum(n) AS s FROM (SELECT k1, count(*) AS n FROM p.t GROUP BY k1) AS a GROUP BY n"},
		{"rows that disappear", "CREATE MATERIALIZED VIEW a AS SELECT k1, k2, count(*) AS n FROM t GROUP BY k1, k2; CREATE MATERIALIZED VIEW m AS SELECT n * 2 AS n2, k2, k1 AS k FROM a WHERE n % 2 = 1",
			"SELECT n * 2 AS n2, k2, k1 AS k FROM (SELECT k1, k2, count(*) AS n FROM p.t GROUP BY k1, k2) AS a WHERE n % 2 = 1"},
		{"three deep", `CREATE MATERIALIZED VIEW a AS SELECT k1, k2, count(*) AS n FROM t GROUP BY k1, k2; CREATE MATERIALIZED VIEW b AS SELECT k1, sum(n) AS n FROM a WHERE n > 1 GROUP BY k1;
			CREATE MATERIALIZED VIEW m AS SELECT n, count(*) AS c FROM b GROUP BY n`,
			"SELECT n, count(*) AS c FROM (SELECT k1, sum(n) AS n FROM (SELECT k1, k2, count(*) AS n FROM p.t GROUP BY k1, k2) AS a WHERE n > 1 GROUP BY k1) AS b GROUP BY n"},
		{"over one row", "CREATE MATERIALIZED VIEW a AS SELECT sum(v) AS n FROM t; CREATE MATERIALIZED VIEW m AS SELECT n + 1 AS n1 FROM a",
			"SELECT n + 1 AS n1 FROM (SELECT sum(v) AS n FROM p.t) AS a"},
		{"merged", "CREATE MATERIALIZED VIEW m AS WITH a AS (SELECT k1 AS k, k2, sum(v) AS s, count(v) AS n FROM t GROUP BY k1, k2 HAVING count(*) > 1) SELECT s / n AS mean, k, k2 FROM a WHERE n > 0 AND k <> 'a'",
			"WITH a AS (SELECT k1 AS k, k2, sum(v) AS s, count(v) AS n FROM p.t GROUP BY k1, k2 HAVING count(*) > 1) SELECT s / n AS mean, k, k2 FROM a WHERE n > 0 AND k <> 'a'"},
		{"distinct below", "CREATE MATERIALIZED VIEW m AS SELECT k1, count(*) AS kinds FROM (SELECT DISTINCT k1, v FROM t) AS d GROUP BY k1",
			"SELECT k1, count(*) AS kinds FROM (SELECT DISTINCT k1, v FROM p.t) AS d GROUP BY k1"},
		{"distinct without the key", "CREATE MATERIALIZED VIEW m AS SELECT n, count(*) AS c FROM (SELECT DISTINCT count(*) AS n FROM t GROUP BY k1, k2) AS d GROUP BY n",
			"SELECT n, count(*) AS c FROM (SELECT DISTINCT count(*) AS n FROM p.t GROUP BY k1, k2) AS d GROUP BY n"},
		{"steps", `CREATE VIEW big (a, b, c) AS SELECT k1, v * 2, k3 FROM t WHERE v IS NOT NULL; CREATE VIEW bigger AS SELECT a, b + 1 AS b FROM big WHERE b > 5 OR c;
			CREATE MATERIALIZED VIEW m AS SELECT x.a, max(x.b) AS hi FROM bigger AS x GROUP BY x.a`,
			"SELECT a, max(b) AS hi FROM (SELECT a, b + 1 AS b FROM (SELECT k1 AS a, v * 2 AS b, k3 AS c FROM p.t WHERE v IS NOT NULL) AS big WHERE b > 5 OR c) AS x GROUP BY a"},
		{"pseudo columns", "CREATE MATERIALIZED VIEW m AS SELECT _shard AS k, count(*) AS n, max(_offset) AS last, min(_append_time) AS first FROM t GROUP BY _shard",
			"SELECT 0 AS k, count(*) AS n, 199 AS last, '1970-01-01'::timestamptz AS first FROM p.t"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for range 5 {
				tb := randomTable(r, 200)
				existing := plan.Streams{{Name: "t", Schema: tb.Schema}}
				p, err := buildWith(c.views, existing)
				if err != nil {
					t.Fatal(err)
				}
				checkPlan(t, p)
				e := newEngine(t, p)
				for from := 0; from < tb.rows.N; {
					to := min(from+1+r.IntN(30), tb.rows.N)
					part := tb.rows.Slice(from, to)
					part.AppendTime = make([]int64, part.N)
					part.FirstOffset = dataflow.Offset(from)
					e.push("t", part)
					from = to
				}
				want, _, err := runText(tables{"p.t": tb}, c.query)
				if err != nil {
					t.Fatal(err)
				}
				if a, b := fmt.Sprint(sortedRows(want)), fmt.Sprint(e.table("m")); a != b {
					t.Fatalf("as a query:\n%s\nas a view:\n%s\n%s", a, b, plan.Explain(p))
				}
			}
		})
	}
}

// TestFirstAndLastGoByArrival folds rows of several shards in random order and wants the first and the last by (append
// time, shard, offset).
func TestFirstAndLastGoByArrival(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	schema := dataflow.Schema{{Name: "k", Type: dataflow.TypeBigInt}, {Name: "v", Type: dataflow.TypeBigInt}}
	p, err := buildWith("CREATE MATERIALIZED VIEW m AS SELECT k, first(v) AS a, last(v) AS b, max_by(v, k) AS c FROM (SELECT k, v FROM t WHERE k >= 0) AS x GROUP BY k",
		plan.Streams{{Name: "t", Schema: schema}})
	if err != nil {
		t.Fatal(err)
	}
	checkPlan(t, p)
	for range 20 {
		type row struct{ time, shard, offset, k, v int64 }
		var rows []row
		var next [3]int64
		for i := range int64(60) {
			shard := r.Int64N(3)
			rows = append(rows, row{i/10 + r.Int64N(3), shard, next[shard], r.Int64N(4), i})
			next[shard]++
		}
		e := newEngine(t, p)
		for _, i := range r.Perm(len(rows)) {
			b := batch.NewBatch(schema)
			v := dataflow.BigInt(rows[i].v)
			if rows[i].v%9 == 0 {
				v = dataflow.NullValue(dataflow.TypeBigInt) // counts like any other value
			}
			b.AppendRow(dataflow.Row{dataflow.BigInt(rows[i].k), v})
			b.AppendTime, b.Shard, b.FirstOffset = []int64{rows[i].time}, dataflow.ShardID(rows[i].shard), dataflow.Offset(rows[i].offset)
			e.push("t", b)
		}
		slices.SortFunc(rows, func(a, b row) int {
			return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.shard, b.shard), cmp.Compare(a.offset, b.offset))
		})
		want := batch.NewBatch(dataflow.Schema{{Name: "k", Type: dataflow.TypeBigInt}, {Name: "a", Type: dataflow.TypeBigInt}, {Name: "b", Type: dataflow.TypeBigInt}, {Name: "c", Type: dataflow.TypeBigInt}})
		for k := range int64(4) {
			value := func(r row) dataflow.Value {
				if r.v%9 == 0 {
					return dataflow.NullValue(dataflow.TypeBigInt)
				}
				return dataflow.BigInt(r.v)
			}
			var of []row
			for _, r := range rows {
				if r.k == k {
					of = append(of, r)
				}
			}
			if len(of) > 0 {
				want.AppendRow(dataflow.Row{dataflow.BigInt(k), value(of[0]), value(of[len(of)-1]), value(of[len(of)-1])})
			}
		}
		if a, b := fmt.Sprint(sortedRows(want)), fmt.Sprint(e.table("m")); a != b {
			t.Fatalf("want\n%s\nhave\n%s", a, b)
		}
	}
}
