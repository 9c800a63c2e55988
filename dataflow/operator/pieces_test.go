package operator_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
)

// sixHundred is a text of 600 bytes.
const sixHundred = hundred + hundred + hundred + hundred + hundred + hundred
const hundred = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

// hungry are views whose expressions make much of little. Some rows of some of them fail.
const hungry = `
CREATE STREAM s (k TEXT, n BIGINT);
CREATE MATERIALIZED VIEW repeated AS SELECT length(repeat(k, n)) AS l, count(*) AS c FROM s GROUP BY l;
CREATE MATERIALIZED VIEW padded AS SELECT length(lpad(k, n, k) || rpad(k, n) || k) AS l, count(*) AS c FROM s GROUP BY l;
CREATE MATERIALIZED VIEW replaced AS SELECT length(replace(repeat('a', n / 100), 'a', k)) AS l, count(upper(repeat(k, n))) AS c FROM s GROUP BY l;
CREATE MATERIALIZED VIEW words AS
  SELECT lower(w) AS w, count(*) AS c, max(left(k, 9)) AS m FROM s, UNNEST(regexp_split_to_array(repeat('a ' || k, n / 8), ' ')) AS t(w) WHERE w <> 'a' GROUP BY lower(w);
CREATE MATERIALIZED VIEW kept AS
  SELECT length(w) AS l, count(*) AS c, count(k || w) AS d FROM s, UNNEST(string_to_array(repeat('b,', n / 2), ',')) AS t(w) GROUP BY length(w);
CREATE MATERIALIZED VIEW digits AS SELECT length((repeat('9', n / 64)::numeric * 1.5 + 1)::text) AS l, count(*) AS c FROM s GROUP BY l;
CREATE MATERIALIZED VIEW chosen AS
  SELECT length(CASE WHEN n % 2 = 0 THEN repeat(k, n) ELSE coalesce(nullif(repeat(k, n / 2), k), greatest(k, repeat('z', n))) END) AS l, count(*) AS c FROM s GROUP BY l;
CREATE MATERIALIZED VIEW few AS
  SELECT w, max(left(upper(k), 9)) AS a, max(left(lower(k), 9)) AS b, max(left(lower(upper(lower(upper(k)))), 9)) AS c,
    max(left(upper(lower(upper(lower(k)))), 9)) AS d, max(left(CASE WHEN n > 0 THEN upper(lower(k)) END, 9)) AS e, max('` + sixHundred + `') AS z, count(*) AS n
  FROM s, UNNEST(string_to_array(repeat('b,', n / 4) || 'a', ',')) AS t(w) WHERE w = 'a' GROUP BY w;
CREATE MATERIALIZED VIEW constant AS SELECT 'the same text for every row, which a batch holds once per row' || k AS t, count(*) AS c FROM s GROUP BY t;
`

func hungryPlan(t testing.TB) *plan.Plan {
	t.Helper()
	f, err := sql.Parse(hungry)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Build(f, plan.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func hungryRows(r *rand.Rand) *batch.Batch {
	b := batch.NewBatch(dataflow.Schema{{Name: "k", Type: text}, {Name: "n", Type: bigint}})
	for range 40 + r.IntN(40) {
		k := strings.Repeat("q", 1+r.IntN(12))
		if r.IntN(8) == 0 {
			k = strings.Repeat("long ", 20+r.IntN(40))
		}
		if r.IntN(8) == 0 {
			k = "Ä" + k
		}
		n := int64(r.IntN(400))
		if r.IntN(3) == 0 {
			n = int64(r.IntN(200_000))
		}
		b.AppendRow(dataflow.Row{dataflow.Text(k), dataflow.BigInt(n)})
	}
	b.AppendTime = make([]int64, b.N)
	return b
}

// outcome is what a chain has made of rows: the folded state, and the error of each row that failed.
type outcome struct {
	state  map[string]string
	failed map[dataflow.Offset]string
}

func (o outcome) equal(p outcome) bool {
	return maps.Equal(o.state, p.state) && maps.Equal(o.failed, p.failed)
}

// foldCut runs the rows through the stage's chain in batches of the given sizes.
func foldCut(t *testing.T, st *plan.Stage, b *batch.Batch, sizes []int) outcome {
	t.Helper()
	o := outcome{state: make(map[string]string), failed: make(map[dataflow.Offset]string)}
	layout := agg.NewLayout(st.Aggs)
	c := operator.NewChainRunner(st, st.Inputs[0])
	env := &expr.Env{}
	var pieces batch.Pieces
	from := 0
	for _, size := range sizes {
		err := pieces.Each(b.Slice(from, from+size), func(piece *batch.Batch) (bool, error) {
			out, failed, fits := c.Run(piece, nil, env)
			if !fits {
				return false, nil
			}
			for _, f := range failed {
				o.failed[piece.OffsetOf(f.Row)] = f.Err.Error()
			}
			for row := range out.N {
				var k []byte
				for i := range st.Key {
					k = key.AppendVector(k, out.Cols[i], row)
				}
				acc := []byte(o.state[string(k)])
				if len(acc) == 0 {
					acc = layout.New(nil)
				}
				acc, err := layout.Update(acc, out, row, 1)
				if err != nil {
					return false, err
				}
				o.state[string(k)] = string(acc)
			}
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		from += size
	}
	return o
}

func cuts(r *rand.Rand, n int) []int {
	var sizes []int
	for most := 1 + r.IntN(n); n > 0; {
		sizes = append(sizes, 1+r.IntN(min(n, most)))
		n -= sizes[len(sizes)-1]
	}
	return sizes
}

func TestWhatRowsMakeDoesNotDependOnHowTheyAreBatched(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	p := hungryPlan(t)
	failures := 0
	for range 2 {
		b := hungryRows(r)
		for _, st := range p.Stages {
			whole := foldCut(t, st, b, []int{b.N})
			alone := foldCut(t, st, b, slices.Repeat([]int{1}, b.N))
			if !whole.equal(alone) {
				t.Fatalf("seed %d, %s: a batch of %d rows gives %d keys and %d failures, its rows alone %d and %d", seed, st.Name, b.N,
					len(whole.state), len(whole.failed), len(alone.state), len(alone.failed))
			}
			sizes := cuts(r, b.N)
			if cut := foldCut(t, st, b, sizes); !cut.equal(alone) {
				t.Fatalf("seed %d, %s: batches of %v rows give another result than rows alone", seed, st.Name, sizes)
			}
			failures += len(alone.failed)
		}
	}
	if failures == 0 {
		t.Errorf("seed %d: no row has failed, so nothing was tried", seed)
	}
}

func TestABatchOfManyLargeResultsFailsForNoRow(t *testing.T) {
	p := hungryPlan(t)
	b := batch.NewBatch(dataflow.Schema{{Name: "k", Type: text}, {Name: "n", Type: bigint}})
	for i := range 400 {
		b.AppendRow(dataflow.Row{dataflow.Text(fmt.Sprintf("key-%07d", i)), dataflow.BigInt(60_000)})
	}
	o := foldCut(t, p.Stages[0], b, []int{b.N})
	if len(o.failed) != 0 || len(o.state) != 1 {
		t.Fatalf("%d rows failed, %d keys", len(o.failed), len(o.state))
	}
}

func TestARowThatTakesTooMuchMemoryFailsByItself(t *testing.T) {
	p := hungryPlan(t)
	i := slices.IndexFunc(p.Stages, func(s *plan.Stage) bool { return s.Name == "kept" })
	b := batch.NewBatch(dataflow.Schema{{Name: "k", Type: text}, {Name: "n", Type: bigint}})
	for _, n := range []int64{10, 600_000, 20} { // the middle one brings a text of 1,000 bytes along 300,000 times
		b.AppendRow(dataflow.Row{dataflow.Text(strings.Repeat("k", 1000)), dataflow.BigInt(n)})
	}
	for _, sizes := range [][]int{{3}, {1, 1, 1}, {2, 1}} {
		o := foldCut(t, p.Stages[i], b, sizes)
		if len(o.failed) != 1 || !strings.Contains(o.failed[1], "values made of this row take more than") {
			t.Errorf("batches of %v: failures %v", sizes, o.failed)
		}
	}
}

func TestRowsThatWereFilteredOutCostNothingWhateverTheirNeighboursAre(t *testing.T) {
	p := hungryPlan(t)
	i := slices.IndexFunc(p.Stages, func(s *plan.Stage) bool { return s.Name == "few" })
	for _, neighbour := range []string{"e", "é"} {
		b := batch.NewBatch(dataflow.Schema{{Name: "k", Type: text}, {Name: "n", Type: bigint}})
		for _, k := range []string{strings.Repeat("k", 1000), neighbour} {
			b.AppendRow(dataflow.Row{dataflow.Text(k), dataflow.BigInt(36_000)}) // 9,001 elements, of which one is kept
		}
		b.Cols[1].Ints[1] = 3
		for _, sizes := range [][]int{{2}, {1, 1}} {
			if o := foldCut(t, p.Stages[i], b, sizes); len(o.failed) != 0 || len(o.state) != 1 {
				t.Errorf("beside %s, batches of %v: %d keys, failures %v", neighbour, sizes, len(o.state), o.failed)
			}
		}
	}
}

func TestFinishedRowsDoNotDependOnTheirNeighbours(t *testing.T) {
	f, err := sql.Parse(`CREATE STREAM s (k TEXT); CREATE MATERIALIZED VIEW big AS SELECT k, repeat(k, 60000) AS x, count(*) AS n FROM s GROUP BY k;`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Build(f, plan.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	st := p.Stages[0]
	layout := agg.NewLayout(st.Aggs)
	one := batch.NewBatch(nil)
	one.N = 1
	acc, err := layout.Update(layout.New(nil), one, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	var keys, accs [][]byte
	for i := range 400 {
		keys, accs = append(keys, key.AppendValue(nil, dataflow.Text(fmt.Sprintf("key-%07d", i)))), append(accs, acc)
	}
	fin := operator.NewFinalizer(st)
	if _, _, fits, err := fin.Batch(keys, accs, dataflow.OnErrorSkip); fits || err != nil {
		t.Fatalf("240 MB of rows at once: fits %v, %v", fits, err)
	}
	var pieces batch.Pieces
	shown := 0
	for at := 0; at < len(keys); {
		n, err := pieces.Next(len(keys)-at, func(n int) (bool, error) {
			_, visible, fits, err := fin.Batch(keys[at:at+n], accs[at:at+n], dataflow.OnErrorSkip)
			if fits {
				shown += visible.Count()
			}
			return fits, err
		})
		if err != nil {
			t.Fatal(err)
		}
		at += n
	}
	if shown != len(keys) {
		t.Fatalf("%d of %d rows are visible", shown, len(keys))
	}
}

func TestPiecesCoverAllRowsInOrder(t *testing.T) {
	var p batch.Pieces
	for _, most := range []int{1000, 3, 1, 7, 1000} {
		b := batch.NewBatch(dataflow.Schema{{Name: "v", Type: bigint}})
		for i := range 500 {
			b.AppendRow(dataflow.Row{dataflow.BigInt(int64(i))})
		}
		var got []int64
		err := p.Each(b, func(piece *batch.Batch) (bool, error) {
			if piece.N > most {
				return false, nil
			}
			got = append(got, piece.Cols[0].Ints...)
			return true, nil
		})
		if err != nil || !slices.Equal(got, b.Cols[0].Ints) {
			t.Fatalf("at most %d rows at once: %d rows, %v", most, len(got), err)
		}
	}
	stop := errors.New("stop")
	if n, err := p.Next(10, func(int) (bool, error) { return false, stop }); n != 0 || !errors.Is(err, stop) {
		t.Errorf("an error: %d, %v", n, err)
	}
}

func TestAFinalizerEndsWhenItIsTold(t *testing.T) {
	f, err := sql.Parse("CREATE STREAM s (k TEXT); CREATE MATERIALIZED VIEW v AS SELECT k, md5(k) AS m, count(*) AS n FROM s GROUP BY k;")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Build(f, plan.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	fin := operator.NewFinalizer(p.Stages[0]).Until(func() error { return enough })
	acc := agg.NewLayout(p.Stages[0].Aggs).New(nil)
	one := batch.NewBatch(nil)
	one.N = 1
	acc, err = agg.NewLayout(p.Stages[0].Aggs).Update(acc, one, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := fin.Batch([][]byte{key.AppendValue(nil, dataflow.Text("a"))}, [][]byte{acc}, dataflow.OnErrorSkip); !errors.Is(err, enough) {
		t.Error(err) // also for a single row, whose failure would be skipped
	}
}
