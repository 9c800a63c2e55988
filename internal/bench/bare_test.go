package bench

import (
	"testing"
	"time"
)

func TestBareLoopsCountEveryRow(t *testing.T) {
	for _, k := range []keyKind{{keys: 1000, text: true}, {keys: 1000}, {keys: 5000, text: true, zipf: true}} {
		m := newKeyMaker(k)
		rings, _ := newRings(m, 2)
		b, err := newBare(k, rings, m.distinct())
		if err != nil {
			t.Fatal(err)
		}
		if rate := b.run(time.Millisecond); rate <= 0 {
			t.Errorf("%s: %f rows per second", k, rate)
		}
		b.loops[0].rows++
		if err := b.check(m.distinct()); !Void(err) {
			t.Errorf("%s: a row that was not counted is not missed: %v", k, err)
		}
	}
}

func TestBareLoopsThatAreRightPassTheirCheck(t *testing.T) {
	k := keyKind{keys: 900_000} // so many that most come once
	m := newKeyMaker(k)
	rings, _ := newRings(m, 2)
	b, err := newBare(k, rings, m.distinct())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.check(m.distinct()); err != nil {
		t.Error(err)
	}
}
