package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (c *cli) watchCommand() *cobra.Command {
	var o weir.WatchOptions
	var isolation, numbers, from, to string
	var cuts int
	cmd := &cobra.Command{
		Use:   "watch PIPELINE.TABLE [KEY...] [flags]",
		Short: "Follow a table: its rows, then its changes, cut by cut",
		Long: `Follow a table: a snapshot of its rows, then what changes, cut by cut: an upsert with the new row, or a delete with the
key. A line for the cut follows when all of its changes have been printed. It goes on until it is interrupted, rides out
a server that is away for --retry-for, and then resumes exactly after the last cut that it printed, at another node of the
group if that is what answers. It ends too when nobody reads its output any more, as in weir watch … | head.

The key parts given must be equal; --prefix, or --from and --to, are on the next part. ` + keyHelp + `

With --isolation read-uncommitted: the newest values, and rolled_back when a recovery has taken values back; what follows
corrects them.

With -o json, one object per line:
  {"op":"upsert","key":{…},"row":{…},"checkpoint_id":…}   "snapshot":true for rows of the snapshot
  {"op":"delete","key":{…},"checkpoint_id":…}
  {"op":"cut","cut":{…}}    cut.token is for --resume
  {"op":"restart"}          what came after the last cut is void and comes again`,
		Example: `  weir watch wordcount.counts --prefix wh
  weir watch sales.by_day NZ --changes-only -o json`,
	}
	f := cmd.Flags()
	f.StringVar(&o.Prefix, "prefix", "", "the next key part, a TEXT, starts with this")
	f.StringVar(&from, "from", "", "the next key part is at least this")
	f.StringVar(&to, "to", "", "the next key part is less than this")
	f.BoolVar(&o.ChangesOnly, "changes-only", false, "no snapshot: what changes from now on")
	f.StringVar(&o.Resume, "resume", "", "go on exactly after the cut with this token")
	f.IntVar(&cuts, "cuts", 0, "end after this many cuts, a snapshot being the first; 0 = go on")
	f.StringVar(&o.MinToken, "min-token", "", "begin with a cut that covers this token of an ingest")
	f.DurationVar(&o.MaxWait, "max-wait", 0, "how long to wait for --min-token (default 10s)")
	f.DurationVar(&o.MaxStaleness, "max-staleness", 0, "leave a node that can say nothing about rows which were acknowledged longer ago than this (default: none)")
	f.DurationVar(&o.RetryFor, "retry-for", weir.DefaultWatchRetryFor, "how long to look for a server that is away, each time; 0 = one try")
	choose(cmd, &isolation, "isolation", "", "read-committed", "follow committed cuts, or the newest processed rows, which a recovery may take back",
		"read-committed", "read-uncommitted")
	choose(cmd, &numbers, "numbers", "", "json", "print BIGINT and NUMERIC in JSON as numbers or as strings", "json", "string")
	return c.clientVerb(cmd, cobra.MinimumNArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		switch {
		case cuts < 0:
			return usagef("--cuts %d is negative", cuts)
		case o.MaxStaleness < 0:
			return usagef("--max-staleness %s is negative", o.MaxStaleness)
		case o.RetryFor < 0:
			return usagef("--retry-for %s is negative", o.RetryFor)
		case o.RetryFor == 0:
			o.RetryFor = -time.Second // what the flag means by 0
		}
		o.Equal, o.NumbersAsStrings = keyParts(args[1:]), numbers == "string"
		if isolation == "read-uncommitted" {
			o.Isolation = dataflow.ReadUncommitted
		}
		if cmd.Flags().Changed("from") {
			v := keyPart(from)
			o.From = &v
		}
		if cmd.Flags().Changed("to") {
			v := keyPart(to)
			o.To = &v
		}
		return c.watchTable(ctx, w, args[0], o, cuts)
	})
}

// watchTable prints what a watch says, until it ends or cuts of them have been printed.
func (c *cli) watchTable(ctx context.Context, w *weir.Client, table string, o weir.WatchOptions, cuts int) error {
	ctx, stop := whileRead(ctx, c.stdout)
	defer stop()
	out := bufio.NewWriterSize(c.stdout, outputBuffer)
	for ev, err := range w.Watch(ctx, table, o) {
		if errors.Is(context.Cause(ctx), errNobodyReads) {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil && c.client.timeout == 0 { // this is how watching ends
				err = nil
			}
			return errors.Join(err, out.Flush())
		}
		if err := c.printWatch(out, ev); err != nil {
			return err
		}
		if ev.Cut == nil && !ev.Restart {
			continue // more of the cut is on its way
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if ev.EndOfCut && cuts > 0 {
			if cuts--; cuts == 0 {
				return nil
			}
		}
	}
	return out.Flush()
}

func (c *cli) printWatch(out *bufio.Writer, ev *weir.WatchEvent) error {
	if ev.Restart {
		line := "restart: the connection broke; what came after the last cut comes again\n"
		if c.json() {
			line = `{"op":"restart"}` + "\n"
		}
		_, err := out.WriteString(line)
		return err
	}
	m := &weirv1.WatchResponse{Changes: ev.Changes, Snapshot: ev.Snapshot, EndOfCut: ev.EndOfCut, Cut: ev.Cut, RolledBack: ev.RolledBack}
	if c.json() {
		return wire.WatchLines(m, func(_, _ string, line []byte) error {
			_, err := out.Write(append(line, '\n'))
			return err
		})
	}
	if ev.RolledBack {
		if _, err := fmt.Fprintf(out, "rolled back: incarnation %d goes on from cut %d; what changed since is corrected\n", ev.Cut.GetIncarnation(), ev.Cut.GetCheckpointId()); err != nil {
			return err
		}
		return nil
	}
	for _, ch := range ev.Changes {
		op, body := "upsert", ch.GetRow()
		if ch.GetDeleted() {
			op, body = "delete", ch.GetKey()
		}
		if _, err := fmt.Fprintf(out, "%s  %s\n", op, body); err != nil {
			return err
		}
	}
	if ev.Cut == nil {
		return nil
	}
	_, err := fmt.Fprintf(out, "%s\n", cutLine(ev.Cut))
	return err
}
