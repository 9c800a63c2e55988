package raftlog

import "time"

// withinTicks is how many ticks a wait is made of. Why not fewer: each may count for one in which the process stood still.
// Why not more: somebody has to wake for each.
const withinTicks = 20

// within waits for something from ch, at most for d of the time in which this process ran, and says whether it came (a
// closed channel counts). after is time.After.
//
// A process that was stopped, or whose machine slept, finds its timers overdue, and the disk has had no chance either: what
// it waits for may have come meanwhile, or could come only now. So d is counted in ticks, each of which counts as what it
// was meant to last however late it comes, and what has come goes before a tick.
func within[T any](d time.Duration, ch <-chan T, after func(time.Duration) <-chan time.Time) (v T, ok bool) {
	for range withinTicks {
		select {
		case v = <-ch:
			return v, true
		case <-after(d / withinTicks):
		}
	}
	select {
	case v = <-ch:
		return v, true
	default:
		return v, false
	}
}
