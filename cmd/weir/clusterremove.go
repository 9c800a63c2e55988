package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const (
	// removeLook is how long weir cluster remove looks how the node leaves. A node that can leave is out within it, and what it waits
	// for is known.
	removeLook = 10 * time.Second
	// stuckFor is how long a node waits for the same others before that is what it waits for: others come to vote in its place, which
	// each log waits for in passing.
	stuckFor = 2 * time.Second
)

func (c *cli) clusterRemoveCommand() *cobra.Command {
	var undo, wait bool
	cmd := &cobra.Command{Use: "remove NODE [flags]", Short: "Take a node out of the group, for good",
		Long: `Take a node out of the group, for good: also one that is gone with its disk. Its name is not given again. Add its
successor first: until then the group has fewer copies.

The node leaves one log after another, and a log lets go of it only when enough of the others answer for a majority. The command returns
when the node is gone or waits for something, and says for what; with --wait, when it is gone. weir cluster status shows it too.
Until the node is gone, --undo takes the removal back: the node joins again. A command that looks meanwhile ends with NODE_CONFLICT.`,
		Example: "  weir cluster remove n2\n  weir cluster remove n2 --undo"}
	cmd.Flags().BoolVar(&undo, "undo", false, "take the removal of a node that is leaving back")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the node is gone, and say meanwhile what that waits for")
	return c.clientVerb(cmd, cobra.ExactArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		if undo && wait {
			return usagef("--wait is for a node that leaves, and --undo lets it stay")
		}
		n, err := w.RemoveNode(ctx, args[0], undo)
		if err != nil || undo || n.GetState() != "leaving" || c.json() && !wait {
			return c.printNode(n, err)
		}
		return c.followDeparture(ctx, w, n, wait)
	})
}

// followDeparture says what a node that leaves waits for, until it is gone; without wait, until that is known.
func (c *cli) followDeparture(ctx context.Context, w *weir.Client, n *weirv1.NodeStatus, wait bool) error {
	d := departure{end: time.Now().Add(removeLook)}
	return followNode(ctx, w, n, func(s *weirv1.GetStatusResponse, n *weirv1.NodeStatus) (done bool, err error) {
		switch {
		case n.GetState() == "gone":
			return true, c.printNode(n, nil)
		case n.GetState() != "leaving":
			return takenBack(s, n, "removal")
		}
		news, known := d.look(departureText(s, n.GetNode()), stuck(s, n.GetNode()), time.Now())
		if news && wait {
			fmt.Fprintln(c.stderr, d.said)
		}
		if known && !wait {
			_, err := fmt.Fprintln(c.stdout, d.said)
			return true, err
		}
		return false, nil
	})
}

// departure is what was seen of a node that leaves.
type departure struct {
	said  string    // what it waits for
	since time.Time // when that was seen first
	end   time.Time // when what it waits for is known, whatever it is
}

// look takes what a node waits for now, and whether it waits for others. It reports whether that is news, and whether it is known what
// keeps the node.
func (d *departure) look(text string, stuck bool, now time.Time) (news, known bool) {
	if news = text != d.said; news {
		d.said, d.since = text, now
	}
	return news, stuck && now.Sub(d.since) >= stuckFor || now.After(d.end)
}

// departures returns what the leaders of the logs say of a node that leaves.
func departures(s *weirv1.GetStatusResponse, node string) []*weirv1.Departure {
	var out []*weirv1.Departure
	for _, n := range s.GetNodes() {
		for _, d := range n.GetDepartures() {
			if d.GetNode() == node {
				out = append(out, d)
			}
		}
	}
	return out
}

// stuck reports whether a node that leaves waits for others.
func stuck(s *weirv1.GetStatusResponse, node string) bool {
	for _, d := range departures(s, node) {
		if len(d.GetNodes()) > 0 {
			return true
		}
	}
	return false
}

// departureText says in which logs a node that leaves is still, and what for.
func departureText(s *weirv1.GetStatusResponse, node string) string {
	var whys []string
	logs := make(map[string][]string)
	for _, d := range departures(s, node) {
		if logs[d.GetWaitsFor()] == nil {
			whys = append(whys, d.GetWaitsFor())
		}
		logs[d.GetWaitsFor()] = append(logs[d.GetWaitsFor()], d.GetLog())
	}
	out := fmt.Sprintf("node %s is leaving", node)
	for _, why := range whys {
		slices.Sort(logs[why])
		out += fmt.Sprintf("\n  %s: %s", strings.Join(logs[why], ", "), why)
	}
	if stuck(s, node) {
		out += fmt.Sprintf("\nIt goes on when these nodes answer and are up to date; weir cluster remove %s --undo takes the removal back.", node)
	}
	return out
}
