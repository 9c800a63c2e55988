package rebuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	"github.com/weirdb/weir/raftlog/shard"
)

// ErrNotNeeded: the leader's log reaches back to where the member's ends, so there is nothing to pull.
var ErrNotNeeded = shard.ErrNotNeeded

const (
	// maxPulls at once: one would let a small shard wait for a large one; more would only share the disks and the network.
	maxPulls = 2
	// askTime bounds a question to a node. Not shorter: an export begins with a snapshot.
	askTime = 30 * time.Second
	// retryEvery is how long to wait until a source is looked for again, and sayEvery how often that is said.
	retryEvery = 500 * time.Millisecond
	sayEvery   = 10 * time.Second
	// touchEvery keeps an export; well below shard.DefaultLeaseIdle.
	touchEvery = 20 * time.Second
	// idleTime without a byte ends a stream. Above what a source waits that shares its pace among others.
	idleTime = 20 * time.Second
	// releaseTime bounds the end of an export, which ends by itself too.
	releaseTime = 2 * time.Second
)

// Config says what a Rebuilder works with. All fields are needed.
type Config struct {
	Node string // this one
	// Conn returns the connection to another node's Source.
	Conn func(node string) (grpc.ClientConnInterface, error)
	// Members returns the nodes of the group, this one may be among them.
	Members func() []string
	Logger  *slog.Logger
}

// Rebuilder brings replicas to this node. Its methods are safe for concurrent use.
type Rebuilder struct {
	cfg   Config
	slots chan struct{}
}

// New returns a Rebuilder.
func New(cfg Config) *Rebuilder {
	return &Rebuilder{cfg: cfg, slots: make(chan struct{}, maxPulls)}
}

// Replica is a replica that is to be brought.
type Replica struct {
	Shard     dataflow.ShardID
	Installer *shard.Installer
	// Leader probably leads the shard; "" when nobody is known.
	Leader string
	// Have returns the last index of the log here.
	Have func() (dataflow.LogIndex, error)
	// Damaged brings it also when the log could send what is missing here.
	Damaged bool
}

// Pull brings a replica until all of it is here and checked, and returns the hold on its source. It tries until ctx ends, at
// one source after another. Errors: ErrNotNeeded, and those of this node's disk.
func (r *Rebuilder) Pull(ctx context.Context, rep Replica) (*Hold, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p := &pulling{r: r, rep: rep, log: r.cfg.Logger.With(slog.Uint64("shard", uint64(rep.Shard))), leader: rep.Leader}
	for {
		hold, err := p.try(ctx)
		switch {
		case err == nil:
			return hold, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !p.elsewhere(err):
			return nil, err
		}
		p.say(err)
		if err := pause.For(ctx, retryEvery); err != nil {
			return nil, err
		}
	}
}

// pulling is a Pull.
type pulling struct {
	r      *Rebuilder
	rep    Replica
	log    *slog.Logger
	leader string
	said   time.Time
}

// elsewhere reports whether another try may do better: what failed is not here.
func (p *pulling) elsewhere(err error) bool {
	var away *awayError
	return errors.As(err, &away) || errors.Is(err, shard.ErrSource) || dataflow.ReasonOf(err) == dataflow.ReasonCorrupt
}

// awayError is an error of another node.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

func (p *pulling) say(err error) {
	if time.Since(p.said) < sayEvery {
		return
	}
	p.said = time.Now()
	p.log.Warn("a replica cannot be brought yet", "error", err)
}

// try brings the replica from one source, or the rest of it.
func (p *pulling) try(ctx context.Context) (_ *Hold, err error) {
	node, m, err := p.source(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := p.r.cfg.Conn(node)
	if err != nil {
		return nil, &awayError{err}
	}
	c := peerv1.NewRebuildServiceClient(conn)
	h := hold(c, m)
	begun := time.Now()
	p.log.Info("a replica is being brought", "from", node, "index", uint64(m.Index), "bytes", m.Total())
	if err := p.rep.Installer.Pull(ctx, *m, fetch(c, m)); err != nil {
		if errors.Is(err, shard.ErrSource) || ctx.Err() != nil {
			h.Leave() // the next try goes on with it
		} else {
			h.Release()
		}
		return nil, err
	}
	p.log.Info("a replica has come", "from", node, "index", uint64(m.Index), "bytes", m.Total(), "took", time.Since(begun))
	return h, nil
}

// source returns where to bring the replica from: an export that is under way, or a new one of the leader.
func (p *pulling) source(ctx context.Context) (node string, m *shard.Manifest, err error) {
	if m, err = p.rep.Installer.Pending(); err != nil {
		return "", nil, err
	}
	if m != nil {
		if node := p.holder(ctx, m); node != "" {
			return node, m, nil
		}
	}
	have, err := p.rep.Have()
	if err != nil {
		return "", nil, err
	}
	var failed error
	asked := map[string]bool{"": true, p.r.cfg.Node: true}
	for queue := append([]string{p.leader}, p.r.cfg.Members()...); len(queue) > 0; queue = queue[1:] {
		node := queue[0]
		if asked[node] {
			continue
		}
		asked[node] = true
		res, err := p.ask(ctx, node, have)
		switch {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("node %s: %w", node, err))
		case res.NotNeeded:
			return "", nil, ErrNotNeeded
		case res.NotLeader:
			failed = errors.Join(failed, fmt.Errorf("node %s does not lead the shard", node))
			queue = slices.Insert(queue, 1, res.Leader)
		default:
			m = new(shard.Manifest)
			if err := json.Unmarshal(res.Manifest, m); err != nil {
				return "", nil, &awayError{fmt.Errorf("node %s: its manifest: %w", node, err)}
			}
			p.leader = node
			return node, m, nil
		}
	}
	if failed == nil {
		failed = errors.New("the group has no other node")
	}
	return "", nil, &awayError{failed}
}

// holder returns the node that still keeps an export; "" when none does.
func (p *pulling) holder(ctx context.Context, m *shard.Manifest) string {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	for _, node := range append([]string{p.leader}, p.r.cfg.Members()...) {
		if node == "" || node == p.r.cfg.Node {
			continue
		}
		conn, err := p.r.cfg.Conn(node)
		if err != nil {
			continue
		}
		if _, err := peerv1.NewRebuildServiceClient(conn).TouchExport(ctx, &peerv1.TouchExportRequest{Shard: uint32(m.Shard), Lease: m.Lease}); err == nil {
			return node
		}
	}
	return ""
}

func (p *pulling) ask(ctx context.Context, node string, have dataflow.LogIndex) (*peerv1.ExportShardResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := p.r.cfg.Conn(node)
	if err != nil {
		return nil, err
	}
	return peerv1.NewRebuildServiceClient(conn).ExportShard(ctx, &peerv1.ExportShardRequest{
		Shard: uint32(p.rep.Shard), Node: p.r.cfg.Node, Have: uint64(have), Rebuild: p.rep.Damaged,
	})
}

// fetch reads an export's files through c.
func fetch(c peerv1.RebuildServiceClient, m *shard.Manifest) shard.Fetch {
	return func(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		s := &stream{cancel: cancel, idle: time.AfterFunc(idleTime, func() { cancel(errIdle) })}
		var err error
		if s.from, err = c.ReadExport(ctx, &peerv1.ReadExportRequest{Shard: uint32(m.Shard), Lease: m.Lease, Name: name, Offset: offset}); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return s, nil
	}
}

var errIdle = fmt.Errorf("nothing has come for %s", idleTime)

// stream is a ReadExport as an io.ReadCloser.
type stream struct {
	from   grpc.ServerStreamingClient[peerv1.ReadExportResponse]
	cancel context.CancelCauseFunc
	idle   *time.Timer
	left   []byte
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	for len(s.left) == 0 {
		res, err := s.from.Recv()
		if err != nil {
			return 0, err
		}
		s.idle.Reset(idleTime)
		s.left = res.Data
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.idle.Stop()
	s.cancel(nil)
	return nil
}

// Hold keeps an export at its source (B2).
type Hold struct {
	c    peerv1.RebuildServiceClient
	m    *shard.Manifest
	stop context.CancelFunc
	wg   sync.WaitGroup
}

func hold(c peerv1.RebuildServiceClient, m *shard.Manifest) *Hold {
	ctx, stop := context.WithCancel(context.Background())
	h := &Hold{c: c, m: m, stop: stop}
	h.wg.Go(func() {
		for pause.For(ctx, touchEvery) == nil {
			if err := h.touch(ctx); status.Code(err) == codes.NotFound {
				return
			}
		}
	})
	return h
}

func (h *Hold) touch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	_, err := h.c.TouchExport(ctx, &peerv1.TouchExportRequest{Shard: uint32(h.m.Shard), Lease: h.m.Lease})
	return err
}

// Leave stops keeping the export, and lets the source end it when nobody has taken it up again. Hold may be nil.
func (h *Hold) Leave() {
	if h != nil {
		h.stop()
		h.wg.Wait()
		_ = h.touch(context.Background()) // its time begins now, if it is not over
	}
}

// Release ends the export. Hold may be nil.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	h.stop()
	h.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	// One that is not released ends by itself.
	_, _ = h.c.ReleaseExport(ctx, &peerv1.ReleaseExportRequest{Shard: uint32(h.m.Shard), Lease: h.m.Lease})
}
