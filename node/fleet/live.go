package fleet

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/worker"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// Live is an incarnation as this node reads it, of which at least one shard is run by another node.
type Live struct {
	f           *Fleet
	pipeline    dataflow.PipelineUID
	incarnation dataflow.Incarnation
	owners      []meta.Owner // by shard
	reads       []dataflow.StreamID
	here        *worker.Running // nil when this node runs none of its shards
	nodes       []string        // the other nodes
	cover       *worker.Coverage
	done        chan struct{}
	finish      sync.Once
	marker      uint64 // under f.mu: of the last one
}

// Live returns the incarnation that runs, here and elsewhere. local is set instead when all of it runs here. Both are nil
// when none runs at this moment.
func (f *Fleet) Live(uid dataflow.PipelineUID) (local *worker.Running, spread *Live) {
	p := f.cfg.Meta.State().Pipelines[uid]
	r := f.cfg.Worker.Live(uid)
	if p == nil {
		return r, nil
	}
	others, here := f.nodesOf(p)
	if len(others) == 0 {
		f.forget(uid)
		return r, nil
	}
	if here && (r == nil || r.Incarnation != p.Incarnation) || !here && p.State != dataflow.PipelineRunning {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.mu.handles[uid]
	if l != nil && l.incarnation == p.Incarnation {
		return nil, l
	}
	if l != nil {
		l.end()
		f.mu.ended = append(f.mu.ended, l)
	}
	l = &Live{f: f, pipeline: uid, incarnation: p.Incarnation, owners: p.Owners, reads: p.Reads, nodes: others, done: make(chan struct{})}
	if here {
		l.here = r
	}
	l.cover = worker.NewCoverage(l, p.Base.Positions)
	f.mu.handles[uid] = l
	return nil, l
}

// Runs reports whether the pipeline's tasks run, as far as this node can tell: its own do, if it has any.
func (f *Fleet) Runs(uid dataflow.PipelineUID) bool {
	here, spread := f.Live(uid)
	return here != nil || spread != nil
}

// forget ends the handle of a pipeline, all of which runs here now.
func (f *Fleet) forget(uid dataflow.PipelineUID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.mu.handles[uid]; l != nil {
		l.end()
		f.mu.ended = append(f.mu.ended, l)
		delete(f.mu.handles, uid)
	}
}

// Watch ends the handles of incarnations that have ended, until ctx ends.
func (f *Fleet) Watch(ctx context.Context) error {
	for {
		changed := f.cfg.Meta.Changed()
		st := f.cfg.Meta.State()
		f.mu.Lock()
		gone := f.mu.ended
		f.mu.ended = nil
		for uid, l := range f.mu.handles {
			if p := st.Pipelines[uid]; ctx.Err() != nil || p == nil || p.Incarnation != l.incarnation {
				l.end()
				gone = append(gone, l)
				delete(f.mu.handles, uid)
			}
		}
		f.mu.Unlock()
		for _, l := range gone {
			l.cover.Stop()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (l *Live) end() { l.finish.Do(func() { close(l.done) }) }

// Incarnation returns which incarnation it is.
func (l *Live) Incarnation() dataflow.Incarnation { return l.incarnation }

// Owner returns the node that runs the shard.
func (l *Live) Owner(shard dataflow.ShardID) string { return l.owners[shard].Node }

// local returns this node's run when it has the shard.
func (l *Live) local(shard dataflow.ShardID) *worker.Running {
	if l.here != nil && l.owners[shard].Node == l.f.cfg.Node {
		return l.here
	}
	return nil
}

// client returns what the shard's owner is asked by.
func (l *Live) client(node string) (peerv1.TaskServiceClient, error) {
	conn, err := l.f.cfg.Conn(node)
	if err != nil {
		return nil, l.failed(node, err)
	}
	return peerv1.NewTaskServiceClient(conn), nil
}

// failed is the answer to a read that another node did not answer: for who reads, the incarnation has ended, or soon will.
func (l *Live) failed(node string, err error) error {
	l.f.cfg.Logger.Debug("live read", "node", node, "pipeline", l.pipeline, "incarnation", l.incarnation, "error", err)
	return worker.ErrEnded
}

// remote is the time of a live read at another node.
func (l *Live) remote() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), remoteTime)
}

// Get appends the newest value of a key to dst.
func (l *Live) Get(stage dataflow.StageID, shard dataflow.ShardID, key, dst []byte) ([]byte, bool, error) {
	if r := l.local(shard); r != nil {
		return r.Get(stage, shard, key, dst)
	}
	var one dataflow.Lookups
	one.Begin(dataflow.MaxEntryBytes * 8)
	one.Add(0, key)
	if err := l.GetAll(stage, shard, &one); err != nil {
		return dst, false, err
	}
	val, found := one.Value(0)
	return append(dst, val...), found, nil
}

// Committed appends the value that a key has in a committed cut, if this node's tables can tell.
func (l *Live) Committed(stage dataflow.StageID, shard dataflow.ShardID, cut dataflow.CheckpointID, key, dst []byte) ([]byte, bool, bool) {
	if r := l.local(shard); r != nil {
		return r.Committed(stage, shard, cut, key, dst)
	}
	return dst, false, false
}

// CommittedAll answers those of the open keys that this node's tables can tell of.
func (l *Live) CommittedAll(stage dataflow.StageID, shard dataflow.ShardID, cut dataflow.CheckpointID, keys *dataflow.Lookups) {
	if r := l.local(shard); r != nil {
		r.CommittedAll(stage, shard, cut, keys)
	}
}

// GetAll answers the open keys.
func (l *Live) GetAll(stage dataflow.StageID, shard dataflow.ShardID, keys *dataflow.Lookups) error {
	if r := l.local(shard); r != nil {
		return r.GetAll(stage, shard, keys)
	}
	node := l.owners[shard].Node
	c, err := l.client(node)
	if err != nil {
		return err
	}
	ctx, cancel := l.remote()
	defer cancel()
	req := &peerv1.GetLiveRequest{Pipeline: uint64(l.pipeline), Incarnation: uint64(l.incarnation), Stage: uint32(stage), Shard: uint32(shard), Room: keys.Room()}
	open := append([]int32{}, keys.Open()...)
	for _, i := range open {
		req.Keys = append(req.Keys, keys.Key(i))
	}
	res, err := c.GetLive(ctx, req)
	if err != nil {
		return l.failed(node, err)
	}
	for n, i := range open {
		if n >= len(res.Found) {
			break
		}
		if !res.Found[n] {
			keys.Absent(i)
		} else if !keys.Found(i, res.Values[n]) {
			return nil
		}
	}
	if res.Full {
		keys.Overflow()
	}
	return nil
}

// Scan returns the first limit entries with lo ≤ key < hi, by key; a nil hi is no bound, a limit of 0 none.
func (l *Live) Scan(stage dataflow.StageID, shard dataflow.ShardID, lo, hi []byte, limit int) (keys, values [][]byte, err error) {
	if r := l.local(shard); r != nil {
		entries, err := r.Scan(stage, shard, lo, hi, limit)
		for _, e := range entries {
			keys, values = append(keys, e.Key), append(values, e.Val)
		}
		return keys, values, err
	}
	node := l.owners[shard].Node
	c, err := l.client(node)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := l.remote()
	defer cancel()
	stream, err := c.ScanLive(ctx, &peerv1.ScanLiveRequest{Pipeline: uint64(l.pipeline), Incarnation: uint64(l.incarnation),
		Stage: uint32(stage), Shard: uint32(shard), From: lo, To: hi, Limit: uint64(limit)})
	if err != nil {
		return nil, nil, l.failed(node, err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return keys, values, nil
		}
		if err != nil {
			return nil, nil, l.failed(node, err)
		}
		keys, values = append(keys, m.Keys...), append(values, m.Values...)
	}
}

// Fresh returns entries that have changed since the last barrier; a nil value says that the key is gone.
func (l *Live) Fresh(stage dataflow.StageID, shard dataflow.ShardID, maxBytes int64) (keys, values [][]byte, err error) {
	if r := l.local(shard); r != nil {
		return r.Fresh(stage, shard, maxBytes)
	}
	node := l.owners[shard].Node
	c, err := l.client(node)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := l.remote()
	defer cancel()
	stream, err := c.FreshLive(ctx, &peerv1.FreshLiveRequest{Pipeline: uint64(l.pipeline), Incarnation: uint64(l.incarnation),
		Stage: uint32(stage), Shard: uint32(shard), MaxBytes: maxBytes})
	if err != nil {
		return nil, nil, l.failed(node, err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return keys, values, nil
		}
		if err != nil {
			return nil, nil, l.failed(node, err)
		}
		for i, v := range m.Values {
			switch {
			case m.Gone[i]:
				v = nil
			case v == nil:
				v = []byte{}
			}
			keys, values = append(keys, m.Keys[i]), append(values, v)
		}
	}
}

// Covered returns positions of which every table, on all nodes, holds all effects.
func (l *Live) Covered(ctx context.Context) dataflow.Positions { return l.cover.Covered(ctx) }

// Processed waits until every table, on all nodes, holds the effect of all rows below want.
func (l *Live) Processed(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error) {
	return l.cover.Processed(ctx, want)
}

// ReadBeyond implements worker.Progress: what the shards' logs hold may have been read.
func (l *Live) ReadBeyond(p dataflow.Positions) bool {
	for at, end := range l.f.cfg.Worker.Ends(l.reads) {
		if end > p[at] {
			return true
		}
	}
	return false
}

// Idle implements worker.Progress. Another node's sources are not known to be idle; a marker says how far they are.
func (l *Live) Idle() bool { return true }

// Done implements worker.Progress.
func (l *Live) Done() <-chan struct{} { return l.done }

// Pass implements worker.Progress: it sends one marker through the sources of all nodes.
func (l *Live) Pass(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with ctx
		select {
		case <-l.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	id := l.nextMarker()
	var mu sync.Mutex
	var least dataflow.Positions
	reached := func(p dataflow.Positions) {
		mu.Lock()
		defer mu.Unlock()
		if least == nil {
			least = p.Clone()
			return
		}
		for k, v := range p {
			if old, ok := least[k]; !ok || v < old {
				least[k] = v
			}
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	if l.here != nil {
		g.Go(func() error {
			p, err := l.here.Run.Marker(gctx, id, want)
			if err == nil {
				reached(p)
			}
			return err
		})
	}
	for _, node := range l.nodes {
		g.Go(func() error {
			c, err := l.client(node)
			if err != nil {
				return err
			}
			res, err := c.Cover(gctx, &peerv1.CoverRequest{Pipeline: uint64(l.pipeline), Incarnation: uint64(l.incarnation),
				Marker: id, Want: meta.EncodePositions(want)})
			if err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				return l.failed(node, err)
			}
			reached(meta.DecodePositions(res.Positions))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		select {
		case <-l.done:
			return nil, worker.ErrEnded
		default:
			return nil, err
		}
	}
	return least, nil
}

// nextMarker returns the number of a marker that no other node gives.
func (l *Live) nextMarker() uint64 {
	place := uint64(0)
	for i, m := range l.f.cfg.Meta.State().Members {
		if m.ID == l.f.cfg.Node {
			place = uint64(i) + 1
		}
	}
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.marker++
	return place<<markerBits | l.marker
}

// markerBits are those of a marker's number that each node counts by itself.
const markerBits = 40
