package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const (
	// heartbeat is how often a watch without events sends a comment, so that proxies do not take the connection for idle: most
	// wait 30 s or longer.
	heartbeat = 15 * time.Second
	// watchRetry is what browsers are told to wait before they connect again, in ms.
	watchRetry = "retry: 1000\n\n"
)

// watch answers GET …/tables/{table}:watch with server-sent events, one per change, and one per cut whose id resumes after
// it. A watch that ends by itself says why in an event "failed".
func (g *Gateway) watch(w http.ResponseWriter, r *http.Request, path map[string]string) {
	req, err := watchRequest(r, path)
	if err != nil {
		writeError(w, err, 0)
		return
	}
	queries, leave, err := g.watches.join()
	if err != nil {
		writeError(w, err, 0)
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	call, err := queries.Watch(ctx, req)
	if err != nil {
		cancel()
		writeError(w, err, 0)
		return
	}
	received, done := make(chan watchMessage), make(chan struct{})
	go func() {
		defer close(done)
		receiveWatch(ctx, call, received)
	}()
	defer func() { cancel(); <-done }()
	writeWatch(ctx, w, received)
}

// writeWatch writes what a watch receives, and a comment whenever it has received nothing for a while, until an error, the end of
// ctx, or the client goes.
func writeWatch(ctx context.Context, w http.ResponseWriter, received <-chan watchMessage) {
	s := &eventStream{w: w, rc: http.NewResponseController(w)}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case m := <-received:
			switch {
			case errors.Is(m.err, io.EOF):
				return
			case m.err != nil && !s.started:
				writeError(w, m.err, 0)
				return
			case m.err != nil:
				_ = s.failed(m.err) // the last thing to say, to somebody who may have gone
				return
			}
			err = s.message(m.m)
			beat.Reset(heartbeat)
		case <-beat.C:
			err = s.comment()
		case <-ctx.Done():
			return
		}
		if err != nil {
			return // the client has gone, or takes nothing
		}
	}
}

// watchMessage is what a call has received.
type watchMessage struct {
	m   *weirv1.WatchResponse
	err error
}

// receiveWatch passes on what a call receives, until an error or the end of ctx.
func receiveWatch(ctx context.Context, call weirv1.QueryService_WatchClient, out chan<- watchMessage) {
	for {
		m, err := call.Recv()
		select {
		case out <- watchMessage{m, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// notForWatches are the parameters of a read that a watch has not.
var notForWatches = [...]string{"checkpoint_id"}

// watchRequest reads the parameters. A browser that connects again says in a header which event was its last.
func watchRequest(r *http.Request, path map[string]string) (*weirv1.WatchRequest, error) {
	p := newParams(r, "key", "prefix", "from", "to", "changes_only", "resume_token")
	for _, name := range notForWatches {
		if p.has(name) {
			p.fail(name, "there is no parameter %q here", name)
		}
	}
	rp := p.read()
	req := &weirv1.WatchRequest{
		Pipeline: path["pipeline"], Table: path["table"], Equal: literals(p.values["key"]), Prefix: p.text("prefix"),
		ChangesOnly: p.bool("changes_only"), ResumeToken: p.given("resume_token"), Isolation: rp.isolation, Numbers: rp.numbers,
		MinToken: rp.minToken, SessionToken: rp.sessionToken, MaxWait: rp.maxWait, MaxStaleness: rp.maxStaleness,
	}
	if p.has("from") {
		req.From = literal(p.given("from"))
	}
	if p.has("to") {
		req.To = literal(p.given("to"))
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		req.ResumeToken = last
	}
	return req, p.err
}

// eventStream writes server-sent events (the HTML standard's text/event-stream).
type eventStream struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	buf     []byte
	started bool
}

func (s *eventStream) message(m *weirv1.WatchResponse) error {
	s.buf = s.buf[:0]
	if err := wire.WatchLines(m, func(op, token string, line []byte) error {
		s.event(op, token, line)
		return nil
	}); err != nil {
		return err
	}
	return s.flush()
}

// event appends an event. JSON has no line break, which would end the data.
func (s *eventStream) event(name, id string, data []byte) {
	s.buf = append(append(append(s.buf, "event: "...), name...), '\n')
	if id != "" {
		s.buf = append(append(append(s.buf, "id: "...), id...), '\n')
	}
	s.buf = append(append(append(s.buf, "data: "...), data...), "\n\n"...)
}

func (s *eventStream) failed(err error) error {
	s.buf = s.buf[:0]
	s.event("failed", "", append(append([]byte(`{"op":"failed","error":`), statusJSON(err)...), '}'))
	return s.flush()
}

func (s *eventStream) comment() error {
	s.buf = append(s.buf[:0], ":\n\n"...)
	return s.flush()
}

// flush sends what is in the buffer, and the header before the first of it.
func (s *eventStream) flush() error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // so that a reader that never reads holds nothing; HTTP/1 and 2 have deadlines, others go without
	if !s.started {
		s.started = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // nginx would hold events back
		if _, err := s.w.Write([]byte(watchRetry)); err != nil {
			return err
		}
	}
	if _, err := s.w.Write(s.buf); err != nil {
		return err
	}
	return s.rc.Flush()
}

const (
	// watchConns connections to the gRPC server are for watches: each call stays, and a connection takes only so many, so that
	// on the connection of the other calls they would shut those out.
	watchConns = 4
	// watchesPerConn is below what the server admits.
	watchesPerConn = 900
)

// watchLines places watches on their connections.
type watchLines struct {
	conns []*grpc.ClientConn
	mu    struct {
		sync.Mutex
		open [watchConns]int // watches per connection
	}
}

// join returns a client for one watch, and how to leave it. The error is OVERLOADED when there is no place.
func (l *watchLines) join() (weirv1.QueryServiceClient, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := 0
	for i, n := range l.mu.open {
		if n < l.mu.open[at] {
			at = i
		}
	}
	if l.mu.open[at] == watchesPerConn {
		return nil, nil, dataflow.Errorf(dataflow.ReasonOverloaded, "%d watches are open over HTTP, which is the limit", watchConns*watchesPerConn).
			WithHint("use gRPC, or another node").WithRetry(time.Second)
	}
	l.mu.open[at]++
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.mu.open[at]--
	}
	return weirv1.NewQueryServiceClient(l.conns[at]), leave, nil
}
