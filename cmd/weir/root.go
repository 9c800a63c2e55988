package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
)

// cli is one invocation.
type cli struct {
	*environment
	client  clientFlags
	started bool // a verb has begun: errors after this are not about how it was called
}

// run parses args, runs the verb and returns the exit code. The first signal ends the verb's context; the second ends
// the process.
func run(ctx context.Context, e *environment, args []string) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := make(chan os.Signal, 2)
	stop := e.notify(signals)
	finished, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for range 2 {
			select {
			case <-signals:
				if ctx.Err() != nil {
					e.exit(exitTryAgain)
				}
				cancel()
			case <-finished:
				return
			}
		}
	}()
	defer func() { stop(); close(finished); <-watched }()

	c := &cli{environment: e}
	root := c.root()
	root.SetArgs(args)
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && !c.started {
		err = usage(unknownCommand(err))
	}
	return c.report(ctx, err)
}

// root builds the tree of verbs.
func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "A queryable-state stream database",
		Long: `Weir ingests streams, keeps exact tables over them by SQL, and answers reads from the tables' state: from the
last committed cut, or live.

Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not found, 4 try again (unreachable, overloaded, deadline).`,
		Version:       versionLine(thisVersion()),
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.AddGroup(&cobra.Group{ID: "data", Title: "Data:"}, &cobra.Group{ID: "manage", Title: "Management:"}, &cobra.Group{ID: "run", Title: "Running Weir:"})
	root.SetHelpCommandGroupID("run")
	add := func(group string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add("data", c.deployCommand(), c.ingestCommand(), c.getCommand(), c.scanCommand(), c.queryCommand(), c.watchCommand())
	add("manage", c.pipelineCommand(), c.streamCommand(), c.tableCommand(), c.checkpointCommand(), c.clusterCommand())
	add("run", c.demoCommand(), c.benchCommand(), c.serverCommand(), c.versionCommand(), c.completionCommand())
	return root
}

// verb completes a command: exact arguments, and a body that marks the invocation as begun.
func (c *cli) verb(cmd *cobra.Command, args cobra.PositionalArgs, body func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, list []string) error {
		if err := args(cmd, list); err != nil {
			return usagef("weir takes this as: %s; %s", cmd.UseLine(), given(len(list)))
		}
		return nil
	}
	cmd.DisableFlagsInUseLine = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.started = true
		return body(cmd.Context(), args)
	}
	return cmd
}

// noun returns a command that only holds verbs.
func (c *cli) noun(name, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names := make([]string, len(verbs))
		for i, v := range verbs {
			names[i] = v.Name()
		}
		return usagef("weir %s: name one of %s", name, strings.Join(names, ", "))
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// open returns a client of the group that the flags name.
func (c *cli) open() (*weir.Client, error) {
	return weir.Open(weir.Config{Addrs: weir.ParseAddrs(c.client.addr), NoDiscovery: !c.client.discover, RetryFor: c.client.retryFor})
}
