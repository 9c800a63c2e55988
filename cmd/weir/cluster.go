package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (c *cli) clusterCommand() *cobra.Command {
	return c.noun("cluster", "Look at the node group, and change its nodes", c.clusterStatusCommand(), c.clusterAddCommand(), c.clusterRemoveCommand(),
		c.clusterDrainCommand(), c.clusterRebalanceCommand(), c.clusterReplicasCommand(), c.clusterVerifyCommand())
}

func (c *cli) clusterStatusCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{Use: "status [flags]", Short: "Show the group, its nodes and its logs",
		Long: `Show the group: its nodes, which logs each of them leads and votes in, how far each has applied them, the newest cut
that each serves, and the room on its disk. The node that answers asks the others; one that does not answer is shown so. Then the
logs, as that node has them: its role is leader, voter, or reader, which follows without a vote.

Of a node that waits for its group it shows what it waits for, and which nodes answer it; the exit code is 4 (try again).`}
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again each second, until interrupted")
	return c.clientVerb(cmd, cobra.NoArgs, func(ctx context.Context, w *weir.Client, _ []string) error {
		for {
			err := c.printStatus(ctx, w)
			if notReady(err) != nil {
				err = c.printWaiting(err)
			}
			if !watch || err != nil && notReady(err) == nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Second):
			}
			if !c.json() {
				if _, err := fmt.Fprintln(c.stdout); err != nil {
					return err
				}
			}
		}
	})
}

func (c *cli) printStatus(ctx context.Context, w *weir.Client) error {
	s, err := w.Status(ctx)
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(s)
	}
	replicas := ""
	if s.GetReplicas() > 0 {
		replicas = fmt.Sprintf(" with %d voters each", min(int(s.GetReplicas()), len(members(s))))
	}
	if _, err := fmt.Fprintf(c.stdout, "group %s: %d shards%s, %d pipelines, %d streams\nnode %s, version %s, up since %s\n\n",
		s.GetClusterId(), s.GetShards(), replicas, s.GetPipelines(), s.GetStreams(), s.GetNode(), s.GetVersion(), timeText(s.GetStartedAt())); err != nil {
		return err
	}
	if len(s.GetNodes()) > 0 {
		if err := c.printNodes(s); err != nil {
			return err
		}
	}
	for _, n := range s.GetNodes() {
		if n.GetState() != "leaving" {
			continue
		}
		if _, err := fmt.Fprintf(c.stdout, "%s\n\n", departureText(s, n.GetNode())); err != nil {
			return err
		}
	}
	var leaderless []string
	t := newTable(c.stdout, "LOG", "ROLE", "LEADER", "VOTERS", "READERS", "TERM", "APPLIED", "LAST", "SNAPSHOT")
	for _, l := range append([]*weirv1.RaftLog{s.GetMeta()}, s.GetShardLogs()...) {
		if l.GetLeader() == "" {
			leaderless = append(leaderless, l.GetGroup())
		}
		if err := t.add(text(l.GetGroup()), text(l.GetRole()), text(l.GetLeader()), text(strings.Join(l.GetVoters(), ",")), text(strings.Join(l.GetReaders(), ",")),
			number(l.GetTerm()), number(l.GetAppliedIndex()), number(l.GetLastIndex()), number(l.GetSnapshotIndex())); err != nil {
			return err
		}
	}
	if err := t.flush(); err != nil || len(leaderless) == 0 {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "\n%s: no leader is known to node %s. One is elected when a majority of the log's voters answers; rows and commands\nwait until then, and committed reads are answered.\n", strings.Join(leaderless, ", "), s.GetNode())
	return err
}

// members returns the nodes that are in the group and stay.
func members(s *weirv1.GetStatusResponse) []*weirv1.NodeStatus {
	return slices.DeleteFunc(slices.Clone(s.GetNodes()), func(n *weirv1.NodeStatus) bool { return n.GetState() == "gone" || n.GetState() == "leaving" })
}

// logsOf returns all logs as a node has them.
func logsOf(n *weirv1.NodeStatus) []*weirv1.RaftLog {
	return append([]*weirv1.RaftLog{n.GetMeta()}, n.GetShardLogs()...)
}

// printNodes prints a line per node. Behind is how many entries of all logs it has not applied that another node has.
func (c *cli) printNodes(s *weirv1.GetStatusResponse) error {
	most := make(map[string]uint64)
	for _, n := range s.GetNodes() {
		for _, l := range logsOf(n) {
			most[l.GetGroup()] = max(most[l.GetGroup()], l.GetAppliedIndex())
		}
	}
	t := newTable(c.stdout, "NODE", "STATE", "LEADS", "VOTES", "BEHIND", "CUTS", "DISK FREE", "VERSION", "PEERS", "CLIENTS")
	for _, n := range s.GetNodes() {
		if !n.GetReachable() {
			state := n.GetState()
			if n.GetProblem() != "" {
				state += ", does not answer"
			}
			if err := t.add(text(n.GetNode()), text(state), text(""), text(""), text(""), text(""), text(""), text(""), text(n.GetPeerAddr()), text(n.GetGrpcAddr())); err != nil {
				return err
			}
			continue
		}
		var leads, votes, cuts []string
		var behind uint64
		for _, l := range logsOf(n) {
			log := strings.TrimPrefix(l.GetGroup(), "shard-")
			if l.GetRole() == "leader" {
				leads = append(leads, log)
			}
			if slices.Contains(l.GetVoters(), n.GetNode()) {
				votes = append(votes, log)
			}
			behind += most[l.GetGroup()] - l.GetAppliedIndex()
		}
		for _, p := range n.GetCuts() {
			cuts = append(cuts, fmt.Sprintf("%s@%d", p.GetPipeline(), p.GetCheckpoint()))
		}
		if err := t.add(text(n.GetNode()), text(n.GetState()), text(strings.Join(leads, ",")), text(strings.Join(votes, ",")), number(behind), text(strings.Join(cuts, " ")),
			text(byteText(n.GetDiskFreeBytes())), text(n.GetVersion()), text(n.GetPeerAddr()), text(n.GetGrpcAddr())); err != nil {
			return err
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c.stdout); err != nil {
		return err
	}
	return c.printRebuilds(s)
}

// printRebuilds prints a line per replica that a node brings from another one.
func (c *cli) printRebuilds(s *weirv1.GetStatusResponse) error {
	t := newTable(c.stdout, "REBUILDS", "SHARD", "FROM", "MIB", "OF ABOUT", "PERCENT", "SINCE")
	some := false
	for _, n := range s.GetNodes() {
		for _, r := range n.GetRebuilds() {
			some = true
			if err := t.add(text(r.GetNode()), number(uint64(r.GetShard())), text(n.GetNode()), number(r.GetDoneBytes()>>20), number(r.GetTotalBytes()>>20),
				number(100*r.GetDoneBytes()/max(r.GetTotalBytes(), 1)), text(timeText(r.GetStartedAt()))); err != nil {
				return err
			}
		}
	}
	if !some {
		return nil
	}
	if err := t.flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.stdout)
	return err
}

// byteText prints a number of bytes for people.
func byteText(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func (c *cli) clusterAddCommand() *cobra.Command {
	var addr string
	cmd := &cobra.Command{Use: "add NODE --peer-addr HOST:PORT [flags]", Short: "Take a node into the group",
		Long: `Take a node into the group. It was started with --peer-addr, --join naming nodes of the group, a --node-id that
the group has never had, and an empty data directory, and it waits. The command returns at once: the node is brought up to date
while the group goes on, and weir cluster status shows it joining, then active. One node at a time joins or leaves.`,
		Example: "  weir cluster add n4 --peer-addr 10.0.0.4:7712"}
	cmd.Flags().StringVar(&addr, "peer-addr", "", "where the node listens for others")
	return c.clientVerb(cmd, cobra.ExactArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		if addr == "" {
			return usage(fmt.Errorf("where is node %s? say --peer-addr HOST:PORT", args[0]))
		}
		n, err := w.AddNode(ctx, args[0], addr)
		return c.printNode(n, err)
	})
}

func (c *cli) printNode(n *weirv1.NodeStatus, err error) error {
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(n)
	}
	_, err = fmt.Fprintf(c.stdout, "node %s is %s\n", n.GetNode(), n.GetState())
	return err
}

func (c *cli) clusterRebalanceCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "rebalance [flags]", Short: "Spread the lead of the shards evenly, now",
		Long: `Spread the lead of the shards evenly over the active nodes, now. The group does so by itself when nothing has moved
for half a minute. Pipelines make a checkpoint before, and recover once, from it.`}, cobra.NoArgs, func(ctx context.Context, w *weir.Client, _ []string) error {
		r, err := w.Rebalance(ctx)
		if err != nil {
			return err
		}
		if c.json() {
			return c.printJSON(r)
		}
		for _, m := range r.GetMoves() {
			if _, err := fmt.Fprintf(c.stdout, "shard %d: %s to %s\n", m.GetShard(), m.GetFrom(), m.GetTo()); err != nil {
				return err
			}
		}
		if len(r.GetMoves()) == 0 {
			_, err = fmt.Fprintln(c.stdout, "nothing to move")
		}
		return err
	})
}

func (c *cli) clusterReplicasCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "replicas N [flags]", Short: "Say how many nodes vote in each shard's log",
		Long: `Say how many nodes vote in each shard's log: 3, which is the default, 5 or 7. An append waits for a majority of them, and a
minority of them may be lost at once without a loss. The other nodes of the group hold every shard too and answer reads. The votes
are spread evenly over the nodes, one change at a time; weir cluster status shows where they are.`,
		Example: "  weir cluster replicas 5"}, cobra.ExactArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return usage(fmt.Errorf("how many? %q is not 3, 5 or 7", args[0]))
		}
		if err := w.SetReplicas(ctx, n); err != nil {
			return err
		}
		if c.json() {
			return c.printJSON(&weirv1.SetReplicasResponse{Replicas: uint32(n)})
		}
		_, err = fmt.Fprintf(c.stdout, "%d nodes vote in each shard's log, as far as there are so many\n", n)
		return err
	})
}
