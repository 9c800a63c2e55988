package key_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
)

func TestRowsWithoutPartitionLieInRuns(t *testing.T) {
	const shards = 3
	for _, first := range []uint64{0, 2, 1<<64 - 1} { // the last is 0 mod 3
		p := key.NewPlacer(nil, shards, first)
		for i := range 5*key.RunRows + 1 {
			want := dataflow.ShardID((first%shards + uint64(i/key.RunRows)) % shards)
			if got := p.Place(nil, i%7); got != want {
				t.Fatalf("row %d of runs from %d lies in shard %d, want %d", i, first, got, want)
			}
		}
	}
}

// Golden: a client in another language places these rows alike.
func TestRowsLieWhereTheirPartitionHashes(t *testing.T) {
	schema := dataflow.Schema{{Name: "n", Type: dataflow.TypeBigInt}, {Name: "k", Type: dataflow.TypeText}, {Name: "v", Type: dataflow.TypeBigInt}}
	b := batch.NewBatch(schema)
	for i := range 8 {
		b.AppendRow(dataflow.Row{dataflow.BigInt(int64(i)), dataflow.Text(fmt.Sprintf("k%d", i%4)), dataflow.BigInt(int64(i) * 7)})
	}
	b.AppendRow(dataflow.Row{dataflow.NullValue(dataflow.TypeBigInt), dataflow.NullValue(dataflow.TypeText), dataflow.NullValue(dataflow.TypeBigInt)})
	for _, c := range []struct {
		columns []int
		want    string
	}{
		{[]int{1}, "[3 5 0 0 3 5 0 0 5]"},
		{[]int{1, 0}, "[4 4 1 6 5 0 3 5 7]"},
		{[]int{0, 1}, "[6 3 2 0 5 6 3 4 7]"},
	} {
		p := key.NewPlacer(c.columns, 8, 5)
		var got []dataflow.ShardID
		for i := range b.N {
			got = append(got, p.Place(b, i))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("columns %v: %v, want %s", c.columns, got, c.want)
		}
		// A row's place does not depend on those before it.
		p = key.NewPlacer(c.columns, 8, 0)
		for i := b.N - 1; i >= 0; i-- {
			if p.Place(b, i) != got[i] {
				t.Errorf("columns %v: row %d has moved", c.columns, i)
			}
		}
		if len(slices.Compact(slices.Sorted(slices.Values(got)))) < 3 {
			t.Errorf("columns %v: %v", c.columns, got)
		}
	}
}

func TestASendersRunsBeginInTheSameShardAgain(t *testing.T) {
	if got := key.FirstRun("loader"); got != key.FirstRun("loader") || got == key.FirstRun("other") {
		t.Errorf("runs begin at %d", got)
	}
}
