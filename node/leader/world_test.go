package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/node/leader"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shards = 2

// world is a meta log and a worker in memory, whose calls are written down in the order in which they came. Its drivers run
// in a synctest bubble.
type world struct {
	t   *testing.T
	fsm *meta.FSM
	log *meta.Log

	mu struct {
		sync.Mutex
		calls []string
		index dataflow.LogIndex
		// before is asked before a command is applied, after once it has been; an error is what the proposer gets.
		before, after func(name string) error
		// The worker.
		running  dataflow.Incarnation
		step     func(coordinator.Event)
		ends     dataflow.Positions
		appended chan struct{}
		start    func(ctx context.Context, inc dataflow.Incarnation) error // nil starts at once
		starting int                                                       // calls of Start under way
		mute     bool                                                      // barriers are not acknowledged
		seq      dataflow.DeltaSeq
	}
}

var (
	_ meta.Group     = (*world)(nil)
	_ leader.Worker  = (*world)(nil)
	_ leader.Metrics = (*world)(nil)
)

// in runs a test in a bubble.
func in(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, fsm: meta.NewFSM()}
		w.log = meta.New(w, w.fsm, func() int64 { return time.Now().UnixMicro() })
		w.mu.appended = make(chan struct{})
		w.mu.ends = make(dataflow.Positions)
		if err := w.log.Bootstrap(t.Context(), "c", shards); err != nil {
			t.Fatal(err)
		}
		f(t, w)
	})
}

// Owners implements leader.Worker.
func (w *world) Owners(context.Context) ([]meta.Owner, error) {
	owners := make([]meta.Owner, shards)
	for i := range owners {
		owners[i] = meta.Owner{Shard: dataflow.ShardID(i), Node: "n1"}
	}
	return owners, nil
}

// lead runs a driver until the returned function is called, which waits for its end.
func (w *world) lead() (*leader.Driver, func()) {
	d := leader.New(leader.Config{Meta: w.log, Worker: w, Metrics: w, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); !errors.Is(err, context.Canceled) {
			w.t.Errorf("the driver ended with %v", err)
		}
	}()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			<-done
		})
	}
	w.t.Cleanup(stop)
	return d, stop
}

// deploy makes a pipeline over stream s.
func (w *world) deploy(options ...dataflow.Option) dataflow.PipelineUID {
	w.t.Helper()
	p, _, err := w.log.CreatePipeline(w.t.Context(), meta.CreatePipeline{Name: "p", Fingerprint: "f", Options: options,
		Reads:    map[string]dataflow.StreamID{"s": 0},
		Declared: []meta.StreamDefinition{{Name: "s", Schema: dataflow.Schema{{Name: "x", Type: dataflow.TypeText}}}}})
	if err != nil {
		w.t.Fatal(err)
	}
	return p.UID
}

var off = dataflow.Option{Name: "checkpoint.interval", Value: "off"}

func (w *world) pipeline() *meta.Pipeline {
	p, err := w.log.State().Pipeline("p")
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.calls = append(w.mu.calls, fmt.Sprintf(format, args...))
}

// took returns the calls since the last time, and forgets them.
func (w *world) took() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := strings.Join(w.mu.calls, "; ")
	w.mu.calls = nil
	return s
}

func (w *world) expect(want string) {
	w.t.Helper()
	if got := w.took(); got != want {
		w.t.Errorf("calls:\ngot  %s\nwant %s", got, want)
	}
}

func (w *world) state(want dataflow.PipelineState) {
	w.t.Helper()
	synctest.Wait()
	if p := w.pipeline(); p.State != want {
		w.t.Errorf("the pipeline is %s, want %s", p.State, want)
	}
}

// rows appends to the stream.
func (w *world) rows(n dataflow.Offset) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.ends[dataflow.StreamShard{Stream: w.pipeline().Reads[0]}] += n
	close(w.mu.appended)
	w.mu.appended = make(chan struct{})
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// fail ends the tasks of the running incarnation.
func (w *world) fail(permanent bool) {
	w.mu.Lock()
	step, inc := w.mu.step, w.mu.running
	w.mu.running = 0
	w.mu.Unlock()
	step(coordinator.TaskFailed{Incarnation: inc, Permanent: permanent, Failure: dataflow.PipelineFailure{
		Reason: dataflow.ReasonExpressionFailed, Message: "overflow", Incarnation: inc, HasRow: true, Row: dataflow.SourceRow{Stream: 1, Offset: 7}}})
}

// nameOf names a command: CommitCheckpoint, SetPipelineState STOPPED.
func nameOf(cmd []byte) string {
	c := &metav1.Command{}
	if err := proto.Unmarshal(cmd, c); err != nil {
		return err.Error()
	}
	name := strings.TrimPrefix(fmt.Sprintf("%T", c.Command), "*metav1.Command_")
	if s := c.GetSetPipelineState(); s != nil {
		name = strings.TrimPrefix(s.State.String(), "PIPELINE_STATE_")
	}
	return name
}

func (w *world) Propose(_ context.Context, cmd []byte) (dataflow.LogIndex, any, error) {
	name := nameOf(cmd)
	w.note("%s", name)
	w.mu.Lock()
	before, after := w.mu.before, w.mu.after
	w.mu.Unlock()
	if before != nil {
		if err := before(name); err != nil {
			return 0, nil, err
		}
	}
	w.mu.Lock()
	w.mu.index++
	index := w.mu.index
	result := w.fsm.Apply(index, cmd)
	w.mu.Unlock()
	if after != nil {
		if err := after(name); err != nil {
			return 0, nil, err
		}
	}
	return index, result, nil
}

func (w *world) Barrier(context.Context) error {
	w.note("barrier")
	w.mu.Lock()
	before := w.mu.before
	w.mu.Unlock()
	if before != nil {
		return before("barrier")
	}
	return nil
}

func (w *world) Start(ctx context.Context, _ dataflow.PipelineUID, inc dataflow.Incarnation, base *dataflow.CheckpointCommit, step func(coordinator.Event)) error {
	w.note("start i%d from %d", inc, base.ID)
	w.mu.Lock()
	start := w.mu.start
	w.mu.starting++
	w.mu.Unlock()
	var err error
	if start != nil {
		err = start(ctx, inc)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.starting--; err != nil {
		return err
	}
	w.mu.running, w.mu.step, w.mu.seq = inc, step, 0
	return nil
}

func (w *world) Stop(_ dataflow.PipelineUID, inc dataflow.Incarnation) {
	w.note("stop i%d", inc)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.starting > 0 {
		w.t.Errorf("stop i%d comes while tasks are being started", inc)
	}
	if w.mu.running <= inc {
		w.mu.running = 0
	}
}

// Inject acknowledges the barrier for both shards at once, unless the worker is mute.
func (w *world) Inject(_ dataflow.PipelineUID, inc dataflow.Incarnation, n dataflow.CheckpointID, hold bool) {
	if hold {
		w.note("inject %d, hold", n)
	} else {
		w.note("inject %d", n)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.mute || w.mu.running != inc {
		return
	}
	w.mu.seq++
	for s := range dataflow.ShardID(shards) {
		w.mu.step(coordinator.Ack{Incarnation: inc, Checkpoint: n, Shard: s, Seq: w.mu.seq, Digest: 1, Index: 1, Positions: w.mu.ends.Clone()})
	}
}

func (w *world) Attach(_ context.Context, _ dataflow.PipelineUID, step func(coordinator.Event)) dataflow.Incarnation {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.step = step
	return w.mu.running
}

func (w *world) runs() dataflow.Incarnation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.running
}

func (w *world) Ends([]dataflow.StreamID) dataflow.Positions {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.ends.Clone()
}

func (w *world) Appended() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.appended
}

func (w *world) CheckpointCommitted(string, time.Duration) {}
func (w *world) CheckpointFailed(string, string)           {}
func (w *world) IncarnationBegun(string)                   {}

// once returns err the first time it is asked about a command of the name; about any when the name is "".
func once(name string, err error) func(string) error {
	var mu sync.Mutex
	done := make(map[string]bool)
	return func(got string) error {
		mu.Lock()
		defer mu.Unlock()
		if name != "" && got != name || done[got] {
			return nil
		}
		done[got] = true
		return err
	}
}
