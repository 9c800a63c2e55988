package statequery_test

import (
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
)

func TestACutIsBehindSinceItsTriggerWhenTheRowsWereDropped(t *testing.T) {
	w := newWorld(t, 2)
	e := w.engine()
	w.add(g2("x", 1), 1)
	w.commit()
	w.pass(3 * time.Second)
	w.append(1)
	w.pass(11 * time.Second)
	w.mu.Lock()
	for k, times := range w.mu.times { // retention has dropped them all
		w.mu.times[k] = times[:0]
	}
	w.mu.Unlock()
	if _, cut, _ := n(t, e, dataflow.ReadOptions{}); cut.BehindRows != 1 || cut.BehindMillis != 14_000 {
		t.Errorf("%d rows, %d ms", cut.BehindRows, cut.BehindMillis)
	}
}
