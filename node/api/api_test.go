package api_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/wire"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/api/apitest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type harness struct {
	server    *api.Server
	fake      *apitest.Fake
	conn      *grpc.ClientConn
	metrics   *prometheus.Registry
	ingest    weirv1.IngestServiceClient
	queries   weirv1.QueryServiceClient
	pipelines weirv1.PipelineServiceClient
}

// start serves a fake node over an in-memory connection until the test ends.
func start(t *testing.T, change func(*api.Config)) *harness {
	t.Helper()
	return startOver(t, change, func(*api.Backends) {})
}

// startOver is start with some of the fake node's parts changed.
func startOver(t *testing.T, change func(*api.Config), parts func(*api.Backends)) *harness {
	t.Helper()
	h := &harness{fake: apitest.New(), metrics: prometheus.NewRegistry()}
	cfg := api.Config{Group: apitest.Group(), Metrics: h.metrics}
	if change != nil {
		change(&cfg)
	}
	b := h.fake.Backends()
	parts(&b)
	s, err := api.New(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	h.server = s
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	h.conn, err = grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.conn.Close(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Stop(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	h.ingest, h.queries, h.pipelines = weirv1.NewIngestServiceClient(h.conn), weirv1.NewQueryServiceClient(h.conn), weirv1.NewPipelineServiceClient(h.conn)
	return h
}

// reasonOf returns the reason and the cut of an RPC's error.
func reasonOf(t *testing.T, err error) (*dataflow.Error, *weirv1.Cut) {
	t.Helper()
	st, ok := status.FromError(err)
	if !ok || err == nil {
		t.Fatalf("got %v, want a status", err)
	}
	e, cut, ok := wire.ErrorOf(st.Proto())
	if !ok {
		t.Fatalf("got %v, want an error with a reason", err)
	}
	return e, cut
}

func wantReason(t *testing.T, err error, r dataflow.Reason, part string) {
	t.Helper()
	if e, _ := reasonOf(t, err); e.Reason != r || !strings.Contains(e.Error(), part) {
		t.Errorf("got %s: %s; want %s with %q", e.Reason, e.Error(), r, part)
	}
}

// lines returns rows of the stream lines.
func lines(words ...string) *weirv1.ColumnBatch {
	t := &weirv1.TextValues{}
	for _, w := range words {
		t.Data = append(t.Data, w...)
		t.Lengths = append(t.Lengths, uint32(len(w)))
	}
	return &weirv1.ColumnBatch{Rows: uint32(len(words)), Columns: []*weirv1.ColumnData{{Name: "line", Values: &weirv1.ColumnData_Texts{Texts: t}}}}
}

func counts() *apitest.Table {
	b := batch.NewBatch(dataflow.Schema{{Name: "word", Type: dataflow.TypeText}, {Name: "n", Type: dataflow.TypeBigInt}})
	b.AppendRow(dataflow.Row{dataflow.Text("ahab"), dataflow.BigInt(math.MaxInt64)})
	b.AppendRow(dataflow.Row{dataflow.Text("whale"), dataflow.BigInt(1226)})
	b.AppendRow(dataflow.Row{dataflow.NullValue(dataflow.TypeText), dataflow.BigInt(3)})
	return &apitest.Table{Rows: b, KeyCols: 1}
}

func TestDeployIsHandedOnAsAsked(t *testing.T) {
	h := start(t, nil)
	tok := dataflow.Token{Group: apitest.Group(), Positions: dataflow.Positions{{Stream: 1, Shard: 0}: 5}}
	r := &weirv1.DeployPipelineRequest{Pipeline: "p", Sql: "CREATE …", Options: map[string]string{"b": "2", "a": "1"}, Start: tok.String()}
	d, err := h.pipelines.DeployPipeline(t.Context(), r)
	if err != nil || d.GetOutcome() != weirv1.DeployOutcome_DEPLOY_OUTCOME_CREATED || d.GetPipeline().GetCut().GetCheckpointId() != 42 {
		t.Fatalf("got %v, %v", d, err)
	}
	got := h.fake.Deploys()[0]
	if len(got.Options) != 2 || got.Options[0].Name != "a" || got.Start.Kind != api.StartToken || got.Start.Positions[dataflow.StreamShard{Stream: 1}] != 5 {
		t.Fatalf("got %+v", got)
	}
	if d, err = h.pipelines.DeployPipeline(t.Context(), r); err != nil || d.GetOutcome() != weirv1.DeployOutcome_DEPLOY_OUTCOME_UNCHANGED {
		t.Fatalf("got %v, %v", d, err)
	}
	if st := d.GetStreams(); len(st) != 1 || !st[0].GetRead() || st[0].RowsToRead != nil {
		t.Errorf("an unchanged pipeline has rows to read: %v", st)
	}
	r.Sql = "other"
	_, err = h.pipelines.DeployPipeline(t.Context(), r)
	wantReason(t, err, dataflow.ReasonPipelineExists, "")
	for start, want := range map[string]api.StartKind{"": api.StartEarliest, "latest": api.StartLatest, "2026-11-29T12:00:00Z": api.StartTime} {
		name := fmt.Sprint("s", len(h.fake.Deploys()))
		if _, err := h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: name, Sql: "x", Start: start}); err != nil {
			t.Fatal(err)
		}
		if ds := h.fake.Deploys(); ds[len(ds)-1].Start.Kind != want {
			t.Errorf("%q: got %v", start, ds[len(ds)-1].Start)
		}
	}
	_, err = h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: "word-count", Sql: "x"})
	wantReason(t, err, dataflow.ReasonNameInvalid, "word-count")
	_, err = h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: "q", Sql: "x", Start: "noon"})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "start")
	_, err = h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: "q", Sql: "x", Start: dataflow.Token{}.String()})
	wantReason(t, err, dataflow.ReasonTokenForeign, "")
}

func TestPipelinesAreListedPageByPage(t *testing.T) {
	h := start(t, nil)
	for _, n := range []string{"c", "a", "b"} {
		if _, err := h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: n, Sql: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	r := &weirv1.ListPipelinesRequest{PageSize: 2}
	for {
		m, err := h.pipelines.ListPipelines(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.GetPipelines() {
			names = append(names, p.GetName())
		}
		if r.PageToken = m.GetNextPageToken(); r.PageToken == "" {
			break
		}
	}
	if strings.Join(names, "") != "abc" {
		t.Fatalf("got %v", names)
	}
	_, err := h.pipelines.ListPipelines(t.Context(), &weirv1.ListPipelinesRequest{PageSize: -1})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "page_")
	m, err := h.pipelines.ListPipelines(t.Context(), &weirv1.ListPipelinesRequest{PageSize: 1})
	if err != nil || m.GetNextPageToken() == "" {
		t.Fatalf("got %v, %v", m, err)
	}
	for _, token := range []string{"!", "abc", "YWJj", m.GetNextPageToken() + "A", m.GetNextPageToken()[1:]} {
		_, err := h.pipelines.ListPipelines(t.Context(), &weirv1.ListPipelinesRequest{PageToken: token})
		wantReason(t, err, dataflow.ReasonTokenInvalid, "page_token")
	}
	_, err = h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{PageToken: m.GetNextPageToken()})
	wantReason(t, err, dataflow.ReasonTokenInvalid, "another list")
}

func TestFaultInjectionIsRefusedUnlessAllowed(t *testing.T) {
	h := start(t, nil)
	_, err := h.pipelines.FailPipeline(t.Context(), &weirv1.FailPipelineRequest{Pipeline: "p"})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "--allow-fault-injection")
	h = start(t, func(c *api.Config) { c.FaultInjection = true })
	_, err = h.pipelines.FailPipeline(t.Context(), &weirv1.FailPipelineRequest{Pipeline: "p"})
	wantReason(t, err, dataflow.ReasonPipelineNotFound, "")
}

func TestCheckpointsAndLeases(t *testing.T) {
	h := start(t, nil)
	if _, err := h.pipelines.DeployPipeline(t.Context(), &weirv1.DeployPipelineRequest{Pipeline: "p", Sql: "x"}); err != nil {
		t.Fatal(err)
	}
	c, err := h.pipelines.TriggerCheckpoint(t.Context(), &weirv1.TriggerCheckpointRequest{Pipeline: "p", Wait: true})
	if err != nil || c.GetCheckpoint().GetId() != 42 || c.GetCheckpoint().GetShards()[0].GetDigest() != "8000000000000000" {
		t.Fatalf("got %v, %v", c, err)
	}
	l, err := h.pipelines.LeaseCheckpoint(t.Context(), &weirv1.LeaseCheckpointRequest{Pipeline: "p"})
	if err != nil || l.GetLeaseId() == "" || l.GetExpiresAt().AsTime().Unix() != 60 {
		t.Fatalf("got %v, %v", l, err)
	}
	if _, err := h.pipelines.ReleaseLease(t.Context(), &weirv1.ReleaseLeaseRequest{Pipeline: "p", LeaseId: l.GetLeaseId()}); err != nil {
		t.Fatal(err)
	}
	if _, err = h.pipelines.LeaseCheckpoint(t.Context(), &weirv1.LeaseCheckpointRequest{Pipeline: "p", Ttl: durationpb.New(0)}); err != nil {
		t.Errorf("0 is not the default: %v", err)
	}
	for _, ttl := range []time.Duration{-1, 1, 999, 2 * time.Hour} {
		_, err = h.pipelines.LeaseCheckpoint(t.Context(), &weirv1.LeaseCheckpointRequest{Pipeline: "p", Ttl: durationpb.New(ttl)})
		wantReason(t, err, dataflow.ReasonRequestInvalid, "is not between 1µs and 1h0m0s; 0 is 1m0s")
	}
	_, err = h.pipelines.LeaseCheckpoint(t.Context(), &weirv1.LeaseCheckpointRequest{Pipeline: "p", Ttl: durationpb.New(2 * time.Hour)})
	wantReason(t, err, dataflow.ReasonRequestInvalid, "ttl")
	_, err = h.pipelines.GetCheckpoint(t.Context(), &weirv1.GetCheckpointRequest{Pipeline: "p", CheckpointId: 1})
	wantReason(t, err, dataflow.ReasonCheckpointNotFound, "")
}

func TestCallsWithoutDeadlineGetOne(t *testing.T) {
	h := start(t, func(c *api.Config) { c.LongDeadline = 10 * time.Millisecond })
	tok := dataflow.Token{Group: apitest.Group(), Positions: dataflow.Positions{{Stream: 1, Shard: 0}: 99}}.String()
	_, err := h.pipelines.WaitToken(t.Context(), &weirv1.WaitTokenRequest{Token: tok})
	wantReason(t, err, dataflow.ReasonTokenNotReached, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := h.ingest.ListStreams(ctx, &weirv1.ListStreamsRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("got %v", err)
	}
}

func TestPanicCostsOneRequest(t *testing.T) {
	h := start(t, nil)
	h.fake.Crash(true)
	_, err := h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{})
	wantReason(t, err, dataflow.ReasonInternal, "")
	h.fake.Crash(false)
	if _, err := h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{}); err != nil {
		t.Fatal(err)
	}
	mfs, err := h.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, mf := range mfs {
		found = found || mf.GetName() == "weir_rpc_panics_total" && mf.GetMetric()[0].GetCounter().GetValue() == 1
	}
	if !found {
		t.Error("the panic was not counted")
	}
}

func TestErrorsOfTheNodeLeaveWithTheirReason(t *testing.T) {
	h := start(t, nil)
	for _, r := range dataflow.Reasons() {
		h.fake.Fail(fmt.Errorf("somewhere inside: %w", dataflow.Errorf(r.Reason, "because").WithRetry(time.Second)))
		_, err := h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{})
		if e, _ := reasonOf(t, err); e.Reason != r.Reason || e.Message != "because" || e.RetryAfter != time.Second {
			t.Errorf("%s: got %+v", r.Reason, e)
		}
	}
	h.fake.Fail(errors.New("open /secret: denied"))
	_, err := h.ingest.ListStreams(t.Context(), &weirv1.ListStreamsRequest{})
	if e, _ := reasonOf(t, err); e.Reason != dataflow.ReasonInternal || strings.Contains(e.Message, "secret") {
		t.Errorf("got %+v", e)
	}
}

func TestHealthFollowsReadiness(t *testing.T) {
	h := start(t, nil)
	c := healthpb.NewHealthClient(h.conn)
	check := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		m, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return m.GetStatus()
	}
	if check("") != healthpb.HealthCheckResponse_SERVING || check("weir.v1.QueryService") != healthpb.HealthCheckResponse_SERVING {
		t.Fatal("not serving")
	}
	h.fake.SetReady(errors.New("no committed cut"))
	if check("") != healthpb.HealthCheckResponse_SERVING || check("weir.v1.QueryService") != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatal("readiness is not shown")
	}
	if _, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nope"}); status.Code(err) != codes.NotFound {
		t.Fatalf("got %v", err)
	}
	w, err := c.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "weir.v1.QueryService"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := w.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("got %v, %v", m, err)
	}
	h.fake.SetReady(nil)
	if m, err := w.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("got %v, %v", m, err)
	}
}

func TestReflectionIsOffByDefault(t *testing.T) {
	for _, on := range []bool{false, true} {
		h := start(t, func(c *api.Config) { c.Reflection = on })
		call, err := h.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
		if err != nil {
			t.Fatal(err)
		}
		if err := call.CloseSend(); err != nil {
			t.Fatal(err)
		}
		err = call.RecvMsg(&healthpb.HealthCheckRequest{})
		if off := status.Code(err) == codes.Unimplemented; off == on {
			t.Errorf("reflection %v: got %v", on, err)
		}
	}
}
