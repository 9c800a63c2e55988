package killtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/internal/phase"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// patience bounds every wait for the server: a restart takes a quarter of a second, a busy machine may need many times
// that.
const patience = 60 * time.Second

// server is a weir server as a child process, started again and again on one data directory and one address.
type server struct {
	bin, dir   string
	grpc, http string
	shards     int
	phases     *phase.Reader
	conn       *grpc.ClientConn // for calls that are made once; it reconnects by itself
	history    *history

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
	log    *os.File
	lives  int
	// expected says that the process is being killed: its end is no failure.
	expected atomic.Bool
	ended    func(error) // is told of an end that was not expected
}

// buildWeir builds the binary.
func buildWeir(t testing.TB, dir string) string {
	t.Helper()
	bin := filepath.Join(dir, "weir")
	out, err := exec.Command("go", "build", "-o", bin, "github.com/weirdb/weir/cmd/weir").CombinedOutput()
	if err != nil {
		t.Fatalf("build weir: %v\n%s", err, out)
	}
	return bin
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// quickReconnect lets connections try again soon: the server is away for a quarter of a second at a time.
func quickReconnect() grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, Jitter: 0.2, MaxDelay: 100 * time.Millisecond},
		MinConnectTimeout: time.Second,
	})
}

func newServer(bin, dir string, shards int, h *history) (*server, error) {
	s := &server{bin: bin, dir: dir, shards: shards, history: h}
	var err error
	if s.grpc, err = freeAddr(); err != nil {
		return nil, err
	}
	if s.http, err = freeAddr(); err != nil {
		return nil, err
	}
	if s.log, err = os.Create(filepath.Join(dir, "server.log")); err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.phaseFile(), make([]byte, 4096), 0o600); err != nil {
		return nil, err
	}
	if s.phases, err = phase.NewReader(s.phaseFile()); err != nil {
		return nil, err
	}
	s.conn, err = grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), quickReconnect(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	return s, err
}

func (s *server) phaseFile() string { return filepath.Join(s.dir, "phases") }

// start starts the process. It does not wait for it to serve.
func (s *server) start() error {
	s.lives++
	s.expected.Store(false)
	// The counts of the last life go before the new one opens the record.
	if err := os.WriteFile(s.phaseFile(), make([]byte, 4096), 0o600); err != nil {
		return err
	}
	fmt.Fprintf(s.log, "---- life %d\n", s.lives)
	cmd := exec.Command(s.bin, "server", "--data-dir", filepath.Join(s.dir, "data"), "--grpc-addr", s.grpc, "--http-addr", s.http,
		"--shards", fmt.Sprint(s.shards), "--memory", *memory,
		"--query-time", "1m") // the ballast is counted in one query, on whatever machine
	// Small bounds, so that merges, snapshots and the reuse of segment files fall between two kills.
	cmd.Env = append(os.Environ(),
		"WEIR_SERVER_PHASE_FILE="+s.phaseFile(),
		"WEIR_SERVER_MERGE_LAYERS=1", "WEIR_SERVER_MERGE_EVERY=50ms", "WEIR_SERVER_RETENTION_EVERY=150ms",
		"WEIR_SERVER_SNAPSHOT_BYTES=131072", "WEIR_SERVER_TRAILING_BYTES=16384", "WEIR_SERVER_SEGMENT_BYTES=262144",
	)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	s.cmd, s.exited = cmd, exited
	go func() {
		err := cmd.Wait()
		if !s.expected.Load() {
			s.ended(fmt.Errorf("the server of life %d ended by itself: %w", s.lives, err))
		}
		close(exited)
	}()
	return nil
}

// ready waits until the server answers.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := weirv1.NewClusterServiceClient(s.conn).GetVersion(ctx, &weirv1.GetVersionRequest{}, grpc.WaitForReady(true))
		if err == nil {
			return nil
		}
		// The connection may still be the one to the killed process.
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			return fmt.Errorf("wait for the server: %w", err)
		}
	}
}

// kill ends the process with SIGKILL and returns the phases that were under way.
func (s *server) kill() (phase.Counts, error) {
	s.expected.Store(true)
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return phase.Counts{}, err
	}
	<-s.exited
	return s.phases.Read()
}

// stop asks the process to end, waits, and reports what it came to.
func (s *server) stop() error {
	s.expected.Store(true)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.exited:
	case <-time.After(patience):
		return errors.New("the server does not stop")
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the server stopped with exit code %d", code)
	}
	return nil
}

// dump has the process, if it runs, write the stacks of its goroutines to its log and end.
func (s *server) dump() {
	s.expected.Store(true)
	if s.cmd == nil || s.cmd.Process.Signal(syscall.SIGQUIT) != nil {
		return
	}
	select {
	case <-s.exited:
	case <-time.After(5 * time.Second):
	}
}

// close ends the process if it runs, and releases what belongs to it.
func (s *server) close() {
	if s.cmd != nil {
		s.expected.Store(true)
		_ = s.cmd.Process.Kill() // it may have ended
		<-s.exited
	}
	_ = s.conn.Close()
	_ = s.phases.Close()
	_ = s.log.Close()
}

// complaints returns the lines of the server's log that no server may write, killed or not.
func (s *server) complaints() ([]string, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, "server.log"))
	if err != nil {
		return nil, err
	}
	var bad []string
	for line := range bytes.Lines(b) {
		l := strings.TrimSpace(string(line))
		if strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "fatal error:") || strings.Contains(l, "level=ERROR") || strings.Contains(l, "DATA RACE") || strings.Contains(l, "commit refused") {
			bad = append(bad, l)
		}
	}
	return bad, nil
}
