package node

import (
	"context"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pace"
	"github.com/weirdb/weir/node/membership"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
	"github.com/weirdb/weir/raftlog"
)

// newMembership passes the node's logs to what keeps their members. local shows this node.
func (n *Node) newMembership(local func() *weirv1.NodeStatus) *membership.Membership {
	st := n.storage
	self := st.peers.report().Member
	self.GRPCAddr, self.HTTPAddr = n.cfg.advertised(n.GRPCAddr()), n.cfg.advertised(n.HTTPAddr())
	cfg := membership.Config{
		Self: self, Meta: st.meta, MetaLog: memberLog{st.group}, Probe: st.peers.ask, Local: local, Logger: n.cfg.Logger, Digest: n.digest, Condemn: n.condemn,
		RepairAfter: n.cfg.Tuning.RepairAfter,
		Checkpoint: func(ctx context.Context, uid dataflow.PipelineUID, hold bool) error {
			if hold {
				return n.asked.Hold(ctx, uid)
			}
			_, err := n.asked.Trigger(ctx, uid)
			return err
		},
		Ask: func(node string) (peerv1.NodeServiceClient, error) {
			conn, err := n.connTo(node)
			if err != nil {
				return nil, err
			}
			return peerv1.NewNodeServiceClient(conn), nil
		},
	}
	for _, sh := range st.shards {
		cfg.Shards = append(cfg.Shards, memberLog{sh.Log.Group()})
	}
	return membership.New(cfg)
}

// digest is what this node holds of a pipeline on a shard at a cut, in one number.
func (n *Node) digest(ctx context.Context, uid dataflow.PipelineUID, shard dataflow.ShardID, cut dataflow.CheckpointID) (digest, keys uint64, err error) {
	v, err := n.worker.View(ctx, shard, uid, cut) // waits until it is there
	if err != nil {
		return 0, 0, err
	}
	defer v.Release()
	d, err := n.storage.shards[shard].Replica.Digest(ctx, uid, cut, pace.NewLimiter(digestRate))
	return d.Sum, uint64(d.Entries), err
}

// condemn has the replica of a shard rebuilt.
func (n *Node) condemn(shard dataflow.ShardID, why error) error {
	m, err := n.storage.newMender(&n.cfg, shard)
	if err != nil {
		return err
	}
	if err := m.condemn(why); err != nil {
		return err
	}
	select {
	case n.storage.due <- &Restart{Why: why.Error()}:
	default: // a restart is due already
	}
	return nil
}

// digestRate bounds how many bytes of state a comparison reads in a second: it goes on beside everything else.
const digestRate = 64 << 20

// memberLog is a log as membership.Log.
type memberLog struct{ *raftlog.Group }

var _ membership.Log = memberLog{}

// awayAfter is how long a member is not heard of before its leader counts it as away.
const awayAfter = 3 * time.Second

// lag is how many entries a member may lack that counts as having caught up: some milliseconds of a busy log.
const lag = 1000

// Servers implements membership.Log.
func (l memberLog) Servers() ([]membership.Server, error) {
	ms, err := l.Members()
	if err != nil {
		return nil, err
	}
	var most dataflow.LogIndex
	for _, m := range ms {
		most = max(most, m.Match)
	}
	out := make([]membership.Server, 0, len(ms))
	for _, m := range ms {
		out = append(out, membership.Server{
			ID: m.ID, Voter: m.Voter, CaughtUp: m.Match > 0 && m.Match+lag >= most, Away: time.Since(m.LastContact) >= awayAfter, Heard: m.LastContact,
		})
	}
	return out, nil
}

// AddNonvoter implements membership.Log.
func (l memberLog) AddNonvoter(ctx context.Context, node string) error {
	return l.Group.AddNonvoter(ctx, raftlog.Member{ID: node})
}

// AddVoter implements membership.Log.
func (l memberLog) AddVoter(ctx context.Context, node string) error {
	return l.Group.AddVoter(ctx, raftlog.Member{ID: node})
}

// TransferLead implements membership.Log.
func (l memberLog) TransferLead(ctx context.Context, to string) error { return l.Transfer(ctx, to) }
