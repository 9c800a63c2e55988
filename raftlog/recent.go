package raftlog

import (
	"sync"

	"github.com/hashicorp/raft"
)

// recentBytes bounds the entries that a leader keeps in memory: what its followers have not been sent yet, unless they lag. Not
// larger, because every group of a node that leads may have as much.
const recentBytes = 4 << 20

// recent holds the newest entries that a leader has stored: the library reads each again from the log for every member, and once
// more for the term of the one before. Only a leader's are kept: their bytes are their proposers' and do not change, whereas
// those that a follower stores lie in memory that is used again (transport, T4).
type recent struct {
	mu    sync.Mutex
	logs  []raft.Log // consecutive
	bytes int
}

// add takes entries that are stored now.
func (r *recent) add(logs []*raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.logs); n > 0 && r.logs[n-1].Index+1 != logs[0].Index {
		r.clearLocked()
	}
	for _, l := range logs {
		r.logs = append(r.logs, *l)
		r.bytes += len(l.Data)
	}
	drop := 0
	for ; r.bytes > recentBytes && drop < len(r.logs)-1; drop++ {
		r.bytes -= len(r.logs[drop].Data)
		r.logs[drop] = raft.Log{}
	}
	r.logs = r.logs[drop:]
}

// get copies the entry at index to l, if it is there. The copy shares the entry's bytes.
func (r *recent) get(index uint64, l *raft.Log) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.logs) == 0 || index < r.logs[0].Index || index-r.logs[0].Index >= uint64(len(r.logs)) {
		return false
	}
	*l = r.logs[index-r.logs[0].Index]
	return true
}

// clear forgets all entries, because the log may not have them any more.
func (r *recent) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clearLocked()
}

func (r *recent) clearLocked() { r.logs, r.bytes = nil, 0 }
