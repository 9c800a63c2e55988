package node_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestBadCallsEndThemselvesAlone(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	raw := func(method string, message []byte, opts ...grpc.CallOption) func(context.Context) error {
		return func(ctx context.Context) error {
			var out []byte
			return v.Conn().Invoke(ctx, method, message, &out, append(opts, grpc.ForceCodec(bytesCodec{}))...)
		}
	}
	wantCode := func(f func(context.Context) error, want ...codes.Code) func(context.Context) error {
		return func(ctx context.Context) error {
			err := f(ctx)
			for _, c := range want {
				if status.Code(err) == c {
					return nil
				}
			}
			return fmt.Errorf("want %v, got %w", want, err)
		}
	}
	const appendMethod = "/weir.v1.IngestService/Append"
	var nested []byte // groups within groups
	for range 20_000 {
		nested = protowire.AppendTag(nested, 99, protowire.StartGroupType)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	header := func(name, value string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := v.Cluster().GetVersion(metadata.AppendToOutgoingContext(ctx, name, value), &weirv1.GetVersionRequest{})
			return err
		}
	}
	v.run([]badCall{
		{"bytes that are no message", wantCode(raw(appendMethod, noise), codes.Internal, codes.InvalidArgument), reasons("")},
		{"a message that is cut short", wantCode(raw(appendMethod, []byte{0x0a, 0x7f, 'x'}), codes.Internal, codes.InvalidArgument), reasons("")},
		{"20,000 groups", wantCode(raw(appendMethod, nested), codes.Internal, codes.InvalidArgument), reasons("")},
		{"unknown fields", wantCode(raw("/weir.v1.ClusterService/GetVersion", protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "x")), codes.OK), reasons("")},
		{"an unknown method", wantCode(raw("/weir.v1.IngestService/Nothing", nil), codes.Unimplemented), reasons("")},
		{"an unknown service", wantCode(raw("/nothing.v1.Nothing/Nothing", nil), codes.Unimplemented), reasons("")},
		{"a message over the limit", wantCode(raw(appendMethod, make([]byte, 20<<20)), codes.ResourceExhausted), reasons("")},
		{"a header of a megabyte", wantCode(header("x-large", strings.Repeat("h", 1<<20)), codes.Internal, codes.Unavailable, codes.ResourceExhausted, codes.Unknown), reasons("")},
		{"a forged deadline", wantCode(header("grpc-timeout-x", "99999999H"), codes.OK), reasons("")},
		{"reflection, which is off", wantCode(func(ctx context.Context) error {
			call, err := reflectionpb.NewServerReflectionClient(v.Conn()).ServerReflectionInfo(ctx)
			if err != nil {
				return err
			}
			_, err = call.Recv()
			return err
		}, codes.Unimplemented), reasons("")},
		{"ten thousand headers", wantCode(func(ctx context.Context) error {
			var pairs []string
			for i := range 10_000 {
				pairs = append(pairs, fmt.Sprintf("x-%d", i), "v")
			}
			_, err := v.Cluster().GetVersion(metadata.AppendToOutgoingContext(ctx, pairs...), &weirv1.GetVersionRequest{})
			return err
		}, codes.Internal, codes.Unavailable, codes.ResourceExhausted, codes.Unknown), reasons("")},
	})

	t.Run("calls that are cancelled at once", func(t *testing.T) {
		for range 2000 {
			ctx, cancel := context.WithCancel(t.Context())
			call, err := v.Ingest().ReadStream(ctx, &weirv1.ReadStreamRequest{Stream: "s", Follow: true})
			cancel()
			if err == nil {
				_, err = call.Recv()
			}
			if status.Code(err) != codes.Canceled {
				t.Fatalf("got %v", err)
			}
		}
		v.probe("two thousand resets")
	})

	// Raw connections: what no client library sends.
	for name, c := range map[string]struct{ addr, text, want string }{
		"a path without a slash":                     {v.HTTPAddr(), "GET v1/pipelines HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
		"a path that climbs":                         {v.HTTPAddr(), "GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404"},
		"a broken escape":                            {v.HTTPAddr(), "GET /v1/pipelines/v/tables/by_k/rows/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "400"},
		"no host":                                    {v.HTTPAddr(), "GET /v1/pipelines HTTP/1.1\r\n\r\n", "400"},
		"a length that the body has not":             {v.HTTPAddr(), "POST /v1/streams/s:append HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"k\":\"a\"}", ""},
		"two lengths":                                {v.HTTPAddr(), "POST /v1/streams/s:append HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "400"},
		"a negative length":                          {v.HTTPAddr(), "POST /v1/streams/s:append HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"},
		"a chunk size that is none":                  {v.HTTPAddr(), "POST /v1/streams/s:append HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
		"a header of a megabyte over HTTP":           {v.HTTPAddr(), "GET /v1/pipelines HTTP/1.1\r\nHost: x\r\nX-Large: " + strings.Repeat("h", 1<<20) + "\r\n\r\n", "431"},
		"noise":                                      {v.HTTPAddr(), string(noise), "400"},
		"HTTP/1.1 on the gRPC port":                  {v.GRPCAddr(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""},
		"noise on the gRPC port":                     {v.GRPCAddr(), string(noise), ""},
		"half a preface":                             {v.GRPCAddr(), "PRI * HTTP/2.0\r\n\r\n", ""},
		"a frame of 16 MB":                           {v.GRPCAddr(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x01", ""},
		"a flood of pings":                           {v.GRPCAddr(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + strings.Repeat("\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping", 10_000), ""},
		"a flood of resets of calls that never were": {v.GRPCAddr(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + strings.Repeat("\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08", 10_000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer := talk(t, c.addr, c.text)
			if c.want != "" && !strings.HasPrefix(answer, "HTTP/1.1 "+c.want) && !strings.HasPrefix(answer, "HTTP/1.0 "+c.want) {
				t.Errorf("the answer is %.200q, want %s", answer, c.want)
			}
			v.probe(name)
		})
	}
	v.intact()
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }
func (bytesCodec) Name() string                    { return "proto" }

// talk sends text on a connection of its own, ends its sending side, and returns what comes back.
func talk(t *testing.T, addr, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() { // the server may stop reading before it has everything
		defer close(sent)
		_, _ = io.WriteString(conn, text)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	b, _ := io.ReadAll(conn) // a reset is an answer too
	<-sent
	return string(b)
}
