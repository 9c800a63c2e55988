package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (c *cli) deployCommand() *cobra.Command {
	var name, start, wait string
	var set []string
	var validate bool
	cmd := &cobra.Command{
		Use:   "deploy FILE [flags]",
		Short: "Make a pipeline of a SQL file",
		Long: `Make a pipeline of a SQL file (- is standard input). The pipeline has the file's name without its extension unless
--pipeline says otherwise. Streams that the file declares are made when they are missing. Deploying an equal file again
changes nothing; another program under the same name is refused with the difference, and so are options other than those
that the pipeline has, which weir pipeline set changes.`,
		Example: `  weir deploy wordcount.sql
  weir deploy wordcount.sql --set checkpoint.interval='100 ms' --start latest`,
	}
	cmd.Flags().StringVar(&name, "pipeline", "", "name of the pipeline (default: the file's)")
	cmd.Flags().StringArrayVar(&set, "set", nil, "option=value, wins over the file's SET; may be given several times")
	cmd.Flags().StringVar(&start, "start", "earliest", "where a new pipeline starts to read: earliest, latest, a time, or a token")
	choose(cmd, &wait, "wait", "", "", "return when the pipeline has read what was there when it was deployed", "caught-up")
	cmd.Flags().BoolVar(&validate, "dry-run", false, "check only, change nothing")
	return c.clientVerb(cmd, cobra.ExactArgs(1), func(ctx context.Context, w *weir.Client, args []string) error {
		if name == "" {
			var err error
			if name, err = pipelineName(args[0]); err != nil {
				return err
			}
		}
		options, err := parseOptions(set)
		if err != nil {
			return err
		}
		sql, err := c.readFile(args[0])
		if err != nil {
			return err
		}
		d, err := w.Deploy(ctx, weir.Deploy{Pipeline: name, SQL: string(sql), Options: options, Start: start, ValidateOnly: validate})
		if err != nil {
			return err
		}
		if wait != "" && d.GetPipeline() != nil && !validate {
			p, err := c.awaitCaughtUp(ctx, w, name)
			if err != nil {
				return err
			}
			d.Pipeline = p
		}
		if c.json() {
			return c.printJSON(d)
		}
		return c.printDeployed(name, d, validate)
	})
}

// pipelineName is the name of the pipeline that a file makes.
func pipelineName(file string) (string, error) {
	if file == "-" {
		return "", usagef("weir deploy -: name the pipeline with --pipeline")
	}
	base := filepath.Base(file)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	if dataflow.ValidName(base) {
		return base, nil
	}
	e := dataflow.Errorf(dataflow.ReasonNameInvalid, "%q cannot name a pipeline: a name is [a-z_][a-z0-9_]{0,62}", base)
	suggestion := strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' || r == '.' {
			return '_'
		}
		return r
	}, strings.ToLower(base))
	if !dataflow.ValidName(suggestion) {
		suggestion = "NAME"
	}
	return "", e.WithHint("use --pipeline %s", suggestion)
}

func (c *cli) printDeployed(name string, d *weirv1.DeployPipelineResponse, validate bool) error {
	var b strings.Builder
	verdict := map[weirv1.DeployOutcome]string{
		weirv1.DeployOutcome_DEPLOY_OUTCOME_CREATED: "created", weirv1.DeployOutcome_DEPLOY_OUTCOME_UNCHANGED: "unchanged",
	}[d.GetOutcome()]
	if validate && verdict == "created" {
		verdict = "would be created"
	}
	if len(d.GetTables()) > 0 {
		fmt.Fprintf(&b, "pipeline %s: %s\n", name, verdict)
	} else {
		b.WriteString("pipeline none: the file has no materialized view\n")
	}
	for _, s := range d.GetStreams() {
		fmt.Fprintf(&b, "stream   %s:", s.GetName())
		switch {
		case s.GetCreated() && validate:
			b.WriteString(" would be created")
		case s.GetCreated():
			b.WriteString(" created")
		case !s.GetRead() || verdict == "unchanged":
			b.WriteString(" is there")
		default:
			fmt.Fprintf(&b, " %s to read", rows(s.GetRowsToRead()))
		}
		if n := s.GetRowsDropped(); n > 0 {
			fmt.Fprintf(&b, "; retention has dropped %s before", rows(n))
		}
		b.WriteByte('\n')
	}
	for _, t := range d.GetTables() {
		fmt.Fprintf(&b, "table    %s.%s %s\n", name, t.GetName(), tableShape(t))
	}
	_, err := c.stdout.Write([]byte(b.String()))
	return err
}

// caughtUpPoll is how often deploy --wait looks: a cut is committed about once a second.
const caughtUpPoll = 100 * time.Millisecond

// awaitCaughtUp waits until the pipeline's newest cut has reached the ends that its streams had at deploy time.
func (c *cli) awaitCaughtUp(ctx context.Context, w *weir.Client, name string) (*weirv1.Pipeline, error) {
	show := c.progress()
	defer show.done()
	for {
		p, err := w.GetPipeline(ctx, name)
		if err != nil {
			return nil, err
		}
		switch s := p.GetState(); {
		case s == weirv1.PipelineState_PIPELINE_STATE_FAILED:
			return nil, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s has failed: %s", name, p.GetFailure().GetMessage()).
				WithHint("weir pipeline describe %s says how it goes on", name)
		case s == weirv1.PipelineState_PIPELINE_STATE_STOPPED || s == weirv1.PipelineState_PIPELINE_STATE_STOPPING:
			return nil, dataflow.Errorf(dataflow.ReasonPipelineState, "pipeline %s is %s and does not catch up", name, stateName(s)).
				WithHint("weir pipeline resume %s, then wait again", name)
		case !p.GetCut().GetCatchingUp():
			return p, nil
		}
		show.set("catching up: %s behind", rows(p.GetCut().GetBehindRows()))
		if err := pause.For(ctx, caughtUpPoll); err != nil {
			return nil, dataflow.Errorf(dataflow.ReasonDeadline, "pipeline %s has not caught up in time: %w", name, err)
		}
	}
}

// tableShape writes a table's columns and key as SQL would.
func tableShape(t *weirv1.Table) string {
	return columnsText(t.GetColumns()) + " key (" + strings.Join(t.GetKey(), ", ") + ")"
}
