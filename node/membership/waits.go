package membership

import "time"

// moveWaits is until when leads stay because a move has failed: those that must move, and those that only might. The second do not hold up
// the first: who leaves or is drained would keep its leads for as long.
type moveWaits struct{ must, even time.Time }

// failed notes at a time that a move has failed.
func (w *moveWaits) failed(now time.Time, must bool) {
	w.even = now.Add(settleTime)
	if must {
		w.must, w.even = now.Add(againAfter), now.Add(againAfter)
	}
}

// may reports whether leads may be moved at a time.
func (w *moveWaits) may(now time.Time, must bool) bool {
	if must {
		return !now.Before(w.must)
	}
	return !now.Before(w.even)
}
