package raftlog

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestRecentEntriesAreThoseThatTheLogHas(t *testing.T) {
	var r recent
	store := func(term uint64, size int, indexes ...uint64) {
		var logs []*raft.Log
		for _, i := range indexes {
			logs = append(logs, &raft.Log{Index: i, Term: term, Data: make([]byte, size)})
		}
		r.add(logs)
	}
	check := func(term uint64, there bool, indexes ...uint64) {
		t.Helper()
		for _, i := range indexes {
			var l raft.Log
			if got := r.get(i, &l); got != there || got && (l.Index != i || l.Term != term) {
				t.Errorf("entry %d of term %d: %v, %+v", i, term, got, l)
			}
		}
	}
	check(0, false, 0, 1)
	store(1, 10, 7, 8)
	store(1, 10, 9)
	check(1, true, 7, 8, 9)
	check(1, false, 6, 10)

	store(2, 10, 12) // it did not lead meanwhile
	check(1, false, 7, 8, 9)
	check(2, true, 12)

	r.clear()
	check(2, false, 12)

	// The newest stay within the bound, and the very newest in any case.
	store(3, recentBytes/4, 20, 21, 22, 23, 24, 25)
	check(3, false, 20, 21)
	check(3, true, 22, 23, 24, 25)
	store(3, 2*recentBytes, 26)
	check(3, false, 25)
	check(3, true, 26)
}

// countedStore counts what is read from the log.
type countedStore struct {
	*raft.InmemStore
	reads int
}

func (s *countedStore) IsMonotonic() bool { return true }

func (s *countedStore) GetLog(index uint64, l *raft.Log) error {
	s.reads++
	return s.InmemStore.GetLog(index, l)
}

// TestALeadersNewestEntriesAreNotReadFromTheLog: a follower's are, for their bytes are not its own, and so is what was deleted.
func TestALeadersNewestEntriesAreNotReadFromTheLog(t *testing.T) {
	store, leads := &countedStore{InmemStore: raft.NewInmemStore()}, false
	g := &guard{LogStore: store, deadline: time.Minute, fail: func(err error) { t.Error(err) }, leads: func() bool { return leads }}
	put := func(index, term uint64) {
		t.Helper()
		if err := g.StoreLogs([]*raft.Log{{Index: index, Term: term}}); err != nil {
			t.Fatal(err)
		}
	}
	get := func(index, term uint64, fromLog bool) {
		t.Helper()
		before := store.reads
		var l raft.Log
		if err := g.GetLog(index, &l); err != nil || l.Index != index || l.Term != term {
			t.Errorf("entry %d is %d of term %d, %v", index, l.Index, l.Term, err)
		}
		if got := store.reads > before; got != fromLog {
			t.Errorf("entry %d was read from the log: %v", index, got)
		}
	}
	put(1, 1)
	get(1, 1, true)
	leads = true
	put(2, 2)
	put(3, 2)
	get(1, 1, true)
	get(3, 2, false)
	if err := g.DeleteRange(3, 3); err != nil {
		t.Fatal(err)
	}
	if err := g.GetLog(3, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("the deleted entry: %v", err)
	}
	leads = false
	put(3, 3)
	get(3, 3, true)
}
