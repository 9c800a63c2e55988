package service

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
)

// anonymousEpoch is the epoch of every producer with an anonymous name: one process uses it, so there is none to fence.
const anonymousEpoch dataflow.ProducerEpoch = 1

// OpenProducer takes a new epoch from the meta log and writes it to every shard, which fences older sessions (P8). An
// anonymous producer only tells the shards that it lives.
func (s *Service) OpenProducer(ctx context.Context, st *api.Stream, producer string) (api.ProducerOpened, error) {
	if err := dataflow.CheckProducerName(producer); err != nil {
		return api.ProducerOpened{}, err
	}
	epoch := anonymousEpoch
	if !dataflow.IsAnonymousProducer(producer) {
		var err error
		if epoch, err = s.cfg.Meta.OpenProducer(ctx, producer, s.instance(producer)); err != nil {
			return api.ProducerOpened{}, err
		}
	}
	last := make([]dataflow.Seq, len(s.cfg.Shards))
	g, ctx := errgroup.WithContext(ctx)
	for i, sh := range s.cfg.Shards {
		g.Go(func() (err error) {
			last[i], err = sh.Log.OpenProducer(ctx, st.ID, producer, epoch)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return api.ProducerOpened{}, err
	}
	opened := api.ProducerOpened{Epoch: epoch, Shards: len(s.cfg.Shards), Last: make(map[dataflow.ShardID]dataflow.Seq), Batches: make(map[dataflow.ShardID][]dataflow.Seq)}
	for i, seq := range last {
		if seq > 0 {
			opened.Last[dataflow.ShardID(i)] = seq
			opened.Batches[dataflow.ShardID(i)] = s.cfg.Shards[i].Log.Remembered(st.ID, producer)
		}
	}
	return opened, nil
}

// instance names one opening of a producer: no two openings of a node share a name.
func (s *Service) instance(producer string) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixNano()))
	binary.BigEndian.PutUint64(b[8:], s.spread.Add(1))
	return fmt.Sprintf("%s/%s/%x", s.cfg.Node, producer, b)
}
