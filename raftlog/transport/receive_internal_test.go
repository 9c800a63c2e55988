package transport

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// A member whose log begins behind a snapshot takes what is sent from before it, as far as the snapshot does not cover it. The library
// refuses that for good, and a leader whose own snapshot is older knows no other way.
func TestWhatTheOwnSnapshotCoversIsSkipped(t *testing.T) {
	request := func(prev uint64, last uint64) *raft.AppendEntriesRequest {
		r := &raft.AppendEntriesRequest{PrevLogEntry: prev, PrevLogTerm: 2, LeaderCommitIndex: 70}
		for i := prev + 1; i <= last; i++ {
			r.Entries = append(r.Entries, &raft.Log{Index: i, Term: 2})
		}
		return r
	}
	show := func(r *raft.AppendEntriesRequest) string {
		var entries []string
		for _, e := range r.Entries {
			entries = append(entries, fmt.Sprint(e.Index))
		}
		return fmt.Sprintf("%d/%d: %s, commit %d", r.PrevLogTerm, r.PrevLogEntry, strings.Join(entries, " "), r.LeaderCommitIndex)
	}
	for _, c := range []struct {
		first, prev, last uint64
		want              string
	}{
		{62, 58, 63, "0/0: 62 63, commit 63"},
		{62, 58, 61, "0/0: , commit 61"}, // what it has it acknowledges, and what it has beyond may not be the leader's
		{62, 58, 59, "0/0: , commit 61"},
		{62, 58, 58, "0/0: , commit 61"},
		{62, 61, 63, "0/0: 62 63, commit 63"}, // the snapshot's last entry is in no log
		{62, 61, 61, "0/0: , commit 61"},
		{62, 62, 63, "2/62: 63, commit 70"},
		{62, 64, 65, "2/64: 65, commit 70"},
		{0, 58, 63, "2/61: 62 63, commit 63"}, // the log has nothing behind the snapshot
		{0, 61, 63, "2/61: 62 63, commit 70"},
		{40, 58, 63, "2/58: 59 60 61 62 63, commit 70"}, // the log goes back further than the snapshot
		{62, 0, 2, "2/0: 1 2, commit 70"},
	} {
		r := &receiver{cfg: ReceiveConfig{
			First:  func() uint64 { return c.first },
			Begins: func() (term, index uint64) { return 2, 61 },
		}}
		req := request(c.prev, c.last)
		before := show(req)
		if got := show(r.skip(req)); got != c.want {
			t.Errorf("log from %d on: of %s is left %s, want %s", c.first, before, got, c.want)
		}
		if show(req) != before {
			t.Errorf("the sender's request has become %s", show(req))
		}
	}
}

func TestALeaderGoesOnWithAMemberThatHasWhatItsSnapshotHas(t *testing.T) {
	r := &receiver{cfg: ReceiveConfig{First: func() uint64 { return 50 }}} // its snapshot is at 53
	for last, want := range map[uint64]bool{48: false, 49: false, 50: true, 53: true, 54: true, 61: true} {
		if got := r.resumes(fmt.Errorf("n3: %s%d", refusal, last), 53); got != want {
			t.Errorf("a member whose log ends at %d: %v", last, got)
		}
	}
	if r.resumes(errors.New("broken pipe"), 53) || r.resumes(nil, 53) {
		t.Error("no refusal is none")
	}
}
