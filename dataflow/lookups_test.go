package dataflow_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

func begin(room int64, n int) *dataflow.Lookups {
	l := new(dataflow.Lookups)
	l.Begin(room)
	for i := range n {
		key := fmt.Appendf(nil, "key %d", i)
		l.Add(dataflow.HashKey(key), key)
	}
	return l
}

func TestEachPlaceIsAskedForWhatTheOnesBeforeHaveNotAnswered(t *testing.T) {
	l := begin(100, 5)
	l.Found(1, []byte("one"))
	l.Absent(3)
	if open := l.Open(); !slices.Equal(open, []int32{0, 2, 4}) {
		t.Fatalf("%v are open", open)
	}
	l.Found(4, nil) // there, and empty
	if open := l.Open(); !slices.Equal(open, []int32{0, 2}) {
		t.Fatalf("%v are open", open)
	}
	for i, want := range []string{"", "one", "", "", ""} {
		if val, found := l.Value(int32(i)); string(val) != want || found != (i == 1 || i == 4) {
			t.Errorf("key %d: %q, %v", i, val, found)
		}
	}
	if l.Room() != 97 {
		t.Errorf("room for %d bytes is left", l.Room())
	}
}

func TestValuesAreCopiesThatOutliveTheBatch(t *testing.T) {
	l := begin(1<<20, 0)
	var kept [][]byte
	for round := range 10 {
		l.Begin(l.Room())
		for i := range 300 {
			l.Add(uint64(i), nil)
			val := bytes.Repeat([]byte{byte(round)}, 1+i)
			l.Found(int32(i), val)
			clear(val)
			got, _ := l.Value(int32(i))
			kept = append(kept, got)
		}
	}
	for n, val := range kept {
		if want := bytes.Repeat([]byte{byte(n / 300)}, 1+n%300); !bytes.Equal(val, want) {
			t.Fatalf("value %d is %v", n, val)
		}
		kept[n] = append(val, 0xff) // writes over nothing
	}
}

func TestALookUpEndsWhereItsValuesHaveNoRoom(t *testing.T) {
	l := begin(10, 3)
	if !l.Found(0, make([]byte, 10)) || l.Full() {
		t.Fatal("there was room for 10 bytes")
	}
	if l.Found(1, make([]byte, 1)) || !l.Full() || len(l.Open()) > 0 || l.Room() != 0 {
		t.Errorf("full %v, open %v, room %d", l.Full(), l.Open(), l.Room())
	}
}

func TestMemoryOfValuesIsUsedAgainWhenNobodyNeedsThem(t *testing.T) {
	l := begin(100, 1)
	l.Found(0, []byte("first"))
	first, _ := l.Value(0)
	l.Reuse()
	if l.Len() != 0 || len(l.Open()) != 0 {
		t.Fatalf("%d keys are left", l.Len())
	}
	l.Begin(100)
	l.Add(1, []byte("other"))
	l.Found(0, []byte("other"))
	if string(first) != "other" {
		t.Errorf("the new value lies elsewhere: the old one is %q", first)
	}
	if val, found := l.Value(0); string(val) != "other" || !found || l.Room() != 95 {
		t.Errorf("%q, %v, room for %d", val, found, l.Room())
	}
}
