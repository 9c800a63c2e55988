package state

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

const benchKeys = 100_000

// benchReplica returns a replica on disk with benchKeys keys, the newest eighth of them in layers, all of them merged
// when merged is set.
func benchReplica(b *testing.B, merged bool) (*Replica, *View, [][]byte) {
	b.Helper()
	cache := NewCache(0)
	r, err := OpenReplica(Config{FS: vfs.Default, Dir: b.TempDir(), Shard: testShard, Cache: cache, Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	keys := make([][]byte, benchKeys)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%08d", i)
	}
	for seq := range dataflow.DeltaSeq(8) {
		var changes []change
		for i := int(seq); i < benchKeys; i += 8 {
			changes = append(changes, change{key: string(keys[i]), val: make([]byte, 32)})
		}
		digest := feed(b, r, id(ref(1, seq+1)), changes)
		if err := r.Publish(commitOf(uid, dataflow.CheckpointID(seq+1), ref(1, seq+1), digest)); err != nil {
			b.Fatal(err)
		}
		if merged && seq == 6 {
			if _, err := r.Merge(context.Background(), uid, 7); err != nil {
				b.Fatal(err)
			}
		}
	}
	v, err := r.View(uid, 8)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		v.Release()
		closeTest(b, r)
		cache.Close()
	})
	return r, v, keys
}

func BenchmarkViewGet(b *testing.B) {
	for _, c := range []struct {
		name   string
		merged bool
	}{{"layers=8", false}, {"layers=1+store", true}} {
		b.Run(c.name, func(b *testing.B) {
			_, v, keys := benchReplica(b, c.merged)
			b.ReportAllocs()
			var buf []byte
			i := 0
			for b.Loop() {
				val, ok, err := v.Get(0, keys[i*7919%benchKeys], buf[:0])
				if !ok || err != nil {
					b.Fatal(ok, err)
				}
				buf, i = val, i+1
			}
		})
	}
}

// BenchmarkViewGetAll looks up random keys of a shard with as many layers as ten seconds of checkpoints leave, each of which has
// two fifths of the keys: as many keys at a time as a batch of a hundred has on one of eight shards.
func BenchmarkViewGetAll(b *testing.B) {
	const shards, keys, layers, together = 8, 125_000, 11, 12
	cache := NewCache(0)
	defer cache.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	key := func(i uint64) []byte { return binary.BigEndian.AppendUint64([]byte{5}, i^1<<63) }
	inOrder := make([][]byte, keys)
	for i := range inOrder {
		inOrder[i] = key(uint64(i))
	}
	slices.SortFunc(inOrder, func(a, b []byte) int {
		return cmp.Compare(rankOf(dataflow.HashKey(a)), rankOf(dataflow.HashKey(b)))
	})
	views, replicas := make([]*View, shards), make([]*Replica, shards)
	for i := range replicas {
		r, err := OpenReplica(Config{FS: vfs.Default, Dir: b.TempDir(), Shard: testShard, Cache: cache, Logger: quiet()})
		if err != nil {
			b.Fatal(err)
		}
		defer closeTest(b, r)
		replicas[i] = r
	}
	for seq := dataflow.DeltaSeq(1); seq <= layers; seq++ {
		w := NewDeltaWriter()
		for _, k := range inOrder {
			if seq == 1 || rng.IntN(5) < 2 {
				w.Add(0, k, make([]byte, 24))
			}
		}
		var chunks [][]byte
		n, digest, err := w.Finish(func(_ int, data []byte) error {
			chunks = append(chunks, data)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range replicas {
			for i, data := range chunks {
				if err := r.ApplyChunk(0, id(ref(1, seq)), i, bytes.Clone(data)); err != nil {
					b.Fatal(err)
				}
			}
			if err := r.EndDelta(0, id(ref(1, seq)), n, uint64(digest)); err != nil {
				b.Fatal(err)
			}
			if err := r.Publish(commitOf(uid, dataflow.CheckpointID(seq), ref(1, seq), uint64(digest))); err != nil {
				b.Fatal(err)
			}
		}
	}
	for i, r := range replicas {
		v, err := r.View(uid, layers)
		if err != nil {
			b.Fatal(err)
		}
		defer v.Release()
		views[i] = v
	}
	asked := make([][]byte, 1<<16)
	for i := range asked {
		asked[i] = key(rng.Uint64N(keys))
	}
	var l dataflow.Lookups
	n := 0
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		l.Begin(1 << 30)
		for range together {
			k := asked[n%len(asked)]
			l.Add(dataflow.HashKey(k), k)
			n++
		}
		if err := views[n/together%shards].GetAll(0, &l); err != nil {
			b.Fatal(err)
		}
		if len(l.Open()) != 0 {
			b.Fatal("not all are answered")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*together), "ns/key")
}

// BenchmarkViewOpen opens and releases a view of a cut that another reader holds too, over layers alone and over a store.
func BenchmarkViewOpen(b *testing.B) {
	for _, c := range []struct {
		name   string
		merged bool
	}{{"layers=8", false}, {"layers=1+store", true}} {
		b.Run(c.name, func(b *testing.B) {
			r, _, _ := benchReplica(b, c.merged)
			b.ReportAllocs()
			for b.Loop() {
				v, err := r.View(uid, 8)
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
			}
		})
	}
}

func BenchmarkViewIter(b *testing.B) {
	for _, c := range []struct {
		name   string
		merged bool
	}{{"layers=8", false}, {"layers=1+store", true}} {
		b.Run(c.name, func(b *testing.B) {
			_, v, _ := benchReplica(b, c.merged)
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				it := v.Iter(0, nil, nil)
				for it.Next() {
					n++
				}
				if err := it.Close(); err != nil || n != benchKeys {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchKeys), "ns/key")
		})
	}
}

func BenchmarkMerge(b *testing.B) {
	cache := NewCache(0)
	defer cache.Close()
	r, err := OpenReplica(Config{FS: vfs.Default, Dir: b.TempDir(), Shard: testShard, Cache: cache, Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	defer closeTest(b, r)
	var changes []change
	for i := range benchKeys {
		changes = append(changes, change{key: fmt.Sprintf("key-%08d", i), val: make([]byte, 32)})
	}
	chunks, digest := encodeDelta(b, changes)
	seq := dataflow.DeltaSeq(0)
	b.ReportAllocs()
	for b.Loop() {
		seq++
		for i, c := range chunks {
			if err := r.ApplyChunk(0, id(ref(1, seq)), i, c); err != nil {
				b.Fatal(err)
			}
		}
		if err := r.EndDelta(0, id(ref(1, seq)), len(chunks), digest); err != nil {
			b.Fatal(err)
		}
		if err := r.Publish(commitOf(uid, dataflow.CheckpointID(seq), ref(1, seq), digest)); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Merge(context.Background(), uid, dataflow.CheckpointID(seq)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchKeys), "ns/key")
}

func BenchmarkApplyDelta(b *testing.B) {
	var changes []change
	for i := range benchKeys {
		changes = append(changes, change{key: fmt.Sprintf("key-%08d", i), val: make([]byte, 32)})
	}
	chunks, digest := encodeDelta(b, changes)
	b.ReportAllocs()
	for b.Loop() {
		c := newChain(Base{}, false)
		for i, data := range chunks {
			if err := addChunk(c, ref(1, 1), i, data); err != nil {
				b.Fatal(err)
			}
		}
		if err := endDelta(c, ref(1, 1), len(chunks), digest); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchKeys), "ns/key")
}

func BenchmarkFoldLayers(b *testing.B) {
	layers := benchLayers(b, 4)
	b.ReportAllocs()
	for b.Loop() {
		if l := fold(layers); l.entries != benchKeys {
			b.Fatal(l.entries)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchKeys*len(layers)), "ns/entry")
}

func BenchmarkSortByKey(b *testing.B) {
	r := benchLayers(b, 1)[0].runs[0]
	b.ReportAllocs()
	for b.Loop() {
		if n := len(sortByKey(r)); n != benchKeys {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchKeys), "ns/entry")
}

// benchLayers returns layers that all have the same benchKeys keys, in the order of a table.
func benchLayers(b *testing.B, n int) (layers []*layer) {
	b.Helper()
	table := NewTable(Shape{KeyBytes: 16, ValBytes: 8}, nil)
	defer table.Close()
	for seq := range dataflow.DeltaSeq(n) {
		table.Lock()
		for i := range benchKeys {
			key := fmt.Appendf(nil, "key-%08d", i)
			table.Change(dataflow.HashKey(key), key).Set(make([]byte, 8))
		}
		table.Unlock()
		w := NewDeltaWriter()
		table.Gather(table.Freeze(1), benchKeys, func(key, val []byte) { w.Add(0, key, val) })
		var lb layerBuilder
		if _, _, err := w.Finish(func(_ int, chunk []byte) error { return lb.addChunk(chunk) }); err != nil {
			b.Fatal(err)
		}
		l, err := lb.finish(ref(1, seq+1), ref(1, seq+1))
		if err != nil {
			b.Fatal(err)
		}
		layers = append(layers, l)
	}
	return layers
}

// BenchmarkFillFromStore fills a table from a store whose keys lie in several levels.
func BenchmarkFillFromStore(b *testing.B) {
	const keys = 1_000_000
	cache := NewCache(0)
	defer cache.Close()
	r, err := OpenReplica(Config{FS: vfs.Default, Dir: b.TempDir(), Shard: testShard, Cache: cache, Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	defer closeTest(b, r)
	key := func(i uint64) string { return string(binary.BigEndian.AppendUint64([]byte{5}, i^1<<63)) }
	rng := rand.New(rand.NewPCG(1, 2))
	for seq := range dataflow.DeltaSeq(6) {
		var changes []change
		for i := range uint64(keys) {
			if seq == 0 || rng.IntN(10) == 0 {
				changes = append(changes, change{key: key(i), val: make([]byte, 24)})
			}
		}
		digest := feed(b, r, id(ref(1, seq+1)), changes)
		if err := r.Publish(commitOf(uid, dataflow.CheckpointID(seq+1), ref(1, seq+1), digest)); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Merge(context.Background(), uid, dataflow.CheckpointID(seq+1)); err != nil {
			b.Fatal(err)
		}
	}
	v, err := r.View(uid, 6)
	if err != nil {
		b.Fatal(err)
	}
	defer v.Release()
	b.ResetTimer()
	for b.Loop() {
		t := NewTable(Shape{KeyBytes: 9, ValBytes: 24}, NewBudget(1<<40))
		t.BeginFill()
		n, err := v.Stored(0)
		if err != nil {
			b.Fatal(err)
		}
		t.Reserve(n)
		if _, more, err := t.FillFrom(context.Background(), v, 0, 0); err != nil || more || !t.Complete() || t.Len() != keys {
			b.Fatal(t.Len(), more, err)
		}
		t.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/key")
}
