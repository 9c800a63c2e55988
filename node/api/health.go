package api

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// healthPoll is how often Watch looks. Load balancers act on seconds.
const healthPoll = time.Second

// healthService implements grpc.health.v1. The service "" is the process: it serves as long as it answers. The query
// service is ready when there is a committed cut to serve, or no pipeline; those that take rows and commands when all logs have
// a leader; the cluster's as soon as the node has started.
type healthService struct {
	healthpb.UnimplementedHealthServer
	ready func(context.Context) error
	led   func() bool
	// refuses is set while the node starts: the process is alive, and no service serves.
	refuses bool
	// stopped, if set, ends what is watched.
	stopped <-chan struct{}
}

func healthServices() []string {
	return []string{"", weirv1.IngestService_ServiceDesc.ServiceName, weirv1.QueryService_ServiceDesc.ServiceName,
		weirv1.PipelineService_ServiceDesc.ServiceName, weirv1.ClusterService_ServiceDesc.ServiceName}
}

func (h *healthService) statusOf(ctx context.Context, service string) healthpb.HealthCheckResponse_ServingStatus {
	for _, s := range healthServices() {
		if s != service {
			continue
		}
		if h.refuses && s != "" || !h.refuses && !h.serves(ctx, s) {
			return healthpb.HealthCheckResponse_NOT_SERVING
		}
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
}

// serves reports whether a service of a node that has started does what it is for.
func (h *healthService) serves(ctx context.Context, service string) bool {
	switch service {
	case weirv1.QueryService_ServiceDesc.ServiceName:
		return h.ready(ctx) == nil
	case weirv1.IngestService_ServiceDesc.ServiceName, weirv1.PipelineService_ServiceDesc.ServiceName:
		return h.led()
	}
	return true
}

// Check implements healthpb.HealthServer.
func (h *healthService) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	st := h.statusOf(ctx, r.GetService())
	if st == healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &healthpb.HealthCheckResponse{Status: st}, nil
}

// List implements healthpb.HealthServer.
func (h *healthService) List(ctx context.Context, _ *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	m := &healthpb.HealthListResponse{Statuses: make(map[string]*healthpb.HealthCheckResponse)}
	for _, s := range healthServices() {
		m.Statuses[s] = &healthpb.HealthCheckResponse{Status: h.statusOf(ctx, s)}
	}
	return m, nil
}

// Watch implements healthpb.HealthServer: the state now, then each change.
func (h *healthService) Watch(r *healthpb.HealthCheckRequest, out healthpb.Health_WatchServer) error {
	tick := time.NewTicker(healthPoll)
	defer tick.Stop()
	last := healthpb.HealthCheckResponse_UNKNOWN
	for {
		if st := h.statusOf(out.Context(), r.GetService()); st != last {
			last = st
			if err := out.Send(&healthpb.HealthCheckResponse{Status: st}); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-h.stopped: // nil waits for ever
			return status.Error(codes.Unavailable, "the node begins to serve; watch again")
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		}
	}
}
