package statequery

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// watchRoom is the memory of what watchers hold for their consumers alone: pages that they have read for themselves, while they
// are sent. It is a part of Config.WatchBytes. A slow consumer holds a page for as long as he takes to take it, so when many
// do, pages get smaller, and when there is no room even for small ones, who needs one waits until others have taken theirs: a
// minute at most, because who takes nothing for so long is cut off. It is safe for concurrent use.
type watchRoom struct {
	room *semaphore.Weighted
	held atomic.Int64 // of room
}

// A page is as large as there is room for, within these. Why not smaller: each costs finding its place anew.
const (
	mostPageBytes  = watchPageBytes
	leastPageBytes = watchEventBytes
)

// pageShare is what part of Config.WatchBytes pages may take: a quarter.
const pageShare = 4

func newWatchRoom(watchBytes int64) *watchRoom {
	return &watchRoom{room: semaphore.NewWeighted(max(watchBytes/pageShare, mostPageBytes))}
}

// enter gives the caller room for a page, and waits for it. The error is DEADLINE when ctx ends first. Who has got some gives it back
// before he asks again.
func (r *watchRoom) enter(ctx context.Context) (bytes int64, err error) {
	for n := int64(mostPageBytes); n > leastPageBytes; n /= 2 {
		if r.room.TryAcquire(n) {
			r.held.Add(n)
			return n, nil
		}
	}
	if r.room.Acquire(ctx, leastPageBytes) != nil {
		return 0, deadline(ctx)
	}
	r.held.Add(leastPageBytes)
	return leastPageBytes, nil
}

// shrink gives back what a page of so many bytes does not need, and returns what is left.
func (r *watchRoom) shrink(bytes, used int64) int64 {
	if used = max(used, 1); used >= bytes { // a row larger than a page is a page of its own
		return bytes
	}
	r.leave(bytes - used)
	return used
}

func (r *watchRoom) leave(bytes int64) {
	r.held.Add(-bytes)
	r.room.Release(bytes)
}
