package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// respSQL is the load's plan for a table of one value, as a Redis key has: the value is the key again, so that an answer
// shows whether it is the one that was asked for. counts is what adds up (loadCheck).
const respSQL = `
CREATE STREAM events (k BIGINT NOT NULL, t BIGINT NOT NULL, pad TEXT NOT NULL) PARTITION BY (k);
CREATE MATERIALIZED VIEW counts AS
SELECT k, count(*) AS n FROM events GROUP BY k;
CREATE MATERIALIZED VIEW echo AS
SELECT k, max(k) AS v FROM events GROUP BY k;
`

// respKey begins the names of the rows of respSQL, and of the keys that Redis gets.
const respKey = "bench.echo:"

// respPipelines are how many commands a connection has under way.
var respPipelines = [...]int{1, 16}

// resp measures GETs by the Redis protocol of a node that has nothing else to do, and of a Redis with the same keys if
// there is one.
func (r *runner) resp(ctx context.Context) (err error) {
	s, err := r.openSession(ctx, "resp", respSQL, nil, r.size.keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.fill(ctx); err != nil {
		return err
	}
	weir, err := dialRESP(ctx, s.node.resp, s.load.keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, weir.close()) }()
	var redis *respClient
	if r.cfg.Redis != "" {
		if redis, err = dialRESP(ctx, r.cfg.Redis, s.load.keys); err != nil {
			return fmt.Errorf("connect to Redis: %w", err)
		}
		defer func() { err = errors.Join(err, redis.close()) }()
		defer func() { // however the run has ended
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
			defer cancel()
			err = errors.Join(err, redis.remove(ctx))
		}()
		r.progress("%d keys for Redis", s.load.keys)
		if err := redis.fill(ctx); err != nil {
			return fmt.Errorf("fill Redis: %w", err)
		}
	}
	var found []*figures
	for _, p := range respPipelines {
		f := &figures{bench: "resp", name: fmt.Sprintf("pipeline=%d", p)}
		if !r.wants(f.name) {
			continue
		}
		r.progress("resp %s", f.name)
		if err := measureRESP(ctx, r.size, p, s.node.cmd.Process.Pid, weir, redis, f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		found = append(found, f)
	}
	if err := s.check(ctx, loadCheck); err != nil {
		return err
	}
	for _, f := range found {
		if err := r.cfg.Report(f.list); err != nil {
			return err
		}
	}
	return nil
}

// measureRESP measures windows of both sides in turns (B4): Weir's in the process pid, and Redis', unless there is none.
func measureRESP(ctx context.Context, size sizes, pipeline, pid int, weir, redis *respClient, f *figures) error {
	var rates, cpus, redisRates, redisCPUs, ratios []float64
	for i := range size.windows + 1 {
		before := cpuTime(pid)
		gets, took, err := weir.load(ctx, pipeline, size.window)
		if err != nil {
			return err
		}
		cpu := cpuTime(pid) - before
		rate, redisRate, redisCPU := float64(gets)/took.Seconds(), 0.0, time.Duration(0)
		millions := float64(gets) / 1e6
		redisMillions := 0.0
		if redis != nil {
			if before, err = redis.cpuTime(ctx); err != nil {
				return err
			}
			if gets, took, err = redis.load(ctx, pipeline, size.window); err != nil {
				return fmt.Errorf("redis: %w", err)
			}
			after, err := redis.cpuTime(ctx)
			if err != nil {
				return err
			}
			redisCPU, redisRate, redisMillions = after-before, float64(gets)/took.Seconds(), float64(gets)/1e6
		}
		if i == 0 { // it warms up
			continue
		}
		rates = append(rates, rate)
		if cpu > 0 {
			cpus = append(cpus, cpu.Seconds()/millions)
		}
		if redis == nil {
			continue
		}
		redisRates, ratios = append(redisRates, redisRate), append(ratios, rate/redisRate)
		if redisCPU > 0 {
			redisCPUs = append(redisCPUs, redisCPU.Seconds()/redisMillions)
		}
	}
	f.add("gets_per_second", "gets/s", rates...)
	f.add("node_cpu_per_million_gets", "s", cpus...)
	f.add("redis_gets_per_second", "gets/s", redisRates...)
	f.add("redis_cpu_per_million_gets", "s", redisCPUs...)
	f.add("ratio_to_redis", "ratio", ratios...)
	return nil
}
