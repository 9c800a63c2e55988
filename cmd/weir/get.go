package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
)

func (c *cli) getCommand() *cobra.Command {
	var read readFlags
	cmd := &cobra.Command{
		Use:   "get PIPELINE.TABLE [KEY...] [flags]",
		Short: "Read one row by its key",
		Long: `Read one row by its key: one argument per key column, in the order of the key. A table without GROUP BY has one row
and no key. ` + keyHelp + `

With -o json: {"row":…,"cut":…}. Without such a row it exits with 3, and "row" is null.`,
		Example: `  weir get wordcount.counts whale
  weir get sales.by_day NZ 2026-11-29 --isolation read-uncommitted`,
	}
	read.add(cmd)
	return c.clientVerb(cmd, cobra.MinimumNArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		o, err := read.options()
		if err != nil {
			return err
		}
		a, err := w.Get(ctx, args[0], keyParts(args[1:]), o)
		if cut := weir.CutOf(err); cut != nil && dataflow.ReasonOf(err) == dataflow.ReasonRowNotFound {
			if c.json() {
				return errors.Join(c.printAnswer(nil, cut), err)
			}
			return &hinted{err: err, fact: cutLine(cut)}
		}
		if err != nil {
			return err
		}
		return c.printAnswer(a.Row, a.Cut)
	})
}
