package statequery_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

// shard0 is where the only shard of a small world's stream stands.
var shard0 = dataflow.StreamShard{Stream: stream}

func n(t *testing.T, e *statequery.Engine, o dataflow.ReadOptions) (string, dataflow.Cut, error) {
	t.Helper()
	rows, cut, err := e.Get(t.Context(), pipelineName, "total", nil, o)
	if err != nil {
		return "", cut, err
	}
	return strings.Split(text(rows)[0], "|")[0], cut, nil
}

func TestAReadWaitsForItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		e := w.engine()
		w.add(g2("x", 1), 1)
		w.commit()
		w.add(g2("x", 1), 1)
		go func() {
			time.Sleep(3 * time.Second)
			w.commit()
		}()
		began := time.Now()
		o := dataflow.ReadOptions{Min: dataflow.Positions{shard0: 2, {Stream: 99}: 1 << 40}} // another stream's rows do not matter
		got, cut, err := n(t, e, o)
		if err != nil || got != "2" || cut.Checkpoint != 2 || time.Since(began) != 3*time.Second {
			t.Errorf("%s at %d after %s: %v", got, cut.Checkpoint, time.Since(began), err)
		}
		o.Min[shard0] = 5
		o.MaxWait = 2 * time.Second
		began = time.Now()
		_, _, err = n(t, e, o)
		refused(t, err, dataflow.ReasonTokenNotReached)
		if !strings.Contains(err.Error(), "3 rows") || time.Since(began) != 2*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		o.MaxWait = 0
		_, _, err = n(t, e, o)
		if refused(t, err, dataflow.ReasonTokenNotReached); time.Since(began) != 12*time.Second {
			t.Errorf("the default wait is not MaxWait: %s", time.Since(began))
		}
		w.unpinned()
	})
}

func TestNobodyWaitsForAPipelineThatDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		e := w.engine()
		w.append(0)
		for _, state := range []dataflow.PipelineState{dataflow.PipelineFailed, dataflow.PipelineStopped} {
			w.set(func(p *statequery.Pipeline) { p.State = state })
			began := time.Now()
			for _, iso := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
				_, _, err := n(t, e, dataflow.ReadOptions{Isolation: iso, Min: dataflow.Positions{shard0: 1}})
				refused(t, err, dataflow.ReasonTokenNotReached)
			}
			_, err := e.WaitCommitted(t.Context(), pipelineName, dataflow.Positions{shard0: 1})
			if refused(t, err, dataflow.ReasonTokenNotReached); !strings.Contains(err.Error(), state.String()) {
				t.Errorf("%v", err)
			}
			_, err = e.WaitProcessed(t.Context(), pipelineName, dataflow.Positions{shard0: 1})
			refused(t, err, dataflow.ReasonPipelineState)
			if time.Since(began) != 0 {
				t.Errorf("it took %s", time.Since(began))
			}
			if got, cut, err := n(t, e, dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted}); got != "0" || cut.Speculative || cut.State != state || err != nil {
				t.Errorf("its committed row is %q, cut %+v, %v", got, cut, err)
			}
		}
	})
}

func TestANamedCheckpointIsReadAsItIs(t *testing.T) {
	w := newWorld(t, 1)
	e := w.engine()
	w.add(g2("x", 1), 1)
	one := w.commit()
	w.add(g2("x", 1), 1)
	w.commit()
	if got, cut, err := n(t, e, dataflow.ReadOptions{Checkpoint: &one}); got != "1" || cut.Checkpoint != one || err != nil {
		t.Errorf("%q at %d: %v", got, cut.Checkpoint, err)
	}
	_, _, err := n(t, e, dataflow.ReadOptions{Checkpoint: &one, Min: dataflow.Positions{shard0: 2}})
	refused(t, err, dataflow.ReasonTokenNotReached)
	_, _, err = n(t, e, dataflow.ReadOptions{Checkpoint: &one, Isolation: dataflow.ReadUncommitted})
	refused(t, err, dataflow.ReasonRequestInvalid)
	w.commit()
	_, _, err = n(t, e, dataflow.ReadOptions{Checkpoint: &one})
	refused(t, err, dataflow.ReasonCheckpointExpired)
	w.unpinned()
}

func TestASessionNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		e := w.engine()
		w.add(g2("x", 1), 1)
		w.commit()
		_, cut, err := n(t, e, dataflow.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		behind := newWorld(t, 1) // another node, which has not seen the commit
		follower := behind.engine()
		for _, iso := range []dataflow.Isolation{dataflow.ReadCommitted, dataflow.ReadUncommitted} {
			o := dataflow.ReadOptions{Session: &cut.Session, MaxWait: time.Second, Isolation: iso}
			_, _, err = n(t, follower, o)
			if refused(t, err, dataflow.ReasonTokenNotReached); !strings.Contains(err.Error(), "checkpoint 1") {
				t.Errorf("%s: %v", iso, err)
			}
		}
		go func() {
			time.Sleep(time.Second)
			behind.add(g2("x", 1), 1)
			behind.commit()
		}()
		if _, got, err := n(t, follower, dataflow.ReadOptions{Session: &cut.Session}); err != nil || got.Checkpoint != 1 {
			t.Errorf("cut %d: %v", got.Checkpoint, err)
		}
	})
}

func TestASessionOfAnotherHistoryIsRefusedOnce(t *testing.T) {
	w := newWorld(t, 1)
	e := w.engine()
	_, cut, _ := n(t, e, dataflow.ReadOptions{})
	for what, change := range map[string]func(p *statequery.Pipeline){
		"rewound": func(p *statequery.Pipeline) { p.Timeline++ },
		"deleted": func(p *statequery.Pipeline) { p.UID++ },
	} {
		was := w.mu.pipeline
		w.set(change)
		_, _, err := n(t, e, dataflow.ReadOptions{Session: &cut.Session})
		if refused(t, err, dataflow.ReasonTimelineChanged); !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		w.set(func(p *statequery.Pipeline) { *p = was })
	}
}

func TestAWaitEndsWhenTheHistoryChanges(t *testing.T) {
	for what, change := range map[string]func(p *statequery.Pipeline){
		"rewound": func(p *statequery.Pipeline) { p.Timeline++ },
		"deleted": func(p *statequery.Pipeline) { p.UID++ },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			e := w.engine()
			go func() {
				time.Sleep(time.Second)
				w.set(change)
			}()
			_, _, err := n(t, e, dataflow.ReadOptions{Min: dataflow.Positions{shard0: 1}})
			if refused(t, err, dataflow.ReasonTimelineChanged); !strings.Contains(err.Error(), what) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestALiveReadOwnsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		e := w.engine()
		live := dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted}
		w.add(g2("x", 1), 1)
		w.commit()
		w.add(g2("x", 1), 1)
		got, cut, err := n(t, e, live)
		if err != nil || got != "2" || !cut.Speculative || cut.Incarnation != 1 || cut.Checkpoint != 1 || cut.Positions[shard0] != 2 || cut.BehindRows != 0 {
			t.Errorf("%s %+v %v", got, cut, err)
		}
		w.crash()
		_, _, err = n(t, e, live)
		if e := refused(t, err, dataflow.ReasonPipelineRecovering); e.RetryAfter != 200*time.Millisecond {
			t.Errorf("RetryInfo %s", e.RetryAfter)
		}
		if got, cut, err = n(t, e, dataflow.ReadOptions{}); got != "1" || cut.Speculative || cut.State != dataflow.PipelineRecovering || err != nil {
			t.Errorf("committed while it recovers: %s %+v %v", got, cut, err)
		}
		w.recover()
		if got, cut, err = n(t, e, live); got != "1" || cut.Incarnation != 2 || err != nil {
			t.Errorf("after the recovery: %s %+v %v", got, cut, err)
		}
		// The coordinator has begun an incarnation; the tasks of the last one have not heard of it.
		w.set(func(p *statequery.Pipeline) { p.Incarnation, p.State = 9, dataflow.PipelineRecovering })
		old := &live2{w.Live(5), 2}
		stale := w.engine(func(c *statequery.Config) { c.Store = staleStore{w, old} })
		_, _, err = n(t, stale, live)
		refused(t, err, dataflow.ReasonPipelineRecovering)
	})
}

// staleStore serves an incarnation that has been superseded.
type staleStore struct {
	*world
	live statequery.Live
}

func (s staleStore) Live(dataflow.PipelineUID) statequery.Live { return s.live }

type live2 struct {
	statequery.Live
	inc dataflow.Incarnation
}

func (l *live2) Incarnation() dataflow.Incarnation { return l.inc }

func TestALiveReadWaitsForItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		e := w.engine()
		o := dataflow.ReadOptions{Isolation: dataflow.ReadUncommitted, Min: dataflow.Positions{shard0: 1}}
		go func() {
			time.Sleep(time.Second)
			w.add(g2("x", 1), 1)
			w.set(func(*statequery.Pipeline) {})
		}()
		if got, cut, err := n(t, e, o); got != "1" || cut.Positions[shard0] != 1 || err != nil {
			t.Errorf("%s %+v %v", got, cut, err)
		}
		o.Min[shard0], o.MaxWait = 2, time.Second
		_, _, err := n(t, e, o)
		if refused(t, err, dataflow.ReasonTokenNotReached); !strings.Contains(err.Error(), "processed") {
			t.Errorf("%v", err)
		}
		go func() {
			time.Sleep(time.Second)
			w.crash()
		}()
		o.MaxWait = time.Minute
		_, _, err = n(t, e, o)
		refused(t, err, dataflow.ReasonPipelineRecovering)
	})
}

func TestWaitingForProcessedOutlivesARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		e := w.engine()
		go func() {
			time.Sleep(time.Second)
			w.crash()
			time.Sleep(time.Second)
			w.recover()
			time.Sleep(time.Second)
			w.add(g2("x", 1), 1)
			w.set(func(*statequery.Pipeline) {})
		}()
		cut, err := e.WaitProcessed(t.Context(), pipelineName, dataflow.Positions{shard0: 1})
		if err != nil || cut.Incarnation != 2 || cut.Positions[shard0] != 1 {
			t.Errorf("%+v %v", cut, err)
		}
		w.crash()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = e.WaitProcessed(ctx, pipelineName, dataflow.Positions{shard0: 2})
		refused(t, err, dataflow.ReasonTokenNotReached)
		_, err = e.WaitCommitted(ctx, pipelineName, dataflow.Positions{shard0: 2})
		refused(t, err, dataflow.ReasonTokenNotReached)
	})
}

func TestACutSaysHowFarItIsBehind(t *testing.T) {
	w := newWorld(t, 2)
	e := w.engine()
	w.add(g2("x", 1), 1)
	w.commit()
	if _, cut, _ := n(t, e, dataflow.ReadOptions{}); cut.BehindRows != 0 || cut.BehindMillis != 0 {
		t.Errorf("nothing is missing: %d rows, %d ms", cut.BehindRows, cut.BehindMillis)
	}
	w.append(1)
	if _, cut, _ := n(t, e, dataflow.ReadOptions{}); cut.BehindRows != 1 || cut.BehindMillis != 1 {
		t.Errorf("a row of this moment: %d rows, %d ms", cut.BehindRows, cut.BehindMillis)
	}
	w.pass(3 * time.Second)
	w.append(0)
	w.append(1)
	if _, cut, _ := n(t, e, dataflow.ReadOptions{}); cut.BehindRows != 3 || cut.BehindMillis != 3000 || cut.AgeMillis != 3000 {
		t.Errorf("%d rows, %d ms, age %d ms", cut.BehindRows, cut.BehindMillis, cut.AgeMillis)
	}
}

func TestACutThatWasOvertakenIsTriedAgainUnlessItWasNamed(t *testing.T) {
	w := seeded(t)
	e := w.engine()
	w.mu.expireNow = true
	_, _, err := n(t, e, dataflow.ReadOptions{})
	if e := refused(t, err, dataflow.ReasonNoCommittedCheckpoint); e.RetryAfter == 0 {
		t.Error("no RetryInfo")
	}
	one := dataflow.CheckpointID(1)
	_, _, err = n(t, e, dataflow.ReadOptions{Checkpoint: &one})
	refused(t, err, dataflow.ReasonCheckpointExpired)
	w.unpinned()
}

func TestARequestWithoutDeadlineDoesNotWaitForACutForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := seeded(t)
		e := w.engine(func(c *statequery.Config) { c.Store = neverThere{w} })
		began := time.Now()
		_, _, err := n(t, e, dataflow.ReadOptions{})
		if refused(t, err, dataflow.ReasonNoCommittedCheckpoint); time.Since(began) != 10*time.Second {
			t.Errorf("it took %s", time.Since(began))
		}
	})
}

// neverThere is a store to which no cut comes.
type neverThere struct{ *world }

func (neverThere) Live(dataflow.PipelineUID) statequery.Live { return nil }

func (neverThere) View(ctx context.Context, _ dataflow.ShardID, _ dataflow.PipelineUID, cut dataflow.CheckpointID) (statequery.View, error) {
	<-ctx.Done()
	return nil, dataflow.Errorf(dataflow.ReasonNoCommittedCheckpoint, "cut %d is not here yet", cut)
}
