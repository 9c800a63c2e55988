package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (c *cli) clusterCommand() *cobra.Command {
	return c.noun("cluster", "Look at the node group", c.clusterStatusCommand())
}

func (c *cli) clusterStatusCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "status [flags]", Short: "Show the group, its logs, and the node that answers"}, cobra.NoArgs,
		func(ctx context.Context, w *weir.Client, _ []string) error {
			s, err := w.Status(ctx)
			if err != nil {
				return err
			}
			if c.json() {
				return c.printJSON(s)
			}
			if _, err := fmt.Fprintf(c.stdout, "group %s: %d shards, %d pipelines, %d streams\nnode %s, version %s, up since %s\n\n",
				s.GetClusterId(), s.GetShards(), s.GetPipelines(), s.GetStreams(), s.GetNode(), s.GetVersion(), timeText(s.GetStartedAt())); err != nil {
				return err
			}
			t := newTable(c.stdout, "LOG", "ROLE", "LEADER", "TERM", "APPLIED", "LAST", "SNAPSHOT")
			for _, l := range append([]*weirv1.RaftLog{s.GetMeta()}, s.GetShardLogs()...) {
				if err := t.add(text(l.GetGroup()), text(l.GetRole()), text(l.GetLeader()), number(l.GetTerm()), number(l.GetAppliedIndex()),
					number(l.GetLastIndex()), number(l.GetSnapshotIndex())); err != nil {
					return err
				}
			}
			return t.flush()
		})
}
