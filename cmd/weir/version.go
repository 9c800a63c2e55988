package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// thisVersion says what this binary is.
func thisVersion() *weirv1.GetVersionResponse {
	v := &weirv1.GetVersionResponse{Version: version, GoVersion: runtime.Version(), Api: "v1"}
	if info, ok := debug.ReadBuildInfo(); ok {
		if m := info.Main.Version; version == "dev" && m != "" && m != "(devel)" {
			v.Version = m
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}

func versionLine(v *weirv1.GetVersionResponse) string {
	line := v.GetVersion()
	if v.GetCommit() != "" {
		line += fmt.Sprintf(" (%.12s)", v.GetCommit())
	}
	return line + fmt.Sprintf(" %s, api %s", v.GetGoVersion(), v.GetApi())
}

func (c *cli) versionCommand() *cobra.Command {
	var server bool
	cmd := &cobra.Command{Use: "version [flags]", Short: "Print the version of this program, and with --server of the server"}
	cmd.Flags().BoolVar(&server, "server", false, "ask the server too")
	return c.clientVerb(cmd, cobra.NoArgs, func(ctx context.Context, w *weir.Client, _ []string) error {
		versions := []*weirv1.GetVersionResponse{thisVersion()}
		if server {
			v, err := w.Version(ctx)
			if err != nil {
				return err
			}
			versions = append(versions, v)
		}
		for i, v := range versions {
			who := []string{"client", "server"}[i]
			if c.json() {
				if err := c.printLine(append(wire.AppendJSON(fmt.Appendf(nil, `{%q:`, who), v), '}')); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(c.stdout, "%sweir %s\n", map[bool]string{true: "server: ", false: ""}[i == 1], versionLine(v))
		}
		return nil
	})
}
