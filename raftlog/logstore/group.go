package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/frame"
)

// GroupLog is one group's log: a raft.LogStore and raft.StableStore, and the way to entries that Raft has deleted. Its
// methods are safe for concurrent use.
type GroupLog struct {
	store *Store
	id    uint32
	name  string

	// w is what has been handed to the disk; the committer's own.
	w groupState

	// pub is what is durable and can be read; guarded by Store.mu.
	pub struct {
		groupState
		entries  entries
		keep     retained
		voteTerm []byte // set by SetUint64(LastVoteTerm), waits for the candidate
	}
}

var (
	_ raft.LogStore          = (*GroupLog)(nil)
	_ raft.StableStore       = (*GroupLog)(nil)
	_ raft.MonotonicLogStore = (*GroupLog)(nil)
)

// The keys under which hashicorp/raft stores a vote, by two calls.
const (
	voteTermKey      = "LastVoteTerm"
	voteCandidateKey = "LastVoteCand"
)

// Name returns the group's name.
func (g *GroupLog) Name() string { return g.name }

// IsMonotonic implements raft.MonotonicLogStore (L4): Raft deletes the whole log when it installs a snapshot, without
// which a follower with a divergent tail can loop on snapshots (hashicorp/raft#697).
func (g *GroupLog) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore: the first index of Raft's range, 0 when that is empty.
func (g *GroupLog) FirstIndex() (uint64, error) {
	g.store.mu.RLock()
	defer g.store.mu.RUnlock()
	if g.pub.empty() {
		return 0, nil
	}
	return g.pub.first, nil
}

// LastIndex implements raft.LogStore: the last index of Raft's range, 0 when that is empty.
func (g *GroupLog) LastIndex() (uint64, error) {
	g.store.mu.RLock()
	defer g.store.mu.RUnlock()
	if g.pub.empty() {
		return 0, nil
	}
	return g.pub.last, nil
}

// GetLog implements raft.LogStore. An index outside Raft's range is raft.ErrLogNotFound, though Entry may still have it.
func (g *GroupLog) GetLog(index uint64, l *raft.Log) error {
	g.store.mu.RLock()
	in := index >= g.pub.first && index <= g.pub.last && index > 0
	g.store.mu.RUnlock()
	if !in {
		return raft.ErrLogNotFound
	}
	r, err := g.store.read(g, index)
	if errors.Is(err, ErrNotFound) {
		return raft.ErrLogNotFound // deleted meanwhile
	}
	if err != nil {
		return err
	}
	ext, data, err := splitExtensions(&r)
	if err != nil {
		return fmt.Errorf("entry %d of %s: %w", index, g.name, err)
	}
	*l = raft.Log{Index: r.index, Term: r.term, Type: raft.LogType(r.logType), Data: data, Extensions: ext}
	if r.appended != 0 {
		l.AppendedAt = time.Unix(0, r.appended)
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (g *GroupLog) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. It returns when the entries are durable; of entries whose storing failed, a prefix
// may be.
func (g *GroupLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	return g.store.do(&request{group: g, logs: logs, done: make(chan error, 1)})
}

// DeleteRange implements raft.LogStore: of a prefix (of which stays readable through Entry what is retained), of a suffix
// (which does not), or of the whole log, which is a suffix too: none of the range stays readable, and what is retained
// below it does. Raft deletes the whole log when a new leader's contradicts it from its first entry on; the next entry is
// then stored where the log began. It also does so when it has installed another member's snapshot; the next entry is then
// stored elsewhere, and as what this log held may contradict the snapshot, nothing of it stays readable from then on.
func (g *GroupLog) DeleteRange(lo, hi uint64) error {
	if lo > hi || hi == 0 {
		return nil
	}
	return g.store.do(&request{group: g, deleteLo: lo, deleteHi: hi, done: make(chan error, 1)})
}

// Entry returns the command of the entry at index: the caller's to keep. It is readable from the moment it is stored
// until both Raft has deleted it and Retain has let it go; whether it is committed is the caller's to know.
// The error is ErrNotFound, also for an entry that holds no command, or a CORRUPT *dataflow.Error.
func (g *GroupLog) Entry(index dataflow.LogIndex) (cmd []byte, err error) {
	r, err := g.store.read(g, uint64(index))
	if err != nil {
		return nil, err
	}
	if raft.LogType(r.logType) != raft.LogCommand {
		return nil, fmt.Errorf("%w: entry %d of %s is a %v", ErrNotFound, index, g.name, raft.LogType(r.logType))
	}
	_, data, err := splitExtensions(&r)
	if err == nil {
		data, err = frame.Open(data)
	}
	if err != nil {
		e := dataflow.Errorf(dataflow.ReasonCorrupt, "entry %d of log %s is damaged", index, g.name)
		e.Err = err
		return nil, e
	}
	return data, nil
}

// Retain says which entries will be asked for again: those at or above floor, and below it those in the islands, which
// ascend and do not overlap. They stay readable after Raft has deleted them. Of the others, the log lets go of what lies
// in segments without any that stays; Entry may still read them, or say ErrNotFound. Once let go, an entry does not come
// back: a call whose floor is lower than an earlier one's does nothing. A new log's floor is 0: everything stays until
// the first call. The largest LogIndex means that nothing stays which Raft has deleted.
//
// An island may cost the whole of its segment's file, until the log has grown by some segments and it is copied from
// there (L6). Retain does not wait for the disk: after a crash, more may be there.
// The islands must not be changed afterwards.
func (g *GroupLog) Retain(floor dataflow.LogIndex, islands ...dataflow.LogRange) {
	s := g.store
	s.mu.Lock()
	if uint64(floor) < g.pub.keep.floor {
		s.mu.Unlock()
		return
	}
	g.pub.keep = retained{floor: uint64(floor), islands: islands}
	g.pub.floor = max(g.pub.floor, g.pub.keep.low())
	g.letGoLocked()
	s.mu.Unlock()
	s.askForCleaning() // also of segments in which little is left (copy.go)
}

// letGoLocked drops the runs of which nothing is wanted, by Raft or by Retain. The caller holds Store.mu.
func (g *GroupLog) letGoLocked() {
	p := &g.pub
	p.entries.drop(func(r *run) bool {
		raft := !p.empty() && r.last() >= p.first
		return r.last() < p.start || !raft && !p.keep.any(r.first, r.last())
	})
}

// Behind returns about how many bytes of all groups' log were written since the first entry that this group keeps because
// Raft has it or it is not below the floor of Retain. No file of these can go before the group takes a snapshot.
func (g *GroupLog) Behind() int64 {
	s := g.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := &g.pub
	from := min(p.first, p.keep.floor)
	i := sort.Search(len(p.entries.runs), func(i int) bool { return p.entries.runs[i].last() >= from })
	if i == len(p.entries.runs) {
		return 0
	}
	files := 0
	for n := len(s.mu.segs) - 1; n >= 0 && s.mu.segs[n].seq > p.entries.runs[i].seg.seq; n-- {
		files++
	}
	return int64(files) * s.opts.SegmentBytes
}

// Needless returns the bytes of the files, but for the newest, that hold entries of this group of which Retain with the
// same arguments would want none. Raft may still have them, and other groups may want the files.
func (g *GroupLog) Needless(floor dataflow.LogIndex, islands ...dataflow.LogRange) int64 {
	keep := retained{floor: uint64(floor), islands: islands}
	s := g.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	wanted := make(map[*segment]bool)
	for i := range g.pub.entries.runs {
		r := &g.pub.entries.runs[i]
		wanted[r.seg] = wanted[r.seg] || keep.any(r.first, r.last())
	}
	var bytes int64
	for n := range len(s.mu.segs) - 1 {
		if want, here := wanted[s.mu.segs[n]]; here && !want {
			bytes += s.opts.SegmentBytes
		}
	}
	return bytes
}

// Retained returns the lowest and the highest index that Entry can read, between which others may have been let go, and
// the bytes that they take in the files; 0, 0, 0 when there are none.
func (g *GroupLog) Retained() (first, last dataflow.LogIndex, bytes int64) {
	g.store.mu.RLock()
	defer g.store.mu.RUnlock()
	runs := g.pub.entries.runs
	if len(runs) == 0 {
		return 0, 0, 0
	}
	for i := range runs {
		// Records of a group lie in their order, so the ends of a run bound it; others' records in between count too.
		l := runs[i].locs
		bytes += int64(l[len(l)-1].offset) + int64(l[len(l)-1].size) - int64(l[0].offset)
	}
	return dataflow.LogIndex(runs[0].first), dataflow.LogIndex(runs[len(runs)-1].last()), bytes
}

// Set implements raft.StableStore. It is durable on return. The vote's term and candidate are stored in one record, so
// that no crash leaves one without the other (hashicorp/raft#661).
func (g *GroupLog) Set(key, val []byte) error {
	kv := map[string][]byte{string(key): slices.Clone(val)}
	if string(key) == voteCandidateKey {
		g.store.mu.Lock()
		if g.pub.voteTerm != nil {
			kv[voteTermKey] = g.pub.voteTerm
			g.pub.voteTerm = nil
		}
		g.store.mu.Unlock()
	}
	return g.store.do(&request{group: g, pairs: kv, done: make(chan error, 1)})
}

// Get implements raft.StableStore: empty when the key is absent.
func (g *GroupLog) Get(key []byte) ([]byte, error) {
	g.store.mu.RLock()
	defer g.store.mu.RUnlock()
	return slices.Clone(g.pub.kv[string(key)]), nil
}

// SetUint64 implements raft.StableStore. The term of a vote is only stored with its candidate, by the call of Set that
// follows.
func (g *GroupLog) SetUint64(key []byte, val uint64) error {
	v := binary.BigEndian.AppendUint64(nil, val)
	if string(key) == voteTermKey {
		g.store.mu.Lock()
		defer g.store.mu.Unlock()
		g.pub.voteTerm = v
		return nil
	}
	return g.Set(key, v)
}

// GetUint64 implements raft.StableStore: 0 when the key is absent.
func (g *GroupLog) GetUint64(key []byte) (uint64, error) {
	v, err := g.Get(key)
	if err != nil || len(v) == 0 {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("stable value %q of %s has %d bytes, not 8", key, g.name, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}
