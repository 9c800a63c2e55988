package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// awaitRows waits until every running pipeline that reads the stream has committed, or processed, what the token covers. What
// does not run takes no part: that is said, because the wait ends at once without it.
func (c *cli) awaitRows(ctx context.Context, w *weir.Client, show *progress, stream, what, token string) error {
	readers, err := w.ListPipelines(ctx)
	if err != nil {
		return err
	}
	readers = slices.DeleteFunc(readers, func(p *weirv1.Pipeline) bool { return !slices.Contains(p.GetStreams(), stream) })
	show.done()
	for _, note := range waitNotes(readers, stream, what) {
		fmt.Fprintf(c.stderr, "note: %s\n", note)
	}
	show.set("waiting until the rows are %s", what)
	wait := w.WaitCommitted
	if what == "processed" {
		wait = w.WaitProcessed
	}
	_, err = wait(ctx, token)
	return err
}

// waitNotes says which of a stream's readers a wait does not wait for, and which commit nothing by themselves.
func waitNotes(readers []*weirv1.Pipeline, stream, what string) (notes []string) {
	running := 0
	for _, p := range readers {
		switch p.GetState() {
		case weirv1.PipelineState_PIPELINE_STATE_STOPPED:
			notes = append(notes, fmt.Sprintf("pipeline %s is STOPPED and takes no part; %s", p.GetName(), resumeHint(p)))
			continue
		case weirv1.PipelineState_PIPELINE_STATE_FAILED: // the wait ends with its failure
		default:
			if what == "committed" && p.GetOptions()["checkpoint.interval"] == "off" {
				notes = append(notes, fmt.Sprintf("pipeline %s makes no checkpoints by itself (checkpoint.interval = 'off'); weir checkpoint trigger %s", p.GetName(), p.GetName()))
			}
		}
		running++
	}
	if running == 0 {
		notes = append(notes, fmt.Sprintf("no running pipeline reads stream %s: there was nothing to wait for", stream))
	}
	return notes
}

// resumeHint says how a pipeline that does not run goes on.
func resumeHint(p *weirv1.Pipeline) string {
	f, name := p.GetFailure(), p.GetName()
	if p.GetState() != weirv1.PipelineState_PIPELINE_STATE_FAILED || f == nil {
		return "weir pipeline resume " + name
	}
	switch {
	case f.GetHasRow():
		return fmt.Sprintf("weir pipeline resume %s --skip-failed-row goes on without that row; without the flag it fails there again", name)
	case f.GetReason() == string(dataflow.ReasonExpressionFailed):
		return fmt.Sprintf("it is a row of a table, so there is none to skip: weir pipeline set %[1]s on_error=skip, then weir pipeline resume %[1]s, leaves such rows out while they are there", name)
	case f.GetReason() == string(dataflow.ReasonPositionsExpired):
		return fmt.Sprintf("weir pipeline delete %s, and deploy it again", name)
	}
	return fmt.Sprintf("weir pipeline resume %s goes on from its last cut", name)
}

// shellQuoted writes a word so that a shell takes it as it is.
func shellQuoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
