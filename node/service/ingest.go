package service

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/raftlog/shard"
)

var _ api.Ingest = (*Service)(nil)

// appendRetry is when a refused append should be tried again.
const appendRetry = 50 * time.Millisecond

// Begin hands the rows to the shards' logs.
func (s *Service) Begin(ctx context.Context, a api.Append) (api.Pending, error) {
	st := s.cfg.Meta.State().Streams[a.Stream.ID]
	if st == nil {
		return nil, dataflow.Errorf(dataflow.ReasonStreamNotFound, "stream %s was deleted", a.Stream.Name)
	}
	if st.Sealed {
		return nil, dataflow.Errorf(dataflow.ReasonStreamSealed, "stream %s is sealed and takes no more rows", st.Name)
	}
	if s.cfg.DiskRoom != nil {
		if err := s.cfg.DiskRoom(); err != nil {
			return nil, err
		}
	}
	if err := s.roomFor(st); err != nil {
		return nil, err
	}
	parts := a.Shards
	if a.Rows != nil {
		parts = s.split(a)
	} else if err := s.checkPlaces(a.Stream, parts); err != nil {
		return nil, err
	}
	p := &pending{answered: s.appending(ctx), repeatable: a.Producer != "" || a.IdempotencyKey != ""}
	encoded := make([][]byte, len(parts))
	for i, part := range parts {
		buf, _ := s.bufs.Get().(*[]byte)
		if buf == nil {
			buf = new([]byte)
		}
		*buf = batch.Encode((*buf)[:0], part.Rows)
		encoded[i] = *buf
		defer s.bufs.Put(buf) // the log copies
	}
	var digest uint64 // 0 = of each part by itself: a producer may cut its rows in another way when it sends them again
	if a.IdempotencyKey != "" {
		digest = digestOf(parts, encoded)
	}
	for i, part := range parts {
		sa := shard.Append{
			Stream: a.Stream.ID, Rows: encoded[i], Count: part.Rows.N, Digest: digest,
			Producer: a.Producer, Epoch: a.Epoch, First: part.First, IdempotencyKey: a.IdempotencyKey,
		}
		log := s.cfg.Shards[part.Shard].Log
		sub, err := log.Submit(sa)
		if err != nil {
			// What went to other shards stays: an append is atomic per shard, and its retry is recognised.
			if p.first == nil {
				p.first = err
			}
			continue
		}
		p.parts = append(p.parts, pendingPart{shard: part.Shard, rows: part.Rows.N, sub: sub, log: log})
	}
	return p, nil
}

// digestOf tells the rows of an append from others. It is over all parts, so that an idempotency key that comes again with
// other rows is noticed by every shard that knows it, also by one whose own part is the same.
func digestOf(parts []api.ShardRows, encoded [][]byte) uint64 {
	d := xxhash.New()
	for i, part := range parts {
		var head [12]byte
		binary.LittleEndian.PutUint32(head[:4], uint32(part.Shard))
		binary.LittleEndian.PutUint64(head[4:], uint64(len(encoded[i])))
		_, _ = d.Write(head[:]) // a hash never fails
		_, _ = d.Write(encoded[i])
	}
	return d.Sum64()
}

// checkPlaces refuses rows that a client has sent to a shard they do not hash to.
func (s *Service) checkPlaces(st *api.Stream, parts []api.ShardRows) error {
	n := len(s.cfg.Shards)
	placer := key.NewPlacer(st.PartitionBy, n, 0)
	for i, part := range parts {
		if int(part.Shard) >= n {
			e := dataflow.Errorf(dataflow.ReasonRequestInvalid, "shards[%d].shard: there is no shard %d: the group has %d", i, part.Shard, n)
			e.Violations = []dataflow.Violation{{Field: fmt.Sprintf("shards[%d].shard", i), Description: e.Message}}
			return e
		}
		if len(st.PartitionBy) == 0 {
			continue
		}
		for i := range part.Rows.N {
			if at := placer.Place(part.Rows, i); at != part.Shard {
				return dataflow.Errorf(dataflow.ReasonRowInvalid, "row %d of shard %d belongs to shard %d by the stream's PARTITION BY", i, part.Shard, at).
					WithHint("the client places rows with another hash or number of shards than the server's; update it")
			}
		}
	}
	return nil
}

// split places the rows of a plain append. The same idempotency key gives the same places, so that a retry meets the
// answers of the first try.
func (s *Service) split(a api.Append) []api.ShardRows {
	n := len(s.cfg.Shards)
	first := key.FirstRun(a.IdempotencyKey)
	if a.IdempotencyKey == "" {
		runs := uint64((a.Rows.N + key.RunRows - 1) / key.RunRows)
		first = s.spread.Add(runs) - runs
	}
	placer := key.NewPlacer(a.Stream.PartitionBy, n, first)
	sel := make([][]int32, n)
	for i := range a.Rows.N {
		at := placer.Place(a.Rows, i)
		sel[at] = append(sel[at], int32(i))
	}
	var parts []api.ShardRows
	for at, rows := range sel {
		if len(rows) == 0 {
			continue
		}
		part := a.Rows
		if len(rows) < a.Rows.N {
			part = a.Rows.Select(rows)
		}
		parts = append(parts, api.ShardRows{Shard: dataflow.ShardID(at), Rows: part})
	}
	return parts
}

// pending is an append that shards are working on.
type pending struct {
	parts []pendingPart
	first error // the first refusal at submission
	// repeatable says that a retry is recognised: it carries the same numbers or the same key.
	repeatable bool
	// answered ends the record of the append's phase; nil without a recorder.
	answered func()
}

// appending records an append that is under way until it has been answered or ctx, that of its call, ends.
func (s *Service) appending(ctx context.Context) (answered func()) {
	phases := s.cfg.Phases
	if phases == nil {
		return nil
	}
	phases.Enter(phase.Append)
	stop := context.AfterFunc(ctx, func() { phases.Leave(phase.Append) })
	return func() {
		if stop() {
			phases.Leave(phase.Append)
		}
	}
}

type pendingPart struct {
	shard dataflow.ShardID
	rows  int
	sub   *shard.Pending
	log   *shard.Log
}

// leader returns the node that leads the shard's log, if it is another one than this.
func (p pendingPart) leader() string {
	if p.log.IsLeader() {
		return ""
	}
	return p.log.Leader()
}

// Wait returns when all shards have answered. An error of one shard is the append's error; rows that other shards took
// stay, and a retry with the same numbers or key is answered as before. Without those the error is OUTCOME_UNKNOWN.
func (p *pending) Wait(ctx context.Context) ([]api.ShardAppended, error) {
	if p.answered != nil {
		defer p.answered()
	}
	out := make([]api.ShardAppended, 0, len(p.parts))
	err := p.first
	written := false // some shard has written its rows, or may have
	for _, part := range p.parts {
		r, werr := part.sub.Wait(ctx)
		written = written || werr == nil || dataflow.ReasonOf(werr).Kind() == dataflow.KindUnknown
		if werr != nil {
			if err == nil {
				err = werr
			}
			continue
		}
		out = append(out, api.ShardAppended{
			Shard: part.shard, First: r.First, Next: r.Next, Rows: part.rows, Duplicate: r.Duplicate,
			Overlap: r.Overlap, LastSeq: r.LastSeq, AppendTime: r.AppendTime, Leader: part.leader(),
		})
	}
	if err != nil && !p.repeatable && written {
		// Nothing would recognise these rows: no answer that invites to send all of them again.
		return nil, dataflow.Errorf(dataflow.ReasonOutcomeUnknown, "a part of the rows may have been written: %w", err).
			WithHint("send appends with an idempotency key or as a named producer: these can be sent again")
	}
	if err != nil {
		var e *dataflow.Error
		if errors.As(err, &e) && e.Reason == dataflow.ReasonOverloaded && e.RetryAfter == 0 {
			return nil, e.WithRetry(appendRetry)
		}
		return nil, err
	}
	return out, nil
}
