package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirdb/weir/node"
)

func (c *cli) serverCommand() *cobra.Command {
	var printConfig bool
	cmd := &cobra.Command{
		Use:   "server [flags]",
		Short: "Run a node",
		Long: `Run a node until it is interrupted, by SIGINT, SIGTERM or SIGHUP. The first signal lets
calls under way end and closes the data directory; a second one ends the process at once, which loses nothing that was
acknowledged.

Each setting is a flag, an environment variable (--data-dir is WEIR_SERVER_DATA_DIR) or a line of the YAML file that
--config names (data-dir: …); a flag wins over the environment, the environment over the file.`,
		Example: `  weir server --data-dir /var/lib/weir
  WEIR_SERVER_SHARDS=4 weir server --config weir.yaml --print-config`,
	}
	settings := newServerSettings(cmd.Flags())
	cmd.Flags().BoolVar(&printConfig, "print-config", false, "print the settings and where each comes from, then exit")
	return c.verb(cmd, cobra.NoArgs, func(ctx context.Context, _ []string) error {
		sources, err := settings.load(cmd.Flags(), c.environ)
		if err != nil {
			return usage(err)
		}
		if printConfig {
			_, err := c.stdout.Write(settings.print(cmd.Flags(), sources))
			return err
		}
		cfg, err := settings.node()
		if err != nil {
			return usage(err)
		}
		cfg.Version = version
		cfg.Logger = settings.logger(c.stderr)
		return runNode(ctx, cfg)
	})
}

// runNode runs a node until ctx ends. A node that stopped because it was told to is a success; one that asks for it is opened
// again.
func runNode(ctx context.Context, cfg node.Config) error {
	for {
		err := runOnce(ctx, cfg)
		var again *node.Restart
		if !errors.As(err, &again) || ctx.Err() != nil {
			return err
		}
		cfg.Logger.Info("opening again", slog.String("why", again.Why))
	}
}

func runOnce(ctx context.Context, cfg node.Config) error {
	n, err := node.Open(ctx, cfg)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		cfg.Logger.Info("stopped before it served", slog.String("data", cfg.DataDir), slog.Any("error", err))
		return nil // a group may take long to come together, and a supervisor not wait for that
	}
	if err != nil {
		err = fmt.Errorf("start the node: %w", err)
		if errors.Is(err, syscall.EADDRINUSE) {
			flag := "--grpc-addr"
			if strings.Contains(err.Error(), "listen for HTTP") {
				flag = "--http-addr"
			}
			return &hinted{err: err, hint: "stop what listens there, or choose another port with " + flag}
		}
		return err
	}
	err = n.Run(ctx)
	cfg.Logger.Info("stopping", slog.String("data", cfg.DataDir))
	// A disk that hangs would hold Close up for ever. What is acknowledged is on disk, so the process may end at any time.
	hung := time.AfterFunc(closeTimeout, func() {
		cfg.Logger.Error("closing takes too long: the process ends without it", slog.Duration("after", closeTimeout), slog.Any("error", err))
		// Whoever looks into it needs to see what waits for what. An error changes nothing: the process ends.
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		os.Exit(exitRefused)
	})
	defer hung.Stop()
	if cerr := n.Close(); cerr != nil {
		return errors.Join(err, cerr)
	}
	return err
}

// closeTimeout is longer than any healthy close, and shorter than what supervisors wait before they kill.
const closeTimeout = 20 * time.Second
