package meta_test

import (
	"context"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/meta"
)

// late is a log of which an entry has been acknowledged by another member and is not applied here until a Barrier passes.
type late struct {
	*model
	barriers int
	fails    error
}

func (l *late) Barrier(ctx context.Context) error {
	if l.barriers++; l.fails != nil {
		return l.fails
	}
	return meta.New(l.model, l.fsm, func() int64 { return 5 }).Bootstrap(ctx, "late", 4)
}

func TestMetadataIsReadBehindABarrierOnEveryNode(t *testing.T) {
	l := &late{model: &model{fsm: meta.NewFSM()}}
	log := meta.New(l, l.fsm, func() int64 { return 5 })
	if st, err := log.Current(t.Context()); err != nil || st.Shards != 0 || l.barriers != 0 {
		t.Errorf("a log on one node has applied all there is: %v, %v, %d barriers", st, err, l.barriers)
	}
	log.Spread()
	if st, err := log.Current(t.Context()); err != nil || st.Shards != 4 {
		t.Errorf("what was acknowledged elsewhere is missing: %+v, %v", st, err)
	}
	if _, err := log.FindStream(t.Context(), "s"); dataflow.ReasonOf(err) != dataflow.ReasonStreamNotFound || l.barriers != 2 {
		t.Errorf("what is not there is looked for in the newest state: %v, %d barriers", err, l.barriers)
	}
	// A Barrier whose outcome is unknown leaves nothing in doubt: a read has no effect.
	l.fails = dataflow.Errorf(dataflow.ReasonOutcomeUnknown, "the leader has gone")
	_, err := log.Current(t.Context())
	if dataflow.ReasonOf(err) != dataflow.ReasonNotLeader {
		t.Errorf("got %v", err)
	}
}
