package killtest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// cutInfo is what the cut of an answer says.
type cutInfo struct {
	id, incarnation uint64
	positions       []uint64 // by shard
}

func (c cutInfo) String() string {
	return fmt.Sprintf("cut %d of incarnation %d at %v", c.id, c.incarnation, c.positions)
}

// answer is an answer that is still to be compared with the model.
type answer struct {
	what string
	cut  cutInfo
	live bool
	// check compares a committed answer with the model at the cut.
	check func(model) error
	// atLeast compares a live answer with the model at a cut that it must cover, atMost with the model of all of the log.
	// Either may be nil.
	atLeast, atMost func(model) error
}

// audit keeps the answers of a pipeline and compares them with the log.
type audit struct {
	pipeline, stream string
	shards           int
	history          *history

	newest      atomic.Uint64 // highest id of a committed cut that some call has returned
	incarnation atomic.Uint64 // highest incarnation that some call has returned

	mu      sync.Mutex
	cuts    map[uint64]cutInfo // K5
	pending []answer

	// The rest belongs to the goroutine that compares.
	log        *streamLog
	newModel   func() model
	at         *replay // at the newest cut that was compared
	atID       uint64
	end        *replay  // at the end of the log
	stragglers []answer // answers of older cuts than at's, for the end
	committed  int      // answers compared
	live       int
}

func newAudit(pipeline, stream string, log *streamLog, shards int, h *history, newModel func() model) *audit {
	return &audit{
		pipeline: pipeline, stream: stream, shards: shards, history: h, log: log, newModel: newModel,
		cuts: make(map[uint64]cutInfo), at: newReplay(log, newModel()), end: newReplay(log, newModel()),
	}
}

// marks are what an answer must not be behind: what was known before the call was made.
type marks struct{ newest, incarnation uint64 }

func (a *audit) marks() marks { return marks{a.newest.Load(), a.incarnation.Load()} }

func raise(v *atomic.Uint64, to uint64) {
	for {
		old := v.Load()
		if to <= old || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// read takes apart the cut of an answer.
func (a *audit) read(c *weirv1.Cut) (cutInfo, error) {
	info := cutInfo{id: c.GetCheckpointId(), incarnation: c.GetIncarnation(), positions: make([]uint64, a.shards)}
	for _, p := range c.GetPositions() {
		if p.GetStream() != a.stream || int(p.GetShard()) >= a.shards {
			return info, violation("K5: a cut of %s names shard %d of %s", a.pipeline, p.GetShard(), p.GetStream())
		}
		info.positions[p.GetShard()] = p.GetOffset()
	}
	switch {
	case c.GetPipeline() != a.pipeline:
		return info, violation("K5: an answer of %s has a cut of %s", a.pipeline, c.GetPipeline())
	case c.GetGuarantee() != weirv1.Guarantee_GUARANTEE_EXACTLY_ONCE:
		return info, violation("K5: %s: %s has the guarantee %s", a.pipeline, info, c.GetGuarantee())
	case c.GetSkippedRows() != 0:
		return info, violation("K5: %s: %s has skipped %d rows", a.pipeline, info, c.GetSkippedRows())
	case c.GetToken() == "":
		return info, violation("K5: %s: %s has no session token", a.pipeline, info)
	}
	return info, nil
}

// takeCommitted takes a committed answer. Answers that name an older cut themselves have no marks.
func (a *audit) takeCommitted(before marks, c *weirv1.Cut, what string, check func(model) error) error {
	info, err := a.read(c)
	if err != nil {
		return err
	}
	a.history.log("%s: %s: %s", a.pipeline, info, what)
	if c.GetSpeculative() {
		return violation("K6: %s: the committed answer of %s is speculative: %s", a.pipeline, info, what)
	}
	if info.id < before.newest {
		return violation("K4: %s: after cut %d an answer is from %s: %s", a.pipeline, before.newest, info, what)
	}
	a.mu.Lock()
	known, seen := a.cuts[info.id]
	if !seen {
		a.cuts[info.id] = info
	}
	a.pending = append(a.pending, answer{what: what, cut: info, check: check})
	a.mu.Unlock()
	if seen && (known.incarnation != info.incarnation || !slices.Equal(known.positions, info.positions)) {
		return violation("K5: %s: %s was %s before: %s", a.pipeline, info, known, what)
	}
	raise(&a.newest, info.id)
	raise(&a.incarnation, info.incarnation)
	return nil
}

// takeLive takes a live answer.
func (a *audit) takeLive(before marks, c *weirv1.Cut, what string, atLeast, atMost func(model) error) error {
	info, err := a.read(c)
	if err != nil {
		return err
	}
	a.history.log("%s: live over %s: %s", a.pipeline, info, what)
	switch {
	case !c.GetSpeculative():
		return violation("K6: %s: a live answer does not say that it is speculative: %s", a.pipeline, what)
	case info.incarnation == 0 || info.incarnation < before.incarnation:
		return violation("K6: %s: after incarnation %d a live answer is of incarnation %d: %s", a.pipeline, before.incarnation, info.incarnation, what)
	case info.id < before.newest:
		return violation("K6: %s: after cut %d a live answer names %d: %s", a.pipeline, before.newest, info.id, what)
	}
	raise(&a.incarnation, info.incarnation)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = append(a.pending, answer{what: what, cut: info, live: true, atLeast: atLeast, atMost: atMost})
	return nil
}

// anyCut returns the id of a cut that was seen, chosen by pick; ok is false when there is none.
func (a *audit) anyCut(pick func(n uint64) uint64) (uint64, bool) {
	newest := a.newest.Load()
	if newest == 0 {
		return 0, false
	}
	id := newest - min(newest-1, pick(newest))
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.cuts[id]
	return id, ok
}

// take returns the answers that wait, in the order of their cuts.
func (a *audit) take() []answer {
	a.mu.Lock()
	pending := a.pending
	a.pending = nil
	a.mu.Unlock()
	slices.SortStableFunc(pending, func(x, y answer) int {
		if x.live != y.live && x.cut.id == y.cut.id {
			if x.live {
				return 1
			}
			return -1
		}
		return cmp.Compare(x.cut.id, y.cut.id)
	})
	return pending
}

// compare compares answers with the log, which must have been read at least as far as any of them.
func (a *audit) compare(pending []answer) error {
	if err := a.end.end(); err != nil {
		return err
	}
	for _, ans := range pending {
		if ans.cut.id < a.atID {
			a.stragglers = append(a.stragglers, ans)
			continue
		}
		if err := a.compareOne(a.at, &a.atID, ans); err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) compareOne(at *replay, atID *uint64, ans answer) error {
	if ans.live {
		a.live++
		if ans.atLeast != nil {
			if err := ans.atLeast(at.model); err != nil {
				return violation("K6: %s: a live answer over %s holds less than cut %d: %s: %v", a.pipeline, ans.cut, *atID, ans.what, err)
			}
		}
		if ans.atMost != nil {
			if err := ans.atMost(a.end.model); err != nil {
				return violation("K6: %s: a live answer over %s holds more than the log: %s: %v", a.pipeline, ans.cut, ans.what, err)
			}
		}
		return nil
	}
	a.committed++
	if !at.covers(ans.cut.positions) {
		return violation("K4: %s: the positions of %s are behind those of cut %d, %v: %s", a.pipeline, ans.cut, *atID, at.at, ans.what)
	}
	if err := at.advance(ans.cut.positions); err != nil {
		return err
	}
	*atID = ans.cut.id
	if err := ans.check(at.model); err != nil {
		return violation("K3: %s: %s: %s: %v", a.pipeline, ans.cut, ans.what, err)
	}
	return nil
}

// finish compares the stragglers with a model that starts from the beginning.
func (a *audit) finish() error {
	slices.SortStableFunc(a.stragglers, func(x, y answer) int { return cmp.Compare(x.cut.id, y.cut.id) })
	at, id := newReplay(a.log, a.newModel()), uint64(0)
	for _, ans := range a.stragglers {
		if err := a.compareOne(at, &id, ans); err != nil {
			return err
		}
	}
	a.stragglers = nil
	return nil
}
