package weir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// fault is what a fake server does with one request of AppendStream.
type fault int

const (
	noFault     fault = iota
	breakBefore       // the connection breaks, nothing is written
	dropAck           // everything is written, the connection breaks before the answer
	half              // the first half of the rows is written, then the connection breaks
	overloaded        // refused, with a time to come again
	gap               // refused as out of order, though it is not
	stopping          // refused by a node that stops; nothing is written
)

func (f fault) String() string {
	return [...]string{"noFault", "breakBefore", "dropAck", "half", "overloaded", "gap", "stopping"}[f]
}

// fakeServer is an ingest service over logs in memory that follow P8, with faults between them and the sender.
type fakeServer struct {
	weirv1.UnimplementedIngestServiceServer
	stream *weirv1.Stream
	shards int
	// fault decides what happens to the next request.
	fault func() fault

	mu struct {
		sync.Mutex
		logs    [][]string // rows by shard, as JSON
		last    []uint64   // of the one producer, by shard
		epoch   uint64
		opened  int // calls of OpenProducer
		seen    map[fault]int
		token   int
		chained []string // previous_token of first requests
		away    bool
	}
}

func newFake(shards int, partitionBy ...string) *fakeServer {
	f := &fakeServer{shards: shards, fault: func() fault { return noFault }, stream: &weirv1.Stream{
		Name: "s", PartitionBy: partitionBy, Columns: []*weirv1.Column{{Name: "k", Type: weirv1.Type_TYPE_TEXT}, {Name: "n", Type: weirv1.Type_TYPE_BIGINT}},
	}}
	f.mu.logs, f.mu.last, f.mu.seen = make([][]string, shards), make([]uint64, shards), make(map[fault]int)
	return f
}

func refused(e *dataflow.Error) error { return statusWithCut(e, nil) }

func statusWithCut(e *dataflow.Error, cut *weirv1.Cut) error {
	return status.FromProto(wire.Status(e, cut)).Err()
}

// OpenProducer implements weirv1.IngestServiceServer.
func (f *fakeServer) OpenProducer(_ context.Context, r *weirv1.OpenProducerRequest) (*weirv1.OpenProducerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.away {
		return nil, refused(dataflow.Errorf(dataflow.ReasonShuttingDown, "away"))
	}
	f.mu.opened++
	if f.mu.epoch == 0 || !dataflow.IsAnonymousProducer(r.GetProducer()) {
		f.mu.epoch++
	}
	m := &weirv1.OpenProducerResponse{Epoch: f.mu.epoch, Shards: uint32(f.shards), Stream: f.stream}
	for i, last := range f.mu.last {
		if last > 0 {
			m.LastSeqs = append(m.LastSeqs, &weirv1.ShardSeq{Shard: uint32(i), LastSeq: last})
		}
	}
	return m, nil
}

// AppendStream implements weirv1.IngestServiceServer.
func (f *fakeServer) AppendStream(call weirv1.IngestService_AppendStreamServer) error {
	var session *weirv1.ProducerSession
	for {
		m, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r := m.GetAppend()
		if session == nil {
			session = r.GetProducer()
			f.mu.Lock()
			f.mu.chained = append(f.mu.chained, r.GetPreviousToken())
			f.mu.Unlock()
		}
		a, err := f.append(session, r.GetShards()[0])
		if err != nil {
			return err
		}
		if err := call.Send(&weirv1.AppendStreamResponse{Appended: a}); err != nil {
			return err
		}
	}
}

func (f *fakeServer) append(session *weirv1.ProducerSession, rows *weirv1.ShardRows) (*weirv1.AppendResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unavailable := refused(dataflow.Errorf(dataflow.ReasonOutcomeUnknown, "the connection broke"))
	if f.mu.away {
		return nil, unavailable
	}
	b, err := wire.DecodeColumns(context.Background(), wire.Schema(f.stream.GetColumns()), rows.GetBatch(), "batch")
	if err != nil {
		return nil, refused(wire.AsError(err))
	}
	what := f.fault()
	f.mu.seen[what]++
	switch what {
	case breakBefore:
		return nil, unavailable
	case overloaded:
		return nil, refused(dataflow.Errorf(dataflow.ReasonOverloaded, "full").WithRetry(70 * time.Millisecond))
	case gap:
		return nil, refused(dataflow.Errorf(dataflow.ReasonOutOfOrder, "gap").WithMeta("expected", fmt.Sprint(rows.GetFirstSeq())))
	case stopping:
		return nil, refused(dataflow.Errorf(dataflow.ReasonShuttingDown, "stopping"))
	case half:
		b = b.Slice(0, (b.N+1)/2)
	}
	s, err := f.admit(session.GetEpoch(), rows.GetShard(), rows.GetFirstSeq(), b)
	if err == nil && (what == dropAck || what == half) {
		err = unavailable
	}
	if err != nil {
		return nil, err
	}
	f.mu.token++
	return &weirv1.AppendResponse{Shards: []*weirv1.ShardAppended{s}, Token: fmt.Sprint("t", f.mu.token)}, nil
}

// admit is P8.
func (f *fakeServer) admit(epoch uint64, shard uint32, first uint64, b *batch.Batch) (*weirv1.ShardAppended, error) {
	last, end := f.mu.last[shard], first+uint64(b.N)-1
	s := &weirv1.ShardAppended{Shard: shard, LastSeq: last}
	switch {
	case epoch < f.mu.epoch:
		return nil, refused(dataflow.Errorf(dataflow.ReasonProducerFenced, "session %d is fenced by %d", epoch, f.mu.epoch))
	case first > last+1 && last == 0:
		return nil, refused(dataflow.Errorf(dataflow.ReasonUnknownProducer, "rows do not start at 1"))
	case first > last+1:
		return nil, refused(dataflow.Errorf(dataflow.ReasonOutOfOrder, "gap").WithMeta("expected", fmt.Sprint(last+1)))
	case end <= last:
		s.Duplicate = true
		return s, nil
	case first <= last:
		s.Overlap = true
		return s, nil
	}
	for i := range b.N {
		f.mu.logs[shard] = append(f.mu.logs[shard], string(wire.AppendRowJSON(nil, b, i, weirv1.Numbers_NUMBERS_JSON)))
	}
	f.mu.last[shard] = end
	s.FirstOffset, s.NextOffset = first-1, end
	return s, nil
}

func (f *fakeServer) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.away = away
}

// rows returns all rows, in order per shard.
func (f *fakeServer) rows() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([][]string, len(f.mu.logs))
	for i, l := range f.mu.logs {
		out[i] = append([]string(nil), l...)
	}
	return out
}

// pings lets clients ping as often as a node does.
func pings() grpc.ServerOption {
	return grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2, PermitWithoutStream: true})
}

// serve connects a client to services over a network in memory. What it returns ends both.
func serve(t *testing.T, cfg Config, register func(*grpc.Server)) (c *Client, stop func()) {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	srv := grpc.NewServer(grpc.WaitForHandlers(true), pings())
	register(srv)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(lis); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	cfg.Addrs = []string{"127.0.0.1:1"}
	cfg.DialOptions = []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		srv.Stop()
		<-done
	}
}

func (f *fakeServer) serve(t *testing.T) (*Client, func()) {
	return serve(t, Config{}, func(s *grpc.Server) { weirv1.RegisterIngestServiceServer(s, f) })
}

// numbered returns rows k0..., n with n from first on.
func numbered(first, n int) *batch.Batch {
	b := batch.NewBatch(dataflow.Schema{{Name: "k", Type: dataflow.TypeText}, {Name: "n", Type: dataflow.TypeBigInt}})
	for i := range n {
		b.AppendRow(dataflow.Row{dataflow.Text(fmt.Sprintf("k%d", (first+i)%37)), dataflow.BigInt(int64(first + i))})
	}
	return b
}
