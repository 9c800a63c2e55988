package shard_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog/shard"
)

func TestAnonymousProducersAreForgottenSooner(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	clock.Store(1_000_000)
	h := open(t, vfs.NewCrashableMem(), func(c *shard.Config) {
		c.Now = clock.Load
		c.ExpireEvery = time.Millisecond
		c.MaxProducers = 3
	})
	ctx := testCtx(t)
	send := func(name string) (shard.Appended, error) {
		return h.log.Append(ctx, shard.Append{Stream: 1, Rows: []byte("a"), Count: 1, Producer: name, Epoch: 1, First: 1})
	}
	open := func(name string) error {
		_, err := h.log.OpenProducer(ctx, 1, name, 1)
		return err
	}
	for _, name := range []string{"named", dataflow.AnonymousProducer + "1", dataflow.AnonymousProducer + "2"} {
		h.must(open(name))
		_, err := send(name)
		h.must(err)
	}
	if err := open("one more"); dataflow.ReasonOf(err) != dataflow.ReasonOverloaded {
		t.Fatalf("a producer over the limit: %v", err)
	}
	clock.Add(dataflow.AnonymousProducerTTL.Microseconds() / 2)
	h.must(open(dataflow.AnonymousProducer + "1")) // it says that it lives
	before := h.log.AppliedIndex()
	clock.Add(dataflow.AnonymousProducerTTL.Microseconds()/2 + 1)
	for {
		changed := h.log.Changed()
		if h.log.AppliedIndex() > before {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("nothing is forgotten")
		}
	}
	if err := open("one more"); err != nil {
		t.Errorf("there is no room: %v", err)
	}
	for _, name := range []string{"named", dataflow.AnonymousProducer + "1"} {
		if got, err := send(name); err != nil || !got.Duplicate {
			t.Errorf("%s is forgotten: %+v, %v", name, got, err)
		}
	}
}
