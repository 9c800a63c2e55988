package chaostest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirdb/weir/internal/inject"
	"github.com/weirdb/weir/internal/pause"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// state is what the test has made of a node. Only the goroutine that breaks things changes it.
type state int

const (
	spare    state = iota // not started yet
	member                // of the group, or about to be
	leaving               // another takes its place
	departed              // for good
)

// node is a weir server, started again and again on one directory and one set of addresses.
type node struct {
	name, dir        string
	peer, grpc, http string
	conn             *grpc.ClientConn
	log              *os.File
	args             []string
	env              []string
	history          *history
	died             func(*node, error)

	state   state
	down    bool // it is to be started again
	paused  bool
	damaged string // what was done to its files, after which it may refuse or stop
	full    bool   // nothing was left of its disk in this life: it stops, sooner or later
	failing bool   // its syncs fail or have failed: it stops, if a sync was made
	wrong   *inject.Control
	failed  int64 // syncs that had failed when this life began

	mu struct {
		sync.Mutex
		cmd      *exec.Cmd
		exited   chan struct{}
		expected bool // its end is no failure
		code     int  // of the last life that ended
		silent   bool // it has said nothing: it had not begun
		lives    int
		counters map[string]float64 // of all lives but the present one
		present  map[string]float64
	}
}

func openNode(name, dir string, addrs []string, h *history) (*node, error) {
	n := &node{name: name, dir: dir, peer: addrs[0], grpc: addrs[1], http: addrs[2], history: h}
	n.mu.counters, n.mu.present = make(map[string]float64), make(map[string]float64)
	var err error
	if n.log, err = os.Create(filepath.Join(filepath.Dir(dir), name+".log")); err != nil {
		return nil, err
	}
	if n.wrong, err = inject.NewControl(n.faultFile()); err != nil {
		return nil, err
	}
	n.conn, err = grpc.NewClient(n.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	return n, err
}

// faultFile is where the node looks for what is wrong with its clock and its disk.
func (n *node) faultFile() string { return n.dir + ".faults" }

// start starts the process. It does not wait for it to serve.
func (n *node) start(bin string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.lives++
	var err error
	if n.failed, err = n.wrong.FailedSyncs(); err != nil {
		return err
	}
	fmt.Fprintf(n.log, "---- life %d\n", n.mu.lives)
	said := size(n.log)
	cmd := exec.Command(bin, n.args...)
	cmd.Env = append(os.Environ(), n.env...)
	cmd.Stdout, cmd.Stderr = n.log, n.log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	n.mu.cmd, n.mu.exited, n.mu.expected = cmd, exited, false
	n.down, n.full = false, false
	go func() {
		err := cmd.Wait()
		n.mu.Lock()
		expected := n.mu.expected
		n.mu.code, n.mu.silent = cmd.ProcessState.ExitCode(), size(n.log) == said
		for k, v := range n.mu.present {
			n.mu.counters[k] += v
		}
		clear(n.mu.present)
		n.mu.Unlock()
		if !expected {
			n.died(n, fmt.Errorf("%s ended by itself: %w", n.name, errors.Join(err, nil)))
		}
		close(exited)
	}()
	return nil
}

// size is how much was written to a log.
func size(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return -1
	}
	return info.Size()
}

// runs reports whether the process is there.
func (n *node) runs() bool {
	select {
	case <-n.ended():
		return false
	default:
		return true
	}
}

func (n *node) ended() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.exited == nil {
		c := make(chan struct{})
		close(c)
		return c
	}
	return n.mu.exited
}

// expect says whether the process may end now.
func (n *node) expect(end bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.expected = end
}

func (n *node) signal(s syscall.Signal) error {
	n.mu.Lock()
	cmd := n.mu.cmd
	n.mu.Unlock()
	if cmd == nil {
		return os.ErrProcessDone
	}
	return cmd.Process.Signal(s)
}

// kill ends the process with SIGKILL.
func (n *node) kill() {
	n.expect(true)
	n.down, n.paused = true, false
	if n.signal(syscall.SIGKILL) == nil {
		<-n.ended()
	}
}

// stop asks the process to end, and waits.
func (n *node) stop() error {
	n.expect(true)
	n.down = true
	if err := n.signal(syscall.SIGTERM); err != nil {
		return nil // it has ended
	}
	select {
	case <-n.ended():
	case <-time.After(patience):
		return violation("C6: %s does not stop %s after SIGTERM", n.name, patience)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.code == -1 && n.mu.silent {
		return nil // a process that does not listen for signals yet, some milliseconds after its start, ends by them
	}
	if n.mu.code != 0 {
		return violation("C6: %s stopped with exit code %d after SIGTERM", n.name, n.mu.code)
	}
	return nil
}

// serves reports whether the server answers.
func (n *node) serves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := weirv1.NewClusterServiceClient(n.conn).GetVersion(ctx, &weirv1.GetVersionRequest{})
	return err == nil
}

// counted are the metrics whose sums over all lives the report tells.
var counted = []string{"weir_ingest_duplicate_rows_total", "weir_checkpoint_failures_total", "weir_pipeline_incarnations_total"}

// watch looks at the metrics until ctx ends: what a process counts dies with it.
func (n *node) watch(ctx context.Context) {
	c := &http.Client{Timeout: time.Second}
	for pause.For(ctx, 300*time.Millisecond) == nil {
		if !n.runs() {
			continue
		}
		res, err := c.Get("http://" + n.http + "/metrics")
		if err != nil {
			continue
		}
		got := make(map[string]float64)
		for lines := bufio.NewScanner(io.LimitReader(res.Body, 8<<20)); lines.Scan(); {
			name, rest, _ := strings.Cut(lines.Text(), " ")
			name, _, _ = strings.Cut(name, "{")
			for _, c := range counted {
				if name == c {
					value := rest[strings.LastIndexByte(rest, ' ')+1:]
					v, _ := strconv.ParseFloat(value, 64) // a metric's value
					got[c] += v
				}
			}
		}
		_ = res.Body.Close()
		n.mu.Lock()
		for k, v := range got {
			n.mu.present[k] = max(v, n.mu.present[k])
		}
		n.mu.Unlock()
	}
}

// count returns a metric's sum over all lives.
func (n *node) count(name string) float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.counters[name] + n.mu.present[name]
}

// dump has the process write the stacks of its goroutines to its log and end.
func (n *node) dump() {
	n.expect(true)
	_ = n.signal(syscall.SIGCONT)
	if n.signal(syscall.SIGQUIT) != nil {
		return
	}
	select {
	case <-n.ended():
	case <-time.After(5 * time.Second):
	}
}

func (n *node) close() {
	n.kill()
	_ = n.conn.Close()
	_ = n.log.Close()
	_ = n.wrong.Close()
}

// lines calls f with each line of the node's log.
func (n *node) lines(f func(string)) error {
	file, err := os.Open(n.log.Name())
	if err != nil {
		return err
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		f(s.Text())
	}
	return s.Err()
}
