package bench

import (
	"testing"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/node/nodetest"
)

// counted adds batches up by brute force.
type counted map[uint64]uint64

func (c counted) truth() truth {
	var t truth
	for k, n := range c {
		t.rows, t.sum, t.keys = t.rows+n, t.sum+k*n, t.keys+1
	}
	return t
}

func TestRingsKnowWhatTheyHandOut(t *testing.T) {
	for _, k := range []keyKind{{keys: 300, text: true}, {keys: 300}, {keys: 5000, zipf: true}} {
		m := newKeyMaker(k)
		rings, gate := newRings(m, 2)
		distinct := m.distinct()
		gate.set(gateOpen)
		seen := make(counted)
		for i, r := range rings {
			for n := range len(r.batches) + 3 + i { // once round, and some more
				got, err := r.Read(1, dataflow.Offset(n*ringBatch), ringBatch)
				if err != nil || len(got) != 1 || got[0].First != dataflow.Offset(n*ringBatch) {
					t.Fatalf("%s: read %d: %v, %v", k, n, got, err)
				}
				b, err := batch.Decode(k.schema(), got[0].Data)
				if err != nil {
					t.Fatal(err)
				}
				for row := range b.N {
					key := uint64(0)
					if k.text {
						for _, c := range b.Cols[0].Text(row)[1:] {
							key = key*10 + uint64(c-'0')
						}
					} else {
						key = uint64(b.Cols[0].Ints[row])
					}
					seen[key]++
				}
			}
		}
		if got, want := total(rings, distinct), seen.truth(); got != want {
			t.Errorf("%s: the rings say %+v, they handed out %+v", k, got, want)
		}
		gate.set(gateShut)
		if got, err := rings[0].Read(1, 0, ringBatch); err != nil || len(got) != 0 {
			t.Errorf("%s: a shut ring hands out %v, %v", k, got, err)
		}
		if end := rings[0].End(1); end != dataflow.Offset(rings[0].handed.Load()) {
			t.Errorf("%s: a shut ring ends at %d and has handed out %d", k, end, rings[0].handed.Load())
		}
	}
}

func TestALoadKnowsWhatItMade(t *testing.T) {
	l := newLoad(700)
	seen := make(counted)
	for range 3 {
		b := l.next(500, time.UnixMicro(17))
		if err := b.CheckRows(); err != nil {
			t.Fatal(err)
		}
		for row := range b.N {
			seen[uint64(b.Cols[0].Ints[row])]++
			if n := b.RowBytes(row); n != rowBytes {
				t.Fatalf("a row has %d bytes", n)
			}
			if at := b.Cols[1].Ints[row]; at != 17 {
				t.Fatalf("a row is due at %d", at)
			}
		}
	}
	if want := seen.truth(); l.truth != want {
		t.Errorf("the load says %+v, it made %+v", l.truth, want)
	}
}

func TestAWrongTableIsVoid(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("bench", "SET checkpoint.interval = 'off';"+loadSQL)
	c, err := weir.Dial(n.GRPCAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := newLoad(10)
	if _, err := c.Append(t.Context(), weir.Append{Stream: "events", Rows: l.next(25, time.Now())}); err != nil {
		t.Fatal(err)
	}
	n.Checkpoint("bench")
	if err := l.check(t.Context(), c, loadCheck, ""); err != nil {
		t.Error(err)
	}
	for _, wrong := range []truth{
		{rows: l.rows + 1, sum: l.sum, keys: l.truth.keys},
		{rows: l.rows, sum: l.sum - 1, keys: l.truth.keys},
		{rows: l.rows, sum: l.sum, keys: l.truth.keys + 1},
	} {
		if err := wrong.check(t.Context(), c, loadCheck, ""); !Void(err) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func TestRingsOfAdsKnowWhatIsCounted(t *testing.T) {
	m := &adMaker{campaigns: 50, seen: make(map[[2]uint64]struct{})}
	rings, gate := newRings(m, 2)
	gate.set(gateOpen)
	var want truth
	keys := make(map[[2]uint64]bool)
	for _, r := range rings {
		for n := range len(r.batches) + 5 {
			got, err := r.Read(1, dataflow.Offset(n*ringBatch), ringBatch)
			if err != nil {
				t.Fatal(err)
			}
			b, err := batch.Decode(m.schema(), got[0].Data)
			if err != nil {
				t.Fatal(err)
			}
			for row := range b.N {
				if string(b.Cols[4].Text(row)) != "view" {
					continue
				}
				campaign := uint64(b.Cols[2].Ints[row]) / adsPerCampaign
				want.rows++
				want.sum += campaign
				keys[[2]uint64{campaign, uint64(b.Cols[5].Ints[row] / ysbWindow.Microseconds())}] = true
			}
		}
	}
	want.keys = uint64(len(keys))
	if got := total(rings, m.distinct()); got != want {
		t.Errorf("the rings say %+v, they handed out %+v", got, want)
	}
}
