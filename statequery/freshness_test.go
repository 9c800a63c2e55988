package statequery_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

// inGroup makes the engine one node of three, whose catching up ends with what fail says and is counted.
func inGroup(fail func() error, count *atomic.Int64) func(*statequery.Config) {
	return func(c *statequery.Config) {
		c.Others = func() []string { return []string{"n2", "n3"} }
		c.Leads = func() bool { return false }
		c.CatchUp = func(context.Context) error { count.Add(1); return fail() }
	}
}

func get(e *statequery.Engine, t *testing.T, o dataflow.ReadOptions) (dataflow.Cut, error) {
	_, cut, err := e.Get(t.Context(), pipelineName, "total", nil, o)
	return cut, err
}

func TestACutThatLacksOldRowsIsTooOld(t *testing.T) {
	w := newWorld(t, 2)
	w.add(g2("x", 1), 1)
	w.commit()
	e := w.engine()
	stale := dataflow.ReadOptions{MaxStaleness: time.Second}
	w.pass(time.Hour)
	if _, err := get(e, t, stale); err != nil {
		t.Fatalf("a cut that covers everything is fresh however old it is: %v", err)
	}
	w.add(g2("x", 1), 1)
	w.pass(999 * time.Millisecond)
	if _, err := get(e, t, stale); err != nil {
		t.Fatalf("the row that it lacks is young: %v", err)
	}
	w.pass(2 * time.Millisecond)
	_, err := get(e, t, stale)
	told := refused(t, err, dataflow.ReasonCutTooOld)
	if told.Metadata["stale_ms"] != "1001" || told.Metadata["age_ms"] != "3601001" || told.Metadata["checkpoint_id"] != "1" || told.RetryAfter == 0 {
		t.Errorf("got %v", told.Metadata)
	}
	if _, err := get(e, t, dataflow.ReadOptions{}); err != nil {
		t.Errorf("who does not ask takes it: %v", err)
	}
	o := stale
	o.Isolation = dataflow.ReadUncommitted
	if cut, err := get(e, t, o); err != nil || !cut.Speculative {
		t.Errorf("live tables have the row: %v", err)
	}
	w.append(0) // no task reads it
	w.pass(2 * time.Second)
	if _, err := get(e, t, o); dataflow.ReasonOf(err) != dataflow.ReasonCutTooOld {
		t.Errorf("live tables lack a row: %v", err)
	}
	w.commit()
	w.unpinned()
}

func TestANodeThatIsCutOffDoesNotCallItselfFresh(t *testing.T) {
	w := newWorld(t, 2)
	w.add(g2("x", 1), 1)
	w.commit()
	w.pass(time.Hour) // its time begins a second after 0
	var asked atomic.Int64
	cut := error(nil)
	e := w.engine(inGroup(func() error { return cut }, &asked))
	o := dataflow.ReadOptions{MaxStaleness: 10 * time.Second}
	for range 3 { // one question is enough for as long as it is fresh
		if c, err := get(e, t, o); err != nil || c.Role != "follower" {
			t.Fatal(c.Role, err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the group was asked %d times", n)
	}
	cut = errors.New("the log of shard 1: no leader")
	w.pass(9 * time.Second)
	if _, err := get(e, t, o); err != nil {
		t.Errorf("what was heard nine seconds ago will do: %v", err)
	}
	w.pass(2 * time.Second)
	_, err := get(e, t, o)
	told := refused(t, err, dataflow.ReasonCutTooOld)
	if told.Metadata["nodes"] != "n2,n3" || !strings.Contains(told.Hint, "n2 or n3") || !strings.Contains(told.Message, "shard 1") {
		t.Errorf("got %q, %q, %v", told.Message, told.Hint, told.Metadata)
	}
	if _, err := get(e, t, dataflow.ReadOptions{}); err != nil {
		t.Errorf("other reads go on: %v", err)
	}
	cut = nil
	if _, err := get(e, t, o); err != nil {
		t.Errorf("together again: %v", err)
	}
	_, _, _, err = e.Query(t.Context(), "SELECT n FROM p.total", dataflow.Page{}, dataflow.ReadOptions{MaxStaleness: time.Second, Checkpoint: new(dataflow.CheckpointID)})
	refused(t, err, dataflow.ReasonRequestInvalid)
}

func TestASessionOfADeploymentThatIsNewsWaitsForIt(t *testing.T) {
	w := newWorld(t, 2)
	w.add(g2("x", 1), 1)
	w.commit()
	e := w.engine(func(c *statequery.Config) { c.Others = func() []string { return []string{"n2"} } })
	token := func(uid, timeline, cut uint64) *dataflow.SessionToken {
		return &dataflow.SessionToken{Group: group, Pipeline: dataflow.PipelineUID(uid), Timeline: dataflow.Timeline(timeline), Checkpoint: dataflow.CheckpointID(cut)}
	}
	// Another node has deployed the pipeline again, and the session has been there.
	w.mu.Lock()
	next := w.mu.pipeline
	next.UID = 9
	w.mu.unheard = &next
	w.mu.Unlock()
	cut, err := get(e, t, dataflow.ReadOptions{Session: token(9, 1, 1)})
	if err != nil || cut.UID != 9 {
		t.Fatalf("got deployment %d, %v", cut.UID, err)
	}
	_, err = get(e, t, dataflow.ReadOptions{Session: token(5, 1, 1)})
	refused(t, err, dataflow.ReasonTimelineChanged)
	_, err = get(e, t, dataflow.ReadOptions{Session: token(10, 1, 1)}) // nobody has heard of it: another pipeline's
	refused(t, err, dataflow.ReasonTimelineChanged)
	w.mu.Lock()
	w.mu.cutOff = errors.New("nobody leads")
	w.mu.Unlock()
	_, err = get(e, t, dataflow.ReadOptions{Session: token(9, 2, 1)})
	if told := refused(t, err, dataflow.ReasonTokenNotReached); told.Metadata["behind"] != "n1" || !strings.Contains(told.Hint, "n2") {
		t.Errorf("got %v, %q", told.Metadata, told.Hint)
	}
}

func TestANodeBehindTheSessionSaysWhoIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		e := w.engine(inGroup(func() error { return nil }, new(atomic.Int64)))
		began := time.Now()
		_, err := get(e, t, dataflow.ReadOptions{MaxWait: 3 * time.Second, Session: &dataflow.SessionToken{Group: group, Pipeline: 5, Timeline: 1, Checkpoint: 7}})
		if told := refused(t, err, dataflow.ReasonTokenNotReached); told.Metadata["behind"] != "n1" || told.Metadata["nodes"] != "n2,n3" {
			t.Errorf("got %v", told.Metadata)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it waited for %s", took)
		}
	})
}

func TestAWatchThatCanSayNothingFreshEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, isolation := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
			w := newWorld(t, 2)
			w.add(g2("x", 1), 1)
			w.commit()
			cut := make(chan struct{})
			e := w.engine(inGroup(func() error {
				select {
				case <-cut:
					return errors.New("cut off")
				default:
					return nil
				}
			}, new(atomic.Int64)))
			go func() {
				time.Sleep(10 * time.Second)
				close(cut)
			}()
			go func() { // the world's clock is its own
				for range 300 {
					time.Sleep(100 * time.Millisecond)
					w.pass(100 * time.Millisecond)
				}
			}()
			began := time.Now()
			err := e.Watch(t.Context(), dataflow.Watch{Pipeline: pipelineName, Table: "total", Isolation: isolation, MaxStaleness: 2 * time.Second},
				func(*dataflow.WatchEvent) error { return nil })
			refused(t, err, dataflow.ReasonCutTooOld)
			if took := time.Since(began); took < 10*time.Second || took > 14*time.Second {
				t.Errorf("%s: it ended after %s", isolation, took)
			}
			e.EndWatches()
			synctest.Wait()
			time.Sleep(time.Minute)
		}
	})
}

func TestExplainSaysWhereEachShardIsRead(t *testing.T) {
	w := newWorld(t, 2)
	w.add(g2("x", 1), 1)
	w.commit()
	e := w.engine()
	const text = "SELECT n FROM p.total"
	for _, c := range []struct {
		o    dataflow.ReadOptions
		want []dataflow.ShardRead
	}{
		{dataflow.ReadOptions{}, []dataflow.ShardRead{{Shard: 0, Node: "n1"}, {Shard: 1, Node: "n1"}}},
		{dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted}, []dataflow.ShardRead{{Shard: 0, Node: "n1", Source: dataflow.LiveHere}, {Shard: 1, Node: "n2", Source: dataflow.LiveRemote}}},
	} {
		rows, x, cut, err := e.Explain(t.Context(), text, c.o)
		if err != nil || rows.N == 0 || cut.Checkpoint != 1 || x.Node != "n1" || x.Isolation != c.o.Isolation || len(x.Shards) != len(c.want) {
			t.Fatalf("%+v, cut %d, %v", x, cut.Checkpoint, err)
		}
		for i, got := range x.Shards {
			if got.Why = ""; got != c.want[i] {
				t.Errorf("%s: %+v, want %+v", c.o.Isolation, got, c.want[i])
			}
		}
	}
	w.set(func(p *statequery.Pipeline) { p.State = dataflow.PipelineStopped })
	_, x, _, err := e.Explain(t.Context(), "EXPLAIN "+text, dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted})
	if err != nil || x.Isolation != dataflow.ReadCommitted || !strings.Contains(x.Why, "STOPPED") {
		t.Errorf("%+v, %v", x, err)
	}
	if _, x, cut, err := e.Explain(t.Context(), "EXPLAIN CREATE STREAM s (a TEXT); CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM s GROUP BY a", dataflow.ReadOptions{}); err != nil || x != nil || cut.Pipeline != "" {
		t.Errorf("of a file: %v, %v", x, err)
	}
	w.unpinned()
}
