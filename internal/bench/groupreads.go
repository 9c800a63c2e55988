package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/internal/pause"
)

// groupReadRate is how many reads per second each of leaders and followers gets: little enough that what is measured is a read
// and not a queue of them.
const groupReadRate = 500

// groupReads measures committed reads of single keys under half load: keys in turn of the node that leads its shard, and of
// one that does not.
func (r *runner) groupReads(ctx context.Context, f *figures) (err error) {
	s, most, err := r.openFilledGroup(ctx, "group-reads", r.size.group[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var clients []*weir.Client
	defer func() {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
	}()
	for _, addr := range s.group.addrs(-1) {
		c, err := weir.Dial(addr)
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	var of [2][]latencies // leaders', followers'
	var ratios []float64
	if err := s.during(ctx, most/2, func(ctx context.Context) error {
		st, err := s.whole(ctx)
		if err != nil {
			return err
		}
		leaders := s.group.leaders(st)
		for i := range r.size.windows + 1 {
			l, err := s.readByRole(ctx, clients, leaders, uint64(i+1), 2*r.size.window)
			if err != nil {
				return err
			}
			if i == 0 { // it warms up
				continue
			}
			of[0], of[1] = append(of[0], l[0]), append(of[1], l[1])
			ratios = append(ratios, float64(l[1].quantile(0.99))/float64(l[0].quantile(0.99)))
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.check(ctx, loadCheck); err != nil {
		return err
	}
	f.add("ingest_during_reads", "rows/s", most/2)
	f.addLatency("leader", of[0]...)
	f.addLatency("follower", of[1]...)
	f.add("follower_p99_to_leader_p99", "ratio", ratios...)
	return nil
}

// readByRole reads random keys for a time, in turn of the node that leads their shard and of another.
func (s *session) readByRole(ctx context.Context, clients []*weir.Client, leaders []int, seed uint64, d time.Duration) (of [2]latencies, err error) {
	random := xorshift(seed * 0x9e3779b97f4a7c15)
	var mu sync.Mutex
	var buf []byte
	eg, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := 0; ; i++ {
		at := began.Add(time.Duration(i) * time.Second / (2 * groupReadRate))
		if at.Sub(began) >= d || pause.For(ctx, time.Until(at)) != nil { // eg knows why ctx has ended
			break
		}
		k := random.below(s.load.keys)
		buf = key.AppendRow(buf[:0], weir.Key(int64(k)))
		shard := dataflow.ShardOf(dataflow.KeyGroupOf(dataflow.HashKey(buf)), len(leaders))
		role, node := i%2, leaders[shard]
		if role == 1 {
			node = (node + 1 + int(random.below(groupNodes-1))) % groupNodes
		}
		eg.Go(func() error {
			if err := readKey(ctx, clients[node], k); err != nil {
				return err
			}
			took := time.Since(at)
			mu.Lock()
			defer mu.Unlock()
			of[role] = append(of[role], took)
			return nil
		})
	}
	return of, eg.Wait()
}
