package statequery_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/statequery"
)

// The world is everything that an engine reads.
var (
	_ statequery.Catalog = (*world)(nil)
	_ statequery.Store   = (*world)(nil)
	_ statequery.Streams = (*world)(nil)
	_ statequery.Leases  = (*world)(nil)
)

func (w *world) Pipeline(name string) (*statequery.Pipeline, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name != w.mu.pipeline.Name {
		return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "there is no pipeline %q", name)
	}
	p := w.mu.pipeline
	return &p, nil
}

func (w *world) Cut(p *statequery.Pipeline, id dataflow.CheckpointID) (*dataflow.CheckpointCommit, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.mu.pipeline.Cuts {
		if c.ID == id {
			return c, nil
		}
	}
	return nil, dataflow.Errorf(dataflow.ReasonCheckpointExpired, "checkpoint %d of pipeline %s is no longer kept", id, p.Name)
}

func (w *world) Table(_ *statequery.Pipeline, name string) (*statequery.Table, error) {
	if t := w.tables[name]; t != nil {
		return t, nil
	}
	return nil, dataflow.Errorf(dataflow.ReasonTableNotFound, "there is no table %q", name)
}

// CatchUp tells this node of what another one has deployed, if it has.
func (w *world) CatchUp(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return dataflow.Errorf(dataflow.ReasonNotLeader, "nobody leads the meta log")
	}
	if p := w.mu.unheard; p != nil {
		w.mu.unheard = nil
		w.announceLocked(*p)
	}
	return w.mu.cutOff
}

func (w *world) TableNames() []string { return nil }

func (w *world) Streams() plan.Catalog { return plan.Streams{} }

func (w *world) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.changed
}

func (w *world) View(ctx context.Context, shard dataflow.ShardID, _ dataflow.PipelineUID, cut dataflow.CheckpointID) (statequery.View, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, dataflow.Errorf(dataflow.ReasonNoCommittedCheckpoint, "cut %d is not here", cut)
	case w.mu.fail != nil:
		return nil, w.mu.fail
	case w.mu.expireNow || !slices.ContainsFunc(w.mu.pipeline.Cuts, func(c *dataflow.CheckpointCommit) bool { return c.ID == cut }):
		return nil, dataflow.Errorf(dataflow.ReasonCheckpointExpired, "cut %d is no longer kept", cut)
	}
	w.mu.pinned++
	return &view{w: w, shard: shard, tables: w.mu.cuts[cut]}, nil
}

// at returns the entries of a stage on a shard, by key.
func (w *world) at(t *tables, stage dataflow.StageID, shard dataflow.ShardID, lo, hi []byte) (keys []string, values map[string][]byte) {
	for name, st := range w.stages {
		if st.ID == stage {
			values = t.values[name]
		}
	}
	for k := range values {
		in := k >= string(lo) && (hi == nil || k < string(hi))
		if in && dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey([]byte(k))), w.shards) == shard {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys, values
}

// view is a cut on a shard. What it hands out is overwritten as soon as it may be.
type view struct {
	w      *world
	shard  dataflow.ShardID
	tables *tables // of a cut: never changed
}

func (v *view) Get(stage dataflow.StageID, k, dst []byte) ([]byte, bool, error) {
	keys, values := v.w.at(v.tables, stage, v.shard, k, append(bytes.Clone(k), 0))
	if len(keys) == 0 {
		return dst, false, nil
	}
	return append(dst, values[keys[0]]...), true, nil
}

func (v *view) GetAll(stage dataflow.StageID, l *dataflow.Lookups) error {
	return getAll(l, func(k []byte) ([]byte, bool, error) { return v.Get(stage, k, nil) })
}

// getAll answers keys one by one.
func getAll(l *dataflow.Lookups, get func(k []byte) ([]byte, bool, error)) error {
	for _, i := range l.Open() {
		switch val, found, err := get(l.Key(i)); {
		case err != nil:
			return err
		case !found:
			l.Absent(i)
		case !l.Found(i, val):
			return nil
		}
	}
	return nil
}

func (v *view) Iter(stage dataflow.StageID, lo, hi []byte) statequery.Iter {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	v.w.mu.pinned++
	keys, values := v.w.at(v.tables, stage, v.shard, lo, hi)
	return &iter{w: v.w, keys: keys, values: values, at: -1}
}

// Changes compares the two cuts' values. As the real ones may, it also names keys that have not changed: now and then.
func (v *view) Changes(older statequery.View, stage dataflow.StageID, lo, hi []byte) statequery.Iter {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	v.w.mu.pinned++
	_, before := v.w.at(older.(*view).tables, stage, v.shard, lo, hi)
	after, values := v.w.at(v.tables, stage, v.shard, lo, hi)
	was, _ := v.w.at(older.(*view).tables, stage, v.shard, lo, hi)
	all := slices.Concat(was, after)
	slices.Sort(all)
	all = slices.Compact(all)
	keys := slices.DeleteFunc(all, func(k string) bool { return bytes.Equal(before[k], values[k]) && len(k)%3 != 0 })
	return &iter{w: v.w, keys: keys, values: values, at: -1}
}

func (v *view) Release() {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	v.w.mu.pinned--
}

type iter struct {
	w        *world
	keys     []string
	values   map[string][]byte
	at       int
	key, val []byte
	err      error
}

func (it *iter) Next() bool {
	it.w.mu.Lock()
	it.err = it.w.mu.fail
	it.w.mu.Unlock()
	for i := range it.key { // a caller that kept them sees it
		it.key[i] = 0xee
	}
	for i := range it.val {
		it.val[i] = 0xee
	}
	if it.at++; it.err != nil || it.at >= len(it.keys) {
		return false
	}
	it.key, it.val = []byte(it.keys[it.at]), bytes.Clone(it.values[it.keys[it.at]])
	return true
}
func (it *iter) Key() []byte   { return it.key }
func (it *iter) Value() []byte { return it.val }
func (it *iter) Close() error {
	it.w.mu.Lock()
	defer it.w.mu.Unlock()
	it.w.mu.pinned--
	return it.err
}

func (w *world) Live(dataflow.PipelineUID) statequery.Live {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.live == nil {
		return nil
	}
	return &live{w: w, t: w.mu.live, inc: w.mu.pipeline.Incarnation}
}

type live struct {
	w   *world
	t   *tables
	inc dataflow.Incarnation
}

func (l *live) Incarnation() dataflow.Incarnation { return l.inc }

// Owner says that node n2 runs shard 1, and this one the others.
func (l *live) Owner(shard dataflow.ShardID) string {
	if shard == 1 {
		return "n2"
	}
	return ""
}

func (l *live) Get(stage dataflow.StageID, shard dataflow.ShardID, k, dst []byte) ([]byte, bool, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	keys, values := l.w.at(l.t, stage, shard, k, append(bytes.Clone(k), 0))
	if len(keys) == 0 {
		return dst, false, nil
	}
	return append(dst, values[keys[0]]...), true, nil
}

// Committed has the values of the newest cut whose keys have them still, but for some keys, and while views fail none.
func (l *live) Committed(stage dataflow.StageID, shard dataflow.ShardID, cut dataflow.CheckpointID, k, dst []byte) ([]byte, bool, bool) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	c := l.w.mu.cuts[cut]
	if l.w.mu.fail != nil || l.w.mu.expireNow || c == nil || cut != l.w.mu.pipeline.Newest().ID || len(k) > 0 && k[len(k)-1]%4 == 0 {
		return dst, false, false
	}
	next := append(bytes.Clone(k), 0)
	keys, then := l.w.at(c, stage, shard, k, next)
	same, now := l.w.at(l.t, stage, shard, k, next)
	switch {
	case len(keys) != len(same):
		return dst, false, false
	case len(keys) == 0:
		return dst, false, true
	case !bytes.Equal(then[keys[0]], now[keys[0]]):
		return dst, false, false
	}
	return append(dst, then[keys[0]]...), true, true
}

func (l *live) GetAll(stage dataflow.StageID, shard dataflow.ShardID, all *dataflow.Lookups) error {
	return getAll(all, func(k []byte) ([]byte, bool, error) { return l.Get(stage, shard, k, nil) })
}

func (l *live) CommittedAll(stage dataflow.StageID, shard dataflow.ShardID, cut dataflow.CheckpointID, all *dataflow.Lookups) {
	for _, i := range all.Open() {
		switch val, found, known := l.Committed(stage, shard, cut, all.Key(i), nil); {
		case known && found:
			all.Found(i, val)
		case known:
			all.Absent(i)
		}
	}
}

// Fresh returns what differs from the newest cut.
func (l *live) Fresh(stage dataflow.StageID, shard dataflow.ShardID, maxBytes int64) (keys, values [][]byte, err error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.mu.live != l.t {
		return nil, nil, dataflow.Errorf(dataflow.ReasonPipelineRecovering, "the incarnation has ended")
	}
	all, now := l.w.at(l.t, stage, shard, nil, nil)
	_, then := l.w.at(l.w.mu.cuts[l.w.mu.pipeline.Newest().ID], stage, shard, nil, nil)
	for _, k := range all {
		if maxBytes -= int64(len(k) + len(now[k])); maxBytes < 0 {
			break
		}
		if !bytes.Equal(now[k], then[k]) {
			keys, values = append(keys, []byte(k)), append(values, bytes.Clone(now[k]))
		}
	}
	return keys, values, nil
}

func (l *live) Scan(stage dataflow.StageID, shard dataflow.ShardID, lo, hi []byte, limit int) (keys, values [][]byte, err error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	names, m := l.w.at(l.t, stage, shard, lo, hi)
	for i, k := range names {
		if limit > 0 && i == limit {
			break
		}
		keys, values = append(keys, []byte(k)), append(values, bytes.Clone(m[k]))
	}
	return keys, values, nil
}

func (l *live) Covered(context.Context) dataflow.Positions {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.t.pos.Clone()
}

var errEnded = errors.New("the incarnation has ended")

func (l *live) Processed(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error) {
	for {
		changed := l.w.Changed()
		if pos := l.Covered(ctx); pos.Covers(want) {
			return pos, nil
		}
		l.w.mu.Lock()
		ended := l.w.mu.live != l.t
		l.w.mu.Unlock()
		if ended {
			return nil, errEnded
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *world) End(at dataflow.StreamShard) dataflow.Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.ends[at]
}

func (w *world) AppendTime(at dataflow.StreamShard, offset dataflow.Offset) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if times := w.mu.times[at]; offset < dataflow.Offset(len(times)) {
		return times[offset]
	}
	return 0
}

func (w *world) Lease(_ context.Context, _ dataflow.PipelineUID, cut dataflow.CheckpointID, ttl time.Duration) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.mu.pipeline.Cuts, func(c *dataflow.CheckpointCommit) bool { return c.ID == cut }) {
		return "", dataflow.Errorf(dataflow.ReasonCheckpointExpired, "cut %d is no longer kept", cut)
	}
	w.mu.nextLease++
	id := strconv.Itoa(w.mu.nextLease)
	w.mu.leases[id] = lease{cut, w.mu.now + ttl.Microseconds()}
	return id, nil
}

func (w *world) Renew(_ context.Context, _ dataflow.PipelineUID, id string, ttl time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, ok := w.mu.leases[id]
	if !ok {
		return dataflow.Errorf(dataflow.ReasonCheckpointExpired, "lease %s has ended", id)
	}
	l.end = w.mu.now + ttl.Microseconds()
	w.mu.leases[id] = l
	return nil
}

func (w *world) Release(_ context.Context, _ dataflow.PipelineUID, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.leases, id)
	return nil
}

func (w *world) leases() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.leases)
}
