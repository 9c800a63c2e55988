package main

import (
	"context"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// followEvery is how often a verb looks how a node is that it changes.
const followEvery = 250 * time.Millisecond

// followNode looks how a node is, until look is done or fails.
func followNode(ctx context.Context, w *weir.Client, n *weirv1.NodeStatus, look func(s *weirv1.GetStatusResponse, n *weirv1.NodeStatus) (done bool, err error)) error {
	for {
		s, err := w.Status(ctx)
		if err != nil {
			return err
		}
		n = nodeOf(s, n)
		if done, err := look(s, n); done || err != nil {
			return err
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nodeOf returns how a node is by a status; as it was, when the status does not have it.
func nodeOf(s *weirv1.GetStatusResponse, was *weirv1.NodeStatus) *weirv1.NodeStatus {
	for _, n := range s.GetNodes() {
		if n.GetNode() == was.GetNode() {
			return n
		}
	}
	return was
}

// takenBack returns the error of a verb whose change of a node somebody else has taken back; none while the node that answers lags
// behind another one, since it may not have heard of the change yet.
func takenBack(s *weirv1.GetStatusResponse, n *weirv1.NodeStatus, change string) (done bool, err error) {
	for _, o := range s.GetNodes() {
		if o.GetMeta().GetAppliedIndex() > s.GetMeta().GetAppliedIndex() {
			return false, nil
		}
	}
	return true, dataflow.Errorf(dataflow.ReasonNodeConflict, "the %s of node %s was taken back: it is %s", change, n.GetNode(), n.GetState()).
		WithHint("weir cluster status shows how it is; the same command begins again")
}
