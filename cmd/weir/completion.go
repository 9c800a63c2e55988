package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
)

// completionTime bounds how long a shell waits for names.
const completionTime = time.Second

// completeNames completes a verb's first argument, named as in its usage, by what the server has. Others may be files.
func (c *cli) completeNames(what string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if what != "PIPELINE" && what != "PIPELINE.TABLE" && what != "STREAM" || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := context.WithTimeout(context.Background(), completionTime)
		defer cancel()
		w, err := weir.Open(weir.Config{Addrs: weir.ParseAddrs(c.client.addr), NoDiscovery: true, RetryFor: -1})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer func() { _ = w.Close() }() // the names are there or not
		var names []cobra.Completion
		if what == "STREAM" {
			streams, err := w.ListStreams(ctx)
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			for _, s := range streams {
				names = append(names, s.GetName())
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		}
		pipelines, err := w.ListPipelines(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, p := range pipelines {
			if what == "PIPELINE" {
				names = append(names, p.GetName())
				continue
			}
			for _, t := range p.GetTables() {
				names = append(names, p.GetName()+"."+t)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func (c *cli) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "Print the script that completes weir's commands in a shell",
		Example:   `  source <(weir completion bash)`,
		ValidArgs: []cobra.Completion{"bash", "zsh", "fish", "powershell"},
	}
	return c.verb(cmd, cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs), func(_ context.Context, args []string) error {
		root := cmd.Root()
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(c.stdout, true)
		case "zsh":
			return root.GenZshCompletion(c.stdout)
		case "fish":
			return root.GenFishCompletion(c.stdout, true)
		}
		return root.GenPowerShellCompletionWithDesc(c.stdout)
	})
}
