package link

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/exchange"
)

// Run names a run that is spread over nodes.
type Run struct {
	Pipeline    dataflow.PipelineUID
	Incarnation dataflow.Incarnation
	// Owners holds the node of each shard.
	Owners []string
	// Program is equal on two nodes when they run the same: a fingerprint of the plan and of the options that matter to tasks.
	Program string
}

// Links are one node's edges to and from the other nodes of a run. They are filled by Out and In, before Run.
type Links struct {
	hub    *Hub
	run    Run
	pairs  map[string]*pair // by peer
	fail   context.CancelCauseFunc
	frames sync.Pool // of *frame
}

// Links returns the links of a run that this node takes part in. They need no closing: they live while Run does.
func (h *Hub) Links(r Run) *Links {
	l := &Links{hub: h, run: r, pairs: make(map[string]*pair)}
	for _, node := range r.Owners {
		if node != h.cfg.Node && l.pairs[node] == nil {
			l.pairs[node] = newPair(l, node)
		}
	}
	l.frames.New = func() any { return new(frame) }
	return l
}

func (l *Links) owner(s dataflow.ShardID) string {
	if int(s) < len(l.run.Owners) {
		return l.run.Owners[s]
	}
	return ""
}

// Out returns the sender of an edge that leads to a shard of another node. What it is given is encoded, and free to be used
// again, when Send returns.
func (l *Links) Out(id exchange.EdgeID, schema dataflow.Schema) (exchange.Sender, error) {
	p := l.pairs[l.owner(id.To)]
	if p == nil || l.owner(id.From) != l.hub.cfg.Node || p.out[id] != nil {
		return nil, dataflow.Errorf(dataflow.ReasonInternal, "no edge leads from node %s by %s", l.hub.cfg.Node, id)
	}
	e := &outEdge{id: id, schema: schema, pair: p, credits: make(chan struct{}, exchange.Credits)}
	for range exchange.Credits {
		e.credits <- struct{}{}
	}
	p.out[id] = e
	return e, nil
}

// In lets an edge that comes from a shard of another node deliver to an edge of an inbox. check, if not nil, says whether the
// receiver can deal with a message that is well-formed; the goroutine that reads the stream calls it. What it refuses ends the
// run, as any message that breaks the rules does (L2).
func (l *Links) In(id exchange.EdgeID, schema dataflow.Schema, to *exchange.Edge, check func(exchange.Message) error) error {
	p := l.pairs[l.owner(id.From)]
	if p == nil || l.owner(id.To) != l.hub.cfg.Node || p.in[id] != nil {
		return dataflow.Errorf(dataflow.ReasonInternal, "no edge leads to node %s by %s", l.hub.cfg.Node, id)
	}
	e := &inEdge{id: id, schema: schema, to: to, check: check}
	p.in[id] = e
	to.OnRelease(func() { p.release(e) })
	return nil
}

// Run connects the nodes of the run, calls linked once all are, and carries messages until ctx ends or a peer is lost. The
// error is then ctx's cause, or a *LostError, *StaleError or *MismatchError. While a node is not reached it is dialed again
// and again: who started the run knows how long to wait for linked.
func (l *Links) Run(ctx context.Context, linked func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.fail = cancel
	if err := l.hub.begin(l); err != nil {
		return err
	}
	defer l.hub.end(l)
	g, gctx := errgroup.WithContext(ctx)
	var missing atomic.Int64
	if missing.Store(int64(len(l.pairs))); len(l.pairs) == 0 {
		linked()
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for _, p := range l.pairs {
		g.Go(func() error {
			defer p.end()
			conn, err := p.connect(gctx)
			if err != nil {
				return err
			}
			l.hub.cfg.Logger.Debug("nodes are linked", "pipeline", l.run.Pipeline, "incarnation", l.run.Incarnation, "peer", p.peer)
			if missing.Add(-1) == 0 {
				linked()
			}
			return p.carry(gctx, conn)
		})
	}
	return g.Wait()
}

// outEdge is an edge that leads to another node.
type outEdge struct {
	id      exchange.EdgeID
	schema  dataflow.Schema
	pair    *pair
	credits chan struct{}
	sent    uint64 // messages; of the sending task
}

var _ exchange.Sender = (*outEdge)(nil)

func (e *outEdge) Send(ctx context.Context, m exchange.Message) error {
	return exchange.Split(m, func(part exchange.Message) error { return e.send(ctx, part) })
}

func (e *outEdge) send(ctx context.Context, m exchange.Message) error {
	select {
	case <-e.credits:
	default:
		select {
		case <-e.credits:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f, _ := e.pair.links.frames.Get().(*frame)
	f.b = appendEdge(beginFrame(f.b[:0], frameMessage), e.id)
	var err error
	if f.b, err = exchange.AppendMessage(appendUvarint(f.b, e.sent+1), e.schema, m); err != nil {
		return fmt.Errorf("send by %s to node %s: %w", e.id, e.pair.peer, err)
	}
	f.b = endFrame(f.b, 0)
	if err := e.pair.push(ctx, f); err != nil {
		e.credits <- struct{}{} // the one that was taken above
		return err
	}
	e.sent++
	return nil
}

// returned takes credits back from the peer.
func (e *outEdge) returned(n uint64) error {
	for range min(n, exchange.Credits+1) {
		select {
		case e.credits <- struct{}{}:
		default:
			return fmt.Errorf("%d credits came back by %s for messages that were not sent", n, e.id)
		}
	}
	return nil
}

// inEdge is an edge that comes from another node.
type inEdge struct {
	id     exchange.EdgeID
	schema dataflow.Schema
	to     *exchange.Edge
	check  func(exchange.Message) error
	last   uint64 // number of the last message; of the reader
	due    uint64 // credits to be sent; guarded by the pair's lock
}

// arrived delivers a message.
func (e *inEdge) arrived(number uint64, data []byte) error {
	if number != e.last+1 {
		return fmt.Errorf("message %d came by %s after message %d", number, e.id, e.last)
	}
	e.last = number
	m, err := exchange.DecodeMessage(e.schema, data)
	if err == nil && e.check != nil {
		err = e.check(m)
	}
	if err != nil {
		return fmt.Errorf("message %d by %s: %w", number, e.id, err)
	}
	if err := e.to.Deliver(m); err != nil {
		return fmt.Errorf("message %d by %s: %w", number, e.id, err)
	}
	return nil
}

// frame is an encoded frame that waits to be written.
type frame struct{ b []byte }

// maxKept is the capacity up to which a frame's memory is used again.
const maxKept = 2 << 20

func (l *Links) recycle(f *frame) {
	if cap(f.b) <= maxKept {
		l.frames.Put(f)
	}
}

// hello is what this node says to the pair's other one.
func (p *pair) hello() hello {
	r := &p.links.run
	ids := make([]exchange.EdgeID, 0, len(p.out)+len(p.in))
	schemas := make(map[exchange.EdgeID]dataflow.Schema, cap(ids))
	for id, e := range p.out {
		ids, schemas[id] = append(ids, id), e.schema
	}
	for id, e := range p.in {
		ids, schemas[id] = append(ids, id), e.schema
	}
	slices.SortFunc(ids, func(a, b exchange.EdgeID) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Input, b.Input), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	var text strings.Builder
	fmt.Fprintf(&text, "%q %q", r.Program, r.Owners)
	for _, id := range ids {
		fmt.Fprintf(&text, "; %s", id)
		for _, c := range schemas[id] {
			fmt.Fprintf(&text, " %s", c.Type)
		}
	}
	return hello{
		Pipeline: r.Pipeline, Incarnation: r.Incarnation, From: p.links.hub.cfg.Node, To: p.peer,
		Edges: uint64(len(ids)), Fingerprint: dataflow.HashKey([]byte(text.String())),
	}
}

// check compares what a peer runs with what this node runs. A difference fails the run here too.
func (p *pair) check(peer hello) *refusal {
	mine := p.hello()
	what := ""
	switch {
	case peer.Edges != mine.Edges:
		what = fmt.Sprintf("it has %d edges with node %s, which has %d", peer.Edges, mine.From, mine.Edges)
	case peer.Fingerprint != mine.Fingerprint:
		what = "its program, its owners of shards or its edges are others"
	default:
		return nil
	}
	e := &MismatchError{Peer: peer.From, What: what}
	p.links.fail(e)
	return &refusal{code: refuseMismatch, reason: what}
}

// Why not less: a node that starts at the same time has a moment to listen. Why not more: a start waits for it.
const (
	firstRetry = 20 * time.Millisecond
	maxRetry   = time.Second
)
