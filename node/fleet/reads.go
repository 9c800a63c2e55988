package fleet

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/worker"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// remoteTime bounds a live read at another node: longer than a busy node needs, shorter than what a caller waits.
const remoteTime = 5 * time.Second

// liveMessage is about how many bytes of entries one message of a live read holds.
const liveMessage = 256 << 10

// server implements peerv1.TaskServiceServer.
type server struct {
	peerv1.UnimplementedTaskServiceServer
	f *Fleet
}

// Register adds the services that other nodes call.
func (f *Fleet) Register(r grpc.ServiceRegistrar) { peerv1.RegisterTaskServiceServer(r, &server{f: f}) }

// running returns the run of an incarnation, which is that of a shard whose log this node leads. A deposed leader may not
// know it yet; it cannot have committed anything since, and its incarnation says what the answer is worth (G4).
func (s *server) running(pipeline, incarnation uint64) (*worker.Running, error) {
	r := s.f.cfg.Worker.Live(dataflow.PipelineUID(pipeline))
	if r == nil || r.Incarnation != dataflow.Incarnation(incarnation) {
		return nil, status.Errorf(codes.FailedPrecondition, "incarnation %d of pipeline %d does not run here", incarnation, pipeline)
	}
	return r, nil
}

func (s *server) table(pipeline, incarnation uint64, stage, shard uint32) (*worker.Running, dataflow.StageID, dataflow.ShardID, error) {
	r, err := s.running(pipeline, incarnation)
	if err != nil {
		return nil, 0, 0, err
	}
	st, sh := dataflow.StageID(stage), dataflow.ShardID(shard)
	if r.Table(st, sh) == nil || !s.f.cfg.Shards[sh].Log.IsLeader() {
		return nil, 0, 0, status.Errorf(codes.FailedPrecondition, "shard %d is not led here", shard)
	}
	return r, st, sh, nil
}

// GetLive implements peerv1.TaskServiceServer.
func (s *server) GetLive(_ context.Context, req *peerv1.GetLiveRequest) (*peerv1.GetLiveResponse, error) {
	r, stage, shard, err := s.table(req.Pipeline, req.Incarnation, req.Stage, req.Shard)
	if err != nil {
		return nil, err
	}
	var keys dataflow.Lookups
	keys.Begin(req.Room)
	for _, k := range req.Keys {
		keys.Add(dataflow.HashKey(k), k)
	}
	if err := r.GetAll(stage, shard, &keys); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	res := &peerv1.GetLiveResponse{Full: keys.Full()}
	for i := range req.Keys {
		val, found := keys.Value(int32(i))
		res.Values, res.Found = append(res.Values, val), append(res.Found, found)
	}
	return res, nil
}

// ScanLive implements peerv1.TaskServiceServer.
func (s *server) ScanLive(req *peerv1.ScanLiveRequest, stream grpc.ServerStreamingServer[peerv1.ScanLiveResponse]) error {
	r, stage, shard, err := s.table(req.Pipeline, req.Incarnation, req.Stage, req.Shard)
	if err != nil {
		return err
	}
	entries, err := r.Scan(stage, shard, req.From, req.To, int(req.Limit))
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	m, size := &peerv1.ScanLiveResponse{}, 0
	for _, e := range entries {
		m.Keys, m.Values = append(m.Keys, e.Key), append(m.Values, e.Val)
		if size += len(e.Key) + len(e.Val); size >= liveMessage {
			if err := stream.Send(m); err != nil {
				return err
			}
			m, size = &peerv1.ScanLiveResponse{}, 0
		}
	}
	if len(m.Keys) > 0 {
		return stream.Send(m)
	}
	return nil
}

// FreshLive implements peerv1.TaskServiceServer.
func (s *server) FreshLive(req *peerv1.FreshLiveRequest, stream grpc.ServerStreamingServer[peerv1.FreshLiveResponse]) error {
	r, stage, shard, err := s.table(req.Pipeline, req.Incarnation, req.Stage, req.Shard)
	if err != nil {
		return err
	}
	keys, values, err := r.Fresh(stage, shard, req.MaxBytes)
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	m, size := &peerv1.FreshLiveResponse{}, 0
	for i, k := range keys {
		m.Keys, m.Values, m.Gone = append(m.Keys, k), append(m.Values, values[i]), append(m.Gone, values[i] == nil)
		if size += len(k) + len(values[i]); size >= liveMessage {
			if err := stream.Send(m); err != nil {
				return err
			}
			m, size = &peerv1.FreshLiveResponse{}, 0
		}
	}
	if len(m.Keys) > 0 {
		return stream.Send(m)
	}
	return nil
}

// Cover implements peerv1.TaskServiceServer.
func (s *server) Cover(ctx context.Context, req *peerv1.CoverRequest) (*peerv1.CoverResponse, error) {
	r, err := s.running(req.Pipeline, req.Incarnation)
	if err != nil {
		return nil, err
	}
	p, err := r.Run.Marker(ctx, req.Marker, meta.DecodePositions(req.Want))
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &peerv1.CoverResponse{Positions: meta.EncodePositions(p)}, nil
}
