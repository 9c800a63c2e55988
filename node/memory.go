package node

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"time"

	"github.com/weirdb/weir/dataflow/state"
)

// machineMemory returns how many bytes of memory the process may use: the machine's, or its control group's limit when that
// is less; 0 = not known, which is so off Linux.
func machineMemory() int64 {
	var total int64
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		if _, rest, ok := bytes.Cut(b, []byte("MemTotal:")); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				kib, _ := strconv.ParseInt(string(f[0]), 10, 64) // 0 when it is none
				total = kib << 10
			}
		}
	}
	if b, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if limit, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64); err == nil && (total == 0 || limit < total) { // "max" is no number
			total = limit
		}
	}
	return total
}

// tableBudget returns the budget of the live tables, nil when there is no limit.
func tableBudget(limit int64) *state.Budget {
	if limit <= 0 {
		return nil
	}
	return state.NewBudget(limit)
}

// wantMemoryEvery is how often checkpoints are asked for while tables want memory.
const wantMemoryEvery = 200 * time.Millisecond

// relieve asks for a checkpoint of every running pipeline while the tables' budget is pressed: what it commits can be
// evicted.
func (n *Node) relieve(ctx context.Context) error {
	for {
		pressed, changed := n.memory.Pressed()
		var again <-chan time.Time
		if pressed {
			for _, p := range n.storage.meta.State().PipelineList() {
				if n.worker.Live(p.UID) != nil {
					n.leader.WantRoom(p.UID)
				}
			}
			again = time.After(wantMemoryEvery)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
