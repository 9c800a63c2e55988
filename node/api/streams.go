package api

import (
	"context"
	"strconv"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (s *ingestService) stream(ctx context.Context, name string) (*Stream, error) {
	if err := checkName("stream", name); err != nil {
		return nil, err
	}
	return s.b.Streams.Stream(ctx, name)
}

// ListStreams implements weirv1.IngestServiceServer.
func (s *ingestService) ListStreams(ctx context.Context, r *weirv1.ListStreamsRequest) (*weirv1.ListStreamsResponse, error) {
	all, err := s.b.Streams.ListStreams(ctx)
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf("streams", all, func(s *Stream) string { return s.Name }, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	m := &weirv1.ListStreamsResponse{NextPageToken: next}
	for _, st := range page {
		m.Streams = append(m.Streams, streamMessage(st))
	}
	return m, nil
}

// DescribeStream implements weirv1.IngestServiceServer.
func (s *ingestService) DescribeStream(ctx context.Context, r *weirv1.DescribeStreamRequest) (*weirv1.DescribeStreamResponse, error) {
	if err := checkName("stream", r.GetStream()); err != nil {
		return nil, err
	}
	st, err := s.b.Streams.CurrentStream(ctx, r.GetStream())
	if err != nil {
		return nil, err
	}
	ext, err := s.b.Reader.Extent(ctx, st)
	if err != nil {
		return nil, err
	}
	m := &weirv1.DescribeStreamResponse{Stream: streamMessage(st)}
	for _, x := range ext.Shards {
		m.Shards = append(m.Shards, &weirv1.StreamShard{Shard: uint32(x.Shard), StartOffset: uint64(x.Start), EndOffset: uint64(x.End), Bytes: uint64(max(x.Bytes, 0))})
		m.Rows += uint64(x.End - x.Start)
		m.Bytes += uint64(max(x.Bytes, 0))
	}
	for _, h := range ext.Holders {
		m.Holders = append(m.Holders, &weirv1.StreamHolder{Pipeline: h.Pipeline, State: stateMessage(h.State), Rows: h.Rows, Bytes: uint64(max(h.Bytes, 0))})
	}
	return m, nil
}

// DeleteStream implements weirv1.IngestServiceServer.
func (s *ingestService) DeleteStream(ctx context.Context, r *weirv1.DeleteStreamRequest) (*weirv1.DeleteStreamResponse, error) {
	if err := checkName("stream", r.GetStream()); err != nil {
		return nil, err
	}
	return &weirv1.DeleteStreamResponse{}, s.b.Streams.DeleteStream(ctx, r.GetStream())
}

// SetStreamOptions implements weirv1.IngestServiceServer.
func (s *ingestService) SetStreamOptions(ctx context.Context, r *weirv1.SetStreamOptionsRequest) (*weirv1.SetStreamOptionsResponse, error) {
	if err := checkName("stream", r.GetStream()); err != nil {
		return nil, err
	}
	if len(r.GetOptions()) == 0 {
		return nil, invalid("options", "is empty: say what to change")
	}
	st, err := s.b.Streams.SetStreamOptions(ctx, r.GetStream(), optionList(r.GetOptions()))
	if err != nil {
		return nil, err
	}
	return &weirv1.SetStreamOptionsResponse{Stream: streamMessage(st)}, nil
}

// SealStream implements weirv1.IngestServiceServer.
func (s *ingestService) SealStream(ctx context.Context, r *weirv1.SealStreamRequest) (*weirv1.SealStreamResponse, error) {
	if err := checkName("stream", r.GetStream()); err != nil {
		return nil, err
	}
	st, err := s.b.Streams.SealStream(ctx, r.GetStream())
	if err != nil {
		return nil, err
	}
	return &weirv1.SealStreamResponse{Stream: streamMessage(st)}, nil
}

// readChunkBytes is about how much JSON one message of ReadStream holds. Much less than a message may be, so that a slow
// reader holds little.
const readChunkBytes = 256 << 10

// ReadStream implements weirv1.IngestServiceServer.
func (s *ingestService) ReadStream(r *weirv1.ReadStreamRequest, out weirv1.IngestService_ReadStreamServer) error {
	if err := checkNumbers(r.GetNumbers()); err != nil {
		return err
	}
	st, err := s.stream(out.Context(), r.GetStream())
	if err != nil {
		return err
	}
	read := StreamRead{Stream: st, Follow: r.GetFollow(), Limit: r.GetLimit()}
	if err := parseFrom(r.GetFrom(), &read); err != nil {
		return err
	}
	end, err := s.b.Reader.ReadStream(out.Context(), read, func(b *batch.Batch) error {
		return sendRows(b, r.GetNumbers(), out)
	})
	if err != nil {
		return err
	}
	return out.Send(&weirv1.ReadStreamResponse{End: true, Positions: s.names.positions(end)})
}

func sendRows(b *batch.Batch, numbers weirv1.Numbers, out weirv1.IngestService_ReadStreamServer) error {
	m, size := &weirv1.ReadStreamResponse{}, 0
	for i, row := range wire.RowsJSON(b, numbers) {
		sr := &weirv1.StreamRow{Shard: uint32(b.Shard), Offset: uint64(b.OffsetOf(i)), Row: row}
		if b.AppendTime != nil {
			sr.AppendTime = Timestamp(b.AppendTime[i])
		}
		m.Rows = append(m.Rows, sr)
		if size += len(row) + 32; size >= readChunkBytes {
			if err := out.Send(m); err != nil {
				return err
			}
			m, size = &weirv1.ReadStreamResponse{}, 0
		}
	}
	if len(m.Rows) == 0 {
		return nil
	}
	return out.Send(m)
}

// parseFrom reads ReadStreamRequest.from.
func parseFrom(from string, r *StreamRead) error {
	switch from {
	case "", "earliest":
		return nil
	case "latest":
		r.Latest = true
		return nil
	}
	r.From, r.Only = make(map[dataflow.ShardID]dataflow.Offset), true
	for part := range strings.SplitSeq(from, ",") {
		shard, offset, ok := strings.Cut(part, ":")
		sh, err1 := strconv.ParseUint(shard, 10, 32)
		off, err2 := strconv.ParseUint(offset, 10, 64)
		if !ok || err1 != nil || err2 != nil || sh >= dataflow.MaxShards {
			return invalid("from", "%s is not earliest, latest or SHARD:OFFSET", short(from))
		}
		if _, twice := r.From[dataflow.ShardID(sh)]; twice {
			return invalid("from", "shard %d comes twice", sh)
		}
		r.From[dataflow.ShardID(sh)] = dataflow.Offset(off)
	}
	return nil
}
