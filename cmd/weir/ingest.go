package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/cmd/weir/rowfile"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/internal/wire"
)

// ingestFlags are what weir ingest can be told.
type ingestFlags struct {
	format   string
	column   string
	producer string
	wait     string
	retryFor time.Duration
}

func (c *cli) ingestCommand() *cobra.Command {
	var f ingestFlags
	cmd := &cobra.Command{
		Use:   "ingest STREAM [FILE] [flags]",
		Short: "Append the rows of a file to a stream",
		Long: `Append the rows of a file, or of standard input, to a stream. The format follows the file's extension, or --format:

  lines   a line is a row: the stream has one TEXT column, or --column names the one to fill
  ndjson  a line is a JSON object (.ndjson, .jsonl, .json)
  csv     the first line names the columns; an empty field is NULL, "" is the empty text (.csv)

With --producer NAME the rows count once: run twice, the second run adds nothing; killed in the middle, the next run goes
on where it was. The file must begin with the same rows as before: the last batches that the server remembers are
compared, older rows are not. Without a name a second run is a second ingest: after a broken one, send only the rest.

A server that is away is looked for, for --retry-for. One that has taken rows and then falls silent is known to be away
after 15 seconds, which count. A row that does not fit ends the ingest with its line; the rows before it are in the
stream. When the input pauses, what was read is sent at once; so is what was read before an interrupt.`,
		Example: `  weir ingest lines book.txt --wait committed
  weir ingest orders orders.csv --producer orders-2026-11
  tail -f access.log | weir ingest lines`,
	}
	choose(cmd, &f.format, "format", "", "", "format of the rows (default: by the file's extension)", "lines", "ndjson", "csv")
	cmd.Flags().StringVar(&f.column, "column", "", "the TEXT column that lines fill")
	cmd.Flags().StringVar(&f.producer, "producer", "", "name under which these rows count once")
	choose(cmd, &f.wait, "wait", "", "", "return when every running pipeline that reads the stream has committed, or processed, the rows; says which do not run",
		"committed", "processed")
	cmd.Flags().DurationVar(&f.retryFor, "retry-for", weir.DefaultProducerRetryFor, "how long to look for a server that is away; 0 = one try")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case f.producer == "" && cmd.Flags().Changed("producer"): // as of a variable that is not set
			return usagef("--producer is given without a name: leave it out if the rows need not count once")
		case f.retryFor < 0:
			return usagef("--retry-for %s is negative", f.retryFor)
		case f.retryFor == 0:
			f.retryFor = -1 // no second try
		}
		c.client.retryFor = f.retryFor
		return nil
	}
	return c.clientVerb(cmd, cobra.RangeArgs(1, 2), func(ctx context.Context, w *weir.Client, args []string) error {
		file := "-"
		if len(args) == 2 {
			file = args[1]
		}
		return c.ingest(ctx, w, args[0], file, f)
	})
}

func (c *cli) ingest(ctx context.Context, w *weir.Client, stream, file string, f ingestFlags) (err error) {
	in, name, size, err := c.openInput(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	show := c.progress()
	defer show.done()
	show.set("connecting to %s", c.client.addr)
	start := time.Now()
	connected := c.tellWaiting(ctx, f.retryFor)
	p, err := w.OpenProducer(ctx, stream, weir.ProducerConfig{Name: f.producer, RetryFor: f.retryFor})
	connected()
	if err != nil {
		return err
	}
	counted := &countingReader{in: in}
	format := rowfile.Format(f.format)
	if format == "" {
		format = rowfile.FormatOf(file)
	}
	input, err := rowfile.Open(rowfile.NewSource(ctx, counted), rowfile.Config{Name: name, Format: format, Schema: p.Schema(), Column: f.column})
	if err != nil {
		return errors.Join(err, p.Close(ctx))
	}
	watched := c.watchIngest(ctx, show, p, counted, size)
	// What was read before a broken row or an interrupt is sent all the same: the next run finds it there.
	flush, cancel := outlive(ctx, interruptedFlush)
	defer cancel()
	sendErr := sendRows(flush, p, input)
	closeErr := p.Close(flush)
	watched()
	s := p.Stats()
	if sendErr == nil && closeErr == nil && s.Missing > 0 {
		sendErr = dataflow.Errorf(dataflow.ReasonSequenceReused, "%s ends after %s, but producer %s has sent %s more before",
			name, rows(s.Appended+s.Duplicates+s.Skipped), f.producer, rows(s.Missing))
	}
	if sendErr != nil || closeErr != nil {
		broken := &brokenIngest{stream: stream, file: file, format: format, producer: f.producer, stats: s, whole: closeErr == nil}
		err := errors.Join(sendErr, closeErr)
		return &hinted{err: err, hint: broken.advice(err)}
	}
	if f.wait != "" && p.Token() != "" {
		if err := c.awaitRows(ctx, w, show, stream, f.wait, p.Token()); err != nil {
			return &hinted{err: err, hint: fmt.Sprintf("all rows of the input are in stream %s; only the wait for %s has ended", stream, f.wait)}
		}
	}
	show.done()
	if c.json() {
		line := wire.AppendStringJSON([]byte(`{"stream":`), stream)
		line = wire.AppendStringJSON(append(line, `,"producer":`...), f.producer)
		line = fmt.Appendf(line, `,"rows":%d,"duplicates":%d,"token":`, s.Appended, s.Duplicates+s.Skipped)
		return c.printLine(append(wire.AppendStringJSON(line, p.Token()), '}'))
	}
	_, err = fmt.Fprintf(c.stdout, "%s\n", ingested(stream, s, time.Since(start)))
	return err
}

// interruptedFlush bounds how long an interrupted ingest waits for what it has sent.
const interruptedFlush = 5 * time.Second

// outlive returns a context that ends d after ctx does.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = pause.For(out, d) // whichever comes first
		cancel()
	})
	return out, func() { stop(); cancel() }
}

// sendRows hands all rows to the producer. They are read ahead in a goroutine, which does not outlive ctx unless it is
// in a read that nothing can call off, as of a terminal; then it ends with the process.
func sendRows(ctx context.Context, p *weir.Producer, in rowfile.Reader) error {
	type read struct {
		rows *batch.Batch
		err  error
	}
	ahead := make(chan read, 2)
	go func() {
		defer close(ahead)
		for {
			b, err := in.Next()
			select {
			case ahead <- read{b, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-ahead:
			if errors.Is(r.err, io.EOF) {
				return nil
			}
			if r.err != nil {
				return r.err
			}
			if err := p.Append(ctx, r.rows); err != nil {
				return err
			}
		}
	}
}

func ingested(stream string, s weir.ProducerStats, took time.Duration) string {
	text := fmt.Sprintf("%s ingested into %s in %s", rows(s.Appended), stream, took.Round(time.Millisecond))
	if known := s.Duplicates + s.Skipped; known > 0 {
		were := "were"
		if known == 1 {
			were = "was"
		}
		text += fmt.Sprintf("; %s %s there already", rows(known), were)
	}
	return text
}

// openInput opens a file; - is standard input. size is 0 when it is not known.
func (c *cli) openInput(file string) (in io.ReadCloser, name string, size int64, err error) {
	if file == "-" {
		return io.NopCloser(c.stdin), "standard input", 0, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, "", 0, err
	}
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		size = st.Size()
	}
	return f, file, size, nil
}
