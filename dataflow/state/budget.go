package state

import (
	"sync"
	"sync/atomic"
)

// Budget is the memory that a node's tables share. Tables count what they take; a table that finds the budget exceeded
// evicts entries that are in a committed cut, between two batches of its writer. When there are too few of these, the
// budget is pressed: sources are to wait, and a checkpoint is to be made, after which more can be evicted. The limit is
// soft: a batch that is being folded never waits for memory.
//
// Committed layers count too, but for half of the limit at most: tables always have the other half. How many there are the node says
// (SetLayers), which folds them into the stores earlier when they take more than that half.
//
// A nil Budget has no limit.
type Budget struct {
	limit    int64
	used     atomic.Int64
	evicted  atomic.Uint64
	lookedUp atomic.Uint64
	partials atomic.Uint64
	layers   atomic.Int64 // bytes of the committed layers of all replicas
	gone     atomic.Int64 // bytes of the filters of evicted keys; part of used
	mu       struct {
		sync.Mutex
		pressed bool
		changed chan struct{} // closed and replaced when pressed changes
		tables  map[*Table]struct{}
		asked   bool // every table has been asked for memory since the last commit
	}
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	b := &Budget{limit: limit}
	b.mu.changed = make(chan struct{})
	b.mu.tables = make(map[*Table]struct{})
	return b
}

// Limit returns the budget's size in bytes; 0 = no limit.
func (b *Budget) Limit() int64 {
	if b == nil {
		return 0
	}
	return b.limit
}

// Used returns the bytes that tables take.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.used.Load()
}

// Evicted returns how many entries were evicted so far.
func (b *Budget) Evicted() uint64 {
	if b == nil {
		return 0
	}
	return b.evicted.Load()
}

// LookedUp returns how many keys writers have looked up in committed cuts so far, because the tables did not hold them.
func (b *Budget) LookedUp() uint64 {
	if b == nil {
		return 0
	}
	return b.lookedUp.Load()
}

// CountLookups counts n keys that a writer has looked up.
func (b *Budget) CountLookups(n int) {
	if b != nil {
		b.lookedUp.Add(uint64(n))
	}
}

// Partials returns how many keys have begun as partials so far.
func (b *Budget) Partials() uint64 {
	if b == nil {
		return 0
	}
	return b.partials.Load()
}

func (b *Budget) countPartials(n int) {
	if b != nil && n != 0 {
		b.partials.Add(uint64(n))
	}
}

// takeGone reports whether filters of evicted keys may take n more bytes.
func (b *Budget) takeGone(n int64) bool {
	if b == nil {
		return true
	}
	if b.gone.Add(n) <= b.limit/goneShare {
		return true
	}
	b.gone.Add(-n)
	return false
}

func (b *Budget) giveGone(n int64) {
	if b != nil {
		b.gone.Add(-n)
	}
}

func (b *Budget) add(n int64) {
	if b != nil && n != 0 {
		b.used.Add(n)
	}
}

// SetLayers says what the committed layers of all replicas take.
func (b *Budget) SetLayers(bytes int64) {
	if b == nil {
		return
	}
	if b.layers.Store(bytes); b.Exceeded() {
		b.ask() // tables that have no rows to fold too
	}
}

// Layers returns what SetLayers has said last.
func (b *Budget) Layers() int64 {
	if b == nil {
		return 0
	}
	return b.layers.Load()
}

// LayersExceeded reports whether layers take more than their half of the budget.
func (b *Budget) LayersExceeded() bool { return b != nil && b.layers.Load() > b.limit/2 }

// Exceeded reports whether the tables, with the layers as far as these count, take more than the budget.
func (b *Budget) Exceeded() bool {
	return b != nil && b.used.Load()+min(b.layers.Load(), b.limit/2) > b.limit
}

// Pressed reports whether sources are to wait until entries have become evictable, and a channel that is closed when that
// changes.
func (b *Budget) Pressed() (pressed bool, changed <-chan struct{}) {
	if b == nil {
		return false, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.pressed && b.Exceeded(), b.mu.changed
}

// join makes a table one that is asked for memory.
func (b *Budget) join(t *Table) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.tables[t] = struct{}{}
}

func (b *Budget) leave(t *Table) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.tables, t)
}

// ask tells every table's writer that memory is wanted, once until the next commit: those that have no rows to fold may have
// more than those that have.
func (b *Budget) ask() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.asked {
		return
	}
	b.mu.asked = true
	for t := range b.mu.tables {
		t.want()
	}
}

// committed says that entries of a table have been committed, so that the tables may be asked again, and, with evictable, that some can
// be evicted that could not before: nothing has to wait until a table wants memory again. Both at once: a table that is asked in
// between would press for nothing, and not be asked again.
func (b *Budget) committed(evictable bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.asked = false
	if evictable {
		b.pressLocked(false)
	}
}

func (b *Budget) press(pressed bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pressLocked(pressed)
}

func (b *Budget) pressLocked(pressed bool) {
	if b.mu.pressed != pressed {
		b.mu.pressed = pressed
		close(b.mu.changed)
		b.mu.changed = make(chan struct{})
	}
}
