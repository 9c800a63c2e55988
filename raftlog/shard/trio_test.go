package shard

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
)

// trio is a shard's log with three members and real replicas, in one process over an in-memory network, and what is
// committed of its pipelines.
type trio struct {
	t       *testing.T
	rng     *rand.Rand
	nodes   [3]*trioNode
	pipes   []*trioPipeline
	nextUID dataflow.PipelineUID
	streams dataflow.StreamID
}

type trioNode struct {
	fs      vfs.FS
	up      bool
	trans   *raft.InmemTransport
	store   *logstore.Store
	replica *state.Replica
	log     *Log
}

// trioPipeline is a pipeline as its task and the meta log see it.
type trioPipeline struct {
	uid     dataflow.PipelineUID
	inc     dataflow.Incarnation
	seq     dataflow.DeltaSeq
	cuts    []*dataflow.CheckpointCommit // retained
	nextCut dataflow.CheckpointID
}

const (
	trioShard = dataflow.ShardID(3)
	trioDir   = "node/shards/0003"
	trioGroup = "shard-0003"
)

func newTrio(t *testing.T, seed uint64) *trio {
	c := &trio{t: t, rng: rand.New(rand.NewPCG(seed, 5)), nextUID: 1, streams: 1}
	for i := range c.nodes {
		c.nodes[i] = &trioNode{fs: vfs.NewCrashableMem()}
		c.start(i)
	}
	c.deploy()
	return c
}

func (c *trio) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *trio) ctx() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), 60*time.Second)
	c.t.Cleanup(cancel)
	return ctx
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func openTrioStore(fs vfs.FS) (*logstore.Store, error) {
	return logstore.Open(fs, "node/log", logstore.Options{SegmentBytes: 64 << 10})
}

func openTrioState(fs vfs.FS) (*state.Replica, error) {
	return state.OpenReplica(state.Config{FS: fs, Dir: trioDir + "/state", Shard: trioShard, Logger: discard()})
}

// start opens a member, and tells its replica of the retained cuts as a node does.
func (c *trio) start(i int) {
	c.t.Helper()
	n := c.nodes[i]
	members := []raftlog.Member{{ID: "n0", Addr: "a0"}, {ID: "n1", Addr: "a1"}, {ID: "n2", Addr: "a2"}}
	_, n.trans = raft.NewInmemTransportWithTimeout(raft.ServerAddress(members[i].Addr), 500*time.Millisecond)
	for _, o := range c.nodes {
		if o != nil && o != n && o.up {
			n.trans.Connect(o.trans.LocalAddr(), o.trans)
			o.trans.Connect(n.trans.LocalAddr(), n.trans)
		}
	}
	var err error
	n.store, err = openTrioStore(n.fs)
	c.must(err)
	n.replica, err = openTrioState(n.fs)
	c.must(err)
	g, err := n.store.Group(trioGroup)
	c.must(err)
	n.log, err = Open(Config{
		Shard: trioShard, Store: g, Replica: n.replica, SnapshotBytes: -1, CacheBytes: -1, Logger: discard(),
		Raft: raftlog.Config{
			NodeID: members[i].ID, Members: members, Transport: n.trans, FS: n.fs, Dir: trioDir, TrailingBytes: 128 << 10,
			ElectionTimeout: time.Second,
		},
	})
	c.must(err)
	n.up = true
	for _, p := range c.pipes {
		for _, k := range p.cuts {
			c.must(n.replica.Publish(k))
		}
	}
}

func (c *trio) stop(i int) {
	c.t.Helper()
	n := c.nodes[i]
	for _, o := range c.nodes {
		if o != n && o.up {
			o.trans.Disconnect(n.trans.LocalAddr())
		}
	}
	n.up = false
	c.must(n.log.Close())
	c.must(n.replica.Close())
	c.must(n.store.Close())
}

func (c *trio) close() {
	for i, n := range c.nodes {
		if n.up {
			c.stop(i)
		}
	}
}

// leader waits until a member leads.
func (c *trio) leader() *trioNode {
	c.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := c.ctx(); ; {
		for _, n := range c.nodes {
			if n.up && n.log.IsLeader() && n.log.Barrier(ctx) == nil {
				return n
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Fatal("nobody leads")
		}
	}
}

// caughtUp waits until all that run have applied what the leader has.
func (c *trio) caughtUp() {
	c.t.Helper()
	ctx := c.ctx()
	want := c.leader().log.AppliedIndex()
	for i, n := range c.nodes {
		for n.up {
			changed := n.log.Changed()
			if n.log.AppliedIndex() >= want {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				c.t.Fatalf("member %d is at index %d, not %d: %v", i, n.log.AppliedIndex(), want, n.log.frozen)
			}
		}
	}
}

func (c *trio) deploy() {
	p := &trioPipeline{uid: c.nextUID, inc: 1, nextCut: 1}
	c.nextUID++
	c.must(c.leader().log.BeginIncarnation(c.ctx(), p.uid, 1, dataflow.DeltaRef{}))
	c.pipes = append(c.pipes, p)
}

func (p *trioPipeline) at(k *dataflow.CheckpointCommit) dataflow.DeltaRef {
	return dataflow.DeltaRef{Incarnation: k.Incarnation, Seq: k.Shard(trioShard).Seq}
}

// change writes a delta, and mostly commits a cut of it.
func (c *trio) change(p *trioPipeline, keys int) {
	l := c.leader().log
	w := state.NewDeltaWriter()
	have := map[int]bool{}
	for range keys {
		k := c.rng.IntN(60)
		if have[k] {
			continue
		}
		have[k] = true
		var val []byte
		if c.rng.IntN(4) > 0 {
			val = bytes.Repeat(fmt.Appendf(nil, "v%d", c.rng.IntN(1000)), 1+c.rng.IntN(20))
		}
		w.Add(dataflow.StageID(k%2), fmt.Appendf(nil, "key%d", k), val)
	}
	id := dataflow.DeltaID{Pipeline: p.uid, Incarnation: p.inc, Seq: p.seq + 1}
	n, digest, err := w.Finish(func(i int, data []byte) error { return l.AppendDelta(c.ctx(), id, i, data) })
	c.must(err)
	_, err = l.EndDelta(c.ctx(), id, n, uint64(digest))
	c.must(err)
	p.seq++
	if c.rng.IntN(5) == 0 {
		return
	}
	k := &dataflow.CheckpointCommit{
		Pipeline: p.uid, Timeline: 1, Incarnation: p.inc, ID: p.nextCut, MetaIndex: dataflow.LogIndex(p.nextCut),
		Shards: []dataflow.ShardCommit{{Shard: trioShard, Seq: p.seq, Digest: uint64(digest)}},
	}
	p.nextCut++
	p.cuts = append(p.cuts, k)
	for _, n := range c.nodes {
		if n.up {
			c.must(n.replica.Publish(k))
		}
	}
}

// settle merges the leader's state up to a cut, and lets the log forget what that contains.
func (c *trio) settle(p *trioPipeline) {
	if len(p.cuts) == 0 {
		return
	}
	i := c.rng.IntN(len(p.cuts))
	n := c.leader()
	upTo, err := n.replica.Merge(c.ctx(), p.uid, p.cuts[i].ID)
	c.must(err)
	p.cuts = p.cuts[i:]
	if p.seq > 0 {
		c.must(n.log.Settle(c.ctx(), p.uid, upTo))
	}
}

// begin starts the next incarnation from the newest cut.
func (c *trio) begin(p *trioPipeline) {
	if len(p.cuts) == 0 {
		return
	}
	p.inc++
	p.seq = 0
	c.must(c.leader().log.BeginIncarnation(c.ctx(), p.uid, p.inc, p.at(p.cuts[len(p.cuts)-1])))
	c.change(p, 3) // so that the next cut names a delta of this incarnation
}

func (c *trio) rows(stream dataflow.StreamID) {
	l := c.leader().log
	a := Append{Stream: stream, Rows: bytes.Repeat([]byte{byte(c.rng.IntN(256))}, 1+c.rng.IntN(4000)), Count: 1 + c.rng.IntN(5)}
	switch c.rng.IntN(3) {
	case 0:
		a.IdempotencyKey = fmt.Sprint("key", c.rng.IntN(1000))
	case 1:
		name := fmt.Sprint("p", c.rng.IntN(3))
		last, err := l.OpenProducer(c.ctx(), stream, name, 1)
		if dataflow.ReasonOf(err) == dataflow.ReasonStreamNotFound {
			return
		}
		c.must(err)
		a.Producer, a.Epoch, a.First = name, 1, last+1
	}
	_, err := l.Append(c.ctx(), a)
	switch dataflow.ReasonOf(err) {
	case dataflow.ReasonIdempotencyKeyReused, dataflow.ReasonStreamNotFound, dataflow.ReasonStreamSealed:
	default:
		c.must(err)
	}
}

// step does something at random.
func (c *trio) step() {
	p := c.pipes[c.rng.IntN(len(c.pipes))]
	stream := 1 + dataflow.StreamID(c.rng.IntN(int(c.streams)))
	switch n := c.rng.IntN(100); {
	case n < 45:
		c.rows(stream)
	case n < 70:
		c.change(p, 1+c.rng.IntN(12))
	case n < 78:
		c.settle(p)
	case n < 82:
		c.begin(p)
	case n < 90:
		l := c.leader().log
		start, end, _ := l.Range(stream)
		if end > start {
			c.must(l.TrimStream(c.ctx(), stream, start+dataflow.Offset(c.rng.Uint64N(uint64(end-start)+1)), TrimAge, 1<<32))
		}
	case n < 96:
		c.must(c.leader().log.Snapshot(c.ctx()))
	case n < 97 && len(c.pipes) > 1:
		c.must(c.leader().log.DropPipeline(c.ctx(), p.uid))
		c.pipes = slices.DeleteFunc(c.pipes, func(o *trioPipeline) bool { return o == p })
	case n < 98:
		c.must(c.leader().log.DropStream(c.ctx(), stream))
		c.streams++
	default:
		if len(c.pipes) < 3 {
			c.deploy()
		}
		c.streams = min(c.streams+1, 3)
	}
}

// dump is all that can be read of a shard, in one text.
func dump(l *Log, r *state.Replica, pipes []*trioPipeline) (string, error) {
	var out bytes.Buffer
	l.mu.RLock()
	m := l.mu.m.freeze()
	l.mu.RUnlock()
	if err := m.write(&out); err != nil {
		return "", err
	}
	for _, id := range l.Streams() {
		start, end, _ := l.Range(id)
		for at := start; at < end; {
			rows, err := l.Read(id, at, 1000)
			if err != nil {
				return "", err
			}
			for _, b := range rows {
				fmt.Fprintf(&out, "stream %d: %d+%d at %d: %x\n", id, b.First, b.Count, b.AppendTime, b.Data)
				at = b.First + dataflow.Offset(b.Count)
			}
		}
	}
	for _, p := range pipes {
		for i, k := range p.cuts {
			if i < len(p.cuts)-2 {
				continue // a replica that had to settle may have let older ones go
			}
			d, err := r.Digest(context.Background(), p.uid, k.ID, nil)
			if err != nil {
				return "", fmt.Errorf("cut %s: %w", k, err)
			}
			fmt.Fprintf(&out, "pipeline %d, cut %d: %s\n", p.uid, k.ID, d)
		}
	}
	return out.String(), nil
}

// same compares all that run.
func (c *trio) same() {
	c.t.Helper()
	c.caughtUp()
	var first string
	for i, n := range c.nodes {
		if !n.up {
			continue
		}
		text, err := dump(n.log, n.replica, c.pipes)
		if err != nil {
			c.t.Fatalf("member %d: %v", i, err)
		}
		if first == "" {
			first = text
		} else if text != first {
			c.t.Fatalf("member %d differs from the first (%d bytes and %d)", i, len(text), len(first))
		}
	}
}

func checkState(fs vfs.FS) func(context.Context, string) (map[dataflow.PipelineUID]dataflow.DeltaRef, error) {
	return func(ctx context.Context, dir string) (map[dataflow.PipelineUID]dataflow.DeltaRef, error) {
		return state.CheckCopy(ctx, state.Config{FS: fs, Dir: dir, Shard: trioShard, Logger: discard()}, true, nil)
	}
}

func trioInstaller(t testing.TB, fs vfs.FS, store *logstore.Store) *Installer {
	in, err := NewInstaller(InstallConfig{
		Shard: trioShard, FS: fs, Dir: trioDir, Logs: store, Group: trioGroup, CheckState: checkState(fs), Logger: discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return in
}
