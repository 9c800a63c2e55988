package checkpoint_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/checkpoint"
)

// fakeLog answers with the errors of its script first, then takes everything.
type fakeLog struct {
	script []error
	chunks int
	ends   int
}

func (l *fakeLog) next() error {
	if len(l.script) == 0 {
		return nil
	}
	err := l.script[0]
	l.script = l.script[1:]
	return err
}

func (l *fakeLog) AppendDelta(_ context.Context, _ dataflow.DeltaID, _ int, _ []byte) error {
	err := l.next()
	if err == nil {
		l.chunks++
	}
	return err
}

func (l *fakeLog) EndDelta(_ context.Context, _ dataflow.DeltaID, _ int, _ uint64) (dataflow.LogIndex, error) {
	if err := l.next(); err != nil {
		return 0, err
	}
	l.ends++
	return dataflow.LogIndex(100 + l.ends), nil
}

// runWriter starts a writer over log for one table and one source; stop ends it and returns what Run returned.
func runWriter(log checkpoint.Log, acks chan checkpoint.Ack) (w *checkpoint.Writer, stop func() error) {
	w = checkpoint.NewWriter(checkpoint.WriterConfig{Pipeline: 1, Shard: 2, Incarnation: 3, Base: checkpoint.Base{Index: 50}, Tables: 1, Sources: 1, Log: log, Ack: func(a checkpoint.Ack) { acks <- a }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return w, func() error { cancel(); return <-done }
}

// freeze reports one attempt of one table that changed keys.
func freeze(t *testing.T, w *checkpoint.Writer, n dataflow.CheckpointID, keys ...string) {
	t.Helper()
	w.Position(n, dataflow.StreamShard{Stream: 1, Shard: 2}, dataflow.Offset(10*n), 0)
	var p checkpoint.Part
	for _, k := range keys {
		p.Add([]byte(k), []byte("v"))
	}
	if err := w.Add(t.Context(), n, 0, &p, true); err != nil {
		t.Fatal(err)
	}
}

func TestFullQueueDelaysADeltaAndFailsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{script: []error{
			dataflow.Errorf(dataflow.ReasonOverloaded, "full"), dataflow.Errorf(dataflow.ReasonOverloaded, "full"),
			nil, dataflow.Errorf(dataflow.ReasonOutcomeUnknown, "perhaps"),
		}}
		acks := make(chan checkpoint.Ack, 1)
		w, stop := runWriter(log, acks)
		freeze(t, w, 7, "a", "b")
		if a := <-acks; a.ID != 7 || a.Seq != 1 || a.Index != 101 || log.chunks != 1 || log.ends != 1 {
			t.Fatalf("acknowledged %+v after %d chunks and %d ends", a, log.chunks, log.ends)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

func TestManyChangesAreWrittenAsSeveralDeltas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		acks := make(chan checkpoint.Ack, 1)
		w := checkpoint.NewWriter(checkpoint.WriterConfig{Pipeline: 1, Shard: 2, Incarnation: 3, Tables: 1, Sources: 1, Log: log, Ack: func(a checkpoint.Ack) { acks <- a }, MaxChunks: 2})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		w.Position(1, dataflow.StreamShard{Stream: 1, Shard: 2}, 10, 0)
		var p checkpoint.Part
		for i := range 5 { // a chunk each
			p.Add([]byte{byte(i)}, make([]byte, dataflow.MaxDeltaChunkBytes))
		}
		if err := w.Add(t.Context(), 1, 0, &p, true); err != nil {
			t.Fatal(err)
		}
		if a := <-acks; a.ID != 1 || a.Seq != 3 || a.Index != 103 || log.chunks != 5 || log.ends != 3 {
			t.Fatalf("acknowledged %+v after %d chunks and %d ends", a, log.chunks, log.ends)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

func TestRefusedDeltaEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("the incarnation is over")
		w, stop := runWriter(&fakeLog{script: []error{over}}, make(chan checkpoint.Ack, 1))
		freeze(t, w, 1, "a")
		synctest.Wait()
		if err := stop(); !errors.Is(err, over) {
			t.Fatalf("Run returned %v", err)
		}
	})
}

func TestAttemptWithoutChangesWritesNothingAndNamesTheLastDelta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		acks := make(chan checkpoint.Ack, 1)
		w, stop := runWriter(log, acks)
		freeze(t, w, 1)
		if a := <-acks; a.Seq != 0 || a.Index != 50 {
			t.Fatalf("before any delta: %+v; want the base", a)
		}
		freeze(t, w, 2, "a")
		second := <-acks
		freeze(t, w, 3)
		if a := <-acks; a.Seq != second.Seq || a.Index != second.Index || a.Digest != second.Digest || a.Positions[dataflow.StreamShard{Stream: 1, Shard: 2}] != 30 {
			t.Fatalf("got %+v after %+v", a, second)
		}
		if log.ends != 1 {
			t.Fatalf("%d deltas were written", log.ends)
		}
		_ = stop() // the context's error
	})
}
