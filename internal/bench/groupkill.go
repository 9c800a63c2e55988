package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// A victim says which node of a group is killed.
type victim func(*group, *weirv1.GetStatusResponse) int

// leadsShards is the node that leads the most shards.
func leadsShards(g *group, st *weirv1.GetStatusResponse) int {
	var led [groupNodes]int
	most := 0
	for _, i := range g.leaders(st) {
		if led[i]++; led[i] > led[most] {
			most = i
		}
	}
	return most
}

// leadsMeta is the node that leads the meta log.
func leadsMeta(g *group, st *weirv1.GetStatusResponse) int { return g.number(st.Meta.GetLeader()) }

// groupKills kills a node under half load, again and again; each time it is started again when the others have caught up.
func (r *runner) groupKills(ctx context.Context, f *figures, keys uint64, who victim) (err error) {
	s, most, err := r.openFilledGroup(ctx, "group-kill", keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var gap, live, fresh, commit, deploy, back []float64
	if err := s.during(ctx, most/2, func(ctx context.Context) error {
		for i := range r.size.kills {
			if err := s.caughtUp(ctx); err != nil {
				return err
			}
			st, err := s.whole(ctx)
			if err != nil {
				return err
			}
			if err := pause.For(ctx, 2*time.Second); err != nil { // checkpoints as usual
				return err
			}
			r.progress("group %s: kill %d", f.name, i+1)
			t, err := s.killOne(ctx, who(s.group, st), s.group.leaders(st), i)
			if err != nil {
				return err
			}
			gap, live, fresh = append(gap, t.gap.Seconds()), append(live, t.live.Seconds()), append(fresh, t.fresh.Seconds())
			commit, deploy, back = append(commit, t.commit.Seconds()), append(deploy, t.deploy.Seconds()), append(back, t.back.Seconds())
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.check(ctx, loadCheck); err != nil {
		return err
	}
	f.add("ingest", "rows/s", most/2)
	f.add("committed_reads_gap", "s", gap...)
	f.add("first_new_live_rows", "s", live...)
	f.add("lag_below_one_second", "s", fresh...)
	f.add("next_commit", "s", commit...)
	f.add("next_deploy", "s", deploy...)
	f.add("killed_node_is_back", "s", back...)
	return nil
}

// survived holds what a node's death cost. Times are from the kill.
type survived struct {
	gap    time.Duration // the longest that one of the others gave no committed answer
	live   time.Duration // rows that were due after the kill showed in live reads, in each shard that the node had led
	fresh  time.Duration // the live rows of every shard were less than a second old
	commit time.Duration // a row that was due after the kill showed in a committed read
	deploy time.Duration // a pipeline was deployed
	back   time.Duration // from its start: the killed node had everything again
}

// killOne kills a node, watches the others with clients that do not retry by themselves, and starts it again.
func (s *session) killOne(ctx context.Context, which int, leaders []int, round int) (t survived, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var closes []func() error
	defer func() {
		for _, c := range closes {
			err = errors.Join(err, c())
		}
	}()
	dial := func(addrs ...string) (*weir.Client, error) {
		c, err := weir.Open(weir.Config{Addrs: addrs, RetryFor: -1})
		if err == nil {
			closes = append(closes, c.Close)
		}
		return c, err
	}
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	var readers errgroup.Group
	addrs := s.group.addrs(which)
	gaps := make([]time.Duration, len(addrs))
	for i, addr := range addrs {
		c, err := dial(addr)
		if err != nil {
			return t, err
		}
		if _, err := c.Get(ctx, "bench.counts", weir.Key(0), weir.ReadOptions{}); err != nil {
			return t, fmt.Errorf("read from %s before the kill: %w", addr, err)
		}
		readers.Go(func() (err error) {
			gaps[i], err = readGap(reading, c, s.load.keys, uint64(round*len(addrs)+i+1))
			return err
		})
	}
	c, err := dial(addrs...)
	if err != nil {
		return t, err
	}
	if err := s.group.kill(which); err != nil {
		return t, err
	}
	killed := time.Now()
	watch := &session{client: c}
	eg, looking := errgroup.WithContext(ctx)
	eg.Go(func() (err error) {
		if t.live, err = untilSince(looking, killed, func() (bool, error) {
			due, err := watch.newest(looking, dataflow.ReadUncommitted)
			return err == nil && everyLost(due, leaders, which, killed), err
		}); err != nil {
			return fmt.Errorf("wait for new live rows: %w", err)
		}
		if t.fresh, err = untilSince(looking, killed, func() (bool, error) {
			age, err := watch.age(looking, dataflow.ReadUncommitted)
			return age < time.Second, err
		}); err != nil {
			return fmt.Errorf("wait until the lag is below a second: %w", err)
		}
		return nil
	})
	eg.Go(func() (err error) {
		if t.commit, err = untilSince(looking, killed, func() (bool, error) {
			due, err := watch.newest(looking, dataflow.ReadCommitted)
			return err == nil && everyLost(due, leaders, which, killed), err
		}); err != nil {
			return fmt.Errorf("wait for a commit: %w", err)
		}
		return nil
	})
	pipeline := fmt.Sprintf("other%d", round)
	eg.Go(func() (err error) {
		if t.deploy, err = untilSince(looking, killed, func() (bool, error) {
			_, err := c.Deploy(looking, weir.Deploy{Pipeline: pipeline, SQL: fmt.Sprintf(
				`CREATE STREAM others%d (k BIGINT); CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM others%d;`, round, round)})
			return err == nil, err
		}); err != nil {
			return fmt.Errorf("wait for a deploy: %w", err)
		}
		return nil
	})
	err = eg.Wait()
	stopReading()
	if err = errors.Join(err, readers.Wait()); err != nil {
		return t, err
	}
	for _, g := range gaps {
		t.gap = max(t.gap, g)
	}
	if _, err := s.client.DeletePipeline(ctx, pipeline); err != nil {
		return t, err
	}
	began := time.Now()
	if err := s.group.start(ctx, which); err != nil {
		return t, err
	}
	if _, err := s.whole(ctx); err != nil {
		return t, err
	}
	t.back = time.Since(began)
	return t, nil
}

// everyLost reports whether the newest rows of all shards that a killed node had led were due after the kill; if it led none,
// of all shards.
func everyLost(due []time.Time, leaders []int, which int, killed time.Time) bool {
	none := true
	for _, l := range leaders {
		none = none && l != which
	}
	for shard, l := range leaders {
		if (none || l == which) && !due[shard].After(killed) {
			return false
		}
	}
	return true
}

const (
	// gapEvery is how often a reader reads, so the least gap.
	gapEvery = 5 * time.Millisecond
	// gapCall bounds a call, as a client's deadline would.
	gapCall = time.Second
)

// readGap makes committed reads of random keys, one after the other, until ctx ends, and returns the longest time without an
// answer.
func readGap(ctx context.Context, c *weir.Client, keys, seed uint64) (gap time.Duration, err error) {
	random, answered := xorshift(seed*0x9e3779b97f4a7c15), time.Now()
	for pause.For(ctx, gapEvery) == nil {
		k := random.below(keys)
		call, cancel := context.WithTimeout(ctx, gapCall)
		err := readKey(call, c, k)
		cancel()
		switch {
		case Void(err):
			return 0, err
		case err != nil:
			continue
		}
		now := time.Now()
		gap, answered = max(gap, now.Sub(answered)), now
	}
	return max(gap, time.Since(answered)), nil
}

// readKey makes a committed read of a key that exists.
func readKey(ctx context.Context, c *weir.Client, k uint64) error {
	a, err := c.Get(ctx, "bench.counts", weir.Key(int64(k)), weir.ReadOptions{})
	if err != nil {
		return err
	}
	if want := fmt.Sprintf(`{"k":%d,`, k); !strings.HasPrefix(string(a.Row), want) {
		return voidf("the row of key %d is %s", k, a.Row)
	}
	return nil
}
