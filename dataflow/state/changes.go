package state

import (
	"bytes"

	"github.com/weirdb/weir/dataflow"
)

// Changes walks, in key order, over the keys of a stage that differ between two cuts, or may: a key of the range is there
// when a delta between them says something of it.
//
//	it := newer.Changes(older, stage, lo, hi)
//	for it.Next() {
//		use(it.Key(), it.Value())
//	}
//	err := it.Close()
//
// Like an Iter it pins memory and files, of both views, and is for one goroutine.
type Changes struct {
	m *merger // the layers between the cuts; nil when they have been folded away

	// Without them the cuts are compared whole.
	older, newer         *Iter
	hasOlder, hasNewer   bool
	moveOlder, moveNewer bool

	key, val []byte
}

// Changes returns the walk over lo ≤ key < hi from an older cut of the same pipeline on the same shard to this one; a nil hi
// is no bound. As long as both cuts are retained it reads what the deltas between them say, no more. When layers have been
// folded over the older cut since, it compares the two cuts, key by key.
func (v *View) Changes(older *View, stage dataflow.StageID, lo, hi []byte) *Changes {
	if between, ok := v.since(older.ref); ok {
		return &Changes{m: newMerger(between, stage, lo, hi)}
	}
	return &Changes{older: older.Iter(stage, lo, hi), newer: v.Iter(stage, lo, hi), moveOlder: true, moveNewer: true}
}

// since returns the layers, newest first, that hold just the deltas after ref; ok = those deltas are there to be told apart.
func (v *View) since(ref dataflow.DeltaRef) (between []*layer, ok bool) {
	if ref.Compare(v.ref) == 0 {
		return nil, true
	}
	n := 0
	for n < len(v.layers) && v.layers[n].first.Compare(ref) > 0 {
		n++
	}
	// What lies below must end at the older cut or before: otherwise a layer holds deltas of both sides, or the store has
	// taken some.
	if n < len(v.layers) {
		return v.layers[:n], v.layers[n].last.Compare(ref) <= 0
	}
	return v.layers, v.base.Compare(ref) <= 0
}

// Next moves to the next change and reports whether there is one. The first call moves to the first.
func (c *Changes) Next() bool {
	if c.m != nil {
		least := c.m.peek()
		if least == nil {
			return false
		}
		c.key, c.val = least.cur.key, least.cur.val
		c.m.skip(c.key)
		return true
	}
	for {
		if c.moveOlder {
			c.hasOlder, c.moveOlder = c.older.Next(), false
		}
		if c.moveNewer {
			c.hasNewer, c.moveNewer = c.newer.Next(), false
		}
		if c.older.err != nil || c.newer.err != nil || !c.hasOlder && !c.hasNewer {
			return false
		}
		order := 0
		switch {
		case !c.hasOlder:
			order = 1
		case !c.hasNewer:
			order = -1
		default:
			order = bytes.Compare(c.older.Key(), c.newer.Key())
		}
		c.moveOlder, c.moveNewer = order <= 0, order >= 0
		switch {
		case order < 0:
			c.key, c.val = c.older.Key(), nil
			return true
		case order > 0 || !bytes.Equal(c.older.Value(), c.newer.Value()):
			c.key, c.val = c.newer.Key(), c.newer.Value()
			return true
		}
	}
}

// Key returns the current key; valid until the next call of Next or Close, and not to be changed.
func (c *Changes) Key() []byte { return c.key }

// Value returns the key's value at the newer cut, nil when it is not there; valid as Key is.
func (c *Changes) Value() []byte { return c.val }

// Close ends the walk and returns what went wrong in it. Errors: CORRUPT, SHUTTING_DOWN.
func (c *Changes) Close() error {
	if c.older == nil {
		return nil
	}
	err := c.older.Close()
	if nerr := c.newer.Close(); err == nil {
		err = nerr
	}
	return err
}
