package api

import (
	"context"
	"time"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// watchSendTimeout is how long a watcher may take over one message. Longer than any pause of a process that works, short
// enough that a connection which nobody reads does not hold its place for ever.
const watchSendTimeout = time.Minute

// Watch implements weirv1.QueryServiceServer.
func (s *queryService) Watch(r *weirv1.WatchRequest, out weirv1.QueryService_WatchServer) error {
	w, err := s.watch(r)
	if err != nil {
		return err
	}
	p := newPatientSender(out, s.readers)
	defer p.close()
	return s.b.Queries.Watch(out.Context(), w, func(ev *dataflow.WatchEvent) error {
		return p.send(out.Context(), s.watchMessage(ev))
	})
}

// watch checks a request.
func (s *queryService) watch(r *weirv1.WatchRequest) (dataflow.Watch, error) {
	w := dataflow.Watch{Pipeline: r.GetPipeline(), Table: r.GetTable(), ChangesOnly: r.GetChangesOnly(), NumbersAsText: r.GetNumbers() == weirv1.Numbers_NUMBERS_STRING}
	if err := checkTable(w.Pipeline, w.Table); err != nil {
		return w, err
	}
	o, err := s.options(r, nil)
	if err != nil {
		return w, err
	}
	w.Isolation, w.Min, w.Session, w.MaxWait, w.MaxStaleness = o.Isolation, o.Min, o.Session, o.MaxWait, o.MaxStaleness
	w.Range, err = scanRange(r)
	if err != nil {
		return w, err
	}
	if t := r.GetResumeToken(); t != "" {
		if w.Isolation == dataflow.ReadUncommitted {
			return w, invalid("resume_token", "is for READ_COMMITTED: what was live at the time cannot be had again")
		}
		tok, err := dataflow.ParseSessionToken(t, s.group)
		if err != nil {
			return w, err
		}
		w.Resume = &tok
	}
	return w, nil
}

var _ readRequest = (*weirv1.WatchRequest)(nil)

func (s *queryService) watchMessage(ev *dataflow.WatchEvent) *weirv1.WatchResponse {
	m := &weirv1.WatchResponse{Snapshot: ev.Snapshot, EndOfCut: ev.EndOfCut, RolledBack: ev.RolledBack, Cut: s.names.cut(ev.Cut)}
	changes := make([]weirv1.Change, len(ev.Changes))
	m.Changes = make([]*weirv1.Change, len(ev.Changes))
	for i, c := range ev.Changes {
		ch := &changes[i]
		ch.Deleted, ch.Key, ch.Row, ch.CheckpointId = c.Row == nil, c.Key, c.Row, uint64(c.Checkpoint)
		m.Changes[i] = ch
	}
	return m
}

// patientSender sends on a call whose reader may have stopped reading. A Send that waits for the reader returns only when the
// handler has returned, so the handler hands messages to a goroutine, which the server waits for when it stops.
type patientSender struct {
	messages chan *weirv1.WatchResponse
	sent     chan error
	timer    *time.Timer
}

func newPatientSender(out weirv1.QueryService_WatchServer, senders *readers) *patientSender {
	p := &patientSender{messages: make(chan *weirv1.WatchResponse), sent: make(chan error, 1), timer: time.NewTimer(watchSendTimeout)}
	senders.Go(func() {
		for m := range p.messages {
			p.sent <- out.Send(m) // never waits: one message is under way at a time
		}
	})
	return p
}

// send returns when the message is on its way, ctx is done, or the reader has not taken it in time: WATCH_LAGGED.
func (p *patientSender) send(ctx context.Context, m *weirv1.WatchResponse) error {
	p.timer.Reset(watchSendTimeout)
	p.messages <- m
	select {
	case err := <-p.sent:
		return err
	case <-p.timer.C:
		return dataflow.Errorf(dataflow.ReasonWatchLagged, "the watcher has taken nothing for %s", watchSendTimeout).
			WithHint("watch again from the last cut")
	case <-ctx.Done():
		return dataflow.Errorf(dataflow.ReasonDeadline, "the watch was ended: %w", context.Cause(ctx))
	}
}

// close ends the goroutine, once its last Send has returned.
func (p *patientSender) close() {
	p.timer.Stop()
	close(p.messages)
}
