package sim

import (
	"errors"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
)

// link is the connection to another node's tasks.
type link struct {
	c       *coord
	to      *node
	out, in *conn
	ses     *session
	up      bool
	tried   int64
	pong    int64
	calls   []*call
}

type call struct {
	done func(v attached, err error)
	over bool
}

// attached is which incarnation's tasks run on a node, and the last barrier that was put in; zero = none do.
type attached struct {
	inc     dataflow.Incarnation
	barrier dataflow.CheckpointID
}

var errLink = errors.New("the node is not connected")

// session is the coordinator's connection as the node sees it that runs the tasks.
type session struct {
	n     *node
	term  uint64
	heard int64
	ended bool
	back  *conn
}

func (s *session) end() {
	s.ended = true
	if s.n.worker.session == s {
		s.n.worker.session = nil
	}
	if s.back != nil {
		s.back.broken = true
	}
}

func (l *link) tick() {
	w := l.c.n.w
	switch {
	case l.up && w.now-l.pong > 500*ms:
		l.down()
	case l.up:
		ses, back := l.ses, l.in
		l.out.send(func() {
			ses.heard = w.now
			if !ses.ended {
				back.send(func() { l.pong = w.now })
			}
		})
	case w.now-l.tried > 200*ms:
		l.connect()
	}
}

func (l *link) connect() {
	w := l.c.n.w
	l.tried = w.now
	var out *conn
	out = w.connect(l.c.n, l.to, func() {
		if l.out == out {
			l.down()
		}
	})
	back := w.connect(l.to, l.c.n, nil)
	ses := &session{n: l.to, term: l.c.term, heard: w.now, back: back}
	l.out, l.in, l.ses = out, back, ses
	out.send(func() {
		wk := &l.to.worker
		if ses.term < wk.term {
			ses.ended = true
			return // one of a newer term has been here
		}
		wk.term = ses.term
		if wk.session != nil {
			wk.session.end()
		}
		wk.session, ses.heard = ses, w.now
		back.send(func() {
			if l.out == out && !l.c.dead {
				l.up, l.pong = true, w.now
			}
		})
	})
}

// down gives the connection up, and tells the coordinators that tasks are lost.
func (l *link) down() {
	if !l.up {
		return
	}
	l.up = false
	l.out.broken = true
	calls := l.calls
	l.calls = nil
	for _, k := range calls {
		k.finish(attached{}, errLink)
	}
	if l.c.dead {
		return
	}
	for _, d := range l.c.drivers {
		if slices.Contains(d.placedOn, l.to.id) {
			d.post(coordinator.TaskFailed{Incarnation: d.placed, Failure: dataflow.PipelineFailure{
				Reason: dataflow.ReasonPipelineRecovering, Message: l.to.name + " was lost", Incarnation: d.placed}})
		}
	}
}

func (k *call) finish(v attached, err error) {
	if !k.over {
		k.over = true
		k.done(v, err)
	}
}

// call asks the other node for something, which answers through reply.
func (l *link) call(ask func(s *session, reply func(attached, error)), done func(attached, error)) {
	if !l.up {
		done(attached{}, errLink)
		return
	}
	k := &call{done: done}
	l.calls = append(l.calls, k)
	ses, back := l.ses, l.in
	l.out.send(func() {
		if ses.ended {
			return
		}
		ask(ses, func(v attached, err error) {
			back.send(func() { k.finish(v, err) })
		})
	})
}

// report returns what takes the reports of tasks for the coordinator at the other end of the session.
func (s *session) report(d *driver) func(coordinator.Event) {
	return func(ev coordinator.Event) { s.back.send(func() { d.post(ev) }) }
}
