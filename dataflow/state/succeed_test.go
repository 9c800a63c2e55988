package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// TestASuccessorHasWhatTheCutHas lets tables follow each other, whose keys change and go between cuts that are committed or not,
// and compares each successor with the cut that it begins from.
func TestASuccessorHasWhatTheCutHas(t *testing.T) {
	t.Parallel()
	for i, shape := range tableShapes {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("shape=%d/seed=%d", i, seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, 9))
				budget := NewBudget(1 << 40)
				table := NewTable(shape, budget)
				cut := map[string]string{} // at base
				var base, id dataflow.CheckpointID
				key := func() string { return strings.Repeat("k", 1+rng.IntN(60)) + fmt.Sprint(rng.IntN(40)) }
				value := func() string {
					n := shape.ValBytes
					if n == 0 {
						n = 1 + rng.IntN(40)
					}
					return strings.Repeat(string(rune('a'+rng.IntN(26))), n)
				}
				kept, asked := 0, 0
				for range 30 {
					now := maps.Clone(cut)
					untold := dataflow.CheckpointID(0)
					for range 1 + rng.IntN(6) { // attempts, the last of which is not frozen
						for range rng.IntN(400) {
							k := key()
							h := dataflow.HashKey([]byte(k))
							if _, a, _ := table.Get([]byte(k), nil); a == InBase {
								if err := table.Resolved(h, []byte(k), []byte(cut[k])); err != nil {
									t.Fatal(err)
								}
							}
							table.Lock()
							s := table.Change(h, []byte(k))
							if rng.IntN(4) == 0 {
								s.Set(nil)
								delete(now, k)
							} else {
								now[k] = value()
								s.Set([]byte(now[k]))
							}
							table.Unlock()
						}
						if rng.IntN(3) == 0 {
							continue
						}
						id++
						f := table.Freeze(id)
						if rng.IntN(3) == 0 {
							break // before all of it is gathered
						}
						for !table.Gather(f, 100, func(_, _ []byte) {}) {
						}
						if rng.IntN(2) == 0 {
							base, cut, untold = id, maps.Clone(now), id
							if rng.IntN(2) == 0 {
								table.Committed(id)
								untold = 0
							}
						}
					}
					if untold != 0 && table.Succeed(base, false) != nil {
						t.Fatal("a table has a cut that its incarnation has not committed and that it was not told of")
					}
					if table.Succeed(base+1000, false) != nil || base > 0 && table.Base() == base && table.Succeed(base-1, true) != nil {
						t.Fatal("a table has another cut than its own")
					}
					next := table.Succeed(base, true)
					if base == 0 {
						if next != nil {
							t.Fatal("a table has a cut that is none")
						}
						table.Close()
						table = NewTable(shape, budget)
						continue
					}
					if _, a, _ := table.Get([]byte("k"), nil); a != Closed {
						t.Fatal("the table is still open")
					}
					table.Close()
					table = next
					if !table.Filled() {
						t.Fatal("a table that was whole is to be filled")
					}
					for n := range 60 {
						for m := range 40 {
							k := strings.Repeat("k", 1+n) + fmt.Sprint(m)
							want, is := cut[k]
							switch val, a, at := table.Get([]byte(k), nil); {
							case a == InBase && at == base:
								asked++
							case a != Found && a != Absent || (a == Found) != is || string(val) != want:
								t.Fatalf("%q is %.20q, %v; cut %d has %.20q", k, val, a, base, want)
							default:
								kept++
							}
						}
					}
					if table.mu.changed != 0 || table.Freeze(0).Len() != 0 {
						t.Fatal("a successor has changes")
					}
				}
				if kept == 0 || asked == 0 {
					t.Fatalf("%d keys were kept, %d are to be looked up", kept, asked)
				}
				if table.Close(); budget.Used() != 0 {
					t.Fatalf("closed tables take %d bytes", budget.Used())
				}
			})
		}
	}
}
