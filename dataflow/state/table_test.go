package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// TestFreezesGiveTheStateAtTheirMoment drives a table at random, with several freezes outstanding, and checks that the
// gathered deltas, laid over each other in order, give the state at each freeze.
func TestFreezesGiveTheStateAtTheirMoment(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			table := NewTable()
			now := map[string]string{}       // the model of the table
			committed := map[string]string{} // the deltas gathered so far
			type outstanding struct {
				f     *Frozen
				delta map[string]*string
				want  map[string]string
			}
			var sets []*outstanding
			for i := range 10 {
				k := fmt.Sprint("k", i)
				table.Load([]byte(k), []byte("loaded"))
				now[k], committed[k] = "loaded", "loaded"
			}
			gather := func(max int) {
				if len(sets) == 0 {
					return
				}
				o := sets[0]
				done := table.Gather(o.f, max, func(key, val []byte) {
					if _, twice := o.delta[string(key)]; twice {
						t.Fatalf("key %s gathered twice", key)
					}
					o.delta[string(key)] = nil
					if val != nil {
						v := string(val)
						o.delta[string(key)] = &v
					}
				})
				if !done {
					return
				}
				for k, v := range o.delta {
					if v == nil {
						delete(committed, k)
					} else {
						committed[k] = *v
					}
				}
				if !maps.Equal(committed, o.want) {
					t.Fatalf("after gathering: %v, at the freeze it was %v", committed, o.want)
				}
				sets = sets[1:]
			}
			for range 3000 {
				key := fmt.Sprint("k", rng.IntN(30))
				switch op := rng.IntN(100); {
				case op < 60:
					table.Lock()
					s := table.Slot(dataflow.HashKey([]byte(key)), []byte(key))
					table.Touch(s)
					if rng.IntN(2) == 0 && len(s.Val) > 0 { // in place
						s.Val[0] = byte('a' + rng.IntN(26))
					} else {
						s.Val = []byte(fmt.Sprint("v", rng.IntN(1000)))
					}
					now[key] = string(s.Val)
					table.Unlock()
				case op < 80:
					table.Lock()
					if s := table.Find(dataflow.HashKey([]byte(key)), []byte(key)); s != nil {
						table.Touch(s)
						s.Val = nil
					}
					delete(now, key)
					table.Unlock()
				case op < 84:
					if len(sets) < 4 {
						sets = append(sets, &outstanding{f: table.Freeze(), delta: map[string]*string{}, want: maps.Clone(now)})
					}
				case op < 94:
					gather(1 + rng.IntN(4))
				default:
					val, ok := table.Get([]byte(key), nil)
					if want, there := now[key]; ok != there || string(val) != want {
						t.Fatalf("get %s = %q, %v, want %q", key, val, ok, want)
					}
					checkScan(t, table, now, rng)
				}
			}
			sets = append(sets, &outstanding{f: table.Freeze(), delta: map[string]*string{}, want: maps.Clone(now)})
			for len(sets) > 0 {
				gather(7)
			}
			if got, want := table.Len(), len(now); got != want {
				t.Fatalf("%d keys in memory after everything was gathered, want %d: deleted keys are not forgotten", got, want)
			}
			for k := range now {
				table.Lock()
				s := table.Find(dataflow.HashKey([]byte(k)), []byte(k))
				table.Touch(s)
				s.Val = nil
				table.Unlock()
			}
			for f := table.Freeze(); !table.Gather(f, 100, func(_, _ []byte) {}); {
			}
			if table.Len() != 0 || table.Bytes() != 0 {
				t.Fatalf("an emptied table has %d keys and %d bytes", table.Len(), table.Bytes())
			}
		})
	}
}

func checkScan(t *testing.T, table *Table, now map[string]string, rng *rand.Rand) {
	t.Helper()
	from, to, limit := []byte(fmt.Sprint("k", rng.IntN(30))), []byte(fmt.Sprint("k", rng.IntN(30))), rng.IntN(8)
	if rng.IntN(4) == 0 {
		to = nil
	}
	var want []string
	for _, k := range slices.Sorted(maps.Keys(now)) {
		if k >= string(from) && (to == nil || k < string(to)) && (limit == 0 || len(want) < limit) {
			want = append(want, k+"="+now[k])
		}
	}
	var got []string
	for _, e := range table.Scan(from, to, limit) {
		got = append(got, string(e.Key)+"="+string(e.Val))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("scan %s…%s limit %d = %v, want %v", from, to, limit, got, want)
	}
}

func TestFreezeOfAnUnchangedTableIsEmpty(t *testing.T) {
	table := NewTable()
	table.Load([]byte("k"), []byte("v"))
	f := table.Freeze()
	if f.Len() != 0 || !table.Gather(f, 1, func(key, _ []byte) { t.Fatalf("gathered %s", key) }) {
		t.Fatal("a loaded key counts as changed")
	}
}

func TestAnEmptyValueIsNotADeletedOne(t *testing.T) {
	table := NewTable()
	table.Lock()
	s := table.Slot(dataflow.HashKey([]byte("k")), []byte("k"))
	table.Touch(s)
	s.Val = []byte{}
	table.Unlock()
	f := table.Freeze()
	table.Lock()
	table.Touch(s)
	s.Val = nil
	table.Unlock()
	table.Gather(f, 10, func(_, val []byte) {
		if val == nil {
			t.Fatal("the empty value was gathered as a tombstone")
		}
	})
}

// TestReadersRunBesideTheWriter is for the race detector.
func TestReadersRunBesideTheWriter(t *testing.T) {
	table := NewTable()
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					table.Get([]byte("k1"), nil)
					table.Scan(nil, nil, 5)
					table.Bytes()
				}
			}
		})
	}
	for i := range 300 {
		table.Lock()
		for j := range 20 {
			key := fmt.Appendf(nil, "k%d", j)
			s := table.Slot(dataflow.HashKey(key), key)
			table.Touch(s)
			s.Val = fmt.Appendf(s.Val[:0], "%d", i)
		}
		table.Unlock()
		if i%10 == 0 {
			for f := table.Freeze(); !table.Gather(f, 3, func(_, _ []byte) {}); {
			}
		}
	}
	close(stop)
	readers.Wait()
}

func BenchmarkTableUpdate(b *testing.B) {
	table := NewTable()
	const n = 100_000
	keys := make([][]byte, n)
	hashes := make([]uint64, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%06d", i)
		hashes[i] = dataflow.HashKey(keys[i])
		table.Load(keys[i], make([]byte, 24))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i%4096 == 0 {
			table.Lock()
		}
		s := table.Slot(hashes[i%n], keys[i%n])
		table.Touch(s)
		s.Val[0]++
		if i++; i%4096 == 0 {
			table.Unlock()
		}
	}
}
