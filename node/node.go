package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/link"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/phase"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/catalog"
	"github.com/weirdb/weir/node/fleet"
	"github.com/weirdb/weir/node/gateway"
	"github.com/weirdb/weir/node/leader"
	"github.com/weirdb/weir/node/membership"
	"github.com/weirdb/weir/node/peer"
	"github.com/weirdb/weir/node/rebuild"
	"github.com/weirdb/weir/node/resp"
	"github.com/weirdb/weir/node/service"
	"github.com/weirdb/weir/node/worker"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
	"github.com/weirdb/weir/statequery"
)

// Node is a server, open. Run serves until its context ends; Close releases everything.
type Node struct {
	cfg     Config
	storage *storage
	worker  *worker.Worker
	leader  *leader.Driver
	links   *link.Hub // nil in a group of one node
	fleet   *fleet.Fleet
	asked   *fleet.Coordinators
	members *membership.Membership // nil in a group of one node
	others  *peer.Peers            // nil in a group of one node
	disk    *diskSpace
	memory  *state.Budget // of the live tables; nil = they have none
	queries *statequery.Engine
	grpc    *api.Server
	gateway *gateway.Gateway
	http    *http.Server
	resp    *resp.Server    // nil when it is off
	phases  *phase.Recorder // nil unless asked for

	grpcListener, httpListener net.Listener
	respListener               net.Listener // nil when it is off
}

// drainTime is how long calls under way may take to end when the node stops. Longer than an append or a query takes,
// shorter than what supervisors wait before they kill.
const drainTime = 5 * time.Second

// failedDrainTime is the same for a node that has failed, or has left its group: what is not answered by then waits for what does not
// come.
const failedDrainTime = 500 * time.Millisecond

// Open opens the data directory and listens. It may take long in a group of several, until the others answer; meanwhile clients are
// told what the node waits for (NODE_NOT_READY). Nothing is served before Run.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	cfg.EnsureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.breakClockAndDisk(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg}
	if cfg.PhaseFile != "" {
		if n.phases, err = phase.Open(cfg.PhaseFile); err != nil {
			return nil, err
		}
	}
	n.phases.Enter(phase.Restart)
	defer func() {
		n.phases.Leave(phase.Restart)
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	// Ports first: a taken one is the commonest mistake, and is reported before any data is touched.
	if n.grpcListener, err = net.Listen("tcp", cfg.GRPCAddr); err != nil {
		return nil, fmt.Errorf("listen for gRPC: %w", err)
	}
	if n.httpListener, err = net.Listen("tcp", cfg.HTTPAddr); err != nil {
		return nil, fmt.Errorf("listen for HTTP: %w", err)
	}
	if cfg.RESPAddr != "" {
		if n.respListener, err = net.Listen("tcp", cfg.RESPAddr); err != nil {
			return nil, fmt.Errorf("listen for Redis clients: %w", err)
		}
	}
	start := newStartup(cfg.NodeID)
	defer n.serveFront(start).close()
	if n.storage, err = openStorage(ctx, &cfg, n.phases, start); err != nil {
		return nil, err
	}
	return n, n.assemble()
}

// assemble passes the parts of the node to each other.
func (n *Node) assemble() error {
	cfg, st := n.cfg, n.storage
	group, err := st.groupID()
	if err != nil {
		return err
	}
	registry, figures := newRegistry()
	cat := catalog.New()
	n.memory = tableBudget(cfg.MemoryBytes)
	n.links = st.peers.links()
	n.worker = worker.New(worker.Config{Node: cfg.NodeID, Shards: st.shards, Links: n.links, Memory: n.memory, Meta: st.meta, Catalog: cat, Merge: cfg.Tuning.Merge, RetentionEvery: cfg.Tuning.RetentionEvery, Source: cfg.Source, Now: cfg.now, Phases: n.phases, Logger: cfg.Logger})
	n.fleet = fleet.New(fleet.Config{
		Node: cfg.NodeID, Meta: st.meta, Worker: n.worker, Shards: st.shards, Conn: n.connTo, MetaLeader: st.group.Leader, Logger: cfg.Logger,
		Moving: func() bool { return n.members != nil && n.members.Transferring() },
	})
	n.leader = leader.New(leader.Config{Meta: st.meta, Worker: n.fleet, Metrics: figures, Now: cfg.now, Phases: n.phases, Logger: cfg.Logger})
	n.asked = fleet.NewCoordinators(n.fleet, n.leader)
	n.disk = newDiskSpace(&cfg)
	var svc *service.Service
	alone := membership.Verifier{Node: cfg.NodeID, Meta: st.meta, Digest: n.digest}
	verify := alone.Verify
	if st.peers != nil {
		n.members = n.newMembership(func() *weirv1.NodeStatus { return svc.LocalStatus() })
		verify = n.members.Verify
	}
	sources := service.QuerySources{Meta: st.meta, Cat: cat, Worker: n.worker, Fleet: n.fleet, Shards: st.shards}
	reads := statequery.Config{
		Node: cfg.NodeID, Group: group, Shards: len(st.shards), Catalog: sources, Store: sources, Streams: sources, Leases: sources,
		TotalBytes: cfg.QueryMemoryBytes, MaxTime: cfg.Tuning.QueryTime, WatchBytes: cfg.WatchMemoryBytes, WatchRetained: cfg.WatchRetained,
		Now: cfg.now,
	}
	if st.peers != nil {
		reads.CatchUp, reads.Others, reads.Leads = n.catchUp, n.otherNodes, st.group.IsLeader
	}
	n.queries = statequery.New(reads)
	if err := registry.Register(newGauges(st.meta, n.worker, st.shards, n.disk, n.memory, n.queries, cfg.Clock)); err != nil {
		return err
	}
	var catchUp func(context.Context) error
	if st.peers != nil {
		catchUp = n.catchUp
	}
	var rebuilds func() []rebuild.Export
	if st.source != nil {
		rebuilds = st.source.Exports
	}
	svc = service.New(service.Config{
		Rebuilds: rebuilds, CatchUp: catchUp,
		Node: cfg.NodeID, Group: group, Meta: st.meta, Catalog: cat, Worker: n.worker, Shards: st.shards, Fleet: n.fleet, Leader: n.asked, Members: n.members, Verify: verify, Disk: n.disk.Usage, Version: cfg.Version,
		Queries: n.queries, MetaStatus: n.metaStatus, DiskRoom: n.disk.Room, StartedAt: cfg.now(), Now: cfg.now, AllowFaults: cfg.FaultInjection, Phases: n.phases, Logger: cfg.Logger,
	})
	if n.grpc, err = api.New(api.Config{
		Group: group, Version: buildVersion(cfg.Version), Logger: cfg.Logger, Metrics: registry,
		Reflection: cfg.Reflection, FaultInjection: cfg.FaultInjection, Led: func() bool { return len(n.leaderless()) == 0 },
	}, svc.Backends()); err != nil {
		return err
	}
	n.gateway, err = gateway.Open(gateway.Config{Serve: n.grpc.Serve, Ready: n.ready(svc.Ready), ReadyForReads: svc.Ready, Metrics: registry, Logger: cfg.Logger})
	if err != nil {
		return err
	}
	n.http = n.gateway.Server()
	if n.respListener != nil {
		n.resp = resp.New(resp.Config{
			Backend: respBackend{engine: n.queries, service: svc, group: group}, Version: cfg.Version, Logger: cfg.Logger,
		})
	}
	return n.serveNodes()
}

// serveNodes answers other nodes from now on.
func (n *Node) serveNodes() (err error) {
	if n.storage.peers == nil {
		return nil
	}
	if err := n.storage.peers.serveLinks(n.links); err != nil {
		return err
	}
	// A live read may be as large as a query's memory.
	n.others, err = peer.Open(peer.Config{Net: n.storage.peers.net, Service: serviceTasks, MaxMessageBytes: math.MaxInt32, Register: func(r grpc.ServiceRegistrar) {
		n.fleet.Register(r)
		n.asked.Register(r)
		n.members.Register(r)
	}})
	return err
}

// connTo returns the connection to another node.
func (n *Node) connTo(node string) (grpc.ClientConnInterface, error) {
	if n.others == nil {
		return nil, dataflow.Errorf(dataflow.ReasonUnreachable, "node %s: this node's group has no other", node)
	}
	return n.others.Conn(node)
}

func (n *Node) metaStatus() api.RaftLog {
	g := n.storage.group
	s := g.Stats()
	l := api.RaftLog{Group: "meta", Leader: g.Leader(), Term: s.Term, Applied: s.AppliedIndex, Last: s.LastIndex, Snapshot: s.SnapshotIndex}
	if members, err := g.Members(); err == nil { // it fails only while the log is being closed
		for _, m := range members {
			l.AddMember(m.ID, m.Voter)
		}
	}
	l.Follows(n.cfg.NodeID)
	switch s.State {
	case "Leader":
		l.Role = api.RoleLeader
	case "Candidate":
		l.Role = api.RoleCandidate
	}
	return l
}

// buildVersion says what this binary is.
func buildVersion(version string) api.Version {
	v := api.Version{Version: version}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}

// GRPCAddr and HTTPAddr return where the node listens.
func (n *Node) GRPCAddr() string { return n.grpcListener.Addr().String() }

// HTTPAddr returns where the node listens for HTTP.
func (n *Node) HTTPAddr() string { return n.httpListener.Addr().String() }

// RESPAddr returns where the node listens for Redis clients; "" when it does not.
func (n *Node) RESPAddr() string {
	if n.respListener == nil {
		return ""
	}
	return n.respListener.Addr().String()
}

// Run serves until ctx ends or a part fails, then drains: it hands over what it leads, stops taking calls, and ends the tasks
// last, so that calls under way still find what they read. Close must follow. A *Restart in the error asks for the node to be
// opened again.
func (n *Node) Run(ctx context.Context) error {
	// The servers outlive ctx by the drain; the loops outlive the servers.
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	g, loops := errgroup.WithContext(loops)
	g.Go(func() error { return n.worker.Run(loops) })
	g.Go(func() error { return n.lead(loops) })
	g.Go(func() error { return n.fleet.Watch(loops) })
	if n.members != nil {
		g.Go(func() error { return n.members.Run(loops) })
		g.Go(func() error { return n.storage.tend(loops, &n.cfg) })
		g.Go(func() error { return n.storage.peers.belong(loops, n.storage.group) })
		g.Go(func() error { return n.storage.peers.keepBook(loops, n.storage.meta) })
	}
	g.Go(func() error { return explain(n.cfg.DataDir, n.storage.watch(loops, &n.cfg)) })
	g.Go(func() error { return n.disk.Run(loops) })
	g.Go(func() error { return n.relieve(loops) })
	var servers errgroup.Group
	failed := make(chan error, 3)
	servers.Go(func() error {
		if err := n.grpc.Serve(n.grpcListener); err != nil {
			failed <- fmt.Errorf("serve gRPC: %w", err)
		}
		return nil
	})
	servers.Go(func() error {
		if err := n.http.Serve(n.httpListener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
	if n.resp != nil {
		servers.Go(func() error {
			if err := n.resp.Serve(n.respListener); err != nil {
				failed <- fmt.Errorf("serve Redis clients: %w", err)
			}
			return nil
		})
	}
	n.cfg.Logger.Info("serving", slog.String("grpc", n.GRPCAddr()), slog.String("http", n.HTTPAddr()), slog.String("resp", n.RESPAddr()), slog.String("data", n.cfg.DataDir))
	var err error
	patience := drainTime
	select {
	case <-ctx.Done():
		n.giveLeads(ctx)
		n.handOver(ctx)
	case <-loops.Done(): // a loop failed: its error is below
		if r := new(Restart); errors.As(context.Cause(loops), &r) {
			n.handOver(ctx)
		} else {
			patience = failedDrainTime
		}
	case err = <-failed:
	}
	n.drain(ctx, patience)
	_ = servers.Wait() // its functions return nil
	stopLoops()
	if lerr := g.Wait(); lerr != nil && !errors.Is(lerr, context.Canceled) {
		err = errors.Join(err, lerr)
	}
	return err
}

// drain stops the servers: HTTP first, since its calls go through gRPC. Watches and streams of appends never end by
// themselves, so they are ended before. What is under way after patience is cut off.
func (n *Node) drain(ctx context.Context, patience time.Duration) {
	n.grpc.EndAppends()
	n.queries.EndWatches()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := n.http.Shutdown(ctx); err != nil {
		_ = n.http.Close() // what is left is cut off
	}
	if n.resp != nil {
		n.resp.Stop(ctx)
	}
	n.grpc.Stop(ctx)
}

// Close releases everything, in the reverse order of Open: the gateway's connection, the tasks, then the storage. It is
// called after Run, or instead of it.
func (n *Node) Close() error {
	var errs []error
	if n.gateway != nil {
		errs = append(errs, n.gateway.Close())
	}
	if n.grpc != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.grpc.Stop(ctx) // at once, when Run has not done it
	}
	if n.gateway != nil {
		n.gateway.Wait()
	}
	if n.resp != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.resp.Stop(ctx) // the same
	}
	for _, l := range []net.Listener{n.grpcListener, n.httpListener, n.respListener} {
		if l != nil {
			if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	if n.queries != nil {
		n.queries.EndWatches() // when Run has not done it: their followers read the storage
	}
	if n.others != nil {
		errs = append(errs, n.others.Close())
	}
	if n.asked != nil {
		n.asked.Close()
	}
	if n.worker != nil {
		n.worker.StopAll()
	}
	if n.links != nil {
		errs = append(errs, n.links.Close())
	}
	if n.storage != nil {
		errs = append(errs, n.storage.close())
	}
	return errors.Join(errs...)
}
