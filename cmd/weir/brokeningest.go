package main

import (
	"errors"
	"fmt"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/cmd/weir/rowfile"
	"github.com/weirdb/weir/dataflow"
)

// brokenIngest is what is known of an ingest that ended before its input did.
type brokenIngest struct {
	stream   string
	file     string // as on the command line: - is standard input
	format   rowfile.Format
	producer string // "" = the rows were sent without a name: sent again they count again
	stats    weir.ProducerStats
	whole    bool // every row that was read before the error is acknowledged
}

// advice says what of the input is in the stream, and how to bring in the rest without counting a row twice.
func (b *brokenIngest) advice(err error) string {
	n := b.stats.Appended + b.stats.Duplicates + b.stats.Skipped
	line := badLine(err)
	switch {
	case dataflow.ReasonOf(err) == dataflow.ReasonSequenceReused:
		return fmt.Sprintf("%s; the input must begin with the rows that producer %s sent before; for other rows use another name", b.there(n), b.producer)
	case b.producer != "" && line != "":
		return fmt.Sprintf("%s; mend line %s and run it again with --producer %s: every row counts once", b.there(n), line, b.producer)
	case b.producer != "":
		return fmt.Sprintf("%s; run it again with --producer %s: every row counts once", b.there(n), b.producer)
	case b.whole && n == 0 && line != "":
		return fmt.Sprintf("%s; mend line %s and run it again", b.there(n), line)
	case b.whole && n == 0:
		return b.there(n) + "; run it again"
	case b.whole && line != "":
		return fmt.Sprintf("%s, and would count again if they were sent again\nmend line %s and send only the rest: %s\n%s",
			b.there(n), line, b.rest(line), b.nextTime())
	case b.whole:
		return fmt.Sprintf("%s, and would count again if they were sent again: send only the rows after them\n%s", b.there(n), b.nextTime())
	}
	return fmt.Sprintf("%s for certain, and of those sent last some may be; all that are there would count again if they were sent again\n"+
		"begin anew with an empty stream (weir stream delete %s, and deploy again), or accept that\n%s", b.there(n), b.stream, b.nextTime())
}

// there says how much of the input is in the stream.
func (b *brokenIngest) there(n uint64) string {
	switch {
	case n == 0:
		return "no row of the input is in stream " + b.stream
	case b.whole && n == 1:
		return "the first row of the input is in stream " + b.stream
	case b.whole:
		return fmt.Sprintf("the first %s of the input are in stream %s", rows(n), b.stream)
	case n == 1:
		return "1 row of the input is in stream " + b.stream
	}
	return fmt.Sprintf("%s of the input are in stream %s", rows(n), b.stream)
}

func (b *brokenIngest) nextTime() string {
	return "next time name the input, --producer NAME: then a second run counts every row once"
}

// rest is the command that sends the input from a line on.
func (b *brokenIngest) rest(line string) string {
	to := fmt.Sprintf("weir ingest %s --format %s", b.stream, b.format)
	switch {
	case b.file == "-" && b.format == rowfile.CSV:
		return fmt.Sprintf("the line of names, and the input from line %s on", line)
	case b.file == "-":
		return fmt.Sprintf("the input from line %s on", line)
	case b.format == rowfile.CSV: // the first line names the columns
		return fmt.Sprintf("(head -n 1 %[1]s; tail -n +%[2]s %[1]s) | %[3]s", shellQuoted(b.file), line, to)
	}
	return fmt.Sprintf("tail -n +%s %s | %s", line, shellQuoted(b.file), to)
}

// badLine returns the number of the input's line that an error names, "" for none.
func badLine(err error) string {
	var e *dataflow.Error
	if errors.As(err, &e) {
		return e.Metadata["line"]
	}
	return ""
}
