package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (c *cli) clusterVerifyCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "verify [PIPELINE ...] [flags]", Short: "Compare what the nodes hold of pipelines at one cut",
		Long: `Compare what the nodes hold: for each pipeline and shard, a digest of all rows at the newest committed cut, computed
by every node from its own copy. It reads all of the state. EQUAL is about the copies of the nodes that answered, and says how many
these are when it was not all of them. The exit code is 1 when two copies differ, and 4 when those that answered are equal
and a node did not answer, as when it is down: why is in the error, and in "reason" and "problem" of -o json.
A copy that differs from what a majority of the nodes hold is set aside by its node and rebuilt from another one.
A group of one node has one copy. Its state at the newest cut is read; damage that this meets is CORRUPT with exit code 1. It is compared
with nothing: whether it is what the stream's rows say, only the same views deployed once more from the first row could tell.`}, cobra.ArbitraryArgs,
		func(ctx context.Context, w *weir.Client, args []string) error {
			r, err := w.VerifyCluster(ctx, args...)
			if err != nil {
				return err
			}
			if c.json() {
				err = c.printJSON(r)
			} else {
				err = c.printVerified(r)
			}
			if err != nil {
				return err
			}
			return unverified(r.GetVerified())
		})
}

func (c *cli) printVerified(r *weirv1.VerifyClusterResponse) error {
	t := newTable(c.stdout, "PIPELINE", "SHARD", "CUT", "EQUAL", "NODE", "KEYS", "DIGEST")
	for _, v := range r.GetVerified() {
		for _, n := range v.GetReplicas() {
			keys, digest := number(n.GetKeys()), fmt.Sprintf("%016x", n.GetDigest())
			switch {
			case n.GetReason() != "":
				keys, digest = text(""), n.GetReason()
			case n.GetProblem() != "":
				digest += ", " + n.GetProblem()
			case n.GetRebuilds():
				digest += ", is rebuilt"
			}
			if err := t.add(text(v.GetPipeline()), number(uint64(v.GetShard())), number(v.GetCheckpoint()), text(equalText(v)), text(n.GetNode()), keys, text(digest)); err != nil {
				return err
			}
		}
	}
	return t.flush()
}

// equalText says whether those that answered hold the same, and how many these are when they are not all.
func equalText(v *weirv1.Verified) string {
	all, answered := v.GetReplicas(), 0
	for _, n := range all {
		if n.GetReason() == "" {
			answered++
		}
	}
	switch {
	case answered == len(all) && answered == 1:
		return "one copy"
	case answered == len(all):
		return fmt.Sprint(v.GetEqual())
	case answered == 0:
		return fmt.Sprintf("none of %d answers", len(all))
	}
	return fmt.Sprintf("%v, %d of %d", v.GetEqual(), answered, len(all))
}

// unverified says what stands against all copies being equal; nil = nothing. That copies differ weighs more than that some were
// not compared, and of the reasons for that those weigh more that do not pass by themselves.
func unverified(verified []*weirv1.Verified) error {
	var differ, silent []string
	var reason dataflow.Reason
	some := false
	for _, v := range verified {
		answered := slices.ContainsFunc(v.GetReplicas(), func(n *weirv1.Replica) bool { return n.GetReason() == "" })
		some = some || answered
		if answered && !v.GetEqual() {
			differ = append(differ, fmt.Sprintf("%s on shard %d", v.GetPipeline(), v.GetShard()))
		}
		for _, n := range v.GetReplicas() {
			if n.GetReason() == "" {
				continue
			}
			if why := fmt.Sprintf("node %s: %s", n.GetNode(), n.GetProblem()); !slices.Contains(silent, why) {
				silent = append(silent, why)
			}
			r := dataflow.Reason(n.GetReason())
			if reason == "" || exitCode(dataflow.Errorf(reason, "")) == exitTryAgain && exitCode(dataflow.Errorf(r, "")) != exitTryAgain {
				reason = r
			}
		}
	}
	notCompared := strings.Join(silent, "; ")
	if len(differ) > 0 {
		message := fmt.Sprintf("copies differ in %d of %d comparisons: %s", len(differ), len(verified), strings.Join(differ, ", "))
		if notCompared != "" {
			message += "; not compared: " + notCompared
		}
		return dataflow.Errorf(dataflow.ReasonCorrupt, "%s", message).
			WithHint("a copy that a majority contradicts is rebuilt, as weir cluster status shows; compare again after that")
	}
	if notCompared == "" {
		return nil
	}
	message := "the copies that answered are equal; not compared: "
	if !some {
		message = "no copy was compared: "
	}
	return dataflow.Errorf(reason, "%s%s", message, notCompared).WithHint("weir cluster status shows who answers; compare again when all do")
}
