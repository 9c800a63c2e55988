package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/pause"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// groupNodes is how many nodes the group has: what survives the loss of one.
const groupNodes = 3

// group is a group of nodes, each in a process of its own.
type group struct {
	r     *runner
	flags []NodeFlags
	nodes []*child // nil = killed
}

// group measures a group of three nodes: what it takes, what a node's death costs, and what followers answer.
func (r *runner) group(ctx context.Context) error {
	type groupCase struct {
		name string
		run  func(context.Context, *figures) error
	}
	cases := []groupCase{{"ingest", r.groupIngest}}
	for _, keys := range r.size.group {
		cases = append(cases, groupCase{fmt.Sprintf("kill=shards keys=%d", keys), func(ctx context.Context, f *figures) error {
			return r.groupKills(ctx, f, keys, leadsShards)
		}})
	}
	cases = append(cases,
		groupCase{fmt.Sprintf("kill=meta keys=%d", r.size.group[0]), func(ctx context.Context, f *figures) error {
			return r.groupKills(ctx, f, r.size.group[0], leadsMeta)
		}},
		groupCase{fmt.Sprintf("reads keys=%d", r.size.group[0]), r.groupReads},
	)
	for _, c := range cases {
		if !r.wants(c.name) {
			continue
		}
		f := &figures{bench: "group", name: c.name}
		r.progress("group %s", c.name)
		if err := c.run(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := r.cfg.Report(f.list); err != nil {
			return err
		}
	}
	return nil
}

// openGroup starts a group, deploys sql as pipeline bench, and opens a producer on events.
func (r *runner) openGroup(ctx context.Context, profileName, sql string, keys uint64) (s *session, err error) {
	s = &session{r: r, load: newLoad(keys), group: &group{r: r, nodes: make([]*child, groupNodes)}}
	if s.stop, err = profile(r.cfg.Profile, profileName+".client"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	addrs, err := freeAddrs(2 * groupNodes)
	if err != nil {
		return s, err
	}
	peers, clients := addrs[:groupNodes], addrs[groupNodes:]
	for i := range groupNodes {
		id := fmt.Sprintf("n%d", i+1)
		s.group.flags = append(s.group.flags, NodeFlags{
			DataDir: r.dataDir(), GRPCAddr: clients[i], NodeID: id, PeerAddr: peers[i], Join: strings.Join(peers, ","), Profile: r.cfg.Profile, ProfileName: profileName + "." + id,
		})
	}
	var eg errgroup.Group // a node starts when the others do
	for i := range groupNodes {
		eg.Go(func() error { return s.group.start(ctx, i) })
	}
	if err = eg.Wait(); err != nil {
		return s, err
	}
	if s.client, err = weir.Dial(s.group.addrs(-1)...); err != nil {
		return s, err
	}
	if _, err = s.client.Deploy(ctx, weir.Deploy{Pipeline: "bench", SQL: sql}); err != nil {
		return s, err
	}
	s.producer, err = s.client.OpenProducer(ctx, "events", weir.ProducerConfig{Name: "bench"})
	return s, err
}

// openFilledGroup is openFilled of a group.
func (r *runner) openFilledGroup(ctx context.Context, profileName string, keys uint64) (s *session, most float64, err error) {
	if s, err = r.openGroup(ctx, profileName, loadSQL, keys); err != nil {
		return nil, 0, err
	}
	if err = s.fill(ctx); err == nil {
		most, err = s.maximum(ctx, r.maximumTime(keys))
	}
	if err != nil {
		return nil, 0, errors.Join(err, s.close())
	}
	return s, most, nil
}

// start starts node i, again if it was killed.
func (g *group) start(ctx context.Context, i int) (err error) {
	c, err := g.r.startNode(ctx, g.flags[i])
	if err != nil {
		return fmt.Errorf("node %s: %w", g.flags[i].NodeID, err)
	}
	g.nodes[i] = c
	return nil
}

// kill ends node i at once.
func (g *group) kill(i int) error {
	c := g.nodes[i]
	g.nodes[i] = nil
	return c.kill()
}

// stop ends all nodes, at the same time.
func (g *group) stop() error {
	var eg errgroup.Group
	for _, c := range g.nodes {
		if c != nil {
			eg.Go(c.stop)
		}
	}
	return eg.Wait()
}

// addrs returns where the nodes listen for clients, without node i; -1 = all.
func (g *group) addrs(without int) []string {
	var addrs []string
	for i, f := range g.flags {
		if i != without {
			addrs = append(addrs, f.GRPCAddr)
		}
	}
	return addrs
}

// number returns which node has a name; -1 = none.
func (g *group) number(id string) int {
	for i, f := range g.flags {
		if f.NodeID == id {
			return i
		}
	}
	return -1
}

// cpuTime returns the CPU time of all nodes.
func (g *group) cpuTime() (sum time.Duration) {
	for _, c := range g.nodes {
		if c != nil {
			sum += cpuTime(c.cmd.Process.Pid)
		}
	}
	return sum
}

// disk returns what the nodes' data take on the disk, together.
func (g *group) disk() (sum int64, err error) {
	for _, f := range g.flags {
		n, err := diskUsage(f.DataDir)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// whole waits until every node answers, leads or follows in every log, and has what its leader had a moment before; it returns
// who leads.
func (s *session) whole(ctx context.Context) (*weirv1.GetStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	last := make(map[string]uint64) // by log: the greatest index at the look before
	for {
		st, err := s.client.Status(ctx)
		if err == nil && len(last) > 0 && isWhole(st, last) {
			return st, nil
		}
		if err == nil {
			for _, n := range st.Nodes {
				for _, l := range append(n.ShardLogs, n.Meta) {
					last[l.GetGroup()] = max(last[l.GetGroup()], l.GetLastIndex())
				}
			}
		}
		if perr := pause.For(ctx, 100*time.Millisecond); perr != nil {
			return nil, fmt.Errorf("wait until the group is whole: %w", errors.Join(perr, err))
		}
	}
}

func isWhole(st *weirv1.GetStatusResponse, last map[string]uint64) bool {
	if len(st.Nodes) != groupNodes || st.Meta.GetLeader() == "" {
		return false
	}
	leaders := make(map[string]string)
	for _, l := range st.ShardLogs {
		leaders[l.Group] = l.Leader
	}
	for _, n := range st.Nodes {
		if !n.Reachable {
			return false
		}
		for _, l := range n.ShardLogs {
			if l.Leader == "" || l.Leader != leaders[l.Group] || l.LastIndex < last[l.Group] {
				return false
			}
		}
	}
	return true
}

// leaders returns which node leads each shard.
func (g *group) leaders(st *weirv1.GetStatusResponse) []int {
	leaders := make([]int, len(st.ShardLogs))
	for i, l := range st.ShardLogs {
		leaders[i] = g.number(l.Leader)
	}
	return leaders
}
