package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node/rebuild"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/shard"
)

// A shard's replica in a group of several is rebuilt from the node that leads the shard
//
//   - when it lags: the leader's log does not reach back to where the one here ends. While the node runs, the replica is
//     brought beside the one that is in use; then the node restarts itself, and the start puts it into place.
//   - when it is damaged: it is set aside first, as shards/0007.damaged-1, for people to look at. Only the newest is kept.
//   - when it is lost: there is a log, but no state.
//
// In the second and third case the shard's log is not opened before it is rebuilt: its member neither votes nor acknowledges
// meanwhile. The log's entries and vote are kept, and what is brought is at least as new as they are.
//
// A start brings up all shards before the node serves, as always; nodes that have come so far already serve what another
// one needs.
const (
	// condemnedFile in a shard's directory says that its replica is not to be used, and why (condemnation).
	condemnedFile = "DAMAGED"
	damagedSuffix = ".damaged-"
	// condemnAgain is how long a rebuilt replica must last: damage that comes back sooner comes from somewhere else, and the
	// node stops as one does that has no other to ask.
	condemnAgain = 10 * time.Minute
)

// condemnation says why a replica was set aside, and when.
type condemnation struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// mender brings up one shard of a group of several.
type mender struct {
	s      *storage
	cfg    *Config
	id     dataflow.ShardID
	dir    string
	in     *shard.Installer
	logger *slog.Logger
	hold   *rebuild.Hold // of what was installed; nil when nothing was
}

func (s *storage) newMender(cfg *Config, id dataflow.ShardID) (*mender, error) {
	m := &mender{s: s, cfg: cfg, id: id, dir: s.shardDir(cfg, id), logger: cfg.Logger.With(slog.Uint64("shard", uint64(id)))}
	var err error
	m.in, err = shard.NewInstaller(shard.InstallConfig{
		Shard: id, FS: cfg.FS, Dir: m.dir, Logs: s.logs, Group: shardGroup(id), Logger: cfg.Logger,
		CheckState: func(ctx context.Context, dir string) (map[dataflow.PipelineUID]dataflow.DeltaRef, error) {
			return state.CheckCopy(ctx, state.Config{FS: cfg.FS, Dir: dir, Shard: id, Logger: cfg.Logger}, true, s.peers.pace())
		},
	})
	return m, err
}

// bringUp opens the shard, rebuilds it as often as that is needed, and returns it when it is up to date. What it returns
// beside an error is to be closed too.
func (m *mender) bringUp(ctx context.Context) (sh *worker.Shard, err error) {
	defer func() {
		if err == nil {
			m.hold.Release()
		} else {
			m.hold.Leave()
		}
	}()
	for {
		if installed, err := m.in.Recover(); err != nil {
			return nil, err
		} else if installed {
			m.logger.Info("a replica that was brought is in its place")
		}
		if err := m.setAside(); err != nil {
			return nil, err
		}
		if lost, err := m.lost(); err != nil {
			return nil, err
		} else if lost {
			if err := m.pull(ctx, "", true); err != nil {
				return nil, err
			}
			continue
		}
		sh, err := m.s.openShard(m.cfg, m.id)
		if dataflow.ReasonOf(err) == dataflow.ReasonCorrupt {
			if err := m.condemn(err); err != nil {
				return sh, err
			}
			if err := closeShard(sh); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return sh, err
		}
		stop := m.s.source.Serve(m.id, sh.Log)
		late, err := m.catchUp(ctx, sh)
		if err != nil || !late {
			return sh, err
		}
		stop()
		if err := closeShard(sh); err != nil {
			return nil, err
		}
	}
}

// askLateEvery is how often a member that is not up to date asks whether it can be sent what it lacks. The leader says so by
// itself, but tries a member that was away only every 10 s or so.
const askLateEvery = time.Second

// catchUp waits until the shard has applied what was committed. late says that it was brought from another node instead, and
// is to be closed and put into place.
func (m *mender) catchUp(ctx context.Context, sh *worker.Shard) (late bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pulls, enough := context.WithCancel(ctx) // ends when nothing is to be pulled any more
	defer enough()
	applied := make(chan error, 1)
	go func() {
		err := m.s.applied(ctx, shardGroup(m.id), sh.Log)
		enough()
		applied <- err
	}()
	tick := time.NewTicker(askLateEvery)
	defer tick.Stop()
	for {
		leader := ""
		select {
		case err := <-applied:
			return false, err
		case need := <-sh.Log.Needs():
			leader = need.Leader
		case <-tick.C:
			if have, err := m.have(); err != nil || have == 0 {
				continue // a new member is told; an error is met elsewhere too
			}
		}
		err := m.pull(pulls, leader, false)
		switch {
		case errors.Is(err, rebuild.ErrNotNeeded):
			continue
		case err != nil && pulls.Err() != nil:
			return false, <-applied
		}
		cancel()
		<-applied //nolint:errcheck // it was given up
		return err == nil, err
	}
}

// pull brings a replica, and keeps it at its source until the shard is up to date.
func (m *mender) pull(ctx context.Context, leader string, damaged bool) error {
	if damaged {
		m.s.start.lacks(shardGroup(m.id), lacksReplica)
	}
	hold, err := m.s.rebuilds.Pull(ctx, rebuild.Replica{Shard: m.id, Installer: m.in, Leader: leader, Have: m.have, Damaged: damaged})
	if err != nil {
		return err // what was installed before is held on: the leader asks once more before it sees that
	}
	m.hold.Release()
	m.hold = hold
	return nil
}

// have returns the last index of the shard's log here.
func (m *mender) have() (dataflow.LogIndex, error) {
	g, err := m.s.logs.Group(shardGroup(m.id))
	if err != nil {
		return 0, err
	}
	last, err := g.LastIndex()
	return max(dataflow.LogIndex(last), g.Begins()), err
}

// lost reports whether the shard has a log and no state. The state is there before a log's first entry.
func (m *mender) lost() (bool, error) {
	have, err := m.have()
	if err != nil || have == 0 {
		return false, err
	}
	_, err = m.cfg.FS.Stat(m.cfg.FS.PathJoin(m.dir, "state"))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// condemn writes down that the replica is damaged: the next start sets it aside. It returns why when the replica has been
// rebuilt lately.
func (m *mender) condemn(why error) error {
	at := time.Now().UTC()
	numbers, err := m.asides()
	if err != nil {
		return err
	}
	for _, n := range numbers {
		before, err := m.condemned(m.aside(n))
		if err != nil {
			return err
		}
		if before != nil && at.Sub(before.At) < condemnAgain {
			return fmt.Errorf("shard %d was rebuilt after %s and is damaged again: %w", m.id, before.At.Format(time.RFC3339), why)
		}
	}
	m.logger.Error("the replica is damaged: it is set aside and rebuilt from another node", "error", why)
	b, err := json.Marshal(condemnation{Reason: why.Error(), At: at})
	if err != nil {
		return err
	}
	return vfs.WriteFile(m.cfg.FS, m.cfg.FS.PathJoin(m.dir, condemnedFile), append(b, '\n'))
}

// condemned reads why the replica in a directory was condemned; nil when it was not.
func (m *mender) condemned(dir string) (*condemnation, error) {
	b, err := vfs.ReadFile(m.cfg.FS, m.cfg.FS.PathJoin(dir, condemnedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := new(condemnation)
	if err := json.Unmarshal(b, c); err != nil {
		return &condemnation{Reason: "unknown"}, nil // that it is there says enough
	}
	return c, nil
}

func (m *mender) aside(n int) string { return m.dir + damagedSuffix + strconv.Itoa(n) }

// asides lists the numbers of what was set aside of this shard.
func (m *mender) asides() ([]int, error) {
	names, err := m.cfg.FS.List(m.cfg.FS.PathDir(m.dir))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range names {
		if n, ok := strings.CutPrefix(name, m.cfg.FS.PathBase(m.dir)+damagedSuffix); ok {
			if i, err := strconv.Atoi(n); err == nil {
				numbers = append(numbers, i)
			}
		}
	}
	return numbers, nil
}

// setAside moves a condemned replica out of the way, with the reason as the last of it, and removes what was set aside
// before. After it there is no state, which is how a crash before the rebuild is survived.
func (m *mender) setAside() error {
	c, err := m.condemned(m.dir)
	if err != nil || c == nil {
		return err
	}
	f := m.cfg.FS
	numbers, err := m.asides()
	if err != nil {
		return err
	}
	n := 1
	for _, i := range numbers {
		if c, err := m.condemned(m.aside(i)); err != nil {
			return err
		} else if c != nil {
			n = max(n, i+1)
		} else {
			n = max(n, i) // a move that was interrupted
		}
	}
	to := m.aside(n)
	if err := vfs.MkdirDurable(f, to); err != nil {
		return err
	}
	for _, name := range [...]string{"state", raftlog.SnapshotDir, condemnedFile} {
		err := f.Rename(f.PathJoin(m.dir, name), f.PathJoin(to, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := vfs.SyncDir(f, to); err != nil {
			return err
		}
		if err := vfs.SyncDir(f, m.dir); err != nil {
			return err
		}
	}
	m.logger.Warn("a damaged replica was set aside", "dir", to, "why", c.Reason)
	for _, i := range numbers {
		if i != n {
			if err := f.RemoveAll(m.aside(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// errOpenShard says which shard's replica does not open.
func errOpenShard(id dataflow.ShardID, err error) error {
	return fmt.Errorf("open shard %d: %w", id, err)
}
