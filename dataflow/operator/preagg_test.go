package operator_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
)

// drawKeyValue draws a value of a key column, among those that are hard to tell apart: equal ones of different forms,
// texts of all lengths that share their ends, and zero bytes.
func drawKeyValue(r *rand.Rand, t dataflow.Type) dataflow.Value {
	switch t {
	case dataflow.TypeBool:
		return dataflow.Bool(r.IntN(2) == 0)
	case dataflow.TypeDouble:
		return dataflow.Double([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), 1, -1}[r.IntN(6)])
	case dataflow.TypeNumeric:
		return dataflow.Numeric(apd.New([]int64{1, 10, 100, -7}[r.IntN(4)], -r.Int32N(3)))
	case dataflow.TypeInterval:
		return dataflow.Value{Type: t, Ivl: dataflow.Interval{Months: r.Int32N(2), Days: 30 * r.Int32N(2), Micros: r.Int64N(2)}}
	case dataflow.TypeText, dataflow.TypeBytea:
		s := strings.Repeat("a", r.IntN(4)) + strings.Repeat("x", r.IntN(20)) + strings.Repeat("z", 8*r.IntN(2))
		if r.IntN(3) == 0 && s != "" {
			at := r.IntN(len(s))
			s = s[:at] + []string{"\x00", "y", ""}[r.IntN(3)] + s[at+1:]
		}
		return dataflow.Value{Type: t, Str: s}
	}
	return dataflow.Value{Type: t, Int: []int64{0, 1, -1, math.MaxInt64, math.MinInt64, r.Int64N(100), r.Int64N(100) << 40}[r.IntN(7)]}
}

// keyTypes are the types that a key column can have.
var keyTypes = []dataflow.Type{dataflow.TypeBool, bigint, dataflow.TypeDouble, text, dataflow.TypeTimestamp, numeric, dataflow.TypeBytea, dataflow.TypeDate, dataflow.TypeInterval}

// keyedRows returns rows of the given key columns and of a number, a DOUBLE PRECISION and a text for aggregates.
func keyedRows(r *rand.Rand, types []dataflow.Type, n int) *batch.Batch {
	var schema dataflow.Schema
	for i, t := range append(types[:len(types):len(types)], bigint, dataflow.TypeDouble, text) {
		schema = append(schema, dataflow.Column{Name: fmt.Sprint("c", i), Type: t})
	}
	nulls := make([]bool, len(schema))
	for i := range nulls {
		nulls[i] = r.IntN(3) == 0
	}
	weighted := r.IntN(2) == 0
	b := batch.NewBatch(schema)
	for range n {
		row := make(dataflow.Row, len(schema))
		for i, c := range schema {
			if row[i] = drawKeyValue(r, c.Type); nulls[i] && r.IntN(4) == 0 {
				row[i] = dataflow.NullValue(c.Type)
			}
		}
		b.AppendRow(row)
		if weighted {
			b.Weights = append(b.Weights, []int8{1, 1, -1}[r.IntN(3)])
		}
	}
	return b
}

// combined is what Combine returns.
type combined struct {
	hashes     []uint64
	keys, accs [][]byte
}

// combinePlainly is Combine in the fewest words.
func combinePlainly(st *plan.Stage, b *batch.Batch) (out combined, rowHashes []uint64, err error) {
	l := agg.NewLayout(st.Aggs)
	numbers := map[string]int{}
	for row := range b.N {
		var k []byte
		for c := range st.Key {
			k = key.AppendVector(k, b.Cols[c], row)
		}
		h := dataflow.HashKey(k)
		rowHashes = append(rowHashes, h)
		if err != nil {
			continue
		}
		n, found := numbers[string(k)]
		if !found {
			n = len(out.keys)
			numbers[string(k)] = n
			out.hashes, out.keys, out.accs = append(out.hashes, h), append(out.keys, k), append(out.accs, l.New(nil))
		}
		out.accs[n], err = l.Update(out.accs[n], b, row, b.Weight(row))
	}
	return out, rowHashes, err
}

// TestCombineIsAFoldRowByRow: hashes, keys, accumulators, their order and the error are those of the plain way, for keys of any
// columns, by a PreAgg that has combined other batches before.
func TestCombineIsAFoldRowByRow(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for round := range 300 {
		types := make([]dataflow.Type, r.IntN(4))
		for i := range types {
			types[i] = keyTypes[r.IntN(len(keyTypes))]
		}
		at := len(types) // of the first argument
		aggs := []agg.Spec{{Fn: agg.CountStar, Arg: -1, Out: bigint}}
		for _, s := range []agg.Spec{
			{Fn: agg.Count, Arg: at + 2, ArgType: text, Out: bigint},
			{Fn: agg.Sum, Arg: at, ArgType: bigint, Out: numeric},
			{Fn: agg.Avg, Arg: at + 1, ArgType: dataflow.TypeDouble, Out: dataflow.TypeDouble},
			{Fn: agg.Max, Arg: at, ArgType: bigint, Out: bigint},
			{Fn: agg.Min, Arg: at + 1, ArgType: dataflow.TypeDouble, Out: dataflow.TypeDouble},
			{Fn: agg.BitXor, Arg: at, ArgType: bigint, Out: bigint},
			{Fn: agg.Max, Arg: at + 2, ArgType: text, Out: text},
		} {
			if r.IntN(3) == 0 {
				aggs = append(aggs, s)
			}
		}
		st := &plan.Stage{Aggs: aggs}
		for _, typ := range types {
			st.Key = append(st.Key, dataflow.Column{Name: "k", Type: typ})
		}
		p := operator.NewPreAgg(st)
		for range 3 {
			b := keyedRows(r, types, []int{0, 1, 5, 100, 1000}[r.IntN(5)])
			if r.IntN(3) == 0 && b.N > 0 {
				b = b.Slice(1, b.N)
			}
			want, rowHashes, failed := combinePlainly(st, b)
			hashes, _ := operator.HashKeys(nil, nil, b, len(types))
			if fmt.Sprint(hashes) != fmt.Sprint(rowHashes) {
				t.Fatalf("seed %d, round %d: the hashes of keys %v differ from those row by row", seed, round, types)
			}
			if r.IntN(2) == 0 {
				hashes = nil
			}
			var got combined
			var err error
			got.hashes, got.keys, got.accs, err = p.Combine(b, hashes)
			if fmt.Sprint(err) != fmt.Sprint(failed) {
				t.Fatalf("seed %d, round %d: error %v, want %v", seed, round, err, failed)
			}
			if err != nil {
				continue
			}
			if len(got.keys) != len(want.keys) || len(got.accs) != len(want.accs) || len(got.hashes) != len(want.hashes) {
				t.Fatalf("seed %d, round %d: %d keys, %d accumulators, %d hashes for %d keys %v", seed, round, len(got.keys), len(got.accs), len(got.hashes), len(want.keys), types)
			}
			for i := range want.keys {
				if !bytes.Equal(got.keys[i], want.keys[i]) || got.hashes[i] != want.hashes[i] || !bytes.Equal(got.accs[i], want.accs[i]) {
					t.Fatalf("seed %d, round %d, entry %d of keys %v:\n%x %x %x, want\n%x %x %x", seed, round, i, types,
						got.hashes[i], got.keys[i], got.accs[i], want.hashes[i], want.keys[i], want.accs[i])
				}
			}
		}
	}
}
