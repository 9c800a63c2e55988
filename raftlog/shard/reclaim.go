package shard

import "github.com/weirdb/weir/dataflow"

// quietBytes of log between two looks are little. A shard that takes more is not asked to give back files: the snapshots
// that it takes by its bytes do.
const quietBytes = 1 << 20

// drops says whether a command may leave entries behind that nobody wants any more.
func drops(c command) bool {
	switch c.(type) {
	case *trimStream, *dropStream, *settle, *dropPipeline, *beginIncarnation:
		return true
	}
	return false
}

// spare looks for files that a quiet shard keeps needlessly: nothing of it that they hold is wanted, but no snapshot has
// said so. maintain's own.
type spare struct {
	taken  int64             // log bytes applied, at the last look
	looked dataflow.LogIndex // what the machine had applied when its references were looked at
}

// look says whether reclaim is worth the snapshots that it takes.
func (s *spare) look(l *Log) bool {
	before := s.taken
	s.taken = l.taken.Load()
	if l.exporting() || l.cfg.SnapshotBytes < 0 || s.taken-before > quietBytes || !l.IsLeader() {
		return false
	}
	l.mu.RLock()
	applied, told := l.mu.m.applied, l.mu.told
	l.mu.RUnlock()
	behind := applied >= told && applied > s.looked && l.cfg.Store.Behind() > 0
	dropped := l.dropped.Swap(false) // before the machine is looked at: what is dropped afterwards is another look's
	if !dropped && !behind {
		return false
	}
	l.mu.RLock()
	m, size := l.mu.m.freeze(), l.mu.snapshot.size
	l.mu.RUnlock()
	last, err := l.cfg.Store.LastIndex()
	if err != nil {
		if dropped {
			l.dropped.Store(true)
		}
		l.cfg.Logger.Warn("the log's end is not known; what can be given back is looked at later", "err", err)
		return false
	}
	s.looked = m.applied
	return l.cfg.Store.Needless(dataflow.LogIndex(last)+1, m.references().islands...) > snapshotGrowth*size
}

// reclaim lets the store go of what the machine does not refer to. The store keeps what the snapshot before the last refers
// to, so it takes two; each is of another index than the one before, so that older ones leave the disk.
func (l *Log) reclaim() error {
	for range 2 {
		if err := l.Barrier(l.ctx); err != nil {
			return err
		}
		if err := l.Snapshot(l.ctx); err != nil {
			return err
		}
	}
	return nil
}
