package api

import (
	"context"
	"errors"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// WaitToken implements weirv1.PipelineServiceServer.
func (s *pipelineService) WaitToken(ctx context.Context, r *weirv1.WaitTokenRequest) (*weirv1.WaitTokenResponse, error) {
	if r.GetToken() == "" {
		return nil, invalid("token", "is missing")
	}
	tok, err := dataflow.ParseToken(r.GetToken(), s.group)
	if err != nil {
		return nil, err
	}
	w := TokenWait{Positions: tok.Positions, Pipelines: r.GetPipelines()}
	switch r.GetWaitFor() {
	case weirv1.WaitFor_WAIT_FOR_UNSPECIFIED, weirv1.WaitFor_WAIT_FOR_COMMITTED:
	case weirv1.WaitFor_WAIT_FOR_PROCESSED:
		w.Processed = true
	default:
		return nil, invalid("wait_for", "%d is not WAIT_FOR_COMMITTED or WAIT_FOR_PROCESSED", r.GetWaitFor())
	}
	for _, p := range w.Pipelines {
		if err := checkName("pipelines", p); err != nil {
			return nil, err
		}
	}
	wait, err := checkWait(r.GetMaxWait())
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	cuts, err := s.b.Tokens.WaitToken(ctx, w)
	if errors.Is(err, context.DeadlineExceeded) {
		err = dataflow.Errorf(dataflow.ReasonTokenNotReached, "the token was not covered in time")
	}
	if err != nil {
		return nil, err
	}
	m := &weirv1.WaitTokenResponse{}
	for i := range cuts {
		m.Cuts = append(m.Cuts, s.names.cut(&cuts[i]))
	}
	return m, nil
}
