package statequery

import (
	"bytes"
	"context"
	"errors"

	"github.com/weirdb/weir/dataflow"
)

// comparison walks over the changes of a table between two cuts of a pipeline, part by part: shard by shard, and in key
// order within each. One goroutine uses it.
type comparison struct {
	e            *Engine
	t            *Table
	p            *Pipeline
	older, newer *reading
	lo, hi       []byte // of the keys
	shard        int    // where to go on
	from         []byte // in it
	most         int    // bytes of a part, about
}

func (e *Engine) compare(p *Pipeline, t *Table, older, newer *dataflow.CheckpointCommit, lo, hi []byte) *comparison {
	return &comparison{e: e, t: t, p: p, older: e.committed(p, older, true), newer: e.committed(p, newer, true), lo: lo, hi: hi, from: lo, most: walkBytes}
}

// next returns the next part, nil at the end. The views that it opens stay open until pause.
func (c *comparison) next(ctx context.Context) (*changePart, error) {
	for c.shard < c.e.cfg.Shards {
		if ctx.Err() != nil {
			return nil, deadline(ctx)
		}
		keys, before, after, err := c.gather(ctx)
		if err != nil {
			return nil, err
		}
		part, err := c.t.newPart(keys, before, after, c.p.OnError, c.newer.cut.ID)
		if part != nil || err != nil {
			return part, err
		}
	}
	return nil, nil
}

// ended reports that nothing is left.
func (c *comparison) ended() bool { return c.shard == c.e.cfg.Shards }

// gather copies the next keys whose state differs, with their states: a batch's worth of one shard.
func (c *comparison) gather(ctx context.Context) (keys, before, after [][]byte, err error) {
	shard := dataflow.ShardID(c.shard)
	older, err := c.older.view(ctx, shard)
	if err != nil {
		return nil, nil, nil, err
	}
	newer, err := c.newer.view(ctx, shard)
	if err != nil {
		return nil, nil, nil, err
	}
	stage := c.t.stage.ID
	it := newer.Changes(older, stage, c.from, c.hi)
	defer func() { err = errors.Join(err, it.Close()) }()
	size := 0
	for it.Next() {
		if len(keys) == walkRows || size > c.most {
			c.from = bytes.Clone(it.Key())
			return keys, before, after, nil
		}
		k, now := bytes.Clone(it.Key()), bytes.Clone(it.Value())
		if now == nil {
			now = c.t.unfed
		}
		was, found, err := older.Get(stage, k, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		if !found {
			was = c.t.unfed
		}
		if (was == nil) == (now == nil) && bytes.Equal(was, now) {
			continue
		}
		keys, before, after = append(keys, k), append(before, was), append(after, now)
		size += len(k) + len(was) + len(now)
	}
	c.shard, c.from = c.shard+1, c.lo
	return keys, before, after, nil
}

// pause closes what is open; next opens it again.
func (c *comparison) pause() {
	c.older.close()
	c.newer.close()
}
