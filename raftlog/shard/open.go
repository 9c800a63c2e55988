package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
)

// Open opens the shard's log (P7): it restores the newest snapshot, gives the replica the unsettled deltas that it
// refers to, and starts the Raft group, which applies the rest of the log in the background. WaitLeader and Barrier wait
// for that.
func Open(cfg Config) (*Log, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := newLog(cfg)
	if err := l.start(); err != nil {
		return nil, err
	}
	return l, nil
}

// newLog returns a log that has not been started.
func newLog(cfg Config) *Log {
	l := &Log{
		cfg:     cfg,
		cache:   newRowCache(cfg.CacheBytes),
		due:     make(chan struct{}, 1),
		snapMu:  make(chan struct{}, 1),
		failure: make(chan error, 1),
	}
	l.mu.m = newMachine()
	l.kept.floor = 1
	l.dropped.Store(true) // perhaps, before the start
	l.mu.snapshot.refs.floor = 1
	l.watch.changed = make(chan struct{})
	return l
}

func (l *Log) start() error {
	err := l.tidy()
	if err == nil {
		err = l.restore()
	}
	if err != nil {
		return fmt.Errorf("open log of shard %d: %w", l.cfg.Shard, err)
	}
	rc := l.cfg.Raft
	rc.Group = fmt.Sprintf("shard-%d", l.cfg.Shard)
	rc.Log, rc.FSM, rc.OnDisk = l.cfg.Store, fsm{l}, true
	rc.PullSnapshots = true
	rc.SnapshotBytes = -1 // this package decides when, because it must know when one is durable
	if rc.Logger == nil {
		rc.Logger = l.cfg.Logger
	}
	g, err := raftlog.Open(rc)
	if err != nil {
		return err // which names the log
	}
	l.group = g
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.loops.Go(l.runFailure)
	l.loops.Go(l.maintain)
	return nil
}

// tidy refuses a directory in which an install was interrupted at its end, and removes what exports have left.
func (l *Log) tidy() error {
	fs, dir := l.cfg.Raft.FS, l.cfg.Raft.Dir
	if pulled, err := exists(fs, fs.PathJoin(dir+incomingSuffix, pulledFile)); err != nil {
		return err
	} else if pulled {
		return fmt.Errorf("%w: %s", ErrInstallPending, dir+incomingSuffix)
	}
	return fs.RemoveAll(fs.PathJoin(dir, exportDir))
}

// restore brings machine and replica to the newest snapshot.
func (l *Log) restore() error {
	info, r, err := raftlog.NewestSnapshot(l.cfg.Raft.FS, l.cfg.Raft.Dir)
	if err != nil || info == nil {
		return err
	}
	m, size, err := readSnapshot(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("snapshot at index %d: %w", info.Index, err)
	}
	if m.applied > info.Index {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "snapshot at index %d holds index %d", info.Index, m.applied)
	}
	if err := l.refeed(m); err != nil {
		return err
	}
	l.mu.m = m
	l.kept = m.references()
	l.kept.floor = info.Index + 1
	l.mu.snapshot = persisted{refs: l.kept, size: size}
	// Entries between the two are the library's own: they reach no machine.
	l.applied.Store(uint64(info.Index))
	return nil
}

// readSnapshot reads a machine and how many bytes it took.
func readSnapshot(r io.Reader) (*machine, int64, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, 0, fmt.Errorf("read snapshot: %w", err)
	}
	m, err := readMachine(data)
	return m, int64(len(data)), err
}

// refeed gives the replica what m's log has told it, as far as m still refers to it, in log order (P7).
func (l *Log) refeed(m *machine) error { return refeed(m, l.cfg.Replica, l.cfg.Store.Entry) }

func refeed(m *machine, r Replica, entry func(dataflow.LogIndex) ([]byte, error)) error {
	for _, e := range m.past() {
		c := e.c
		if want, ok := c.(*deltaChunk); ok {
			var err error
			if c, err = readChunk(entry, e.index, want, e.hash); err != nil {
				return err
			}
		}
		if err := tell(r, e.index, c); err != nil {
			return err
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(m.droppedPipelines)) {
		if err := tell(r, m.applied, &dropPipeline{pipeline: uid}); err != nil {
			return err
		}
	}
	return nil
}

// readChunk reads a chunk back from the log.
func readChunk(entry func(dataflow.LogIndex) ([]byte, error), index dataflow.LogIndex, want *deltaChunk, hash uint64) (command, error) {
	data, err := entry(index)
	if errors.Is(err, logstore.ErrNotFound) {
		return nil, dataflow.Errorf(dataflow.ReasonCorrupt, "chunk %d of delta %s, to which the newest snapshot refers, is missing: %w", want.chunk, want.delta, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read chunk %d of delta %s: entry %d: %w", want.chunk, want.delta, index, err)
	}
	c, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("read chunk %d of delta %s: entry %d: %w", want.chunk, want.delta, index, err)
	}
	got, ok := c.(*deltaChunk)
	if !ok || got.delta != want.delta || got.chunk != want.chunk || xxhash.Sum64(got.data) != hash {
		return nil, dataflow.Errorf(dataflow.ReasonCorrupt, "entry %d is not chunk %d of delta %s", index, want.chunk, want.delta)
	}
	return got, nil
}

// pastEntry is an entry that a machine still refers to. A chunk comes without its bytes but with their hash.
type pastEntry struct {
	index dataflow.LogIndex
	c     command
	hash  uint64
}

// past lists the delta commands that the machine's state stems from, in log order.
func (m *machine) past() []pastEntry {
	var es []pastEntry
	for uid, p := range m.pipelines {
		es = append(es, pastEntry{index: p.begun, c: &beginIncarnation{pipeline: uid, min: p.min, base: p.base}})
		if p.settle != 0 {
			es = append(es, pastEntry{index: p.settle, c: &settle{pipeline: uid, upTo: p.settled}})
		}
		for i := range p.deltas {
			d := &p.deltas[i]
			id := dataflow.DeltaID{Pipeline: uid, Incarnation: d.ref.Incarnation, Seq: d.ref.Seq}
			for n, c := range d.chunks {
				es = append(es, pastEntry{index: c.index, c: &deltaChunk{delta: id, chunk: n}, hash: c.hash})
			}
			if d.end != 0 {
				es = append(es, pastEntry{index: d.end, c: &endDelta{delta: id, chunks: len(d.chunks), digest: uint64(d.digest)}})
			}
		}
	}
	slices.SortFunc(es, func(a, b pastEntry) int { return cmp.Compare(a.index, b.index) })
	return es
}
