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
	var keys []string
	cmd := &cobra.Command{
		Use:   "get PIPELINE.TABLE [KEY...] [flags]",
		Short: "Read rows by their keys",
		Long: `Read one row by its key: one argument per key column, in the order of the key. A table without GROUP BY has one row
and no key. ` + keyHelp + `

Read several rows, all from one cut: where the key has one column, each argument is a key. With --key, once per key, it has as many
columns as it may: the value is a JSON array of the parts, or the only part as it is, if it does not begin with [.

With -o json: {"row":…,"cut":…}; of several keys {"key":[…],"row":…} for each, in their order, then {"cut":…}. A key without a row is
shown as missing, with "row" null, and the exit code is 3.`,
		Example: `  weir get wordcount.counts whale
  weir get sales.by_day NZ 2026-11-29 --isolation read-uncommitted
  weir get wordcount.counts whale ship sea
  weir get sales.by_day --key '["NZ","2026-11-29"]' --key '["US",null]'`,
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "a whole key, as a JSON array of its parts or as its only part; may be repeated")
	read.add(cmd)
	return c.clientVerb(cmd, cobra.MinimumNArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		o, err := read.options()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			many, err := parseKeys(keys)
			if err == nil && len(args) > 1 {
				err = usagef("keys are given as arguments and with --key; use one of them")
			}
			if err != nil {
				return err
			}
			return c.getMany(ctx, w, args[0], many, o)
		}
		if len(args) > 2 { // keys, or the parts of one: the table's key decides
			if err := c.getMany(ctx, w, args[0], keysOfOnePart(args[1:]), o); !otherKeyShape(err) {
				return err
			}
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
