package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weirdb/weir/dataflow"
)

// errSpread is returned by what is about all tables of a run when it has only those of some shards.
var errSpread = errors.New("the run is spread over nodes: ask each of them with a marker")

// ownMarkers is the first number of the markers that a run puts in by itself; those of callers are below.
const ownMarkers = 1 << 63

// Processed waits until every table of the run holds the effect of all rows below want (P9), and returns positions,
// at least want, that the tables then covered. It returns ctx's error, or ErrStopped when the run ends first. It is for a run
// that has all shards; Marker is for one that is spread over nodes.
func (r *Run) Processed(ctx context.Context, want dataflow.Positions) (dataflow.Positions, error) {
	if r.cfg.Links != nil {
		return nil, errSpread
	}
	return r.mark(ctx, r.markers.number(), want)
}

// Marker puts marker id into the sources of this node, each once it has read up to want, and waits until the marker has reached
// every table of this node over the edges of all nodes. It returns positions that these tables then covered. Who asks calls it on
// every node of the run with the same id, and takes the minimum of the answers: positions that all tables cover, at least want.
// Ids are below 1<<63 and never used twice in a run. The error is ctx's, ErrStopped, or says that the id is used.
//
// A node that is not asked holds the marker up on all others, until their contexts end.
func (r *Run) Marker(ctx context.Context, id uint64, want dataflow.Positions) (dataflow.Positions, error) {
	if id == 0 || id >= ownMarkers {
		return nil, fmt.Errorf("marker %d is none of a caller's: they are numbered from 1 to 1<<63 - 1", id)
	}
	return r.mark(ctx, id, want)
}

func (r *Run) mark(ctx context.Context, id uint64, want dataflow.Positions) (dataflow.Positions, error) {
	done, err := r.markers.open(id)
	if err != nil {
		return nil, err
	}
	defer r.markers.drop(id)
	for _, s := range r.sources {
		s.inject(command{marker: id, until: want[s.at]})
	}
	select {
	case <-done:
	case <-r.done:
		return nil, ErrStopped
	case <-ctx.Done():
		for _, s := range r.sources { // let the marker go, so that nothing waits for it for ever
			s.release(id)
		}
		return nil, ctx.Err()
	}
	p, ok := r.markers.result(id)
	if !ok {
		return nil, ErrStopped
	}
	return p, nil
}

// markers collects, per marker, the positions that every keyed task reported.
type markers struct {
	mu struct {
		sync.Mutex
		own    uint64 // the newest of the run's own
		open   map[uint64]*openMarker
		closed bool
	}
	tasks int
}

type openMarker struct {
	missing   int
	positions dataflow.Positions
	done      chan struct{}
}

func (m *markers) init(tasks int) {
	m.tasks = tasks
	m.mu.own = ownMarkers
	m.mu.open = make(map[uint64]*openMarker)
}

// number returns a number for a marker of the run's own.
func (m *markers) number() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.own++
	return m.mu.own
}

func (m *markers) open(id uint64) (<-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return nil, ErrStopped
	}
	if m.mu.open[id] != nil {
		return nil, fmt.Errorf("marker %d is under way already", id)
	}
	o := &openMarker{missing: m.tasks, done: make(chan struct{})}
	if m.tasks == 0 {
		close(o.done)
	}
	m.mu.open[id] = o
	return o.done, nil
}

// reached says that one task holds everything below p that its inputs carry.
func (m *markers) reached(id uint64, p dataflow.Positions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.mu.open[id]
	if o == nil {
		return
	}
	if o.positions == nil {
		o.positions = p.Clone()
	} else {
		for k, v := range p { // the minimum over the tasks that read the stream
			if old, ok := o.positions[k]; !ok || v < old {
				o.positions[k] = v
			}
		}
	}
	if o.missing--; o.missing == 0 {
		close(o.done)
	}
}

func (m *markers) result(id uint64) (dataflow.Positions, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.mu.open[id]
	if o == nil || o.missing > 0 {
		return nil, false
	}
	return o.positions, true
}

func (m *markers) drop(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.open, id)
}

func (m *markers) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	for id, o := range m.mu.open {
		if o.missing > 0 {
			close(o.done)
		}
		delete(m.mu.open, id)
	}
}

// gathering collects the markers that have come to a task by some of its edges.
type gathering struct {
	edges int
	open  map[uint64]*gathered
	order []uint64 // of open, oldest first
}

// gathered counts the edges that have delivered a marker.
type gathered struct {
	edges     int
	positions dataflow.Positions
}

// maxGathering is how many markers a task knows that have not come by all of its edges. A node that was not asked leaves the
// others with a part of the marker: the oldest is forgotten then, and never arrives. Far more than are under way at a time, and
// no more than a few MiB per task.
const maxGathering = 1 << 13

// arrived takes a marker from one more edge. When it was the last one, the marker is complete: positions covers those of all edges.
func (g *gathering) arrived(id uint64, p dataflow.Positions) (positions dataflow.Positions, complete bool) {
	m := g.open[id]
	if m == nil {
		if g.open == nil {
			g.open = make(map[uint64]*gathered)
		}
		if len(g.order) == maxGathering {
			delete(g.open, g.order[0])
			g.order = slices.Delete(g.order, 0, 1)
		}
		m = &gathered{positions: make(dataflow.Positions)}
		g.open[id], g.order = m, append(g.order, id)
	}
	m.edges++
	m.positions.Advance(p)
	if m.edges < g.edges {
		return nil, false
	}
	delete(g.open, id)
	at := slices.Index(g.order, id)
	g.order = slices.Delete(g.order, at, at+1)
	return m.positions, true
}
