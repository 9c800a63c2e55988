package service

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/raftlog/meta"
)

var (
	_ api.Streams      = (*Service)(nil)
	_ api.StreamReader = (*Service)(nil)
)

func streamOf(st *meta.Stream) *api.Stream {
	return &api.Stream{
		ID: st.ID, Name: st.Name, Schema: st.Schema, PartitionBy: st.PartitionBy, Options: st.Options.List(),
		Sealed: st.Sealed, CreatedAt: st.CreatedAt,
	}
}

// Stream returns one stream.
func (s *Service) Stream(ctx context.Context, name string) (*api.Stream, error) {
	st, err := s.cfg.Meta.FindStream(ctx, name)
	if err != nil {
		return nil, err
	}
	return streamOf(st), nil
}

// CurrentStream returns one stream as the whole group has it now.
func (s *Service) CurrentStream(ctx context.Context, name string) (*api.Stream, error) {
	now, err := s.cfg.Meta.Current(ctx)
	if err != nil {
		return nil, err
	}
	st, err := now.Stream(name)
	if err != nil {
		return nil, err
	}
	return streamOf(st), nil
}

// SetStreamOptions changes options of a stream.
func (s *Service) SetStreamOptions(ctx context.Context, name string, options []dataflow.Option) (*api.Stream, error) {
	st, err := s.cfg.Meta.SetStreamOptions(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return streamOf(st), nil
}

// StreamName returns the name of a stream for messages.
func (s *Service) StreamName(id dataflow.StreamID) string {
	if st := s.cfg.Meta.State().Streams[id]; st != nil {
		return st.Name
	}
	return fmt.Sprintf("stream %d", id)
}

// ListStreams returns all streams by name.
func (s *Service) ListStreams(ctx context.Context) ([]*api.Stream, error) {
	now, err := s.cfg.Meta.Current(ctx)
	if err != nil {
		return nil, err
	}
	var out []*api.Stream
	for _, st := range now.StreamList() {
		out = append(out, streamOf(st))
	}
	return out, nil
}

// DeleteStream drops a stream. Its rows go in the background.
func (s *Service) DeleteStream(ctx context.Context, name string) error {
	_, err := s.cfg.Meta.DropStream(ctx, name)
	return err
}

// SealStream ends a stream. The meta log refuses new appends; the entry in each shard's log comes after those that were
// under way, so that no row follows the answer. A seal that fails in between is completed by repeating it.
func (s *Service) SealStream(ctx context.Context, name string) (*api.Stream, error) {
	st, err := s.cfg.Meta.SealStream(ctx, name)
	if err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, sh := range s.cfg.Shards {
		g.Go(func() error { return sh.Log.SealStream(ctx, st.ID) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return streamOf(st), nil
}

// Extent returns what the stream holds, and who holds it.
func (s *Service) Extent(_ context.Context, st *api.Stream) (api.StreamExtent, error) {
	var ext api.StreamExtent
	for _, sh := range s.cfg.Shards {
		start, end, bytes := sh.Log.Range(st.ID)
		ext.Shards = append(ext.Shards, api.ShardExtent{Shard: sh.ID, Start: start, End: end, Bytes: bytes})
	}
	for _, h := range s.cfg.Meta.State().StreamHolders(st.ID) {
		n := s.needsOf(st.ID, &h)
		ext.Holders = append(ext.Holders, api.StreamHolder{Pipeline: h.Name, State: h.State, Rows: n.rows, Bytes: n.bytes})
	}
	return ext, nil
}

// readRows is how many rows a read of a stream takes from a shard before it turns to the next.
const readRows = 1024

// errLimit ends a read that has delivered what was asked for.
var errLimit = errors.New("limit reached")

// ReadStream reads rows back, shard by shard, and follows the stream when asked to.
func (s *Service) ReadStream(ctx context.Context, r api.StreamRead, fn func(*batch.Batch) error) (dataflow.Positions, error) {
	if !r.Follow { // what others have acknowledged belongs to it, and would not come later
		if err := s.catchUp(ctx); err != nil {
			return nil, err
		}
	}
	next := make(dataflow.Positions)
	limits := make(dataflow.Positions) // the ends of now, unless the read follows
	var shards []dataflow.ShardID
	for id := range r.From {
		if int(id) >= len(s.cfg.Shards) {
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "from: there is no shard %d: the group has %d", id, len(s.cfg.Shards))
		}
	}
	for _, sh := range s.cfg.Shards {
		from, named := r.From[sh.ID]
		if r.Only && !named {
			continue
		}
		start, end, _ := sh.Log.Range(r.Stream.ID)
		switch {
		case r.Latest:
			from = end
		case !named:
			from = start
		case from > end:
			return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "shard %d of stream %s ends at offset %d; %d is past it", sh.ID, r.Stream.Name, end, from)
		}
		k := dataflow.StreamShard{Stream: r.Stream.ID, Shard: sh.ID}
		next[k], limits[k] = from, end
		shards = append(shards, sh.ID)
	}
	left := r.Limit
	for {
		appended, changed := s.cfg.Worker.Appended(), s.cfg.Meta.Changed()
		if s.cfg.Meta.State().Streams[r.Stream.ID] == nil {
			return next, dataflow.Errorf(dataflow.ReasonStreamNotFound, "stream %s was deleted", r.Stream.Name)
		}
		progress := false
		for _, id := range shards {
			k := dataflow.StreamShard{Stream: r.Stream.ID, Shard: id}
			if !r.Follow && next[k] >= limits[k] {
				continue
			}
			n, err := s.readShard(r, k, next[k], limits[k], &left, fn)
			next[k] += dataflow.Offset(n)
			progress = progress || n > 0
			if errors.Is(err, errLimit) {
				return next, nil
			}
			if err != nil {
				return next, err
			}
		}
		if ctx.Err() != nil {
			return next, ctx.Err()
		}
		if progress {
			continue
		}
		if !r.Follow {
			return next, nil
		}
		select {
		case <-appended:
		case <-changed:
		case <-ctx.Done():
			return next, ctx.Err()
		}
	}
}

// readShard delivers some rows of one shard and returns how many.
func (s *Service) readShard(r api.StreamRead, k dataflow.StreamShard, from, limit dataflow.Offset, left *uint64, fn func(*batch.Batch) error) (int, error) {
	rows, err := s.cfg.Shards[k.Shard].Log.Read(k.Stream, from, readRows)
	if err != nil {
		return 0, err
	}
	delivered := 0
	for _, part := range rows {
		b, err := batch.Decode(r.Stream.Schema, part.Data)
		if err != nil {
			return delivered, err
		}
		lo, hi := 0, b.N
		if from > part.First {
			lo = int(from - part.First)
		}
		if !r.Follow {
			hi = min(hi, int(limit-part.First))
		}
		if r.Limit > 0 {
			hi = min(hi, lo+int(min(*left, uint64(b.N))))
		}
		if lo >= hi {
			break
		}
		b = b.Slice(lo, hi)
		b.Stream, b.Shard, b.FirstOffset = k.Stream, k.Shard, part.First+dataflow.Offset(lo)
		b.AppendTime = slices.Repeat([]int64{part.AppendTime}, b.N)
		if err := fn(b); err != nil {
			return delivered, err
		}
		delivered += b.N
		from = b.FirstOffset + dataflow.Offset(b.N)
		if r.Limit > 0 {
			if *left -= uint64(b.N); *left == 0 {
				return delivered, errLimit
			}
		}
	}
	return delivered, nil
}
