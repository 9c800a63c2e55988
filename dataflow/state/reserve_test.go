package state

import (
	"fmt"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

func TestATableWithRoomReservedHoldsWhatOneWithoutHolds(t *testing.T) {
	t.Parallel()
	for _, reserved := range []int{0, 1, 1000, 100_000} {
		table := NewTable(Shape{KeyBytes: 8, ValBytes: 8}, nil)
		table.BeginFill()
		key := func(i int) []byte { return fmt.Appendf(nil, "k%d", i) }
		for i := range 20 { // before there is room, as a start does
			table.Fill([]Entry{{Key: key(i), Val: make([]byte, 8)}})
		}
		table.Reserve(reserved)
		for i := range 20_000 {
			val := make([]byte, 8)
			val[0] = byte(i)
			table.Fill([]Entry{{Key: key(i), Val: val}})
		}
		table.EndFill(true)
		if table.Len() != 20_000 {
			t.Errorf("reserved %d: %d keys", reserved, table.Len())
		}
		for i := range 20_000 {
			want := byte(i)
			if i < 20 {
				want = 0 // the first entry counts
			}
			if v, a, _ := table.Get(key(i), nil); a != Found || v[0] != want {
				t.Fatalf("reserved %d: key %d is %v, %v", reserved, i, v, a)
			}
		}
		table.Close()
	}
}

func TestRoomIsNotReservedBeyondTheBudget(t *testing.T) {
	t.Parallel()
	b := NewBudget(1 << 20)
	table := NewTable(Shape{KeyBytes: 8, ValBytes: 8}, b)
	defer table.Close()
	table.Reserve(1_000_000)
	if b.Used() > 1<<16 {
		t.Errorf("%d bytes are used", b.Used())
	}
	table.Reserve(10_000)
	if b.Used() < 10_000*17 || b.Used() > 10_000*17*8/5 {
		t.Errorf("with room for 10,000 keys %d bytes are used", b.Used())
	}
}

func TestARoomThatIsReservedIsNotLeft(t *testing.T) {
	t.Parallel()
	table := NewTable(Shape{KeyBytes: 8, ValBytes: 8}, nil)
	defer table.Close()
	table.BeginFill()
	const keys = 100_000
	table.Reserve(keys)
	before := table.Bytes()
	for i := range keys {
		table.Fill([]Entry{{Key: fmt.Appendf(nil, "k%d", i), Val: make([]byte, 8)}})
	}
	table.EndFill(true)
	if after := table.Bytes(); after != before {
		t.Errorf("%d bytes with room for %d keys, %d when they are there", before, keys, after)
	}
}

func TestStoredCountsWhatTheStoreHasOfAStage(t *testing.T) {
	t.Parallel()
	r := openTest(t, vfs.NewCrashableMem())
	defer closeTest(t, r)
	var changes []change
	for i := range 50_000 {
		changes = append(changes, change{key: fmt.Sprint("k", i), val: []byte("v")})
	}
	for i := range 8 {
		changes = append(changes, change{stage: 1, key: fmt.Sprint("k", i), val: []byte("v")})
	}
	digest := feed(t, r, id(ref(1, 1)), changes)
	if err := r.Publish(commitOf(uid, 1, ref(1, 1), digest)); err != nil {
		t.Fatal(err)
	}
	stored := func(stage dataflow.StageID) int {
		v, err := r.View(uid, dataflow.CheckpointID(1))
		if err != nil {
			t.Fatal(err)
		}
		defer v.Release()
		n, err := v.Stored(stage)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := stored(0); n != 0 {
		t.Errorf("%d entries are stored before the layers are merged", n)
	}
	if _, err := r.Merge(t.Context(), uid, 1); err != nil {
		t.Fatal(err)
	}
	// They are in one file.
	if n := stored(0); n < 45_000 || n > 51_000 {
		t.Errorf("%d entries of the stage are stored, there are 50,000", n)
	}
	if n := stored(1); n > 5000 {
		t.Errorf("%d entries of a stage with eight keys are stored", n)
	}
}
