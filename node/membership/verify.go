package membership

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	peerv1 "github.com/weirdb/weir/proto/weir/peer/v1"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// verifyLease keeps the cut that is compared.
const verifyLease = 10 * time.Minute

// Verifier compares what the nodes of a group hold.
type Verifier struct {
	Node   string // this one
	Meta   *meta.Log
	Digest Digest
	// Ask and Condemn are Config's. A node that has no others needs neither.
	Ask     func(node string) (peerv1.NodeServiceClient, error)
	Condemn func(shard dataflow.ShardID, why error) error
}

// Verify compares what the nodes hold of pipelines at their newest cuts; no names = of all. Of a node that has no others all is
// read, which finds damage, and compared with nothing: a commit has the digests of deltas, not of states.
func (v *Verifier) Verify(ctx context.Context, names []string) ([]*weirv1.Verified, error) {
	if err := v.Meta.Barrier(ctx); err != nil {
		return nil, err
	}
	st := v.Meta.State()
	pipelines := st.PipelineList()
	if len(names) > 0 {
		pipelines = pipelines[:0:0]
		for _, n := range names {
			p, err := st.Pipeline(n)
			if err != nil {
				return nil, err
			}
			pipelines = append(pipelines, p)
		}
	}
	members := st.InMembers()
	if len(members) == 0 {
		members = []meta.Member{{ID: v.Node}}
	}
	silent := v.silent(ctx, members)
	var out []*weirv1.Verified
	for _, p := range pipelines {
		vs, err := v.verify(ctx, st, p, members, silent)
		if err != nil {
			return nil, err
		}
		out = append(out, vs...)
	}
	return out, nil
}

func (v *Verifier) verify(ctx context.Context, st *meta.State, p *meta.Pipeline, members []meta.Member, silent map[string]error) ([]*weirv1.Verified, error) {
	cut := p.Newest().ID
	lease, err := v.Meta.Lease(ctx, p.UID, cut, verifyLease)
	if err != nil {
		return nil, err
	}
	defer func() {
		// One that is not released ends by itself.
		_ = v.Meta.ReleaseLease(context.WithoutCancel(ctx), p.UID, lease.ID)
	}()
	out := make([]*weirv1.Verified, st.Shards)
	for shard := range out {
		one := &weirv1.Verified{Pipeline: p.Name, Shard: uint32(shard), Checkpoint: uint64(cut)}
		one.Replicas = v.digests(ctx, members, silent, p.UID, dataflow.ShardID(shard), cut)
		one.Equal, one.Complete = compare(one.Replicas)
		for _, r := range outliers(one.Replicas) {
			var err error
			if r.Rebuilds, err = v.tellDoubt(ctx, r.Node, p.UID, dataflow.ShardID(shard), cut); err != nil {
				r.Problem = "it differs, and is not rebuilt: " + status.Convert(err).Message()
			}
		}
		out[shard] = one
	}
	return out, nil
}

// silent returns the members that do not answer, and why. A connection that has just failed is not tried again at once by itself, as when the
// other node has begun a moment later than this one; so each is waited for.
func (v *Verifier) silent(ctx context.Context, members []meta.Member) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var mu sync.Mutex
	silent := make(map[string]error)
	var g sync.WaitGroup
	for _, member := range members {
		if member.ID == v.Node {
			continue
		}
		g.Go(func() {
			c, err := v.Ask(member.ID)
			if err == nil {
				_, err = c.GetNodeStatus(ctx, &peerv1.GetNodeStatusRequest{}, grpc.WaitForReady(true))
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				silent[member.ID] = err
			}
		})
	}
	g.Wait()
	return silent
}

// digests returns what each member holds that is not silent.
func (v *Verifier) digests(ctx context.Context, members []meta.Member, silent map[string]error, uid dataflow.PipelineUID, shard dataflow.ShardID, cut dataflow.CheckpointID) []*weirv1.Replica {
	replicas := make([]*weirv1.Replica, len(members))
	var g sync.WaitGroup
	for i, member := range members {
		g.Go(func() {
			r := &weirv1.Replica{Node: member.ID}
			replicas[i] = r
			err := silent[member.ID]
			if err == nil {
				r.Digest, r.Keys, err = v.digest(ctx, member.ID, uid, shard, cut)
			}
			if err != nil {
				r.Reason, r.Problem = silence(err)
			}
		})
	}
	g.Wait()
	return replicas
}

// compare reports whether the nodes that answered hold the same, and whether all have answered.
func compare(replicas []*weirv1.Replica) (equal, complete bool) {
	complete = true
	var first *weirv1.Replica
	for _, r := range replicas {
		switch {
		case r.Reason != "":
			complete = false
		case first == nil:
			first, equal = r, true
		case r.Digest != first.Digest || r.Keys != first.Keys:
			equal = false
		}
	}
	return equal, complete
}

// outliers returns the replicas that differ from what a majority of all holds. Without such a majority nobody knows who is
// right, and there are none.
func outliers(replicas []*weirv1.Replica) (out []*weirv1.Replica) {
	type held struct{ digest, keys uint64 }
	count := make(map[held]int)
	for _, r := range replicas {
		if r.Reason == "" {
			count[held{r.Digest, r.Keys}]++
		}
	}
	for what, n := range count {
		if 2*n <= len(replicas) {
			continue
		}
		for _, r := range replicas {
			if r.Reason == "" && what != (held{r.Digest, r.Keys}) {
				out = append(out, r)
			}
		}
	}
	return out
}

// tellDoubt has a node look at its replica again.
func (v *Verifier) tellDoubt(ctx context.Context, node string, uid dataflow.PipelineUID, shard dataflow.ShardID, cut dataflow.CheckpointID) (rebuilds bool, err error) {
	if node == v.Node {
		return v.doubt(ctx, uid, shard, cut)
	}
	c, err := v.Ask(node)
	if err != nil {
		return false, err
	}
	res, err := c.DoubtReplica(ctx, &peerv1.DoubtReplicaRequest{Pipeline: uint64(uid), Shard: uint32(shard), Checkpoint: uint64(cut)})
	if err != nil {
		return false, err
	}
	return res.Rebuilds, nil
}

// doubt compares this node's replica with the others', by what they say themselves, and condemns it when a majority agrees on
// something else.
func (v *Verifier) doubt(ctx context.Context, uid dataflow.PipelineUID, shard dataflow.ShardID, cut dataflow.CheckpointID) (rebuilds bool, err error) {
	members := v.Meta.State().InMembers()
	for _, r := range outliers(v.digests(ctx, members, v.silent(ctx, members), uid, shard, cut)) {
		if r.Node == v.Node {
			return true, v.Condemn(shard, dataflow.Errorf(dataflow.ReasonCorrupt,
				"the state of shard %d differs from what a majority of the nodes hold of pipeline %d at checkpoint %d", shard, uid, cut))
		}
	}
	return false, nil
}

func (v *Verifier) digest(ctx context.Context, node string, uid dataflow.PipelineUID, shard dataflow.ShardID, cut dataflow.CheckpointID) (digest, keys uint64, err error) {
	if node == v.Node {
		if digest, keys, err = v.Digest(ctx, uid, shard, cut); err != nil {
			return 0, 0, refusal(err)
		}
		return digest, keys, nil
	}
	c, err := v.Ask(node)
	if err != nil {
		return 0, 0, err
	}
	res, err := c.DigestReplica(ctx, &peerv1.DigestReplicaRequest{Pipeline: uint64(uid), Shard: uint32(shard), Checkpoint: uint64(cut)})
	if err != nil {
		return 0, 0, err
	}
	return res.Digest, res.Keys, nil
}

// refusal is an error of this node as other nodes get it.
func refusal(err error) error {
	var e *dataflow.Error
	if errors.As(err, &e) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromProto(wire.Status(err, nil)).Err()
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

// silence says why a node has given no digest.
func silence(err error) (reason, problem string) {
	st := status.Convert(err)
	if e, _, ok := wire.ErrorOf(st.Proto()); ok {
		return string(e.Reason), st.Message()
	}
	if st.Code() == codes.FailedPrecondition {
		return string(dataflow.ReasonInternal), st.Message()
	}
	return string(dataflow.ReasonNodeUnreachable), "it does not answer: " + st.Message()
}
