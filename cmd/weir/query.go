package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
)

func (c *cli) queryCommand() *cobra.Command {
	var read readFlags
	var file string
	var explain bool
	cmd := &cobra.Command{
		Use:   "query [SQL] [flags]",
		Short: "Run one SELECT over tables",
		Long: `Run one SELECT over tables of one pipeline, all at one cut. The text is the argument, or a file (--file, - is standard
input). EXPLAIN SELECT … shows how a query is run, EXPLAIN pipeline.table how a table is kept up to date, EXPLAIN CREATE
MATERIALIZED VIEW … how one would be.

--explain does not run the query: it shows the plan, as EXPLAIN does, and where the answer would come from: which node answers,
from which cut, how old that is and how far behind, and for each shard which node is read and why.

With -o json: one row per line, then {"cut":…}; with --explain one object, {"plan":[…],"explanation":{…},"cut":{…}}.`,
		Example: `  weir query "SELECT word, n FROM wordcount.counts ORDER BY n DESC LIMIT 10"
  weir query "SELECT a.word FROM wordcount.counts a JOIN wordcount.titles b USING (word)"
  weir query "EXPLAIN wordcount.counts"
  weir query --explain --isolation read-uncommitted "SELECT * FROM wordcount.counts"`,
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "read the SQL from this file")
	cmd.Flags().BoolVar(&explain, "explain", false, "show how and where the query would be answered, without running it")
	read.add(cmd)
	return c.clientVerb(cmd, cobra.MaximumNArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		if (len(args) == 1) == (file != "") {
			return usagef("weir query: give the SQL as one argument, or a file with --file")
		}
		sql := ""
		if file != "" {
			b, err := c.readFile(file)
			if err != nil {
				return err
			}
			sql = string(b)
		} else {
			sql = args[0]
		}
		o, err := read.options()
		if err != nil {
			return err
		}
		if explain {
			return c.explain(ctx, w, sql, o)
		}
		r, err := w.Query(ctx, sql, o)
		if dataflow.ReasonOf(err) == dataflow.ReasonTableNotFound {
			return &hinted{err: err, hint: "weir table list"}
		}
		if err != nil {
			return err
		}
		return c.printRows(r)
	})
}

// readFile reads a whole file of SQL; - is standard input.
func (c *cli) readFile(name string) ([]byte, error) {
	var b []byte
	var err error
	if name == "-" {
		b, err = io.ReadAll(c.stdin)
	} else {
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	for i, line := range bytes.Split(b, []byte("\n")) {
		if !utf8.Valid(line) {
			return nil, dataflow.Errorf(dataflow.ReasonSQLSyntax, "%s, line %d: SQL is UTF-8, and this line is not", name, i+1)
		}
	}
	return b, nil
}
