package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirdb/weir/internal/bench"
)

// profileVariable names a directory for profiles.
const profileVariable = "PROFILE"

func (c *cli) benchCommand() *cobra.Command {
	var cfg bench.Config
	var output string
	cmd := &cobra.Command{
		Use:   "bench all|" + strings.Join(bench.Names(), "|") + "... [flags]",
		Short: "Measure this machine's Weir",
		Long: `Run benchmarks and print their figures. Each starts a node of its own with a new data directory, deploys SQL,
checks the result against what was sent, and prints nothing but an error when that is wrong: exit 1.

  engine     rows per second of a deployed plan, rows coming from memory
  ingest     rows per second and time to acknowledgement through the Go client
  get        reads by key under ingest
  resp       GETs by the Redis protocol; with --redis also those of that server, which gets the same keys for as long
  freshness  age of the committed view under ingest
  live       time from acknowledgement to a live read that shows the row
  recover    time after kill -9 until the node answers, shows new rows and has caught up
  ysb        the Yahoo streaming benchmark: views of ads per campaign and window, read while they are counted
  group      three nodes: replicated ingest, what a node's death costs, reads of followers

Figures are medians with the least and the greatest measurement; docs/benchmarks.md says what each means. PROFILE=DIR
writes CPU and allocation profiles there. all takes about seven minutes, --quick less than one.`,
		Example: `  weir bench all
  weir bench engine get -o json
  PROFILE=/tmp/profiles weir bench ingest`,
		ValidArgs: append(bench.Names(), "all"),
	}
	cmd.Flags().StringVar(&cfg.Case, "case", "", "only cases that have these words in their names")
	cmd.Flags().BoolVar(&cfg.Quick, "quick", false, "small and short: shows that it works, not how fast it is")
	cmd.Flags().BoolVar(&cfg.Large, "large", false, "add cases of 10 and 20 million keys, which need some 10 GB of memory")
	cmd.Flags().StringVar(&cfg.Redis, "redis", "", "address of a Redis server to compare resp with, and to which a case of ysb copies its results")
	cmd.Flags().StringVar(&cfg.NATS, "nats", "", "address of one of three NATS servers with JetStream to compare the group's ingest with")
	cmd.Flags().StringVar(&cfg.Dir, "dir", "", "where to make data directories, on the disk to be measured (default: the system's temporary directory)")
	choose(cmd, &output, "output", "o", "table", "how to print", "table", "json")
	cmd.AddCommand(c.benchNodeCommand())
	return c.verb(cmd, cobra.MatchAll(cobra.MinimumNArgs(1), cobra.OnlyValidArgs), func(ctx context.Context, args []string) error {
		for _, a := range args {
			if a == "all" {
				args = nil // all there are
				break
			}
		}
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program, to start nodes: %w", err)
		}
		p := c.progress()
		defer p.done()
		cfg.Benchmarks, cfg.NodeCommand = args, []string{program, "bench", "node"}
		cfg.Profile = c.getenv(profileVariable)
		cfg.Progress = func(what string) { p.set("%s", what) }
		printer := newFigurePrinter(c, output == "json")
		cfg.Report = func(f []bench.Figure) error {
			p.done()
			return printer.print(f)
		}
		if err := bench.Run(ctx, cfg); err != nil && ctx.Err() == nil {
			// What a benchmark met is told whole, with where it was; it is nothing that the caller could mend (exit 1).
			return errors.New(err.Error())
		}
		return ctx.Err()
	})
}

// figurePrinter prints figures as they come: a table per case, under one heading.
type figurePrinter struct {
	c     *cli
	json  bool
	begun bool
}

func newFigurePrinter(c *cli, json bool) *figurePrinter { return &figurePrinter{c: c, json: json} }

func (p *figurePrinter) print(figures []bench.Figure) error {
	var b bytes.Buffer
	if p.json {
		for _, f := range figures {
			b.Write(f.AppendJSON(nil))
		}
		_, err := p.c.stdout.Write(b.Bytes())
		return err
	}
	const form = "%-9s  %-34s  %-31s  %12s  %12s  %12s  %s\n"
	for i, f := range figures {
		if f.Bench == bench.Machine {
			if i == 0 {
				fmt.Fprintln(&b, f.Case)
			}
			fmt.Fprintf(&b, "%s: %s %s\n", f.Metric, bench.FormatValue(f.Value), f.Unit)
			continue
		}
		if !p.begun {
			p.begun = true
			fmt.Fprintf(&b, "\n"+form, "BENCH", "CASE", "METRIC", "MEDIAN", "LEAST", "GREATEST", "UNIT")
		}
		least, greatest := "", ""
		if f.Runs > 1 {
			least, greatest = bench.FormatValue(f.Min), bench.FormatValue(f.Max)
		}
		fmt.Fprintf(&b, form, f.Bench, f.Case, f.Metric, bench.FormatValue(f.Value), least, greatest, f.Unit)
	}
	_, err := p.c.stdout.Write(b.Bytes())
	return err
}

// benchNodeCommand is how bench starts a node in a process of its own.
func (c *cli) benchNodeCommand() *cobra.Command {
	var f bench.NodeFlags
	cmd := &cobra.Command{Use: "node", Short: "Run a node for a benchmark", Hidden: true}
	cmd.Flags().StringVar(&f.DataDir, "data-dir", "", "")
	cmd.Flags().StringVar(&f.GRPCAddr, "grpc-addr", "", "")
	cmd.Flags().StringVar(&f.NodeID, "node-id", "", "")
	cmd.Flags().StringVar(&f.PeerAddr, "peer-addr", "", "")
	cmd.Flags().StringVar(&f.Join, "join", "", "")
	cmd.Flags().Int64Var(&f.Memory, "memory", 0, "")
	cmd.Flags().StringVar(&f.Profile, "profile", "", "")
	cmd.Flags().StringVar(&f.ProfileName, "profile-name", "", "")
	return c.verb(cmd, cobra.NoArgs, func(ctx context.Context, _ []string) error {
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
		return bench.RunNode(ctx, f, c.stdin, c.stdout, c.stderr)
	})
}
