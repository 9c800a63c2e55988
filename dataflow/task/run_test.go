package task_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/checkpoint"
	"github.com/weirdb/weir/dataflow/operator"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/dataflow/task"
	"github.com/weirdb/weir/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shards = 3

// memLog is a shard's log in memory: rows of one stream, and deltas that go straight to a replica.
type memLog struct {
	shard   dataflow.ShardID
	replica *state.Replica

	mu struct {
		sync.Mutex
		rows    []task.Rows
		words   []string // one per row, for the model
		end     dataflow.Offset
		changed chan struct{}
		index   dataflow.LogIndex
	}
}

func newMemLog(t *testing.T, s dataflow.ShardID) *memLog {
	r, err := state.OpenReplica(state.Config{FS: vfs.NewCrashableMem(), Dir: fmt.Sprintf("/state-%d", s), Shard: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &memLog{shard: s, replica: r}
	l.mu.changed = make(chan struct{})
	return l
}

func (l *memLog) append(schema dataflow.Schema, words ...string) {
	b := batch.NewBatch(schema)
	for _, w := range words {
		b.AppendRow(dataflow.Row{dataflow.Text(w)})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.rows = append(l.mu.rows, task.Rows{First: l.mu.end, Count: b.N, AppendTime: int64(len(l.mu.rows)), Data: batch.Encode(nil, b)})
	l.mu.words = append(l.mu.words, words...)
	l.mu.end += dataflow.Offset(b.N)
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

func (l *memLog) Read(_ dataflow.StreamID, from dataflow.Offset, _ int) ([]task.Rows, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range l.mu.rows {
		if from < r.First+dataflow.Offset(r.Count) {
			return l.mu.rows[i : i+1], nil
		}
	}
	return nil, nil
}

func (l *memLog) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.changed
}

func (l *memLog) next() dataflow.LogIndex {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.index++
	return l.mu.index
}

func (l *memLog) AppendDelta(_ context.Context, d dataflow.DeltaID, chunk int, data []byte) error {
	return l.replica.ApplyChunk(l.next(), d, chunk, data)
}

func (l *memLog) EndDelta(_ context.Context, d dataflow.DeltaID, chunks int, digest uint64) (dataflow.LogIndex, error) {
	idx := l.next()
	return idx, l.replica.EndDelta(idx, d, chunks, digest)
}

// world runs incarnations of one pipeline over three logs and commits what they acknowledge.
type world struct {
	t       *testing.T
	plan    *plan.Plan
	logs    []*memLog
	base    *dataflow.CheckpointCommit
	inc     dataflow.Incarnation
	attempt dataflow.CheckpointID
	run     *task.Run
	acks    chan checkpoint.Ack
	change  func(*task.Config) // of the next start; may be nil
}

const program = `CREATE STREAM words (word TEXT);
CREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n FROM words WHERE word <> 'skip' GROUP BY word;
CREATE MATERIALIZED VIEW often AS SELECT n, count(*) AS words FROM counts WHERE n > 1 GROUP BY n;
CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM counts;`

func newWorld(t *testing.T) *world { return newWorldOf(t, program) }

func newWorldOf(t *testing.T, program string) *world {
	file, err := sql.Parse(program)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := plan.Build(file, plan.Streams(nil))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, plan: pl, base: &dataflow.CheckpointCommit{Pipeline: 1, Timeline: 1, Incarnation: 1}}
	for s := range shards {
		l := newMemLog(t, dataflow.ShardID(s))
		if err := l.replica.Publish(w.base); err != nil {
			t.Fatal(err)
		}
		w.logs = append(w.logs, l)
	}
	return w
}

// start begins the next incarnation from the newest commit.
func (w *world) start() {
	cfg := w.config()
	var err error
	if w.run, err = task.Start(cfg); err != nil {
		w.t.Fatal(err)
	}
}

// config returns what the next incarnation is started with.
func (w *world) config() task.Config {
	w.inc++
	w.acks = make(chan checkpoint.Ack, 100)
	acks := w.acks
	tables := make(map[[2]int]*state.Table)
	cfg := task.Config{
		Pipeline: 1, Name: "test", Plan: w.plan, Incarnation: w.inc, Shards: shards, Streams: map[string]dataflow.StreamID{"words": 1},
		Start: w.base.Positions.Clone(), Bases: map[dataflow.ShardID]checkpoint.Base{}, Skipped: map[dataflow.ShardID]uint64{},
		Table: func(st dataflow.StageID, s dataflow.ShardID) *state.Table { return tables[[2]int{int(st), int(s)}] },
		Rows:  func(s dataflow.ShardID) task.RowLog { return w.logs[s] }, Deltas: func(s dataflow.ShardID) checkpoint.Log { return w.logs[s] },
		Ack: func(a checkpoint.Ack) { acks <- a }, Failed: func(err error) { w.t.Errorf("run failed: %v", err) },
		Logger: slog.New(slog.DiscardHandler),
	}
	for s, l := range w.logs {
		id := dataflow.ShardID(s)
		cfg.Local = append(cfg.Local, id)
		ref := dataflow.DeltaRef{Incarnation: w.base.Incarnation, Seq: w.base.Shard(id).Seq}
		if err := l.replica.BeginIncarnation(l.next(), 1, w.inc, ref); err != nil {
			w.t.Fatal(err)
		}
		view, err := l.replica.View(1, w.base.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, st := range w.plan.Stages {
			table := state.NewTable(task.Shape(st), nil)
			it := view.Iter(st.ID, nil, nil)
			for it.Next() {
				table.Load(it.Key(), it.Value())
			}
			if err := it.Close(); err != nil {
				w.t.Fatal(err)
			}
			tables[[2]int{int(st.ID), s}] = table
		}
		view.Release()
	}
	if w.change != nil {
		w.change(&cfg)
	}
	return cfg
}

// checkpoint injects a barrier, waits for every shard, and commits.
func (w *world) checkpoint() {
	w.attempt++
	w.run.Inject(w.attempt, false)
	w.commit(nil)
}

// commit waits for every shard's part of the newest attempt and commits it; not when failed closes first.
func (w *world) commit(failed <-chan struct{}) bool {
	c := &dataflow.CheckpointCommit{Pipeline: 1, Timeline: 1, Incarnation: w.inc, ID: w.attempt, Positions: dataflow.Positions{}, Shards: make([]dataflow.ShardCommit, shards)}
	for missing := shards; missing > 0; {
		var a checkpoint.Ack
		select {
		case a = <-w.acks:
		case <-failed:
			return false
		}
		if a.ID != w.attempt {
			continue // an attempt that was given up
		}
		c.Positions.Advance(a.Positions)
		c.Shards[a.Shard] = dataflow.ShardCommit{Shard: a.Shard, Seq: a.Seq, Digest: a.Digest, Index: a.Index, Skipped: a.Skipped}
		missing--
	}
	for _, l := range w.logs {
		if err := l.replica.Publish(c); err != nil {
			w.t.Fatal(err)
		}
	}
	w.base = c
	return true
}

// tables returns the visible rows of every table at the newest commit, printed.
func (w *world) tables() map[string]string {
	out := make(map[string]string)
	for _, l := range w.logs {
		view, err := l.replica.View(1, w.base.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, st := range w.plan.Stages {
			it := view.Iter(st.ID, nil, nil)
			var keys, accs [][]byte
			for it.Next() {
				keys, accs = append(keys, append([]byte{}, it.Key()...)), append(accs, append([]byte{}, it.Value()...))
			}
			if err := it.Close(); err != nil {
				w.t.Fatal(err)
			}
			rows, visible, _, err := operator.NewFinalizer(st).Batch(keys, accs, dataflow.OnErrorFail)
			if err != nil {
				w.t.Fatal(err)
			}
			for i := range rows.N {
				if visible.Get(i) {
					row := rows.Row(i)
					name := st.Name
					if len(row) > 1 {
						name += " " + show(row[0])
					}
					out[name] = show(row[len(row)-1])
				}
			}
		}
		view.Release()
	}
	return out
}

// rows returns all columns of all rows of every table at the newest commit, sorted.
func (w *world) rows() []string {
	var out []string
	for _, l := range w.logs {
		view, err := l.replica.View(1, w.base.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, st := range w.plan.Stages {
			it := view.Iter(st.ID, nil, nil)
			for it.Next() {
				rows, visible, _, err := operator.NewFinalizer(st).Batch([][]byte{it.Key()}, [][]byte{it.Value()}, dataflow.OnErrorFail)
				if err != nil {
					w.t.Fatal(err)
				}
				if !visible.Get(0) {
					continue
				}
				text := st.Name
				for i, v := range rows.Row(0) {
					text += " " + st.Schema[i].Name + "="
					if v.Arr == nil {
						text += show(v)
					}
					for _, e := range v.Arr {
						text += show(e) + ";"
					}
					if v.Type == dataflow.TypeDouble {
						text += fmt.Sprint(v.Flt)
					}
				}
				out = append(out, text)
			}
			if err := it.Close(); err != nil {
				w.t.Fatal(err)
			}
		}
		view.Release()
	}
	slices.Sort(out)
	return out
}

func show(v dataflow.Value) string {
	switch {
	case v.Null:
		return "NULL"
	case v.Type == dataflow.TypeText:
		return v.Str
	case v.Type == dataflow.TypeNumeric:
		return v.Dec.Text('f')
	}
	return fmt.Sprint(v.Int)
}

// model folds the words below the commit's positions.
func (w *world) model() map[string]string {
	counts := make(map[string]int)
	total := 0
	for s, l := range w.logs {
		l.mu.Lock()
		for _, word := range l.mu.words[:w.base.Positions[dataflow.StreamShard{Stream: 1, Shard: dataflow.ShardID(s)}]] {
			if word != "skip" {
				counts[word]++
				total++
			}
		}
		l.mu.Unlock()
	}
	out := map[string]string{"total": "NULL"}
	often := make(map[int]int)
	for word, n := range counts {
		out["counts "+word] = fmt.Sprint(n)
		if n > 1 {
			often[n]++
		}
	}
	for n, words := range often {
		out[fmt.Sprintf("often %d", n)] = fmt.Sprint(words)
	}
	if total > 0 {
		out["total"] = fmt.Sprint(total)
	}
	return out
}

// TestEveryCommitEqualsTheFoldOfItsPrefix feeds words at random, with barriers that are committed, barriers that are given
// up, and runs that end in the middle, and compares every commit with a model (G1).
func TestEveryCommitEqualsTheFoldOfItsPrefix(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			w := newWorld(t)
			w.start()
			schema := w.plan.Reads[0].Schema
			for range 120 {
				switch rng.IntN(10) {
				case 0:
					w.checkpoint()
					if got, want := w.tables(), w.model(); !maps.Equal(got, want) {
						t.Fatalf("commit %d: got %v\nwant %v", w.attempt, got, want)
					}
				case 1: // an attempt that nobody waits for
					w.attempt++
					w.run.Inject(w.attempt, false)
				case 2:
					if rng.IntN(3) == 0 {
						w.run.Stop()
						w.start()
					}
				default:
					words := make([]string, 1+rng.IntN(400))
					for i := range words {
						if words[i] = fmt.Sprintf("w%d", int(rng.ExpFloat64()*20)); rng.IntN(20) == 0 {
							words[i] = "skip"
						}
					}
					w.logs[rng.IntN(shards)].append(schema, words...)
				}
			}
			w.checkpoint()
			if got, want := w.tables(), w.model(); !maps.Equal(got, want) {
				t.Fatalf("the last commit: got %v\nwant %v", got, want)
			}
			w.run.Stop()
		})
	}
}

// TestProcessedWaitsForTheRowsAskedFor waits by marker and then finds the effect in the live tables (P9).
func TestProcessedWaitsForTheRowsAskedFor(t *testing.T) {
	w := newWorld(t)
	w.start()
	defer w.run.Stop()
	schema := w.plan.Reads[0].Schema
	for round := range 50 {
		l := w.logs[round%shards]
		l.append(schema, "a", "b", "a")
		want := dataflow.Positions{{Stream: 1, Shard: l.shard}: l.mu.end}
		got, err := w.run.Processed(t.Context(), want)
		if err != nil || !got.Covers(want) {
			t.Fatalf("round %d: %v, %v", round, got, err)
		}
		sum := 0
		for s := range shards {
			sum += w.run.Table(0, dataflow.ShardID(s)).Len()
		}
		if sum != 2 {
			t.Fatalf("round %d: %d words are counted, want 2", round, sum)
		}
	}
}

// TestAHeldSourceReadsNothingBehindTheBarrier has the sources held behind a checkpoint, appends, and looks at what they read until
// they go on: by themselves, behind the next barrier, or when they are told to. Markers go through meanwhile.
func TestAHeldSourceReadsNothingBehindTheBarrier(t *testing.T) {
	for _, what := range []string{"by themselves", "behind the next barrier", "when told to"} {
		t.Run(what, func(t *testing.T) { heldUntil(t, what) })
	}
}

func heldUntil(t *testing.T, goOn string) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.run.Stop()
		schema := w.plan.Reads[0].Schema
		for _, l := range w.logs {
			l.append(schema, "a", "b")
		}
		synctest.Wait()
		at := w.run.Positions()
		w.attempt++
		w.run.Inject(w.attempt, true)
		w.commit(nil)
		held := time.Now()
		for _, l := range w.logs {
			l.append(schema, "c")
		}
		if _, err := w.run.Processed(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		time.Sleep(dataflow.HoldTime - time.Since(held) - time.Microsecond)
		synctest.Wait()
		if w.run.ReadBeyond(at) {
			t.Errorf("held at %s, read to %s within %s", at, w.run.Positions(), time.Since(held))
		}
		switch goOn {
		case "by themselves":
			time.Sleep(2 * time.Microsecond)
		case "behind the next barrier":
			w.checkpoint()
		case "when told to":
			w.run.GoOn()
		}
		synctest.Wait()
		if !w.run.ReadBeyond(at) {
			t.Errorf("held at %s, and nothing was read since", at)
		}
		w.checkpoint()
		if got, want := w.tables(), w.model(); !maps.Equal(got, want) {
			t.Errorf("after %s: got %v\nwant %v", time.Since(held), got, want)
		}
	})
}

// TestProcessedEndsWithItsContext asks for rows that never come.
func TestProcessedEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	w.start()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.run.Processed(ctx, dataflow.Positions{{Stream: 1}: 10}); err == nil {
		t.Fatal("rows that were never appended are said to be processed")
	}
	// The marker that was given up does not hold up the next.
	if _, err := w.run.Processed(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w.run.Stop()
	if _, err := w.run.Processed(t.Context(), nil); err == nil {
		t.Fatal("a run that has ended processed something")
	}
}

// readLog says when its task has rows.
type readLog struct {
	task.RowLog
	read func()
}

func (l readLog) Read(stream dataflow.StreamID, from dataflow.Offset, most int) ([]task.Rows, error) {
	rows, err := l.RowLog.Read(stream, from, most)
	if len(rows) > 0 {
		l.read()
	}
	return rows, err
}

// A batch of these rows takes minutes.
func TestAStopDoesNotWaitForTheExpressionsOfABatch(t *testing.T) {
	w := newWorldOf(t, `CREATE STREAM words (word TEXT);
		CREATE MATERIALIZED VIEW heavy AS SELECT word, count(*) AS n FROM words WHERE repeat(word, 1000) ~ '(x|y)*(z|w)*(x|z)*u$' GROUP BY word;`)
	reading := make(chan struct{})
	var once sync.Once
	w.change = func(c *task.Config) {
		rows := c.Rows
		c.Rows = func(s dataflow.ShardID) task.RowLog {
			return readLog{rows(s), func() { once.Do(func() { close(reading) }) }}
		}
	}
	words := make([]string, 1024)
	for i := range words {
		words[i] = strings.Repeat("x", 1000)
	}
	w.logs[0].append(w.plan.Reads[0].Schema, words...)
	w.start()
	<-reading
	w.run.Stop()
	if got := w.run.Positions(); got[dataflow.StreamShard{Stream: 1}] != 0 {
		t.Errorf("rows that were given up count as read: %v", got)
	}
}

// panicLog panics at every read, as a defect in decoding or in an expression would.
type panicLog struct{ task.RowLog }

func (panicLog) Read(dataflow.StreamID, dataflow.Offset, int) ([]task.Rows, error) { panic("boom") }

func TestAPanicFailsItsRunAlone(t *testing.T) {
	w := newWorld(t)
	failed := make(chan error, 1)
	w.change = func(c *task.Config) {
		rows := c.Rows
		c.Rows = func(s dataflow.ShardID) task.RowLog { return panicLog{rows(s)} }
		c.Failed = func(err error) { failed <- err }
	}
	w.start()
	defer w.run.Stop()
	var p *task.PanicError
	if err := <-failed; !errors.As(err, &p) || p.Value != "boom" || !strings.Contains(err.Error(), "the source of words") {
		t.Errorf("the run ended with %v", err)
	}
	w.run.Stop()
	if !w.run.Spoiled() {
		t.Error("the tables of a run that panicked are good enough for another")
	}
}
