package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/weirdb/weir/node"
)

// NodeFlags are what a child process is told.
type NodeFlags struct {
	DataDir  string
	GRPCAddr string // where to listen; port 0 = any
	// NodeID, PeerAddr and Join (addresses, with commas between) make the node one of the group that all of Join found; ""
	// = a group of its own.
	NodeID, PeerAddr, Join string
	// Memory is the budget of the live tables; 0 = the node's default.
	Memory int64
	// Profile and ProfileName say where profiles go; no directory, no profiles.
	Profile, ProfileName string
}

// args returns the flags as RunNode's caller reads them.
func (f NodeFlags) args() []string {
	return []string{"--data-dir", f.DataDir, "--grpc-addr", f.GRPCAddr, "--node-id", f.NodeID, "--peer-addr", f.PeerAddr, "--join", f.Join, "--memory", strconv.FormatInt(f.Memory, 10), "--profile", f.Profile, "--profile-name", f.ProfileName}
}

// ready is the line that a node prints when it answers.
type ready struct {
	GRPC string `json:"grpc"`
	RESP string `json:"resp"`
}

// RunNode is the child process: a node that says where it listens, and serves until its standard input ends, so that it
// does not outlive the parent.
func RunNode(ctx context.Context, f NodeFlags, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	stop, err := profile(f.Profile, f.ProfileName+".node")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var join []string
	if f.Join != "" {
		join = strings.Split(f.Join, ",")
	}
	n, err := node.Open(ctx, node.Config{
		NodeID: f.NodeID, PeerAddr: f.PeerAddr, Join: join, BootstrapExpect: len(join),
		DataDir: f.DataDir, GRPCAddr: f.GRPCAddr, HTTPAddr: "127.0.0.1:0", RESPAddr: "127.0.0.1:0", MemoryBytes: f.Memory,
		Tuning: node.Tuning{QueryTime: checkTimeout}, // the check reads all keys
		Logger: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	line, err := json.Marshal(ready{GRPC: n.GRPCAddr(), RESP: n.RESPAddr()})
	if err != nil {
		return errors.Join(err, n.Close())
	}
	if _, err := stdout.Write(append(line, '\n')); err != nil {
		return errors.Join(err, n.Close())
	}
	go func() { // ends with the process: nothing can interrupt a read of standard input
		_, _ = io.Copy(io.Discard, stdin) // however it ends
		cancel()
	}()
	return errors.Join(n.Run(ctx), n.Close())
}

// child is a node in a process of its own.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	log   *bytes.Buffer // what it wrote to stderr; read after it has ended
	addr  string        // for gRPC
	resp  string        // for Redis clients
}

// startTimeout bounds how long a node may take to answer, a large recovery included.
const startTimeout = 2 * time.Minute

// startNode starts a child and waits until it listens. grpcAddr "" = any port.
func (r *runner) startNode(ctx context.Context, f NodeFlags) (*child, error) {
	if f.GRPCAddr == "" {
		f.GRPCAddr = "127.0.0.1:0"
	}
	argv := append(append([]string(nil), r.cfg.NodeCommand...), f.args()...)
	c := &child{cmd: exec.Command(argv[0], argv[1:]...), log: &bytes.Buffer{}}
	c.cmd.Stderr = c.log
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	unwatch := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() }) // ends the read below; it fails when the process, and so the read, has ended
	var line ready
	err = json.NewDecoder(stdout).Decode(&line)
	if !unwatch() || err != nil {
		_ = c.kill() // its end is not the news
		return nil, fmt.Errorf("the node did not start: %w\n%s", errors.Join(err, ctx.Err()), c.log)
	}
	c.addr, c.resp = line.GRPC, line.RESP
	return c, nil
}

// stop ends the child in order, and waits for it.
func (c *child) stop() error {
	if err := errors.Join(c.stdin.Close(), c.cmd.Wait()); err != nil {
		return fmt.Errorf("the node did not end well: %w\n%s", err, c.log)
	}
	return nil
}

// kill ends the child at once, as kill -9 does, and waits for it.
func (c *child) kill() error {
	err := c.cmd.Process.Kill()
	_ = c.cmd.Wait() // reports the kill
	return err
}
