package node_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/internal/peernet/peernettest"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// freePort returns an address where nothing listens: a node that is still opening cannot be asked for its own. It is none of those
// that systems give to who asks for any, nor of those that tests with real servers choose from: other tests run meanwhile.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(8_000))); err == nil {
			defer func() { _ = l.Close() }() // it was only asked for its number
			return l.Addr().String()
		}
	}
	t.Fatal("there is no free port")
	return ""
}

// httpText returns the status and the body of a path; 0 when nobody answers.
func httpText(ctx context.Context, addr, path string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }() // it is read
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}

// eventually calls ok until it returns "", or fails with what it said last.
func eventually(t *testing.T, ok func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		said := ok()
		if said == "" {
			return
		}
		if pause.For(ctx, 20*time.Millisecond) != nil {
			t.Fatal(said)
		}
	}
}

// TestANodeThatStartsSaysWhatItWaitsFor opens one node of three, whose others are not there.
func TestANodeThatStartsSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	grpcAddr, httpAddr, respAddr := freePort(t), freePort(t), freePort(t)
	ctx, stop := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() {
		n, err := node.Open(ctx, node.Config{
			Logger: slog.New(slog.DiscardHandler), DataDir: "/data", FS: vfs.NewCrashableMem(), Shards: 2, GRPCAddr: grpcAddr, HTTPAddr: httpAddr, RESPAddr: respAddr,
			NodeID: "n1", PeerAddr: "n1:7712", PeerNetwork: peernettest.New().Host("n1"), Join: []string{"n1:7712", "n2:7712", "n3:7712"}, BootstrapExpect: 3,
		})
		if err == nil {
			err = n.Close()
		}
		opened <- err
	}()
	eventually(t, func() string {
		code, body := httpText(ctx, httpAddr, "/readyz")
		if code == http.StatusServiceUnavailable && strings.Contains(body, "waiting for n2:7712, n3:7712") {
			return ""
		}
		return body
	})
	if code, body := httpText(ctx, httpAddr, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d %s", code, body)
	}
	if code, body := httpText(ctx, httpAddr, "/v1/streams"); code != http.StatusServiceUnavailable || !strings.Contains(body, "NODE_NOT_READY") {
		t.Errorf("/v1/streams: %d %s", code, body)
	}
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = weirv1.NewClusterServiceClient(conn).GetStatus(ctx, &weirv1.GetStatusRequest{})
	if e := nodetest.Refusal(err); e == nil || e.Metadata["node"] != "n1" || !strings.HasPrefix(e.Metadata["doing"], "it has no group yet") ||
		!strings.HasPrefix(e.Metadata["node-2"], "n3:7712 does not answer: ") {
		t.Errorf("in parts it says %v", e)
	}
	if nodetest.Reason(err) != dataflow.ReasonNodeNotReady || !strings.Contains(err.Error(), "n3:7712 does not answer") {
		t.Errorf("GetStatus: %v", err)
	}
	health := healthpb.NewHealthClient(conn)
	for service, want := range map[string]healthpb.HealthCheckResponse_ServingStatus{
		"": healthpb.HealthCheckResponse_SERVING, "weir.v1.IngestService": healthpb.HealthCheckResponse_NOT_SERVING,
	} {
		if r, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: service}); err != nil || r.GetStatus() != want {
			t.Errorf("health of %q: %v, %v", service, r, err)
		}
	}
	redis, err := net.Dial("tcp", respAddr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := redis.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(redis); err != nil || !strings.HasPrefix(string(said), "-LOADING node n1 does not serve yet") {
		t.Errorf("PING: %q, %v", said, err)
	}
	stop()
	if err := <-opened; err == nil {
		t.Error("the node opened without its group")
	}
}

// TestANodeWithoutAMajoritySaysWhichLogsHaveNoLeader stops two nodes of three while the third serves.
func TestANodeWithoutAMajoritySaysWhichLogsHaveNoLeader(t *testing.T) {
	t.Parallel()
	g := nodetest.OpenGroup(t, 3, nodetest.Options{Shards: 1})
	n := g.Node(1)
	if code, _, body := n.HTTP(http.MethodGet, "/readyz", "", nil); code != http.StatusOK {
		t.Fatalf("/readyz: %d %s", code, body)
	}
	g.Kill(nodetest.LoseUnsynced, 2, 3)
	eventually(t, func() string {
		code, _, body := n.HTTP(http.MethodGet, "/readyz", "", nil)
		if code == http.StatusServiceUnavailable && strings.Contains(body, "meta, shard-0: has no leader") && strings.Contains(body, "node n2 (n2:7712) does not answer") {
			return ""
		}
		return body
	})
	if code, _, body := n.HTTP(http.MethodGet, "/readyz/reads", "", nil); code != http.StatusOK {
		t.Errorf("/readyz/reads: %d %s", code, body)
	}
	health := healthpb.NewHealthClient(n.Conn())
	for service, want := range map[string]healthpb.HealthCheckResponse_ServingStatus{
		"weir.v1.QueryService": healthpb.HealthCheckResponse_SERVING, "weir.v1.IngestService": healthpb.HealthCheckResponse_NOT_SERVING,
	} {
		if r, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service}); err != nil || r.GetStatus() != want {
			t.Errorf("health of %q: %v, %v", service, r, err)
		}
	}
	g.Start(2, 3)
	eventually(t, func() string {
		if code, _, body := n.HTTP(http.MethodGet, "/readyz", "", nil); code != http.StatusOK {
			return body
		}
		return ""
	})
}
