package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/weirdb/weir/node"
)

// server is the node in this process.
type server struct {
	n    *node.Node
	log  *os.File
	stop context.CancelFunc
	done chan struct{}
	err  error // after done
}

// startServer opens a node on the default ports, or on free ones when those are taken.
func startServer(ctx context.Context, dir, version string) (*server, error) {
	log, err := os.OpenFile(filepath.Join(dir, "demo.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	cfg := node.Config{
		DataDir: filepath.Join(dir, "data"), FaultInjection: true, Version: version, Logger: slog.New(slog.NewTextHandler(log, nil)),
		GRPCAddr: node.DefaultGRPCAddr, HTTPAddr: node.DefaultHTTPAddr,
	}
	n, err := node.Open(ctx, cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		cfg.GRPCAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0"
		n, err = node.Open(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the node: %w", err), log.Close())
	}
	s := &server{n: n, log: log, done: make(chan struct{})}
	// The node outlives ctx: what was sent is still to be counted.
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	go func() {
		defer close(s.done)
		s.err = n.Run(run)
	}()
	return s, nil
}

// close stops the node and waits for it.
func (s *server) close() error {
	s.stop()
	<-s.done
	return errors.Join(s.err, s.n.Close(), s.log.Close())
}
