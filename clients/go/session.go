package weir

import (
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

// token returns what to send as session_token.
func (s *sessions) token(pipeline string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.seen[pipeline].token
}

// saw remembers the cut of an answer.
func (s *sessions) saw(c *weirv1.Cut) {
	if c.GetToken() == "" {
		return
	}
	now := seenCut{c.GetPipelineUid(), c.GetTimeline(), c.GetCheckpointId(), c.GetToken()}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.mu.seen[c.GetPipeline()]
	if known && old.uid == now.uid && old.timeline == now.timeline && old.checkpoint >= now.checkpoint {
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
