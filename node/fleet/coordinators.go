package fleet

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/leader"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
)

// Coordinators asks the coordinators of the group, which are on the node that leads the meta log.
type Coordinators struct {
	fleet *Fleet
	here  *leader.Driver // this node's, which works while it leads

	telling chan struct{} // a place for each that is being told something
	told    sync.WaitGroup
}

// NewCoordinators returns Coordinators of which those on this node are here's.
func NewCoordinators(f *Fleet, here *leader.Driver) *Coordinators {
	return &Coordinators{fleet: f, here: here, telling: make(chan struct{}, tellAtOnce)}
}

// Register adds the service that other nodes call.
func (c *Coordinators) Register(r grpc.ServiceRegistrar) {
	peerv1.RegisterCoordinatorServiceServer(r, &coordinatorServer{c: c})
}

// elsewhere returns the client of the node that leads the meta log; nil when that is this one, or none is known: then this
// node's own driver says so.
func (c *Coordinators) elsewhere() (peerv1.CoordinatorServiceClient, string, error) {
	node := c.fleet.cfg.MetaLeader()
	if node == "" || node == c.fleet.cfg.Node {
		return nil, "", nil
	}
	conn, err := c.fleet.cfg.Conn(node)
	if err != nil {
		return nil, node, err
	}
	return peerv1.NewCoordinatorServiceClient(conn), node, nil
}

// Trigger asks for a checkpoint that covers what the tasks have read before the call, and waits for its commit. When it
// returns, this node knows of the commit.
func (c *Coordinators) Trigger(ctx context.Context, uid dataflow.PipelineUID) (dataflow.CheckpointID, error) {
	client, node, err := c.elsewhere()
	if err != nil {
		return 0, err
	}
	if client == nil {
		return c.here.Trigger(ctx, uid)
	}
	res, err := client.TriggerCheckpoint(ctx, &peerv1.TriggerCheckpointRequest{Pipeline: uint64(uid), Wait: true})
	if err != nil {
		return 0, c.failed(node, err)
	}
	if res.Problem != nil {
		return 0, decodeProblem(node, res.Problem)
	}
	return dataflow.CheckpointID(res.Checkpoint), c.fleet.cfg.Meta.Barrier(ctx)
}

// Hold is leader.Driver's. Only the node that leads the meta log moves leads, so no other is asked.
func (c *Coordinators) Hold(ctx context.Context, uid dataflow.PipelineUID) error {
	return c.here.Hold(ctx, uid)
}

// Request asks for a checkpoint and does not wait for it.
func (c *Coordinators) Request(ctx context.Context, uid dataflow.PipelineUID) error {
	client, node, err := c.elsewhere()
	if err != nil {
		return err
	}
	if client == nil {
		return c.here.Request(ctx, uid)
	}
	res, err := client.TriggerCheckpoint(ctx, &peerv1.TriggerCheckpointRequest{Pipeline: uint64(uid)})
	if err != nil {
		return c.failed(node, err)
	}
	return decodeProblem(node, res.Problem)
}

// tellTime bounds what is said to another node without waiting for an answer.
const tellTime = 2 * time.Second

// WantRoom says that a stream which the pipeline reads refuses rows until the pipeline's next checkpoint. It does not wait.
func (c *Coordinators) WantRoom(uid dataflow.PipelineUID) {
	client, node, err := c.elsewhere()
	if err == nil && client == nil {
		c.here.WantRoom(uid)
		return
	}
	c.tell(node, err, func(ctx context.Context) error {
		_, err := client.WantRoom(ctx, &peerv1.WantRoomRequest{Pipeline: uint64(uid)})
		return err
	})
}

// Fail ends the tasks of an incarnation as if one of them had failed, for demonstrations and tests.
func (c *Coordinators) Fail(uid dataflow.PipelineUID, inc dataflow.Incarnation, cause string) {
	client, node, err := c.elsewhere()
	if err == nil && client == nil {
		c.here.Fail(uid, inc, cause)
		return
	}
	c.tell(node, err, func(ctx context.Context) error {
		_, err := client.FailTasks(ctx, &peerv1.FailTasksRequest{Pipeline: uint64(uid), Incarnation: uint64(inc), Cause: cause})
		return err
	})
}

// tellAtOnce bounds what is being said. What comes beyond that is not said: it would be said again.
const tellAtOnce = 16

// tell says something to another node, in the background.
func (c *Coordinators) tell(node string, err error, say func(context.Context) error) {
	if err != nil {
		return
	}
	select {
	case c.telling <- struct{}{}:
	default:
		return
	}
	c.told.Go(func() {
		defer func() { <-c.telling }()
		ctx, cancel := context.WithTimeout(context.Background(), tellTime)
		defer cancel()
		if err := say(ctx); err != nil {
			c.fleet.cfg.Logger.Debug("tell the coordinator", "node", node, "error", err)
		}
	})
}

// Close waits for what is being said.
func (c *Coordinators) Close() { c.told.Wait() }

// failed is the answer when the coordinator's node did not give one: whether it heard the request is not known, but a
// checkpoint more or less changes no answer, so asking again is safe.
func (c *Coordinators) failed(node string, err error) error {
	return dataflow.Errorf(dataflow.ReasonNotLeader, "node %s, which coordinates, did not answer: %w", node, err).WithRetry(ownersEvery * 10)
}

type coordinatorServer struct {
	peerv1.UnimplementedCoordinatorServiceServer
	c *Coordinators
}

// TriggerCheckpoint implements peerv1.CoordinatorServiceServer.
func (s *coordinatorServer) TriggerCheckpoint(ctx context.Context, req *peerv1.TriggerCheckpointRequest) (*peerv1.TriggerCheckpointResponse, error) {
	uid := dataflow.PipelineUID(req.Pipeline)
	if !req.Wait {
		return &peerv1.TriggerCheckpointResponse{Problem: encodeProblem(s.c.here.Request(ctx, uid))}, nil
	}
	id, err := s.c.here.Trigger(ctx, uid)
	return &peerv1.TriggerCheckpointResponse{Checkpoint: uint64(id), Problem: encodeProblem(err)}, nil
}

// WantRoom implements peerv1.CoordinatorServiceServer.
func (s *coordinatorServer) WantRoom(_ context.Context, req *peerv1.WantRoomRequest) (*peerv1.WantRoomResponse, error) {
	s.c.here.WantRoom(dataflow.PipelineUID(req.Pipeline))
	return &peerv1.WantRoomResponse{}, nil
}

// FailTasks implements peerv1.CoordinatorServiceServer.
func (s *coordinatorServer) FailTasks(_ context.Context, req *peerv1.FailTasksRequest) (*peerv1.FailTasksResponse, error) {
	s.c.here.Fail(dataflow.PipelineUID(req.Pipeline), dataflow.Incarnation(req.Incarnation), req.Cause)
	return &peerv1.FailTasksResponse{}, nil
}
