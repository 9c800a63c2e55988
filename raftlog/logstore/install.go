package logstore

import (
	"fmt"
	"maps"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/frame"
)

// How the entries of another node's log come into this one (L7): Reset a group that is nobody's log yet, Place the entries
// that the other node's snapshot refers to, and let the group Adopt the name of the one that it replaces.

// Stored is an entry with a command, as a log holds it.
type Stored struct {
	Index    dataflow.LogIndex
	Term     uint64
	Appended int64  // when its leader appended it, ns since 1970; 0 = not known
	Data     []byte // the command in its frame
}

// Check says whether the frame is whole: CORRUPT when it is not.
func (e *Stored) Check() error {
	if _, err := frame.Open(e.Data); err != nil {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "entry %d: %w", e.Index, err)
	}
	return nil
}

// Stored returns the entry at index as Place takes it. Errors are those of Entry.
func (g *GroupLog) Stored(index dataflow.LogIndex) (Stored, error) {
	r, err := g.store.read(g, uint64(index))
	if err != nil {
		return Stored{}, err
	}
	if raft.LogType(r.logType) != raft.LogCommand {
		return Stored{}, fmt.Errorf("%w: entry %d of %s is a %v", ErrNotFound, index, g.name, raft.LogType(r.logType))
	}
	_, data, err := splitExtensions(&r)
	e := Stored{Index: index, Term: r.term, Appended: r.appended, Data: data}
	if err == nil {
		err = e.Check()
	}
	if err != nil {
		return Stored{}, fmt.Errorf("log %s: %w", g.name, err)
	}
	return e, nil
}

// Size returns about how many bytes the entries in the ranges, which ascend, take: those of them that can be read.
func (g *GroupLog) Size(ranges ...dataflow.LogRange) int64 {
	g.store.mu.RLock()
	defer g.store.mu.RUnlock()
	var bytes int64
	for _, x := range ranges {
		for i := range g.pub.entries.runs {
			r := &g.pub.entries.runs[i]
			lo, hi := max(r.first, uint64(x.First)), min(r.last(), uint64(x.Last))
			for at := lo; at <= hi; at++ {
				bytes += int64(r.locs[at-r.first].size)
			}
		}
	}
	return bytes
}

// Reset forgets all that the group holds, its vote included, and lets it begin behind an index: Raft finds it empty, Place
// takes entries up to the index, and Raft's first one comes behind it. Behind 0 the group is as new. It is durable on
// return.
func (g *GroupLog) Reset(behind dataflow.LogIndex) error {
	at := uint64(behind)
	return g.store.do(&request{group: g, reset: &at, done: make(chan error, 1)})
}

// Place stores entries of another node's log below Raft's range: ascending, any number of them left out. They are durable
// on return; when storing failed, a prefix may be. An entry that was there gives way. They stay until Retain lets them go.
func (g *GroupLog) Place(entries []Stored) error {
	if len(entries) == 0 {
		return nil
	}
	return g.store.do(&request{group: g, placed: entries, done: make(chan error, 1)})
}

// Begins returns the index behind which the log begins or goes on when Raft's range is empty: that of the last Reset. It is
// 0 for a new log, and for one in which Raft has entries.
func (g *GroupLog) Begins() dataflow.LogIndex {
	g.store.mu.RLock()
	defer g.store.mu.RUnlock()
	if !g.pub.empty() {
		return 0
	}
	return dataflow.LogIndex(g.pub.last)
}

// Adopt gives the group named staged the name name, and what had that name before, emptied, the name staged: all of it
// with one write. Nobody may use either meanwhile, and what Group has returned for name before is from then on the other.
func (s *Store) Adopt(staged, name string) error {
	old, err := s.Group(name)
	if err != nil {
		return err
	}
	s.mu.RLock()
	g := s.mu.groups[staged]
	s.mu.RUnlock()
	if g == nil || g == old {
		return fmt.Errorf("logstore: %s cannot take the place of %s: there is no such log", staged, name)
	}
	if err := s.do(&request{group: old, adopt: g, done: make(chan error, 1)}); err != nil {
		return fmt.Errorf("log %s takes the place of %s: %w", staged, name, err)
	}
	return nil
}

// encodeInstall does a Reset or an Adopt: the state of all groups goes with it, because it names groups and undoes what
// earlier records say of them.
func (s *Store) encodeInstall(r *request, effects []effect) (_ []effect, full bool, err error) {
	if !s.fits(recordHead + s.stateBytes()) {
		return effects, true, nil
	}
	g := r.group
	s.w.add(&record{kind: kindTruncate, group: g.id, flags: flagForget})
	g.w = groupState{kv: make(map[string][]byte), cuts: addCut(g.w.cuts, s.active.seq, 0)}
	if r.reset != nil && *r.reset > 0 {
		g.w.first, g.w.last = *r.reset+1, *r.reset
	}
	s.mu.Lock()
	g.pub.keep, g.pub.floor = retained{}, 0 // addState writes the floors
	if b := r.adopt; b != nil {
		g.name, b.name = b.name, g.name
		s.mu.groups[g.name], s.mu.groups[b.name] = g, b
	}
	s.mu.Unlock()
	s.addState(nil, nil)
	return append(effects, effect{group: g, state: g.w.clone(), forget: true}), false, nil
}

// stateBytes is at least how many bytes addState adds.
func (s *Store) stateBytes() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 2 * recordHead
	for _, g := range s.mu.list {
		n += 64 + len(g.name)
		for k, v := range maps.All(g.pub.kv) {
			n += len(k) + len(v)
		}
		n += 12 * len(g.pub.entries.runs) // at most one mention per run in the census
	}
	return n + 16*len(s.mu.segs)
}

func (s *Store) encodePlaced(r *request, effects []effect) (_ []effect, full bool, err error) {
	g := r.group
	if r.next == 0 {
		before := dataflow.LogIndex(0)
		for i := range r.placed {
			e := &r.placed[i]
			if e.Index <= before || uint64(e.Index) >= g.w.first {
				return effects, false, fmt.Errorf("logstore: %s: entry %d placed behind %d, in a log that begins at %d", g.name, e.Index, before, g.w.first)
			}
			if err := e.Check(); err != nil {
				return effects, false, err
			}
			before = e.Index
		}
	}
	for ; r.next < len(r.placed); r.next++ {
		e := &r.placed[r.next]
		if !s.fits(recordHead + len(e.Data)) {
			return effects, true, nil
		}
		rec := record{kind: kindCopy, logType: uint8(raft.LogCommand), group: g.id, index: uint64(e.Index), term: e.Term, appended: e.Appended}
		offset, size := s.w.add(&rec, e.Data)
		effects = append(effects, effect{group: g, index: uint64(e.Index), loc: loc{uint32(offset), uint32(size)}, placed: true})
	}
	return effects, false, nil
}
