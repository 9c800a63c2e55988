package main

import (
	"context"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
)

func (c *cli) scanCommand() *cobra.Command {
	var read readFlags
	var prefix, from, to string
	var limit int
	cmd := &cobra.Command{
		Use:   "scan PIPELINE.TABLE [KEY...] [flags]",
		Short: "Read rows in the order of the key",
		Long: `Read rows in the order of the key. The key parts given must be equal; --prefix, or --from and --to, are on the next
part. All rows are from one cut. ` + keyHelp + `

With -o json: one row per line, then {"cut":…}.`,
		Example: `  weir scan wordcount.counts --prefix wh --limit 10
  weir scan sales.by_day NZ --from 2026-11-01 --to 2026-12-01`,
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "the next key part, a TEXT, starts with this")
	cmd.Flags().StringVar(&from, "from", "", "the next key part is at least this")
	cmd.Flags().StringVar(&to, "to", "", "the next key part is less than this")
	cmd.Flags().IntVar(&limit, "limit", 0, "end after this many rows; 0 = all")
	read.add(cmd)
	return c.clientVerb(cmd, cobra.MinimumNArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		if limit < 0 {
			return usagef("--limit %d is negative", limit)
		}
		o, err := read.options()
		if err != nil {
			return err
		}
		s := weir.ScanRange{Equal: keyParts(args[1:]), Prefix: prefix, Limit: limit}
		if cmd.Flags().Changed("from") {
			v := keyPart(from)
			s.From = &v
		}
		if cmd.Flags().Changed("to") {
			v := keyPart(to)
			s.To = &v
		}
		r, err := w.Scan(ctx, args[0], s, o)
		if err != nil {
			return err
		}
		return c.printRows(r)
	})
}
