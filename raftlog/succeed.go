package raftlog

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirdb/weir/raftlog/transport"
)

// succeeding drives a succession.
type succeeding struct {
	g     *Group
	w     transport.Watcher
	ended chan string // members whose connection has ended; what finds no room is of no more interest

	mu struct {
		sync.Mutex
		s     succession
		ready bool // Raft runs
	}
}

// endedRoom is for the connections of a node that ends, of which one is enough.
const endedRoom = 16

// watchLeader prepares for the death of leaders; nil where the transport does not notice any. It must be called before Raft is
// made, and run after.
func (g *Group) watchLeader() *succeeding {
	w, ok := g.trans.Transport.(transport.Watcher)
	if !ok {
		return nil
	}
	d := &succeeding{g: g, w: w, ended: make(chan string, endedRoom)}
	d.mu.s = succession{group: g.cfg.Group, self: g.cfg.NodeID, silence: g.cfg.ElectionTimeout, patience: g.cfg.ElectionTimeout,
		courtesy: g.cfg.ElectionTimeout / 20}
	w.Watch(transport.Watch{Ended: func(id raft.ServerID) {
		select {
		case d.ended <- string(id):
		default:
		}
	}, Judge: d.judge})
	return d
}

// run ends with the group.
func (d *succeeding) run() {
	o := d.outlook()
	d.mu.Lock()
	d.mu.ready = true
	d.mu.s.starts(o, time.Now())
	d.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	d.g.loops.Go(func() {
		<-d.g.done
		cancel()
	})
	for {
		pause := d.g.cfg.ElectionTimeout / 8 // to notice a silence
		if d.lost() {
			pause /= 5 // to ask those again that have not noticed it yet
		}
		look := time.NewTimer(pause)
		select {
		case node := <-d.ended:
			if d.g.Leader() == node && node != d.g.cfg.NodeID && d.probe(ctx, node) {
				o := d.outlook()
				d.step(func(s *succession) { s.gone(o, node, time.Now()) })
			}
		case <-look.C:
		case <-d.g.done:
			look.Stop()
			return
		}
		look.Stop()
		d.observe()
		if o, ok := d.agreed(ctx); ok {
			why := "the leader is lost"
			if o.node == "" {
				why = "there is no leader yet"
			}
			d.g.cfg.Logger.Info(why+", and this member stands for election", "log", d.g.cfg.Group, "term", o.term+1)
			if err := d.w.Stand(ctx); err != nil && ctx.Err() == nil {
				d.g.cfg.Logger.Debug("stand for election", "log", d.g.cfg.Group, "err", err)
			}
		}
	}
}

func (d *succeeding) step(f func(*succession)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.mu.s)
}

func (d *succeeding) lost() (lost bool) {
	d.step(func(s *succession) { lost = s.lost != leadership{} })
	return lost
}

// turns is how often Raft's main goroutine is waited for before silence is taken for the leader's: what it has been sent may lie
// unread while it waits for the disk, and it takes what there is in any order.
const turns = 5

// observe looks whether the leader is silent, or a lost one is replaced.
func (d *succeeding) observe() {
	if o := d.outlook(); !d.lost() && o.follower && o.node != "" && time.Since(o.contact) >= d.g.cfg.ElectionTimeout {
		for range turns {
			if !d.g.takeTurn() {
				return
			}
		}
	}
	o := d.outlook()
	d.step(func(s *succession) { s.observe(o, time.Now()) })
}

// A process that ends does not let go of all at once, so what a probe does not find out is asked again after probePause.
const probePause = 10 * time.Millisecond

// probe says whether a member is gone, as far as it can be found out soon.
func (d *succeeding) probe(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, d.g.cfg.ElectionTimeout/4)
	defer cancel()
	for {
		if gone, err := d.w.Gone(ctx, raft.ServerID(node)); err == nil {
			return gone
		}
		select {
		case <-time.After(probePause):
		case <-ctx.Done():
			return false
		}
	}
}

// answers says whether a member can be reached.
func (d *succeeding) answers(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, d.g.cfg.ElectionTimeout/4)
	defer cancel()
	gone, err := d.w.Gone(ctx, raft.ServerID(node))
	return !gone && err == nil
}

// whileThere returns a context that ends with errSilent when a member is gone, as where all nodes of a group stop at once.
func (d *succeeding) whileThere(ctx context.Context, node string) (_ context.Context, stop func()) {
	return d.until(ctx, errSilent, func() bool {
		gone, err := d.w.Gone(ctx, raft.ServerID(node))
		return gone && err == nil
	})
}

// until returns a context that ends with a cause once fact holds, which is looked at until stop returns.
func (d *succeeding) until(ctx context.Context, cause error, fact func() bool) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-time.After(d.g.cfg.ElectionTimeout / 20):
			case <-ctx.Done():
				return
			}
			if fact() {
				cancel(cause)
			}
		}
	}()
	return ctx, func() { cancel(nil); <-watched }
}

// ErrAlone says that the others of a group are gone which a majority needs.
var ErrAlone = errors.New("raftlog: too few members are there for a majority")

// WhileInReach returns a context that ends with ErrAlone when so many voting members are gone that the others are no majority, as far as the
// transport notices such. stop must be called.
func (g *Group) WhileInReach(ctx context.Context) (_ context.Context, stop func()) {
	if g.heirs == nil {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel
	}
	return g.heirs.until(ctx, ErrAlone, g.heirs.alone)
}

// alone says whether so many voting members are gone that the others are no majority.
func (d *succeeding) alone() bool {
	conf := d.g.raft.GetConfiguration()
	if conf.Error() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.g.cfg.ElectionTimeout/withinTicks)
	defer cancel()
	voters := 0
	var gone atomic.Int32
	var asked sync.WaitGroup
	for _, m := range conf.Configuration().Servers {
		if m.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(m.ID) != d.g.cfg.NodeID {
			asked.Go(func() {
				if is, err := d.w.Gone(ctx, m.ID); is && err == nil {
					gone.Add(1)
				}
			})
		}
	}
	asked.Wait()
	return voters-int(gone.Load()) <= voters/2
}

// resign makes a leader give up, so that Raft answers what it has been given and could not commit. It does so when it stands for
// election, which nobody is there to decide.
func (d *succeeding) resign() {
	if !d.g.IsLeader() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.g.cfg.ElectionTimeout/4)
	defer cancel()
	if err := d.w.Stand(ctx); err != nil {
		d.g.cfg.Logger.Debug("give up the lead", "log", d.g.cfg.Group, "err", err)
	}
}

// judge answers other members that ask for consent; nil = Raft answers.
func (d *succeeding) judge(req *raft.RequestPreVoteRequest) (resp *raft.RequestPreVoteResponse) {
	d.mu.Lock()
	ready := d.mu.ready
	d.mu.Unlock()
	if !ready || !d.lost() {
		return nil
	}
	o := d.outlook().whole(d.g)
	d.step(func(s *succession) { resp = s.judge(o, req, time.Now()) })
	if resp != nil {
		resp.RPCHeader = d.header()
	}
	return resp
}

func (d *succeeding) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(d.g.cfg.NodeID),
		Addr: d.g.trans.EncodePeer(raft.ServerID(d.g.cfg.NodeID), d.g.trans.LocalAddr())}
}

// agreed asks the others whether this member should stand, if it should ask: all that answer must agree, and be a majority with
// this one.
func (d *succeeding) agreed(ctx context.Context) (o outlook, ok bool) {
	if !d.lost() || d.g.isClosed() {
		return o, false
	}
	o = d.outlook().whole(d.g)
	stands := func() (yes bool) {
		now := d.outlook()
		now.voter = o.voter
		d.step(func(s *succession) { yes = s.stands(now, time.Now()) })
		return yes
	}
	if !stands() {
		return o, false
	}
	req := &transport.ConsentRequest{RequestPreVoteRequest: raft.RequestPreVoteRequest{
		RPCHeader: d.header(), Term: o.term + 1, LastLogIndex: o.last.index, LastLogTerm: o.last.term}}
	voters, agree := d.ask(ctx, req, o.node)
	return o, agree > voters/2 && stands()
}

// ask asks all voting members but a lost one, and returns how many there are, and how many agree, this one included; none when
// one refuses.
func (d *succeeding) ask(ctx context.Context, req *transport.ConsentRequest, lost string) (voters, agree int) {
	conf := d.g.raft.GetConfiguration()
	if conf.Error() != nil {
		return 0, 0
	}
	ctx, cancel := context.WithTimeout(ctx, d.g.cfg.ElectionTimeout/4)
	defer cancel()
	members := conf.Configuration().Servers
	answers, asked := make(chan *raft.RequestPreVoteResponse, len(members)), 0 // nil: none
	for _, m := range members {
		if m.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(m.ID) == d.g.cfg.NodeID || string(m.ID) == lost {
			continue
		}
		asked++
		d.g.loops.Go(func() { // the transport bounds the call, and ends it when the group is closed
			resp := new(raft.RequestPreVoteResponse)
			if d.g.trans.Ask(m.ID, req, resp) != nil { // not past the wrapper: a member that cannot write is silent
				resp = nil
			}
			answers <- resp
		})
	}
	agree = 1
	for range asked {
		select {
		case r := <-answers:
			switch {
			case r == nil:
			case r.Granted:
				agree++
			default:
				return voters, 0
			}
		case <-ctx.Done():
		}
	}
	return voters, agree
}

// outlook returns what this member knows, without what whole adds.
func (d *succeeding) outlook() outlook {
	return outlook{leadership: d.g.leads(), follower: d.g.raft.State() == raft.Follower, contact: d.g.raft.LastContact()}
}

// number returns a figure of the library's: it hands the ends of its log out as text only.
func number(stats map[string]string, name string) uint64 {
	n, _ := strconv.ParseUint(stats[name], 10, 64)
	return n
}

// snapshotOf returns the end of the newest snapshot.
func snapshotOf(stats map[string]string) position {
	return position{number(stats, "last_snapshot_term"), number(stats, "last_snapshot_index")}
}

// whole adds the end of the log, and whether this member votes.
func (o outlook) whole(g *Group) outlook {
	st := g.raft.Stats()
	o.last = position{number(st, "last_log_term"), number(st, "last_log_index")}
	if snap := snapshotOf(st); snap.index > o.last.index {
		o.last = snap
	}
	if f := g.raft.GetConfiguration(); f.Error() == nil {
		for _, m := range f.Configuration().Servers {
			o.voter = o.voter || string(m.ID) == g.cfg.NodeID && m.Suffrage == raft.Voter
		}
	}
	return o
}
