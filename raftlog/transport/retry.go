package transport

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// T8. A member that comes back gets its entries at once. After calls that fail the library waits longer and longer, up to ten
// seconds, whatever happens meanwhile. So a request of its replication to a member that cannot be reached does not fail at
// once: it is made again every retryEvery, for as long as retryFor. Heartbeats fail at once, since the library judges by them
// who is there.
const (
	// retryEvery is short against the time that a process takes to start. Why not shorter: every attempt is a connection.
	retryEvery = 100 * time.Millisecond
	// retryFor bounds how long a leader that was deposed without knowing it keeps a request. Why not shorter: after each request
	// that fails, the library waits.
	retryFor = time.Minute
)

// isHeartbeat tells the library's heartbeats from its replication, which names the entry before or what is committed, but for
// the very first request of a log.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0
}

// retry makes a call again that failed, while the reason is that the member was not reached, and until this member replicates in
// a later term.
func (t *Peers) retry(term uint64, err error, call func() error) error {
	for most := t.term.Load(); term > most && !t.term.CompareAndSwap(most, term); most = t.term.Load() {
	}
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	over := time.NewTimer(retryFor)
	defer over.Stop()
	for unreached := new(dialError); errors.As(err, &unreached) && t.term.Load() <= term; {
		select {
		case <-tick.C:
			err = call()
		case <-over.C:
			return err
		case <-t.ctx.Done():
			return err
		}
	}
	return err
}
