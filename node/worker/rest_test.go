package worker_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/node/worker"
)

// logged is what a worker has logged.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// count returns how often a text was logged.
func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func TestAnIncarnationTakesTheTablesOfTheOneBefore(t *testing.T) {
	var log logged
	memory := state.NewBudget(1 << 30)
	h := open(t, func(c *worker.Config) { c.Memory, c.Logger = memory, slog.New(slog.NewTextHandler(&log, nil)) })
	p := h.deploy("p")
	h.must(h.start(p))
	processed := func() {
		t.Helper()
		_, err := h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
		h.must(err)
	}
	want := map[string]int64{}
	feed := func(words ...string) {
		for i, w := range words {
			want[w]++
			h.append(dataflow.ShardID(i%shards), w)
		}
	}
	check := func() {
		t.Helper()
		processed()
		for w, n := range want {
			if got := h.live(p, w); got != n {
				t.Errorf("incarnation %d: %q was counted %d times, not %d", p.Incarnation, w, got, n)
			}
		}
	}
	kept := 0
	for round := range 4 {
		for i := range 20 {
			feed("whale", fmt.Sprint("sea", i), fmt.Sprint("new", round, i))
		}
		check()
		if round != 1 { // its incarnation commits nothing
			h.checkpoint(p, dataflow.CheckpointID(round+1))
		}
		feed("whale", fmt.Sprint("sea", round), "late") // in no cut
		check()
		n := log.count("kept_tables=2")
		p = h.begin(p)
		if round%2 == 0 {
			h.worker.Stop(p.UID, p.Incarnation-1)
		}
		h.must(h.start(p))
		kept += log.count("kept_tables=2") - n
		check()
	}
	if kept != 4 {
		t.Errorf("%d of 4 incarnations took the tables of the one before", kept)
	}
	h.worker.StopAll()
	if memory.Used() != 0 {
		t.Errorf("%d bytes are in use when all has ended", memory.Used())
	}
}

func TestTablesDoNotWaitForAPipelineThatIsNotToRun(t *testing.T) {
	memory := state.NewBudget(1 << 30)
	h := open(t, func(c *worker.Config) { c.Memory = memory })
	p := h.deploy("p")
	h.must(h.start(p))
	h.append(0, "whale")
	_, err := h.worker.Live(p.UID).Processed(t.Context(), h.worker.Ends(p.Reads))
	h.must(err)
	h.checkpoint(p, 1)
	h.worker.Stop(p.UID, p.Incarnation)
	if memory.Used() == 0 {
		t.Error("the tables do not wait for the next incarnation")
	}
	_, err = h.meta.DeletePipeline(t.Context(), "p")
	h.must(err)
	h.eventually("the tables of a deleted pipeline are closed", func() bool { return memory.Used() == 0 })
}
