package shard

import (
	"sync"

	"github.com/weirdb/weir/dataflow"
)

// rowCache keeps the rows of the newest entries, so that a task that keeps up reads them from memory. Entries leave in
// the order they came: whoever reads older rows reads many of them, once, and is served by the log store. Entries whose rows
// were dropped leave with these.
type rowCache struct {
	limit int64 // bytes
	mu    struct {
		sync.Mutex
		rows  map[dataflow.LogIndex][]byte
		order []dataflow.LogIndex // oldest first
		bytes int64
	}
}

func newRowCache(limit int64) *rowCache {
	c := &rowCache{limit: limit}
	c.mu.rows = make(map[dataflow.LogIndex][]byte)
	return c
}

// add keeps a copy of an entry's rows.
func (c *rowCache) add(index dataflow.LogIndex, rows []byte) {
	size := int64(len(rows))
	if size > c.limit {
		return
	}
	kept := append(make([]byte, 0, len(rows)), rows...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.rows[index] = kept
	c.mu.order = append(c.mu.order, index)
	for c.mu.bytes += size; c.mu.bytes > c.limit; {
		c.dropOldestLocked()
	}
}

// forget drops what is older than an entry.
func (c *rowCache) forget(before dataflow.LogIndex) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.mu.order) > 0 && c.mu.order[0] < before {
		c.dropOldestLocked()
	}
}

func (c *rowCache) dropOldestLocked() {
	oldest := c.mu.order[0]
	c.mu.order = c.mu.order[1:]
	c.mu.bytes -= int64(len(c.mu.rows[oldest]))
	delete(c.mu.rows, oldest)
}

func (c *rowCache) get(index dataflow.LogIndex) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows, ok := c.mu.rows[index]
	return rows, ok
}

// clear forgets everything: the log's history was replaced.
func (c *rowCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.mu.rows)
	c.mu.order, c.mu.bytes = nil, 0
}
