package node

import (
	"context"
	"slices"
	"time"

	"github.com/weirdb/weir/raftlog"
)

// leaderlessAfter is how long a log has no leader before the node says so. Why not shorter: another leader is there within 3
// seconds when one is lost, and clients try again meanwhile.
const leaderlessAfter = 5 * time.Second

// nodesTime bounds the question which nodes answer: who asks whether this one is ready waits for it.
const nodesTime = time.Second

// ready says why the node cannot take rows and commands, or cannot answer reads, as reads says.
func (n *Node) ready(reads func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := reads(ctx); err != nil {
			return err
		}
		return n.led(ctx)
	}
}

// led returns nil when each log has a leader, or had one a moment ago, and else NODE_NOT_READY, with the nodes that answer.
func (n *Node) led(ctx context.Context) error {
	w := waiting{Doing: "it waits for a majority of its group, and answers committed reads meanwhile", Logs: n.leaderless()}
	if len(w.Logs) == 0 {
		return nil
	}
	if n.members != nil {
		ctx, cancel := context.WithTimeout(ctx, nodesTime)
		defer cancel()
		for _, s := range n.members.Nodes(ctx) {
			if s.GetNode() == n.cfg.NodeID || s.GetState() == "gone" {
				continue
			}
			a := answer{Addr: s.GetPeerAddr(), Node: s.GetNode()}
			if !s.GetReachable() {
				a.Problem = "it is stopped, or cut off"
			}
			w.Nodes = append(w.Nodes, a)
		}
		slices.SortFunc(w.Nodes, compareAnswers)
	}
	return w.err(n.cfg.NodeID, "takes no rows and commands")
}

// leaderless returns the logs that have had no leader for a while, each with what it lacks.
func (n *Node) leaderless() map[string]string {
	logs := make(map[string]string)
	look := func(g *raftlog.Group) {
		if time.Since(g.LastContact()) >= leaderlessAfter {
			logs[g.Name()] = lacksLeader
		}
	}
	look(n.storage.group)
	for _, sh := range n.storage.shards {
		look(sh.Log.Group())
	}
	return logs
}
