package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/rebuild"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog"
)

// Restart is why Run has ended by itself, in order: something that only a start can do is to be done, such as putting a
// replica into its place that was brought from another node. Who gets it closes the node and opens it again with the same
// Config; that takes about a second, in which the rest of the group serves.
type Restart struct{ Why string }

func (r *Restart) Error() string { return "the node must be opened again: " + r.Why }

// tend looks after the shards' replicas while the node runs, in a group of several: what lags too far is brought from another
// node beside the replica that is in use, what is damaged is condemned; then it asks for a restart, which puts the one into
// place and rebuilds the other. It ends with ctx.
func (s *storage) tend(ctx context.Context, cfg *Config) error {
	g, ctx := errgroup.WithContext(ctx)
	t := &tending{s: s}
	g.Go(func() error {
		select {
		case r := <-s.due:
			return r
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	for _, sh := range s.shards {
		g.Go(func() error {
			m, err := s.newMender(cfg, sh.ID)
			if err != nil {
				return err
			}
			return t.shard(ctx, m, sh)
		})
	}
	return g.Wait()
}

// tending is the state of tend.
type tending struct {
	s  *storage
	mu struct {
		sync.Mutex
		pulling int
		came    []dataflow.ShardID // replicas that wait for the restart
	}
}

// shard looks after one shard until ctx ends, or a restart is due.
func (t *tending) shard(ctx context.Context, m *mender, sh *worker.Shard) error {
	defer func() { m.hold.Leave() }()
	needs := sh.Log.Needs()
	for {
		select {
		case need := <-needs:
			came, err := t.pull(ctx, m, need.Leader)
			if err != nil {
				return err
			}
			if came {
				needs = nil // the leader goes on telling it until the restart
			}
		case <-sh.Replica.Damaged():
			return t.s.shardFailed(m.cfg, sh.ID, fmt.Errorf("state of shard %d: %w", sh.ID, sh.Replica.Damage()))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pull brings the replica of a shard that lags. The last of those that are under way asks for the restart, so that one is
// enough for all.
func (t *tending) pull(ctx context.Context, m *mender, leader string) (came bool, err error) {
	t.mu.Lock()
	t.mu.pulling++
	t.mu.Unlock()
	err = m.pull(ctx, leader, false)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.pulling--
	switch {
	case err == nil:
		t.mu.came = append(t.mu.came, m.id)
	case ctx.Err() != nil:
		return false, ctx.Err()
	case !errors.Is(err, rebuild.ErrNotNeeded):
		// The leader goes on finding it.
		m.logger.Warn("a replica was not brought; it is tried again", "error", err)
	}
	if t.mu.pulling == 0 && len(t.mu.came) > 0 {
		return true, &Restart{Why: fmt.Sprintf("replicas of shards %v were brought from another node and are to be put into place", t.mu.came)}
	}
	return err == nil, nil
}

// shardFailed is what follows from a shard's failure: when it is damage, and other nodes have the shard too, it is rebuilt
// from them after a restart. Anything else ends the node.
func (s *storage) shardFailed(cfg *Config, id dataflow.ShardID, why error) error {
	if s.peers == nil || dataflow.ReasonOf(why) != dataflow.ReasonCorrupt {
		return why
	}
	m, err := s.newMender(cfg, id)
	if err != nil {
		return errors.Join(why, err)
	}
	if err := m.condemn(why); err != nil {
		return err
	}
	return &Restart{Why: fmt.Sprintf("the replica of shard %d is damaged and is to be rebuilt: %s", id, why)}
}

const (
	// handOverTime bounds the handing over of leads: the others elect a leader when it does not succeed.
	handOverTime = 2 * time.Second
	// giveTime bounds the moving of the shards' leads behind a checkpoint: they are handed over without one when it does not succeed,
	// as when the nodes of a group all stop at once.
	giveTime = 2 * time.Second
)

// giveLeads has the leads of this node's shards moved right behind a checkpoint, so that nothing is processed again. The node's loops
// must run: it may be the one that coordinates.
func (n *Node) giveLeads(ctx context.Context) {
	if n.members == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(n.cfg.Tuning.GiveLeads, giveTime))
	defer cancel()
	ctx, stop := n.storage.group.WhileInReach(ctx) // nothing can be committed any more where all nodes stop
	defer stop()
	if err := n.members.GiveLeads(ctx); err != nil {
		n.cfg.Logger.Info("the leads of shards are handed over without a checkpoint", slog.Any("error", err))
	}
}

// handOver hands what this node leads to the members that have come furthest, so that nobody waits for an election.
func (n *Node) handOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOverTime)
	defer cancel()
	logs := []*raftlog.Group{n.storage.group}
	for _, sh := range n.storage.shards {
		logs = append(logs, sh.Log.Group())
	}
	var all sync.WaitGroup
	for _, log := range logs {
		if !log.IsLeader() {
			continue
		}
		all.Go(func() {
			to, err := furthest(log, n.cfg.NodeID)
			for i := range to {
				if err = log.Transfer(ctx, to[i]); err == nil || ctx.Err() != nil {
					break
				}
			}
			if err != nil {
				n.cfg.Logger.Info("a lead is not handed over", slog.String("log", log.Name()), slog.Any("error", err))
			}
		})
	}
	all.Wait()
}

// furthest returns the voting members beside self, those that have most of a log first.
func furthest(log *raftlog.Group, self string) ([]string, error) {
	members, err := log.Members()
	if err != nil {
		return nil, err
	}
	members = slices.DeleteFunc(members, func(m raftlog.MemberStatus) bool { return m.ID == self || !m.Voter })
	slices.SortFunc(members, func(a, b raftlog.MemberStatus) int { return cmp.Compare(b.Match, a.Match) })
	var to []string
	for _, m := range members {
		to = append(to, m.ID)
	}
	return to, nil
}
