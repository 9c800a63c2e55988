package state

// gone says which keys the base may have although the table does not hold them: those that the table has evicted, and those
// that a fill for which memory was short has passed by. So a key that is new costs no look-up. It is a chain of Bloom filters, each
// with room for as many keys as the table had when it was begun, or as those before have; nothing is ever taken out, because a key that comes back may be
// evicted again.
type gone struct {
	filters []filter
	taken   int  // keys
	room    int  // keys that the last filter still takes
	unknown bool // there may be other keys too: the table is being filled
	given   bool // so many keys are gone that the filters are given up until the next start
}

// goneShare is the part of the budget that all tables' filters take at most, 1 / goneShare. Why not more: a key in them takes
// between two and four bytes, one in a table ten times as much, and it is new keys alone that they are good for.
const goneShare = 8

// leastGone is the least number of keys that a filter is made for.
const leastGone = 512

// tracked reports whether the filters say of a key that it is not in the base.
func (g *gone) tracked() bool { return !g.unknown && !g.given }

func (g *gone) mayContain(hash uint64) bool {
	for i := len(g.filters) - 1; i >= 0; i-- { // the largest first
		if g.filters[i].mayContain(rankOf(hash)) {
			return true
		}
	}
	return false
}

// add takes a key in. keys is for how many a filter is made when one is needed.
func (g *gone) add(hash uint64, keys int, b *Budget) {
	if g.given || g.mayContain(hash) {
		return
	}
	if g.room == 0 {
		if g.room = max(keys, g.taken, leastGone); !b.takeGone(int64(g.room)*8/filterKeysPerWord + 8) {
			g.giveUp(b)
			return
		}
		g.filters = append(g.filters, make(filter, g.room/filterKeysPerWord+1))
	}
	f := g.filters[len(g.filters)-1]
	word, mask := f.place(rankOf(hash))
	f[word] |= mask
	g.room, g.taken = g.room-1, g.taken+1
}

// giveUp gives the memory back: from now on any key may be in the base.
func (g *gone) giveUp(b *Budget) {
	b.giveGone(g.size())
	*g = gone{given: true, unknown: g.unknown}
}

func (g *gone) size() (n int64) {
	for _, f := range g.filters {
		n += int64(8 * len(f))
	}
	return n
}

// inBaseLocked reports whether the base may have a key that has no slot.
func (t *Table) inBaseLocked(hash uint64) bool {
	return t.mu.incomplete && (!t.mu.gone.tracked() || t.mu.gone.mayContain(hash))
}

// remember takes the keys of entries in that a fill passes by because memory is short, and empties the batch. all says that
// these are the last, and that there was no error: from now on keys that the cut does not have are known not to be there. It
// reports whether that is of use.
func (t *Table) remember(b *fillEntries, all bool) (goOn bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed || t.mu.gone.given || !t.mu.incomplete {
		return false
	}
	for i, e := range b.ends {
		if !e.deleted {
			t.mu.gone.add(b.hashes[i], t.mu.keys, t.budget)
		}
	}
	b.reset()
	if all {
		t.mu.gone.unknown = false
	}
	t.countLocked()
	return !t.mu.gone.given
}
