package fleet

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
	"github.com/weirdb/weir/node/leader"
	"github.com/weirdb/weir/node/worker"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// Config describes a Fleet.
type Config struct {
	Node   string
	Meta   *meta.Log
	Worker *worker.Worker
	Shards []*worker.Shard
	// Conn returns the connection to another node. It does not wait.
	Conn func(node string) (grpc.ClientConnInterface, error)
	// MetaLeader returns the node that is known to lead the meta log, or "".
	MetaLeader func() string
	// Moving reports whether leads of shards are being moved, by this node: then it is not yet known who leads. Optional.
	Moving func() bool
	Logger *slog.Logger
}

// Fleet reaches the tasks of all nodes.
type Fleet struct {
	cfg Config
	mu  struct {
		sync.Mutex
		// Of this node as one that runs tasks.
		term    uint64 // the newest of a coordinator that was here, or of this node's
		session *session
		// Of this node as the one that coordinates.
		links map[string]*link // nil while it does not
		leads uint64           // the term in which it does
		steps map[dataflow.PipelineUID]func(coordinator.Event)
		runs  map[dataflow.PipelineUID]placed
		// Of this node as one that reads.
		handles map[dataflow.PipelineUID]*Live
		ended   []*Live // replaced or forgotten; Watch waits for their markers
	}
}

// placed is an incarnation that this node's coordinator has started or attached to, and the other nodes on which it runs.
type placed struct {
	incarnation dataflow.Incarnation
	nodes       []string
}

var _ leader.Worker = (*Fleet)(nil)

// New returns a fleet. Coordinate must run while this node leads the meta log.
func New(cfg Config) *Fleet {
	f := &Fleet{cfg: cfg}
	f.mu.steps = make(map[dataflow.PipelineUID]func(coordinator.Event))
	f.mu.runs = make(map[dataflow.PipelineUID]placed)
	f.mu.handles = make(map[dataflow.PipelineUID]*Live)
	return f
}

// Coordinate holds links to all other nodes until ctx ends, as the coordinator of a term of the meta log.
func (f *Fleet) Coordinate(ctx context.Context, term uint64) error {
	hello := &peerv1.Hello{Node: f.cfg.Node, Term: term}
	f.mu.Lock()
	f.mu.term, f.mu.leads = max(f.mu.term, term), term
	if f.mu.session != nil {
		f.mu.session.end(dataflow.Errorf(dataflow.ReasonNotLeader, "node %s coordinates in term %d now", f.cfg.Node, term))
	}
	f.mu.links = make(map[string]*link)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.links = nil
		clear(f.mu.steps)
		clear(f.mu.runs)
	}()
	var links sync.WaitGroup
	defer links.Wait()
	stops := make(map[string]context.CancelFunc)
	for {
		changed := f.cfg.Meta.Changed()
		in := make(map[string]bool)
		for _, m := range f.cfg.Meta.State().Members {
			if m.State != meta.MemberGone { // one that leaves runs tasks until its leads have moved
				in[m.ID] = m.ID != f.cfg.Node
			}
		}
		for node, stop := range stops {
			if !in[node] {
				stop()
				delete(stops, node)
				f.mu.Lock()
				delete(f.mu.links, node)
				f.mu.Unlock()
			}
		}
		for node, other := range in {
			if !other || stops[node] != nil {
				continue
			}
			conn, err := f.cfg.Conn(node)
			if err != nil {
				f.cfg.Logger.Warn("connect to a node", "node", node, "error", err)
				continue
			}
			lctx, stop := context.WithCancel(ctx)
			stops[node] = stop
			l := newLink(node)
			f.mu.Lock()
			f.mu.links[node] = l
			f.mu.Unlock()
			links.Go(func() { l.run(lctx, conn, hello, f.reported, func(err error) { f.lost(node, err) }) })
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, stop := range stops {
				stop()
			}
			return ctx.Err()
		}
	}
}

// reported passes on what a task of another node reports.
func (f *Fleet) reported(m *peerv1.CoordinateResponse) {
	uid, ev := decodeEvent(m)
	if ev != nil {
		f.step(uid, ev)
	}
}

func (f *Fleet) step(uid dataflow.PipelineUID, ev coordinator.Event) {
	f.mu.Lock()
	step := f.mu.steps[uid]
	f.mu.Unlock()
	if step != nil {
		step(ev)
	}
}

// lost tells the coordinators of the pipelines with tasks on a node that these are lost.
func (f *Fleet) lost(node string, err error) {
	f.cfg.Logger.Warn("node lost", "node", node, "error", err)
	f.mu.Lock()
	gone := make(map[dataflow.PipelineUID]dataflow.Incarnation)
	for uid, p := range f.mu.runs {
		if slices.Contains(p.nodes, node) {
			gone[uid] = p.incarnation
		}
	}
	f.mu.Unlock()
	for uid, inc := range gone {
		f.step(uid, coordinator.TaskFailed{Incarnation: inc, Failure: dataflow.PipelineFailure{
			Reason: dataflow.ReasonPipelineRecovering, Message: "node " + node + " was lost", Incarnation: inc}})
	}
}

func (f *Fleet) link(node string) *link {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.links[node]
}

func (f *Fleet) allLinks() []*link {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*link
	for _, l := range f.mu.links {
		out = append(out, l)
	}
	return out
}

// nodesOf returns the other nodes that own shards of a pipeline, and whether this one does.
func (f *Fleet) nodesOf(p *meta.Pipeline) (others []string, here bool) {
	if len(p.Owners) == 0 {
		return nil, true
	}
	for _, o := range p.Owners {
		switch {
		case o.Node == f.cfg.Node:
			here = true
		case !slices.Contains(others, o.Node):
			others = append(others, o.Node)
		}
	}
	return others, here
}

// ownersEvery is how often Owners looks again.
const ownersEvery = 20 * time.Millisecond

// Owners implements leader.Worker: each shard's tasks run where its log is led, on a node that can be reached. It waits until leads
// that are being moved have arrived, so that one incarnation is enough for all.
func (f *Fleet) Owners(ctx context.Context) ([]meta.Owner, error) {
	tick := time.NewTicker(ownersEvery)
	defer tick.Stop()
	for {
		if owners, ok := f.owners(); ok {
			return owners, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (f *Fleet) owners() ([]meta.Owner, bool) {
	if len(f.cfg.Meta.State().Members) == 0 {
		return nil, true
	}
	if f.cfg.Moving != nil && f.cfg.Moving() {
		return nil, false
	}
	owners := make([]meta.Owner, len(f.cfg.Shards))
	for i, s := range f.cfg.Shards {
		node := s.Log.Leader()
		if node == "" {
			return nil, false
		}
		if node != f.cfg.Node {
			if l := f.link(node); l == nil || !l.isUp() {
				return nil, false
			}
		}
		owners[i] = meta.Owner{Shard: s.ID, Node: node, Term: s.Log.Term()}
	}
	return owners, true
}

// Placement returns which nodes lead the shards' logs now; none in a group of one node. It waits until that is known. Where
// it has changed by the time tasks are started, another incarnation begins.
func (f *Fleet) Placement(ctx context.Context) ([]meta.Owner, error) {
	if len(f.cfg.Meta.State().Members) == 0 {
		return nil, nil
	}
	owners := make([]meta.Owner, len(f.cfg.Shards))
	for i, s := range f.cfg.Shards {
		if err := s.Log.WaitLeader(ctx); err != nil {
			return nil, err
		}
		owners[i] = meta.Owner{Shard: s.ID, Node: s.Log.Leader(), Term: s.Log.Term()}
		if owners[i].Node == "" {
			return nil, dataflow.Errorf(dataflow.ReasonNotLeader, "shard %d has just lost its leader", s.ID).WithRetry(ownersEvery * 10)
		}
	}
	return owners, nil
}

// Start implements leader.Worker.
func (f *Fleet) Start(ctx context.Context, uid dataflow.PipelineUID, inc dataflow.Incarnation, base *dataflow.CheckpointCommit, step func(coordinator.Event)) error {
	p := f.cfg.Meta.State().Pipelines[uid]
	if p == nil || p.Incarnation != inc {
		return worker.Stale(uid, inc)
	}
	others, here := f.nodesOf(p)
	f.mu.Lock()
	f.mu.steps[uid] = step
	f.mu.runs[uid] = placed{inc, others}
	f.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	if here {
		g.Go(func() error { return f.cfg.Worker.Start(ctx, uid, inc, base, step) })
	}
	for _, node := range others {
		g.Go(func() error {
			l := f.link(node)
			if l == nil {
				return dataflow.Errorf(dataflow.ReasonUnreachable, "node %s is not connected", node)
			}
			_, err := l.call(ctx, &peerv1.CoordinateRequest{Request: &peerv1.CoordinateRequest_Start{Start: &peerv1.Start{
				Pipeline: uint64(uid), Incarnation: uint64(inc)}}})
			return err
		})
	}
	return g.Wait()
}

// Stop implements leader.Worker. A node that cannot be reached is not waited for: what it still does counts for nothing.
func (f *Fleet) Stop(uid dataflow.PipelineUID, inc dataflow.Incarnation) {
	f.mu.Lock()
	if r := f.mu.runs[uid]; r.incarnation <= inc {
		delete(f.mu.runs, uid)
	}
	f.mu.Unlock()
	var g sync.WaitGroup
	for _, l := range f.allLinks() {
		g.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), stopTime)
			defer cancel()
			if _, err := l.call(ctx, &peerv1.CoordinateRequest{Request: &peerv1.CoordinateRequest_Stop{Stop: &peerv1.Stop{
				Pipeline: uint64(uid), Incarnation: uint64(inc)}}}); err != nil {
				f.cfg.Logger.Debug("stop tasks", "node", l.node, "pipeline", uid, "error", err)
			}
		})
	}
	f.cfg.Worker.Stop(uid, inc)
	g.Wait()
}

// stopTime bounds the wait for the end of tasks on another node.
const stopTime = 10 * time.Second

// Inject implements leader.Worker.
func (f *Fleet) Inject(uid dataflow.PipelineUID, inc dataflow.Incarnation, n dataflow.CheckpointID, hold bool) {
	f.mu.Lock()
	p := f.mu.runs[uid]
	f.mu.Unlock()
	for _, node := range p.nodes {
		if l := f.link(node); l != nil {
			l.post(&peerv1.CoordinateRequest{Request: &peerv1.CoordinateRequest_Inject{Inject: &peerv1.Inject{
				Pipeline: uint64(uid), Incarnation: uint64(inc), Checkpoint: uint64(n), Hold: hold}}})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.leads == f.mu.term { // else another coordinator's barriers follow those that are in
		f.cfg.Worker.Inject(uid, inc, n, hold)
	}
}

// attachTime bounds how long a new coordinator waits for the nodes that run tasks. Why not longer: if one of them cannot be
// reached, and still leads, its pipelines wait for as long.
const attachTime = 2 * time.Second

// Attach implements leader.Worker: an incarnation runs when it does on every node that owns shards in it. A barrier that the
// coordinator before has put in at some nodes only is put in at the others: tasks that have it wait for it.
func (f *Fleet) Attach(ctx context.Context, uid dataflow.PipelineUID, step func(coordinator.Event)) dataflow.Incarnation {
	p := f.cfg.Meta.State().Pipelines[uid]
	if p == nil {
		return 0
	}
	others, here := f.nodesOf(p)
	f.mu.Lock()
	f.mu.steps[uid] = step
	f.mu.runs[uid] = placed{p.Incarnation, others}
	f.mu.Unlock()
	all := true
	found, last := f.cfg.Worker.Attach(uid, step)
	if here && found != p.Incarnation {
		all = false
	}
	var mu sync.Mutex
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	var g errgroup.Group
	for _, node := range others {
		g.Go(func() error {
			l, err := f.awaitLink(ctx, node, p)
			if err != nil {
				return err
			}
			d, err := l.call(ctx, &peerv1.CoordinateRequest{Request: &peerv1.CoordinateRequest_Attach{Attach: &peerv1.Attach{Pipeline: uint64(uid)}}})
			if err == nil && dataflow.Incarnation(d.Incarnation) != p.Incarnation {
				err = worker.Stale(uid, p.Incarnation)
			}
			if err == nil {
				mu.Lock()
				last = max(last, dataflow.CheckpointID(d.Barrier))
				mu.Unlock()
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		f.cfg.Logger.Info("tasks are not taken over", "pipeline", p.Name, "incarnation", p.Incarnation, "error", err)
		all = false
	}
	if !all {
		return 0
	}
	if last > 0 {
		f.Inject(uid, p.Incarnation, last, false)
	}
	return p.Incarnation
}

// awaitLink returns the link to a node that owns shards of a pipeline once it is connected. It does not wait for a node whose
// tasks are over.
func (f *Fleet) awaitLink(ctx context.Context, node string, p *meta.Pipeline) (*link, error) {
	tick := time.NewTicker(ownersEvery)
	defer tick.Stop()
	for {
		if l := f.link(node); l != nil && l.isUp() {
			return l, nil
		}
		for _, o := range p.Owners {
			if s := f.cfg.Shards[o.Shard].Log; o.Node == node && superseded(o, s.Term(), s.Leader()) {
				return nil, dataflow.Errorf(dataflow.ReasonUnreachable, "node %s is not connected, and shard %d is led by %s now", node, o.Shard, s.Leader())
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, dataflow.Errorf(dataflow.ReasonUnreachable, "node %s is not connected: %w", node, context.Cause(ctx))
		}
	}
}

// superseded says whether the tasks of a shard's owner are over: another node leads its log, which takes no delta of theirs any
// more.
func superseded(o meta.Owner, term uint64, leader string) bool {
	return term > o.Term && leader != "" && leader != o.Node
}

// Ends implements leader.Worker.
func (f *Fleet) Ends(streams []dataflow.StreamID) dataflow.Positions {
	return f.cfg.Worker.Ends(streams)
}

// Appended implements leader.Worker.
func (f *Fleet) Appended() <-chan struct{} { return f.cfg.Worker.Appended() }
