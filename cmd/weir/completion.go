package main

import (
	"context"

	"github.com/spf13/cobra"
)

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
