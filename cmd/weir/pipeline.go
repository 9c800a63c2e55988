package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (c *cli) pipelineCommand() *cobra.Command {
	return c.noun("pipeline", "Look after pipelines",
		c.pipelineListCommand(), c.pipelineDescribeCommand(), c.pipelineSetCommand(), c.pipelineStopCommand(),
		c.pipelineResumeCommand(), c.pipelineDeleteCommand())
}

func (c *cli) pipelineListCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "list [flags]", Short: "List the pipelines"}, cobra.NoArgs,
		func(ctx context.Context, w *weir.Client, _ []string) error {
			list, err := w.ListPipelines(ctx)
			if err != nil {
				return err
			}
			if c.json() {
				return printEach(c, list)
			}
			t := newTable(c.stdout, "NAME", "STATE", "TABLES", "STREAMS", "CUT", "BEHIND")
			for _, p := range list {
				behind := cell{text: "0", right: true}
				if n := p.GetCut().GetBehindRows(); n > 0 {
					behind = cell{text: fmt.Sprintf("%s (%s)", rows(n), age(p.GetCut().GetBehindMs())), right: true}
				}
				if err := t.add(text(p.GetName()), text(stateName(p.GetState())), text(strings.Join(p.GetTables(), ", ")),
					text(strings.Join(p.GetStreams(), ", ")), number(p.GetCut().GetCheckpointId()), behind); err != nil {
					return err
				}
			}
			return t.flush()
		})
}

func (c *cli) pipelineDescribeCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "describe PIPELINE [flags]", Short: "Show one pipeline"}, cobra.ExactArgs(1),
		func(ctx context.Context, w *weir.Client, args []string) error {
			p, err := w.GetPipeline(ctx, args[0])
			if err != nil {
				return err
			}
			return c.printPipeline(p)
		})
}

func (c *cli) printPipeline(p *weirv1.Pipeline) error {
	if c.json() {
		return c.printJSON(p)
	}
	var b strings.Builder
	field := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	field("pipeline", "%s (uid %d)", p.GetName(), p.GetUid())
	field("state", "%s, incarnation %d, timeline %d", stateName(p.GetState()), p.GetIncarnation(), p.GetTimeline())
	if f := p.GetFailure(); f != nil && p.GetState() == weirv1.PipelineState_PIPELINE_STATE_FAILED {
		field("failure", "%s", strings.ReplaceAll(f.GetMessage(), "\n", "\n             "))
		field("", "at %s", timeText(f.GetAt()))
		field("", "%s", resumeHint(p))
	}
	field("cut", "%s", cutLine(p.GetCut()))
	field("created", "%s", timeText(p.GetCreatedAt()))
	field("tables", "%s", strings.Join(p.GetTables(), ", "))
	field("reads", "%s", strings.Join(p.GetStreams(), ", "))
	options := p.GetOptions()
	for i, k := range slices.Sorted(maps.Keys(options)) {
		name := ""
		if i == 0 {
			name = "options"
		}
		field(name, "%s = '%s'", k, options[k])
	}
	b.WriteString("\n" + strings.TrimRight(p.GetSql(), "\n") + "\n")
	_, err := c.stdout.Write([]byte(b.String()))
	return err
}

// printChanged prints what a pipeline is after a change, in one line.
func (c *cli) printChanged(p *weirv1.Pipeline) error {
	if c.json() {
		return c.printJSON(p)
	}
	_, err := fmt.Fprintf(c.stdout, "pipeline %s: %s\n%s\n", p.GetName(), stateName(p.GetState()), cutLine(p.GetCut()))
	return err
}

func (c *cli) pipelineSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set PIPELINE OPTION=VALUE... [flags]",
		Short:   "Change options of a pipeline, also while it runs",
		Example: `  weir pipeline set wordcount checkpoint.interval='500 ms'`,
	}
	return c.clientVerb(cmd, cobra.MinimumNArgs(2), func(ctx context.Context, w *weir.Client, args []string) error {
		options, err := parseOptions(args[1:])
		if err != nil {
			return err
		}
		p, err := w.SetPipelineOptions(ctx, args[0], options)
		if err != nil {
			return err
		}
		if c.json() {
			return c.printJSON(p)
		}
		for _, k := range slices.Sorted(maps.Keys(options)) {
			if _, err := fmt.Fprintf(c.stdout, "%s = '%s'\n", k, p.GetOptions()[k]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *cli) pipelineStopCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "stop PIPELINE [flags]", Short: "Stop a pipeline after a last checkpoint; its tables stay readable"},
		cobra.ExactArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
			p, err := w.StopPipeline(ctx, args[0])
			if err != nil {
				return err
			}
			return c.printChanged(p)
		})
}

func (c *cli) pipelineResumeCommand() *cobra.Command {
	var skip bool
	cmd := &cobra.Command{
		Use:   "resume PIPELINE [flags]",
		Short: "Let a stopped or failed pipeline go on from its last cut",
		Long: `Let a stopped or failed pipeline go on from its last cut. It answers at once: the pipeline is RECOVERING until its tasks
run. One that failed at a row of a stream fails there again unless --skip-failed-row leaves that row out. One that failed
at a row of a table goes on after weir pipeline set PIPELINE on_error=skip.`,
	}
	cmd.Flags().BoolVar(&skip, "skip-failed-row", false, "leave out the row that it failed at")
	return c.clientVerb(cmd, cobra.ExactArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		before, err := w.GetPipeline(ctx, args[0])
		if err != nil {
			return err
		}
		p, err := w.ResumePipeline(ctx, args[0], skip)
		if err != nil {
			return err
		}
		if note := failsAgain(before, skip); note != "" {
			fmt.Fprintf(c.stderr, "note: %s\n", note)
		}
		return c.printChanged(p)
	})
}

// failsAgain says at what a pipeline that is resumed had failed, when nothing has changed since that lets it pass.
func failsAgain(before *weirv1.Pipeline, skip bool) string {
	f := before.GetFailure()
	if before.GetState() != weirv1.PipelineState_PIPELINE_STATE_FAILED || skip || f.GetReason() != string(dataflow.ReasonExpressionFailed) ||
		before.GetOptions()["on_error"] == "skip" {
		return ""
	}
	return fmt.Sprintf("it had failed: %s\n      %s", f.GetMessage(), resumeHint(before))
}

func (c *cli) pipelineDeleteCommand() *cobra.Command {
	return c.clientVerb(&cobra.Command{Use: "delete PIPELINE [flags]", Short: "Remove a pipeline with its tables, state and checkpoints; streams stay"},
		cobra.ExactArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
			kept, err := w.DeletePipeline(ctx, args[0])
			if err != nil {
				return err
			}
			if c.json() {
				return c.printJSON(&weirv1.DeletePipelineResponse{KeptStreams: kept})
			}
			fmt.Fprintf(c.stdout, "pipeline %s: deleted\n", args[0])
			for _, s := range kept {
				fmt.Fprintf(c.stdout, "stream   %s: kept with its rows; weir stream delete %s removes it\n", s, s)
			}
			return nil
		})
}
