package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// TestALayerOfOneShardsKeysIsShortToSearch is about hashes that share the bits that chose the shard: ranks made of those bits
// would put all keys into an eighth of the buckets.
func TestALayerOfOneShardsKeysIsShortToSearch(t *testing.T) {
	t.Parallel()
	const shards = 8
	var hashes []uint64
	for i := uint64(0); len(hashes) < 20_000; i++ {
		key := binary.BigEndian.AppendUint64(nil, i)
		if dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(key)), shards) == 3 {
			hashes = append(hashes, dataflow.HashKey(key))
		}
	}
	for _, n := range []int{0, 1, 2, 3, 5, 10, 1000, len(hashes)} {
		var l notes
		for i, h := range hashes[:n] {
			l.add(newItem(rankOf(h), uint32(i)))
		}
		o := newOrder(&l)
		if !slices.IsSorted(o.items) || len(o.items) != n {
			t.Fatalf("%d keys: %d items, not in order", n, len(o.items))
		}
		steps := 0
		for i, h := range hashes[:n] {
			from, to := o.bucket(rankOf(h))
			if !slices.Contains(o.items[from:to], newItem(rankOf(h), uint32(i))) {
				t.Fatalf("%d keys: key %d is not found", n, i)
			}
			steps += to - from
		}
		if steps > 2*bucketKeys*n {
			t.Errorf("%d keys: a look-up looks at %.1f items", n, float64(steps)/float64(n))
		}
	}
}

func TestKeysWithOneRankAreToldApart(t *testing.T) {
	t.Parallel()
	var l layerBuilder
	rb := l.run(0)
	for i := range 100 {
		l.left = 1 << 10
		l.add(rb, 7, appendEntry(nil, fmt.Append(nil, "k", i), fmt.Append(nil, "v", i)))
	}
	r, err := rb.finish(l.segs)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	mergeRuns([]*run{r, r}, func(rank uint32, raw []byte, e rawEntry) bool {
		if rank != 7 || string(e.val) != "v"+string(e.key[1:]) || len(raw) != e.size {
			t.Errorf("%d %v %d", rank, e, len(raw))
		}
		n++
		return true
	})
	if n != 100 {
		t.Errorf("%d keys of 100 come out of a merge", n)
	}
}

func TestKeysAreSortedWhateverTheyHaveInCommon(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for name, key := range map[string]func(i int) []byte{
		"numbers as text": func(i int) []byte { return fmt.Appendf(nil, "\x05k%011d\x00", i*7919%5000) },
		"numbers":         func(i int) []byte { return binary.BigEndian.AppendUint64([]byte{3}, uint64(i*i)^1<<63) },
		"random":          func(i int) []byte { return binary.BigEndian.AppendUint64(nil, random.Uint64()) },
		"long in common":  func(i int) []byte { return fmt.Appendf(nil, "a%020d%d", i%3, i) },
		"of all lengths":  func(i int) []byte { return bytes.Repeat([]byte{byte(i % 5)}, i/5) },
		"one":             func(i int) []byte { return []byte("k")[:min(1, 1/(i+1))] },
	} {
		w, want := NewDeltaWriter(), map[string]struct{}{}
		for i := range 2000 {
			k := key(i)
			if _, there := want[string(k)]; !there {
				want[string(k)] = struct{}{}
				w.Add(0, k, nil)
			}
		}
		var b layerBuilder
		if _, _, err := w.Finish(func(_ int, chunk []byte) error { return b.addChunk(chunk) }); err != nil {
			t.Fatal(err)
		}
		l, err := b.finish(ref(1, 1), ref(1, 1))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got [][]byte
		for _, at := range l.runs[0].sorted() {
			got = append(got, l.runs[0].entry(at).key)
		}
		if !slices.IsSortedFunc(got, bytes.Compare) || len(got) != len(want) {
			t.Errorf("%s: %d keys of %d, not in order", name, len(got), len(want))
		}
	}
}

// Layers are asked in groups: a key may be in any of them, in several, deleted, or in none.
func TestALookUpFindsTheNewestOfManyLayers(t *testing.T) {
	t.Parallel()
	const layers, keys = 2*probeRuns + 1, 300
	v := new(View)
	want := map[int]string{}
	for n := range layers {
		var b layerBuilder
		b.left = 1 << 20
		rb := b.run(0)
		for k := range keys {
			if k%(n+2) != 0 { // of key 0 there is something everywhere
				continue
			}
			key, val := fmt.Append(nil, "key ", k), fmt.Append(nil, "layer ", n)
			if want[k] = string(val); (k+n)%5 == 0 {
				val, want[k] = nil, ""
			}
			b.add(rb, rankOf(dataflow.HashKey(key)), appendEntry(nil, key, val))
		}
		l, err := b.finish(dataflow.DeltaRef{}, dataflow.DeltaRef{})
		if err != nil {
			t.Fatal(err)
		}
		v.layers = slices.Insert(v.layers, 0, l)
	}
	for _, together := range []int{1, 7, lookupStep, keys + 10} {
		for from := 0; from < keys+10; from += together {
			var l dataflow.Lookups
			l.Begin(1 << 20)
			for k := from; k < min(from+together, keys+10); k++ {
				key := fmt.Append(nil, "key ", k)
				l.Add(dataflow.HashKey(key), key)
			}
			if err := v.GetAll(0, &l); err != nil || len(l.Open()) > 0 {
				t.Fatalf("%d are open, %v", len(l.Open()), err)
			}
			for i := range l.Len() {
				val, found := l.Value(int32(i))
				if want := want[from+i]; string(val) != want || found != (want != "") {
					t.Errorf("%d together: key %d is %q, %v, want %q", together, from+i, val, found, want)
				}
			}
		}
	}
	var l dataflow.Lookups
	l.Begin(20) // two values
	for k := range 100 {
		key := fmt.Append(nil, "key ", k)
		l.Add(dataflow.HashKey(key), key)
	}
	if err := v.GetAll(0, &l); err != nil || !l.Full() {
		t.Errorf("without room for the values: full is %v, %v", l.Full(), err)
	}
}
