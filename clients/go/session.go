package weir

import (
	"cmp"
	"sync"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// sessions remembers, per pipeline, the newest cut that this client has seen, so that later reads see no older one (G3).
type sessions struct {
	mu struct {
		sync.Mutex
		seen map[string]seenCut // by pipeline name
	}
}

type seenCut struct {
	uid, timeline, checkpoint uint64
	token                     string
}

// compare orders cuts of pipelines of one name by when they were made: a later deployment has a larger uid.
func (c seenCut) compare(o seenCut) int {
	return cmp.Or(cmp.Compare(c.uid, o.uid), cmp.Compare(c.timeline, o.timeline), cmp.Compare(c.checkpoint, o.checkpoint))
}

// token returns what to send as session_token.
func (s *sessions) token(pipeline string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.seen[pipeline].token
}

// newer returns the token of the later of two cuts; "" is none.
func newer(a, b string) string {
	if a == "" || b == "" {
		return cmp.Or(a, b)
	}
	x, err1 := dataflow.ReadSessionToken(a)
	y, err2 := dataflow.ReadSessionToken(b)
	if err1 == nil && (err2 != nil || x.Compare(y) >= 0) {
		return a
	}
	return b // the server says what is wrong with it
}

// SessionToken returns the token of the newest cut that the client has seen of a pipeline, "" when it has seen none: another
// client that reads with it (ReadOptions.SessionToken) sees no older one.
func (c *Client) SessionToken(pipeline string) string { return c.sessions.token(pipeline) }

// saw remembers the cut of an answer.
func (s *sessions) saw(c *weirv1.Cut) {
	if c.GetToken() == "" {
		return
	}
	now := seenCut{c.GetPipelineUid(), c.GetTimeline(), c.GetCheckpointId(), c.GetToken()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, known := s.mu.seen[c.GetPipeline()]; known && old.compare(now) >= 0 {
		return
	}
	if s.mu.seen == nil {
		s.mu.seen = make(map[string]seenCut)
	}
	s.mu.seen[c.GetPipeline()] = now
}

// failed forgets a pipeline whose history is another one now: the caller learns it once.
func (s *sessions) failed(pipeline string, err error) {
	switch dataflow.ReasonOf(err) {
	case dataflow.ReasonTimelineChanged, dataflow.ReasonTokenForeign, dataflow.ReasonTokenInvalid, dataflow.ReasonPipelineNotFound:
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.seen, pipeline)
	}
}
