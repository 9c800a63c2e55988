package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (c *cli) streamCommand() *cobra.Command {
	return c.noun("stream", "Look after streams",
		c.streamListCommand(), c.streamDescribeCommand(), c.streamReadCommand(), c.streamSetCommand(), c.streamSealCommand(), c.streamDeleteCommand())
}

func (c *cli) streamListCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "list [flags]", Short: "List the streams"}, cobra.NoArgs,
		func(ctx context.Context, w *weir.Client, _ []string) error {
			list, err := w.ListStreams(ctx)
			if err != nil {
				return err
			}
			if c.json() {
				return printEach(c, list)
			}
			t := newTable(c.stdout, "NAME", "COLUMNS", "PARTITION BY", "SEALED")
			for _, s := range list {
				if err := t.add(text(s.GetName()), text(columnsText(s.GetColumns())), text(strings.Join(s.GetPartitionBy(), ", ")),
					text(yesNo(s.GetSealed()))); err != nil {
					return err
				}
			}
			return t.flush()
		})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (c *cli) streamDescribeCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "describe STREAM [flags]", Short: "Show a stream, its extent, and who holds its rows"}, cobra.ExactArgs(1),
		func(ctx context.Context, w *weir.Client, args []string) error {
			d, err := w.DescribeStream(ctx, args[0])
			if err != nil {
				return err
			}
			if c.json() {
				return c.printJSON(d)
			}
			return c.printStream(d)
		})
}

func (c *cli) printStream(d *weirv1.DescribeStreamResponse) error {
	s := d.GetStream()
	var b strings.Builder
	field := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-15s %s\n", name, fmt.Sprintf(format, args...)) // as long as retention.grace
	}
	field("stream", "%s %s", s.GetName(), columnsText(s.GetColumns()))
	if len(s.GetPartitionBy()) > 0 {
		field("partition by", "%s", strings.Join(s.GetPartitionBy(), ", "))
	}
	for _, k := range slices.Sorted(maps.Keys(s.GetOptions())) {
		field(k, "%s", wholeUnits(k, s.GetOptions()[k]))
	}
	field("sealed", "%s", yesNo(s.GetSealed()))
	field("created", "%s", timeText(s.GetCreatedAt()))
	field("holds", "%s, %s", rows(d.GetRows()), bytesText(d.GetBytes()))
	if len(d.GetHolders()) == 0 {
		field("read by", "no pipeline")
	}
	for _, h := range d.GetHolders() {
		field("read by", "pipeline %s (%s), which still needs %s, %s", h.GetPipeline(), stateName(h.GetState()), rows(h.GetRows()), bytesText(h.GetBytes()))
	}
	b.WriteByte('\n')
	if _, err := c.stdout.Write([]byte(b.String())); err != nil {
		return err
	}
	t := newTable(c.stdout, "SHARD", "START", "END", "BYTES")
	for _, sh := range d.GetShards() {
		if err := t.add(number(sh.GetShard()), number(sh.GetStartOffset()), number(sh.GetEndOffset()), number(sh.GetBytes())); err != nil {
			return err
		}
	}
	return t.flush()
}

// wholeUnits writes a number of bytes in the largest unit that it is a multiple of, as one would set it.
func wholeUnits(option, value string) string {
	n, err := strconv.ParseUint(value, 10, 63)
	if option != "max_bytes" || err != nil {
		return value
	}
	for _, u := range byteUnits {
		if size := uint64(u.size); size%1024 == 0 && n >= size && n%size == 0 {
			return fmt.Sprintf("%d %s", n/size, u.name)
		}
	}
	return value
}

func (c *cli) streamReadCommand() *cobra.Command {
	var r weir.ReadStream
	var numbers string
	cmd := &cobra.Command{
		Use:   "read STREAM [flags]",
		Short: "Show the acknowledged rows of a stream",
		Long: `Show the acknowledged rows of a stream with shard, offset and append time; per shard in order of offset.

With -o json: {"shard":…,"offset":…,"append_time":…,"row":{…}} per line.`,
		Example: `  weir stream read lines --from 3:4096 --limit 10
  weir stream read lines --from latest --follow`,
	}
	cmd.Flags().StringVar(&r.From, "from", "earliest", "earliest, latest, or SHARD:OFFSET, several separated by commas")
	cmd.Flags().BoolVar(&r.Follow, "follow", false, "go on with rows as they come, until interrupted")
	cmd.Flags().Uint64Var(&r.Limit, "limit", 0, "end after this many rows; 0 = all")
	choose(cmd, &numbers, "numbers", "", "json", "print BIGINT and NUMERIC in JSON as numbers or as strings", "json", "string")
	return c.clientVerb(cmd, cobra.ExactArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		r.Stream, r.NumbersAsStrings = args[0], numbers == "string"
		out := bufio.NewWriterSize(c.stdout, outputBuffer)
		for row, err := range w.ReadStream(ctx, r) {
			if err != nil {
				if r.Follow && ctx.Err() != nil { // this is how following ends
					err = nil
				}
				return errors.Join(err, out.Flush())
			}
			if err := c.printStreamRow(out, row); err != nil {
				return err
			}
			if r.Follow { // somebody waits for this row
				if err := out.Flush(); err != nil {
					return err
				}
			}
		}
		return out.Flush()
	})
}

// printStreamRow prints a row as it comes: a table would have to wait for the widths.
func (c *cli) printStreamRow(out io.Writer, r *weirv1.StreamRow) error {
	if c.json() {
		_, err := out.Write(append(wire.AppendJSON(nil, r), '\n'))
		return err
	}
	_, err := fmt.Fprintf(out, "%d:%d  %s  %s\n", r.GetShard(), r.GetOffset(), timeText(r.GetAppendTime()), r.GetRow())
	return err
}

func (c *cli) streamSetCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{
		Use:   "set STREAM OPTION=VALUE... [flags]",
		Short: "Change how long the rows of a stream are kept",
		Long: `Change options of a stream, at any time: retention, max_bytes and retention.grace. The others stay as they are. What is
kept for pipelines that still need it is kept on; a grace that would take the rows of a stopped pipeline at once is refused.
Columns and PARTITION BY are fixed.

A file whose CREATE STREAM made the stream can still be deployed: it says the options that the stream was made with.`,
		Example: `  weir stream set lines retention='1 day' max_bytes='10 GiB'
  weir stream set lines retention=forever max_bytes=unbounded`,
	}, cobra.MinimumNArgs(2),
		func(ctx context.Context, w *weir.Client, args []string) error {
			options, err := parseOptions(args[1:])
			if err != nil {
				return err
			}
			s, err := w.SetStreamOptions(ctx, args[0], options)
			if err != nil {
				return err
			}
			if c.json() {
				return c.printJSON(s)
			}
			var now []string
			for _, k := range slices.Sorted(maps.Keys(s.GetOptions())) {
				now = append(now, k+" = "+wholeUnits(k, s.GetOptions()[k]))
			}
			_, err = fmt.Fprintf(c.stdout, "stream %s: %s\n", args[0], strings.Join(now, ", "))
			return err
		})
}

func (c *cli) streamSealCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "seal STREAM [flags]", Short: "End a stream: it takes no more rows"}, cobra.ExactArgs(1),
		func(ctx context.Context, w *weir.Client, args []string) error {
			s, err := w.SealStream(ctx, args[0])
			if err != nil {
				return err
			}
			if c.json() {
				return c.printJSON(s)
			}
			_, err = fmt.Fprintf(c.stdout, "stream %s: sealed\n", args[0])
			return err
		})
}

func (c *cli) streamDeleteCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "delete STREAM [flags]", Short: "Drop a stream and its rows; refused while pipelines read it"}, cobra.ExactArgs(1),
		func(ctx context.Context, w *weir.Client, args []string) error {
			if err := w.DeleteStream(ctx, args[0]); err != nil {
				return err
			}
			if c.json() {
				return c.printLine(append(wire.AppendStringJSON([]byte(`{"deleted":`), args[0]), '}'))
			}
			_, err := fmt.Fprintf(c.stdout, "stream %s: deleted\n", args[0])
			return err
		})
}
