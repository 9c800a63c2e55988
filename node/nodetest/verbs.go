package nodetest

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Isolation of a read: Committed or Live.
type Isolation = weirv1.Read

// Isolations of reads.
const (
	Committed = weirv1.Read_READ_COMMITTED
	Live      = weirv1.Read_READ_UNCOMMITTED
)

// Reason returns the reason of an error that a service client returned; "" when the error is not Weir's.
func Reason(err error) dataflow.Reason {
	if e := Refusal(err); e != nil {
		return e.Reason
	}
	return ""
}

// Refusal returns the error that the server sent, nil when err does not come from Weir.
func Refusal(err error) *dataflow.Error {
	st, ok := status.FromError(err)
	if !ok || err == nil {
		return nil
	}
	e, _, ok := wire.ErrorOf(st.Proto())
	if !ok {
		return nil
	}
	return e
}

// Deploy deploys a pipeline.
func (n *Node) Deploy(pipeline, sql string) *weirv1.DeployPipelineResponse {
	n.t.Helper()
	ctx, cancel := n.patience()
	defer cancel()
	r, err := n.Pipelines().DeployPipeline(ctx, &weirv1.DeployPipelineRequest{Pipeline: pipeline, Sql: sql})
	if err != nil {
		n.t.Fatalf("deploy %s: %v", pipeline, err)
	}
	return r
}

// Append appends rows, each a JSON object, and returns the token that covers them.
func (n *Node) Append(stream string, rows ...string) string {
	n.t.Helper()
	ctx, cancel := n.patience()
	defer cancel()
	r, err := n.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: stream, JsonRows: []byte(strings.Join(rows, "\n"))})
	if err != nil {
		n.t.Fatalf("append to %s: %v", stream, err)
	}
	if r.GetRows() != uint64(len(rows)) {
		n.t.Fatalf("append to %s: %d of %d rows were written", stream, r.GetRows(), len(rows))
	}
	return r.GetToken()
}

// Checkpoint triggers a checkpoint and waits until it is committed.
func (n *Node) Checkpoint(pipeline string) *weirv1.Checkpoint {
	n.t.Helper()
	ctx, cancel := n.patience()
	defer cancel()
	r, err := n.Pipelines().TriggerCheckpoint(ctx, &weirv1.TriggerCheckpointRequest{Pipeline: pipeline, Wait: true})
	if err != nil {
		n.t.Fatalf("checkpoint %s: %v", pipeline, err)
	}
	return r.GetCheckpoint()
}

// WaitCommitted waits until a committed cut of every running pipeline covers the token.
func (n *Node) WaitCommitted(token string) []*weirv1.Cut {
	n.t.Helper()
	return n.wait(token, weirv1.WaitFor_WAIT_FOR_COMMITTED)
}

// WaitProcessed waits until the live tables of every running pipeline cover the token.
func (n *Node) WaitProcessed(token string) []*weirv1.Cut {
	n.t.Helper()
	return n.wait(token, weirv1.WaitFor_WAIT_FOR_PROCESSED)
}

func (n *Node) wait(token string, what weirv1.WaitFor) []*weirv1.Cut {
	n.t.Helper()
	ctx, cancel := n.patience()
	defer cancel()
	r, err := n.Pipelines().WaitToken(ctx, &weirv1.WaitTokenRequest{Token: token, WaitFor: what})
	if err != nil {
		n.t.Fatalf("wait until the token is %s: %v", what, err)
	}
	return r.GetCuts()
}

// Pipeline describes a pipeline.
func (n *Node) Pipeline(name string) *weirv1.Pipeline {
	n.t.Helper()
	ctx, cancel := n.patience()
	defer cancel()
	r, err := n.Pipelines().GetPipeline(ctx, &weirv1.GetPipelineRequest{Pipeline: name})
	if err != nil {
		n.t.Fatalf("describe %s: %v", name, err)
	}
	return r.GetPipeline()
}

// lookEvery is how often a state that nothing announces is looked at.
const lookEvery = 5 * time.Millisecond

// WaitState waits until a pipeline is in the state.
func (n *Node) WaitState(name string, want weirv1.PipelineState) *weirv1.Pipeline {
	n.t.Helper()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		p := n.Pipeline(name)
		switch {
		case p.GetState() == want:
			return p
		case time.Now().After(deadline):
			n.t.Fatalf("pipeline %s is %s and does not become %s: %v", name, p.GetState(), want, p.GetFailure())
		}
	}
}

// patient makes a call again while the pipeline recovers, as clients do.
func patient[T any](ctx context.Context, call func() (T, error)) (T, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		r, err := call()
		if Reason(err) != dataflow.ReasonPipelineRecovering {
			return r, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return r, err
		}
	}
}

// CrashDataflow makes the tasks of a pipeline fail, as soon as they run.
func (n *Node) CrashDataflow(pipeline string) {
	n.t.Helper()
	ctx, cancel := n.patience()
	defer cancel()
	for {
		n.WaitState(pipeline, weirv1.PipelineState_PIPELINE_STATE_RUNNING)
		_, err := n.Pipelines().FailPipeline(ctx, &weirv1.FailPipelineRequest{Pipeline: pipeline})
		if err == nil {
			return
		}
		// After a restart the pipeline is RUNNING until its new incarnation begins.
		if Reason(err) != dataflow.ReasonPipelineState {
			n.t.Fatalf("crash the dataflow of %s: %v", pipeline, err)
		}
	}
}

// Get reads a row by key, whose values are written as text. ok is false when there is none.
func (n *Node) Get(pipeline, table string, isolation Isolation, key ...string) (row string, cut *weirv1.Cut, ok bool) {
	n.t.Helper()
	ctx, cancel := n.patience()
	defer cancel()
	k := &weirv1.Key{}
	for _, v := range key {
		k.Values = append(k.Values, &weirv1.Value{Kind: &weirv1.Value_Literal{Literal: v}})
	}
	r, err := patient(ctx, func() (*weirv1.GetResponse, error) {
		return n.Queries().Get(ctx, &weirv1.GetRequest{Pipeline: pipeline, Table: table, Key: k, Isolation: isolation})
	})
	switch {
	case err == nil:
		return string(r.GetRow()), r.GetCut(), true
	case Reason(err) == dataflow.ReasonRowNotFound:
		_, cut, _ := wire.ErrorOf(status.Convert(err).Proto())
		return "", cut, false
	}
	n.t.Fatalf("get %s.%s %q: %v", pipeline, table, key, err)
	return "", nil, false
}

// Scan reads a whole table in key order, page by page.
func (n *Node) Scan(pipeline, table string, isolation Isolation) (rows []string, cut *weirv1.Cut) {
	n.t.Helper()
	ctx, cancel := n.patience()
	defer cancel()
	req := &weirv1.ScanRequest{Pipeline: pipeline, Table: table, Isolation: isolation, Limit: dataflow.MaxPageRows}
	for {
		r, err := patient(ctx, func() (*weirv1.ScanResponse, error) { return n.Queries().Scan(ctx, req) })
		if err != nil {
			n.t.Fatalf("scan %s.%s: %v", pipeline, table, err)
		}
		for _, row := range r.GetRows() {
			rows = append(rows, string(row))
		}
		if r.GetNextPageToken() == "" {
			return rows, r.GetCut()
		}
		req.PageToken = r.GetNextPageToken()
	}
}

// Query runs a SELECT and returns all of its rows.
func (n *Node) Query(sql string, isolation Isolation) *weirv1.QueryResponse {
	n.t.Helper()
	r, err := n.TryQuery(sql, isolation)
	if err != nil {
		n.t.Fatalf("query: %v\n%s", err, sql)
	}
	return r
}

// TryQuery is Query for a SELECT that may be refused.
func (n *Node) TryQuery(sql string, isolation Isolation) (*weirv1.QueryResponse, error) {
	ctx, cancel := n.patience()
	defer cancel()
	req := &weirv1.QueryRequest{Sql: sql, Isolation: isolation, Limit: dataflow.MaxPageRows}
	var all *weirv1.QueryResponse
	for {
		r, err := patient(ctx, func() (*weirv1.QueryResponse, error) { return n.Queries().Query(ctx, req) })
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = r
		} else {
			all.Rows = append(all.Rows, r.GetRows()...)
		}
		if r.GetNextPageToken() == "" {
			return all, nil
		}
		req.PageToken = r.GetNextPageToken()
	}
}
