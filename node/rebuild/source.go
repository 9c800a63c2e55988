package rebuild

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	"github.com/weirdb/weir/raftlog/shard"
)

// Log is what a Source needs of a shard's log.
type Log interface {
	IsLeader() bool
	Leader() string
	Export(ctx context.Context, opts shard.ExportOptions) (*shard.Lease, error)
	Leased(id string) (*shard.Lease, error)
}

var _ Log = (*shard.Log)(nil)

// Source answers other nodes that rebuild replicas from this one. Its methods are safe for concurrent use.
type Source struct {
	peerv1.UnimplementedRebuildServiceServer

	mu struct {
		sync.Mutex
		logs    map[dataflow.ShardID]Log
		exports map[string]*export // by lease
	}
}

var _ peerv1.RebuildServiceServer = (*Source)(nil)

// NewSource returns a Source without shards.
func NewSource() *Source {
	s := &Source{}
	s.mu.logs = make(map[dataflow.ShardID]Log)
	s.mu.exports = make(map[string]*export)
	return s
}

// Register adds the service that other nodes call.
func (s *Source) Register(r grpc.ServiceRegistrar) { peerv1.RegisterRebuildServiceServer(r, s) }

// Serve lets a shard be exported until the function that it returns is called. That is before the log is closed.
func (s *Source) Serve(id dataflow.ShardID, l Log) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.logs[id] = l
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mu.logs[id] == l {
			delete(s.mu.logs, id)
		}
	}
}

func (s *Source) log(id uint32) (Log, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.mu.logs[dataflow.ShardID(id)]; l != nil {
		return l, nil
	}
	return nil, status.Errorf(codes.Unavailable, "shard %d is not open on this node", id)
}

// export is a replica that another node brings from here.
type export struct {
	Export
	log  Log
	done map[string]int64 // by file
}

// Export shows a replica that another node brings from here.
type Export struct {
	Shard       dataflow.ShardID
	Node        string // that brings it
	Done, Total int64  // bytes
	Since       time.Time
}

// Exports lists what is being brought from here, by shard.
func (s *Source) Exports() []Export {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Export
	for id, x := range s.mu.exports {
		if _, err := x.log.Leased(id); err != nil {
			delete(s.mu.exports, id)
			continue
		}
		e := x.Export
		for _, n := range x.done {
			e.Done += n
		}
		e.Done = min(e.Done, e.Total)
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Export) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Node, b.Node))
	})
	return all
}

// ExportShard implements peerv1.RebuildServiceServer. Only the leader exports: only there is what comes behind kept for whom it
// is sent to.
func (s *Source) ExportShard(ctx context.Context, req *peerv1.ExportShardRequest) (*peerv1.ExportShardResponse, error) {
	l, err := s.log(req.Shard)
	if err != nil {
		return nil, err
	}
	if !l.IsLeader() {
		return &peerv1.ExportShardResponse{NotLeader: true, Leader: l.Leader()}, nil
	}
	opts := shard.ExportOptions{Have: dataflow.LogIndex(req.Have), Rebuild: req.Rebuild}
	x, err := l.Export(ctx, opts)
	if dataflow.ReasonOf(err) == dataflow.ReasonOverloaded && s.forget(dataflow.ShardID(req.Shard), req.Node) {
		x, err = l.Export(ctx, opts)
	}
	switch {
	case errors.Is(err, shard.ErrNotNeeded):
		return &peerv1.ExportShardResponse{NotNeeded: true}, nil
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	m := x.Manifest()
	b, err := json.Marshal(&m)
	if err != nil {
		x.Release()
		return nil, status.Error(codes.Internal, err.Error())
	}
	s.forget(m.Shard, req.Node)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.exports[m.Lease] = &export{Export: Export{Shard: m.Shard, Node: req.Node, Total: m.Total(), Since: time.Now()}, log: l, done: make(map[string]int64)}
	return &peerv1.ExportShardResponse{Manifest: b}, nil
}

// forget ends what a node brought of a shard before, and says whether there was such: the node begins anew, because it has
// lost that, or it was not enough.
func (s *Source) forget(id dataflow.ShardID, node string) bool {
	s.mu.Lock()
	var old []*export
	var leases []string
	for lease, x := range s.mu.exports {
		if x.Shard == id && x.Node == node {
			old, leases = append(old, x), append(leases, lease)
			delete(s.mu.exports, lease)
		}
	}
	s.mu.Unlock()
	for i, x := range old {
		if l, err := x.log.Leased(leases[i]); err == nil {
			l.Release()
		}
	}
	return len(old) > 0
}

// lease returns an export that is not over.
func (s *Source) lease(id uint32, name string) (*shard.Lease, error) {
	l, err := s.log(id)
	if err != nil {
		return nil, err
	}
	x, err := l.Leased(name)
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	return x, nil
}

// partBytes is the size of a stream's messages: large enough that their number costs nothing.
const partBytes = 256 << 10

// ReadExport implements peerv1.RebuildServiceServer.
func (s *Source) ReadExport(req *peerv1.ReadExportRequest, out grpc.ServerStreamingServer[peerv1.ReadExportResponse]) error {
	x, err := s.lease(req.Shard, req.Lease)
	if err != nil {
		return err
	}
	r, err := x.Open(req.Name, req.Offset)
	if err != nil {
		return readError(err)
	}
	defer func() { _ = r.Close() }() // only read from
	s.sent(req, 0)
	buf := make([]byte, partBytes)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := out.Send(&peerv1.ReadExportResponse{Data: buf[:n]}); err != nil {
				return err
			}
			s.sent(req, n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return readError(err)
		}
	}
}

func readError(err error) error {
	if errors.Is(err, shard.ErrLeaseOver) {
		return status.Error(codes.NotFound, err.Error())
	}
	return status.Error(codes.Aborted, err.Error())
}

// sent notes how far a file has come. The entries have no byte offsets: what is read again there is counted again.
func (s *Source) sent(req *peerv1.ReadExportRequest, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.mu.exports[req.Lease]
	if x == nil {
		return
	}
	if n == 0 && req.Name != shard.EntriesName {
		x.done[req.Name] = req.Offset
	}
	x.done[req.Name] += int64(n)
}

// TouchExport implements peerv1.RebuildServiceServer.
func (s *Source) TouchExport(_ context.Context, req *peerv1.TouchExportRequest) (*peerv1.TouchExportResponse, error) {
	x, err := s.lease(req.Shard, req.Lease)
	if err != nil {
		return nil, err
	}
	if err := x.Touch(); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	return &peerv1.TouchExportResponse{}, nil
}

// ReleaseExport implements peerv1.RebuildServiceServer.
func (s *Source) ReleaseExport(_ context.Context, req *peerv1.ReleaseExportRequest) (*peerv1.ReleaseExportResponse, error) {
	if x, err := s.lease(req.Shard, req.Lease); err == nil {
		x.Release()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.exports, req.Lease)
	return &peerv1.ReleaseExportResponse{}, nil
}
