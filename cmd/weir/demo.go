package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirdb/weir/cmd/weir/demo"
)

// onceDuration is how long weir demo --once sends when --duration does not say.
const onceDuration = 6 * time.Second

func (c *cli) demoCommand() *cobra.Command {
	var cfg demo.Config
	cmd := &cobra.Command{
		Use:   "demo [flags]",
		Short: "Watch live and committed counts while the dataflow is crashed",
		Long: `Open a node in this process, deploy a SQL file (which is printed), stream page views into it, and show for each page
how many were sent, how many are counted live, and how many in the last committed cut.

On a terminal, c crashes the dataflow: the live column steps back, the committed one never does. p pauses the sender, q
quits. The last line says what was lost and what was counted twice, by the sender's own count; the exit code is 1 if
anything was.`,
		Example: `  weir demo
  weir demo --once --rate 10000`,
	}
	cmd.Flags().BoolVar(&cfg.Once, "once", false, "send for --duration (default 6s), crash twice meanwhile, then stop")
	cmd.Flags().StringVar(&cfg.Dir, "keep", "", "keep the data in this directory (default: a temporary one, removed)")
	cmd.Flags().IntVar(&cfg.Rate, "rate", 2000, "page views per second")
	cmd.Flags().DurationVar(&cfg.Duration, "duration", 0, "stop after this time; 0 = when quit")
	return c.verb(cmd, cobra.NoArgs, func(ctx context.Context, _ []string) error {
		switch {
		case cfg.Rate < 1 || cfg.Rate > 1_000_000:
			return usagef("--rate %d is not between 1 and 1000000", cfg.Rate)
		case cfg.Duration < 0:
			return usagef("--duration %s is negative", cfg.Duration)
		case cfg.Once && cfg.Duration == 0:
			cfg.Duration = onceDuration
		}
		cfg.Out, cfg.Program, cfg.Version = c.stdout, c.program, version
		signal.Ignore(syscall.SIGPIPE) // a reader that has gone is an error of the write, after which there is data to remove
		restore := func() {}
		if c.terminal() && !cfg.Once {
			var err error
			if restore, err = c.raw(); err != nil {
				return fmt.Errorf("read single keys from the terminal: %w", err)
			}
			cfg.Screen, cfg.Keys = true, keys(c.stdin)
		}
		r, err := demo.Run(ctx, cfg)
		restore()
		if err != nil {
			if r.Sent > 0 {
				_, _ = fmt.Fprintln(c.stdout, r) // the last line in any case; the error says more
			}
			return err
		}
		if cfg.Dir != "" {
			fmt.Fprintf(c.stdout, "the data is kept; %s server --data-dir %s serves it\n", c.program, filepath.Join(cfg.Dir, "data"))
		}
		if _, err := fmt.Fprintln(c.stdout, r); err != nil {
			return err
		}
		if !r.Exact() {
			return errReported
		}
		return nil
	})
}

// keys passes on what is typed. A read of a terminal cannot be called off: its goroutine ends with the process.
func keys(in io.Reader) <-chan byte {
	out := make(chan byte)
	go func() {
		defer close(out)
		var b [1]byte
		for {
			if _, err := in.Read(b[:]); err != nil {
				return
			}
			out <- b[0]
		}
	}()
	return out
}
