package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
)

func (c *cli) tableCommand() *cobra.Command {
	return c.noun("table", "Look at tables", c.tableListCommand(), c.tableDescribeCommand())
}

func (c *cli) tableListCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "list [PIPELINE] [flags]", Short: "List the tables of one pipeline, or of all"}, cobra.MaximumNArgs(1),
		func(ctx context.Context, w *weir.Client, args []string) error {
			list, err := w.ListTables(ctx, strings.Join(args, ""))
			if err != nil {
				return err
			}
			if c.json() {
				return printEach(c, list)
			}
			t := newTable(c.stdout, "TABLE", "KEY", "COLUMNS", "ROWS", "BYTES")
			for _, tb := range list {
				if err := t.add(text(tb.GetPipeline()+"."+tb.GetName()), text(strings.Join(tb.GetKey(), ", ")), text(columnsText(tb.GetColumns())),
					number(tb.GetRows()), number(tb.GetBytes())); err != nil {
					return err
				}
			}
			return t.flush()
		})
}

func (c *cli) tableDescribeCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "describe PIPELINE.TABLE [flags]", Short: "Show one table"}, cobra.ExactArgs(1),
		func(ctx context.Context, w *weir.Client, args []string) error {
			d, err := w.DescribeTable(ctx, args[0])
			if err != nil {
				return err
			}
			if c.json() {
				return c.printJSON(d)
			}
			tb := d.GetTable()
			_, err = fmt.Fprintf(c.stdout, "table %s.%s %s\nholds about %s, %s, live\n%s\n",
				tb.GetPipeline(), tb.GetName(), tableShape(tb), rows(tb.GetRows()), bytesText(tb.GetBytes()), cutLine(d.GetCut()))
			return err
		})
}
