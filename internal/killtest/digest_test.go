package killtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// digests has the server read all that it holds at the newest cuts, as weir cluster verify does, and returns the digests by pipeline
// and shard.
func (r *run) digests(ctx context.Context) (map[string]string, error) {
	for deadline := time.Now().Add(patience); ; {
		v, err := r.client.VerifyCluster(ctx)
		if err == nil {
			held := make(map[string]string)
			for _, s := range v.GetVerified() {
				c := s.GetReplicas()[0]
				where := fmt.Sprintf("%s on shard %d", s.GetPipeline(), s.GetShard())
				if c.GetReason() != "" {
					return nil, violation("K9: %s at cut %d: %s: %s", where, s.GetCheckpoint(), c.GetReason(), c.GetProblem())
				}
				held[where] = fmt.Sprintf("%016x over %d keys", c.GetDigest(), c.GetKeys())
			}
			return held, nil
		}
		// A cut may be let go before it is leased for the reading.
		if e := (&dataflow.Error{}); !errors.As(err, &e) || e.Reason != dataflow.ReasonCheckpointExpired || time.Now().After(deadline) {
			return nil, fmt.Errorf("read all that the server holds: %w", err)
		}
	}
}

// holdsTheSame kills the server and stops it, and looks whether it then holds what it held: what a start has noted wrongly in a
// store shows after the next one. All that was sent is committed, and nothing comes.
func (r *run) holdsTheSame(ctx context.Context) error {
	held, err := r.digests(ctx)
	if err != nil {
		return err
	}
	for _, end := range []struct {
		how string
		do  func() error
	}{
		{"a kill", func() error { _, err := r.server.kill(); return err }},
		{"one more kill", func() error { _, err := r.server.kill(); return err }},
		{"a stop in order", r.server.stop},
	} {
		if err := end.do(); err != nil {
			return err
		}
		if err := r.server.start(); err != nil {
			return err
		}
		if err := r.serving(ctx); err != nil {
			return err
		}
		now, err := r.digests(ctx)
		if err != nil {
			return err
		}
		if !maps.Equal(now, held) {
			return violation("K9: after %s the server holds %v, and held %v", end.how, now, held)
		}
	}
	return nil
}
