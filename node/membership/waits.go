package membership

import "time"

// moveWaits is until when leads stay because a move has failed: those that must move, and those that only might. The second do not hold up
// the first: who leaves or is drained would keep its leads for as long.
type moveWaits struct {
	must, even time.Time
	again      bool // the last move has failed
}

// hold reports whether sources are to be held for the next move. Behind one that has failed they are not: what does not move for
// minutes would hold them for as long.
func (w *moveWaits) hold() bool { return !w.again }

// succeeded notes that all that was to move has moved.
func (w *moveWaits) succeeded() { w.again = false }

// failed notes at a time that a move has failed.
func (w *moveWaits) failed(now time.Time, must bool) {
	w.again = true
	wait := settleTime
	if must {
		wait = againAfter
		w.must = now.Add(wait)
	}
	if even := now.Add(wait); even.After(w.even) {
		w.even = even
	}
}

// may reports whether leads may be moved at a time.
func (w *moveWaits) may(now time.Time, must bool) bool {
	if must {
		return !now.Before(w.must)
	}
	return !now.Before(w.even)
}
