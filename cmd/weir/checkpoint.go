package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (c *cli) checkpointCommand() *cobra.Command {
	return c.noun("checkpoint", "Look at checkpoints, and trigger them",
		c.checkpointListCommand(), c.checkpointShowCommand(), c.checkpointTriggerCommand())
}

func (c *cli) checkpointListCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "list PIPELINE [flags]", Short: "List the checkpoints that are kept, newest first"}, cobra.ExactArgs(1),
		func(ctx context.Context, w *weir.Client, args []string) error {
			list, err := w.ListCheckpoints(ctx, args[0])
			if err != nil {
				return err
			}
			if c.json() {
				return printEach(c, list)
			}
			t := newTable(c.stdout, "ID", "INCARNATION", "COMMITTED", "TOOK", "LEASES", "SKIPPED")
			for _, k := range list {
				if err := t.add(number(k.GetId()), number(k.GetIncarnation()), text(timeText(k.GetCommittedAt())), text(tookText(k)),
					number(k.GetLeases()), number(k.GetSkippedRows())); err != nil {
					return err
				}
			}
			return t.flush()
		})
}

func (c *cli) checkpointShowCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "show PIPELINE ID [flags]", Short: "Show one checkpoint"}, cobra.ExactArgs(2),
		func(ctx context.Context, w *weir.Client, args []string) error {
			id, err := parseCheckpoint(args[1])
			if err != nil {
				return err
			}
			k, err := w.GetCheckpoint(ctx, args[0], id)
			if err != nil {
				return err
			}
			return c.printCheckpoint(k)
		})
}

func (c *cli) printCheckpoint(k *weirv1.Checkpoint) error {
	if c.json() {
		return c.printJSON(k)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "checkpoint %d of %s: incarnation %d, timeline %d, %s\n", k.GetId(), k.GetPipeline(), k.GetIncarnation(), k.GetTimeline(),
		strings.ToLower(strings.TrimPrefix(k.GetGuarantee().String(), "GUARANTEE_")))
	fmt.Fprintf(&b, "committed %s, %s after its trigger; %s skipped; %d leases\n", timeText(k.GetCommittedAt()), tookText(k), rows(k.GetSkippedRows()), k.GetLeases())
	for _, p := range k.GetPositions() {
		fmt.Fprintf(&b, "covers stream %s, shard %d, up to offset %d\n", p.GetStream(), p.GetShard(), p.GetOffset())
	}
	b.WriteByte('\n')
	if _, err := c.stdout.Write([]byte(b.String())); err != nil {
		return err
	}
	t := newTable(c.stdout, "SHARD", "DELTA", "DIGEST", "LOG INDEX", "ACKNOWLEDGED AFTER")
	for _, s := range k.GetShards() {
		if err := t.add(number(s.GetShard()), number(s.GetDeltaSeq()), text(s.GetDigest()), number(s.GetLogIndex()),
			text(s.GetAcknowledgedAfter().AsDuration().String())); err != nil {
			return err
		}
	}
	return t.flush()
}

// tookText says how long a checkpoint took from its trigger to its commit.
func tookText(k *weirv1.Checkpoint) string {
	return k.GetCommittedAt().AsTime().Sub(k.GetTriggeredAt().AsTime()).String()
}

func (c *cli) checkpointTriggerCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{Use: "trigger PIPELINE [flags]", Short: "Start a checkpoint"}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when it has been committed")
	return c.clientVerb(cmd, cobra.ExactArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		k, err := w.TriggerCheckpoint(ctx, args[0], wait)
		if err != nil {
			return err
		}
		if c.json() {
			return c.printJSON(&weirv1.TriggerCheckpointResponse{Checkpoint: k})
		}
		if k == nil {
			_, err = fmt.Fprintf(c.stdout, "triggered\n")
		} else {
			_, err = fmt.Fprintf(c.stdout, "checkpoint %d committed\n", k.GetId())
		}
		return err
	})
}
