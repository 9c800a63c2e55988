package state

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

func TestEveryChangeOfADeltaComesBackOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var changes []change
		want := map[string][]byte{}
		for range rng.IntN(20_000) {
			c := change{stage: dataflow.StageID(rng.IntN(3)), key: fmt.Sprintf("%0*d", 1+rng.IntN(12), rng.IntN(5000))}
			if _, there := want[rowKey(c.stage, []byte(c.key))]; there {
				continue
			}
			if rng.IntN(10) > 0 {
				c.val = bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(100))
			}
			changes = append(changes, c)
			want[rowKey(c.stage, []byte(c.key))] = c.val
		}
		chunks, digest := encodeDelta(t, changes)
		var d dataflow.DeltaDigest
		var b layerBuilder
		for _, c := range chunks {
			if len(c) > dataflow.MaxDeltaChunkBytes {
				t.Fatalf("seed %d: a chunk of %d bytes", seed, len(c))
			}
			d = d.Add(c)
			if err := b.addChunk(c); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if uint64(d) != digest {
			t.Fatalf("seed %d: digest %x, want %x", seed, d, digest)
		}
		l, err := b.finish(dataflow.DeltaRef{}, dataflow.DeltaRef{})
		if err != nil || l.entries != len(want) {
			t.Fatalf("seed %d: %d entries, want %d: %v", seed, l.entries, len(want), err)
		}
		walked := 0
		for _, r := range l.runs {
			var before []byte
			for _, at := range r.sorted() {
				walked++
				e := r.entry(at)
				w, ok := want[rowKey(r.stage, e.key)]
				if !ok || !bytes.Equal(w, e.val) || (w == nil) != (e.val == nil) {
					t.Fatalf("seed %d: entry %d/%s = %v, want %v", seed, r.stage, e.key, e.val, w)
				}
				if v, found := l.get(r.stage, dataflow.HashKey(e.key), e.key); !found || !bytes.Equal(v, w) {
					t.Fatalf("seed %d: %d/%s is not found", seed, r.stage, e.key)
				}
				if before != nil && bytes.Compare(before, e.key) >= 0 {
					t.Fatalf("seed %d: %s comes after %s", seed, e.key, before)
				}
				before = e.key
			}
		}
		if walked != len(want) {
			t.Fatalf("seed %d: walked %d entries, want %d", seed, walked, len(want))
		}
	}
}

func TestAKeyThatComesTwiceIsRefused(t *testing.T) {
	t.Parallel()
	w := NewDeltaWriter()
	w.Add(0, []byte("a"), []byte("1"))
	w.Add(1, []byte("a"), nil)
	w.Add(0, []byte("a"), nil)
	var b layerBuilder
	if _, _, err := w.Finish(func(_ int, chunk []byte) error { return b.addChunk(chunk) }); err != nil {
		t.Fatal(err)
	}
	if _, err := b.finish(dataflow.DeltaRef{}, dataflow.DeltaRef{}); !errors.Is(err, errDelta) {
		t.Fatalf("error %v", err)
	}
}

func TestALargeValueMakesALargeChunk(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("x"), dataflow.MaxDeltaChunkBytes+1)
	chunks, _ := encodeDelta(t, []change{{0, "a", []byte("1")}, {0, "b", big}, {0, "c", []byte("3")}})
	if len(chunks) != 3 {
		t.Fatalf("%d chunks, want the large one alone", len(chunks))
	}
}

func TestADeltaOfNothingHasNoChunks(t *testing.T) {
	t.Parallel()
	if chunks, digest := encodeDelta(t, nil); len(chunks) != 0 || digest != 0 {
		t.Fatalf("%d chunks, digest %x", len(chunks), digest)
	}
}

func TestAWriterCanBeUsedAgain(t *testing.T) {
	t.Parallel()
	w := NewDeltaWriter()
	for range 2 {
		w.Add(0, []byte("k"), []byte("v"))
		if n, _, err := w.Finish(func(int, []byte) error { return nil }); n != 1 || err != nil || w.Len() != 0 {
			t.Fatalf("%d chunks, error %v, %d left", n, err, w.Len())
		}
	}
}

func TestAnErrorOfEmitEndsTheDelta(t *testing.T) {
	t.Parallel()
	w := NewDeltaWriter()
	w.Add(0, []byte("k"), []byte("v"))
	stop := errors.New("stop")
	if _, _, err := w.Finish(func(int, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
}

func TestEveryFlippedBitOfAChunkIsNoticed(t *testing.T) {
	t.Parallel()
	chunks, _ := encodeDelta(t, []change{{1, "a", []byte("1")}, {1, "b", nil}, {1, "c", []byte("3")}}) // one block
	c := chunks[0]
	for bit := range len(c) * 8 {
		c[bit/8] ^= 1 << (bit % 8)
		var b layerBuilder
		if err := b.addChunk(c); !errors.Is(err, errDelta) {
			t.Fatalf("bit %d: error %v", bit, err)
		}
		c[bit/8] ^= 1 << (bit % 8)
	}
	for n := 1; n < len(c); n++ {
		var b layerBuilder
		if err := b.addChunk(c[:n]); !errors.Is(err, errDelta) {
			t.Fatalf("%d of %d bytes: error %v", n, len(c), err)
		}
	}
}

func found(_ []byte, found bool) bool { return found }

func FuzzDecodeChunk(f *testing.F) {
	chunks, _ := encodeDelta(f, []change{{0, "a", []byte("1")}, {1, "b", nil}, {2, "c", []byte{}}})
	f.Add(chunks[0])
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0}, blockHeader))
	f.Fuzz(func(t *testing.T, data []byte) {
		var b layerBuilder
		if err := b.addChunk(bytes.Clone(data)); err != nil {
			if !errors.Is(err, errDelta) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		l, err := b.finish(dataflow.DeltaRef{}, dataflow.DeltaRef{})
		if err != nil {
			return // a key is there twice
		}
		for _, r := range l.runs {
			for _, at := range r.sorted() {
				if e := r.entry(at); !found(l.get(r.stage, dataflow.HashKey(e.key), e.key)) {
					t.Fatalf("key %x is not found", e.key)
				}
			}
		}
	})
}

// FuzzDecodeEntry goes below the checksum, which a fuzzer does not guess.
func FuzzDecodeEntry(f *testing.F) {
	f.Add([]byte("\x01k\x02v"))
	f.Add([]byte("\x01k\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeEntry(data)
		if err == nil && (e.size > len(data) || len(e.key)+len(e.val)+2 > e.size) {
			t.Fatalf("an entry of %d bytes in %d", e.size, len(data))
		}
	})
}

func FuzzDecodeBase(f *testing.F) {
	f.Add(Base{Checkpoint: 7, Timeline: 1, MetaIndex: 9, Ref: dataflow.DeltaRef{Incarnation: 2, Seq: 5}, Digest: 1}.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeBase(data)
		if err == nil && !bytes.Equal(b.encode(), data) {
			t.Fatalf("%+v does not encode to what it was decoded from", b)
		}
	})
}

func BenchmarkDeltaWriter(b *testing.B) {
	const n = 100_000
	rng := rand.New(rand.NewPCG(1, 1))
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%08d-%d", rng.IntN(1e8), i)
	}
	val := make([]byte, 24)
	w := NewDeltaWriter()
	b.ReportAllocs()
	for b.Loop() {
		for _, k := range keys {
			w.Add(1, k, val)
		}
		if _, _, err := w.Finish(func(int, []byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
}
