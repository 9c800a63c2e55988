package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (c *cli) clusterDrainCommand() *cobra.Command {
	var undo, wait bool
	cmd := &cobra.Command{Use: "drain NODE [flags]", Short: "Let a node lead nothing, so that it can be stopped unnoticed",
		Long: `Move the lead of all logs away from a node, and keep it away: right behind a checkpoint, while the sources
wait, so that nothing is processed again. Where other nodes can vote in its place, they do. It goes on holding its copies and answering. Drain, restart, undo,
one node after another, is a rolling restart.

The command returns at once; with --wait, when the node leads nothing. --undo lets it lead again; a command that waits meanwhile ends
with NODE_CONFLICT.`,
		Example: "  weir cluster drain n2 --wait\n  weir cluster drain n2 --undo"}
	cmd.Flags().BoolVar(&undo, "undo", false, "let the node lead again")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the node leads nothing, and say meanwhile what it leads")
	return c.clientVerb(cmd, cobra.ExactArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		if undo && wait {
			return usagef("--wait is for a node that is to lead nothing, and --undo lets it lead")
		}
		n, err := w.DrainNode(ctx, args[0], undo)
		if err != nil || !wait {
			return c.printNode(n, err)
		}
		return c.followDrain(ctx, w, n)
	})
}

// followDrain says what a drained node leads, until it leads nothing.
func (c *cli) followDrain(ctx context.Context, w *weir.Client, n *weirv1.NodeStatus) error {
	said := ""
	return followNode(ctx, w, n, func(s *weirv1.GetStatusResponse, n *weirv1.NodeStatus) (done bool, err error) {
		if n.GetState() != "drained" {
			return takenBack(s, n, "drain")
		}
		leads := leadsOf(s, n.GetNode())
		if len(leads) == 0 {
			return true, c.printNode(n, nil)
		}
		if text := fmt.Sprintf("node %s still leads %s", n.GetNode(), strings.Join(leads, ", ")); text != said {
			fmt.Fprintln(c.stderr, text)
			said = text
		}
		return false, nil
	})
}

// leadsOf returns the logs that a node leads: as it says itself, or, while it does not answer, as any other node knows.
func leadsOf(s *weirv1.GetStatusResponse, node string) []string {
	var leads, known []string
	answers := false
	for _, n := range s.GetNodes() {
		for _, l := range logsOf(n) {
			switch {
			case n.GetNode() == node && l.GetRole() == "leader":
				leads = append(leads, l.GetGroup())
			case l.GetLeader() == node:
				known = append(known, l.GetGroup())
			}
		}
		answers = answers || n.GetNode() == node && n.GetReachable()
	}
	if !answers {
		leads = known
	}
	slices.Sort(leads)
	return slices.Compact(leads)
}
