package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node/catalog"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	shards  = 2
	program = `CREATE STREAM words (word TEXT);
CREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n, max(10 / length(word)) AS m FROM words GROUP BY word;`
)

// host is a node without a leader: a worker over real shards in memory, and a meta log whose entries the test proposes.
type host struct {
	t      *testing.T
	meta   *meta.Log
	shards []*worker.Shard
	worker *worker.Worker
	events chan coordinator.Event // what tasks report
	stop   func()                 // ends Run and waits for it

	mu struct {
		sync.Mutex
		index dataflow.LogIndex
		fsm   *meta.FSM
		clock int64 // µs
	}
}

func (h *host) Propose(_ context.Context, cmd []byte) (dataflow.LogIndex, any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.index++
	return h.mu.index, h.mu.fsm.Apply(h.mu.index, cmd), nil
}

func (*host) Barrier(context.Context) error { return nil }

func (h *host) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.clock
}

// pass lets the meta log's time go on, and lets it expire what that ends.
func (h *host) pass(d time.Duration) {
	h.mu.Lock()
	h.mu.clock += d.Microseconds()
	h.mu.Unlock()
	h.must(h.meta.Expire(h.t.Context()))
}

func open(t *testing.T, change ...func(*worker.Config)) *host {
	t.Helper()
	h := &host{t: t, events: make(chan coordinator.Event, 1000)}
	h.mu.fsm, h.mu.clock = meta.NewFSM(), time.Now().UnixMicro()
	h.meta = meta.New(h, h.mu.fsm, h.now)
	h.must(h.meta.Bootstrap(t.Context(), "c", shards))
	quiet := slog.New(slog.DiscardHandler)
	fs := vfs.NewCrashableMem()
	h.must(fs.MkdirAll("/log", 0o755))
	logs, err := logstore.Open(fs, "/log", logstore.Options{SegmentBytes: 1 << 20, Logger: quiet})
	h.must(err)
	cache := state.NewCache(1 << 20)
	for i := range dataflow.ShardID(shards) {
		dir := fmt.Sprintf("/shard-%d", i)
		h.must(fs.MkdirAll(dir, 0o755))
		s := &worker.Shard{ID: i}
		s.Replica, err = state.OpenReplica(state.Config{FS: fs, Dir: dir + "/state", Shard: i, Cache: cache, Logger: quiet})
		h.must(err)
		store, err := logs.Group(fmt.Sprintf("shard-%d", i))
		h.must(err)
		s.Log, err = shard.Open(shard.Config{Shard: i, Store: store, Replica: s.Replica, Logger: quiet,
			Raft: raftlog.Config{NodeID: "n1", FS: fs, Dir: dir, Logger: quiet}})
		h.must(err)
		h.must(s.Log.WaitLeader(t.Context()))
		h.must(s.Log.Barrier(t.Context()))
		h.shards = append(h.shards, s)
	}
	cfg := worker.Config{Shards: h.shards, Meta: h.meta, Catalog: catalog.New(), Logger: quiet, RetentionEvery: time.Millisecond,
		Merge: worker.MergePolicy{Every: time.Millisecond, Layers: 1}}
	for _, f := range change {
		f(&cfg)
	}
	h.worker = worker.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.worker.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the worker ended with %v", err)
		}
	}()
	h.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(func() {
		h.stop()
		h.worker.StopAll()
		for _, s := range h.shards {
			h.must(s.Log.Close())
			h.must(s.Replica.Close())
		}
		cache.Close()
		h.must(logs.Close())
	})
	return h
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// deploy makes pipeline p of the program.
func (h *host) deploy(name string) *meta.Pipeline {
	h.t.Helper()
	file, err := sql.Parse(program)
	h.must(err)
	pl, err := plan.Build(file, plan.Streams{})
	h.must(err)
	p, _, err := h.meta.CreatePipeline(h.t.Context(), meta.CreatePipeline{Name: name, SQL: program, Fingerprint: "f", Reads: map[string]dataflow.StreamID{"words": 0},
		Options:  []dataflow.Option{{Name: "checkpoint.retained", Value: "2"}},
		Declared: []meta.StreamDefinition{{Name: "words", Schema: pl.Declared[0].Schema}}})
	h.must(err)
	_, _, err = h.meta.ReserveAttempts(h.t.Context(), p.UID, 100, true)
	h.must(err)
	return p
}

func (h *host) begin(p *meta.Pipeline) *meta.Pipeline {
	h.t.Helper()
	p, err := h.meta.BeginIncarnation(h.t.Context(), p.UID, p.Incarnation, nil, "test")
	h.must(err)
	return p
}

// start starts the tasks of an incarnation, and says in the meta log that they run.
func (h *host) start(p *meta.Pipeline) error {
	err := h.worker.Start(h.t.Context(), p.UID, p.Incarnation, p.Base, func(ev coordinator.Event) { h.events <- ev })
	if err == nil {
		_, err = h.meta.MarkRunning(h.t.Context(), p.UID, p.Incarnation)
	}
	return err
}

// append puts words into a shard of the stream.
func (h *host) append(s dataflow.ShardID, words ...string) {
	h.t.Helper()
	st, err := h.meta.State().Stream("words")
	h.must(err)
	b := batch.NewBatch(st.Schema)
	for _, w := range words {
		b.AppendRow(dataflow.Row{dataflow.Text(w)})
	}
	_, err = h.shards[s].Log.Append(h.t.Context(), shard.Append{Stream: st.ID, Rows: batch.Encode(nil, b), Count: b.N})
	h.must(err)
}

// checkpoint injects barrier n and commits what the shards acknowledge.
func (h *host) checkpoint(p *meta.Pipeline, n dataflow.CheckpointID) *dataflow.CheckpointCommit {
	h.t.Helper()
	h.worker.Inject(p.UID, p.Incarnation, n, false)
	c := &dataflow.CheckpointCommit{Pipeline: p.UID, Incarnation: p.Incarnation, ID: n, Guarantee: dataflow.GuaranteeExactlyOnce,
		Positions: make(dataflow.Positions), Shards: make([]dataflow.ShardCommit, shards)}
	for range shards {
		ack, ok := h.event().(coordinator.Ack)
		if !ok || ack.Checkpoint != n {
			h.t.Fatalf("the tasks report %v", ack)
		}
		c.Shards[ack.Shard] = dataflow.ShardCommit{Shard: ack.Shard, Seq: ack.Seq, Digest: ack.Digest, Index: ack.Index, Skipped: ack.Skipped}
		c.Positions.Advance(ack.Positions)
	}
	c, err := h.meta.CommitCheckpoint(h.t.Context(), c)
	h.must(err)
	return c
}

// event returns the next report of the tasks.
func (h *host) event() coordinator.Event {
	h.t.Helper()
	select {
	case ev := <-h.events:
		return ev
	case <-h.t.Context().Done():
		h.t.Fatal("the tasks report nothing")
		return nil
	}
}

// count reads how often a word was counted in a committed cut: 0 when it is not there.
func (h *host) count(p *meta.Pipeline, cut dataflow.CheckpointID, word string) int64 {
	h.t.Helper()
	k := key.AppendRow(nil, dataflow.Row{dataflow.Text(word)})
	s := dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(k)), shards)
	v, err := h.worker.View(h.t.Context(), s, p.UID, cut)
	h.must(err)
	defer v.Release()
	acc, _, err := v.Get(0, k, nil)
	h.must(err)
	return rowsOf(acc)
}

func (h *host) live(p *meta.Pipeline, word string) int64 {
	h.t.Helper()
	k := key.AppendRow(nil, dataflow.Row{dataflow.Text(word)})
	s := dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(k)), shards)
	acc, _, err := h.worker.Live(p.UID).Get(0, s, k, nil)
	h.must(err)
	return rowsOf(acc)
}

// eventually waits for a fact that nothing announces.
func (h *host) eventually(what string, fact func() bool) {
	h.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !fact(); <-tick.C {
		if time.Now().After(deadline) {
			h.t.Fatalf("not so after a long time: %s", what)
		}
	}
}
