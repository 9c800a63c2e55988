package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/node/founding"
)

// How a node comes to its group: it asks the addresses that it knows who is there, and waits until what it needs has come.

const (
	// lookEvery is how often a node without a group looks for it, and askTime how long it waits for each answer.
	lookEvery = 200 * time.Millisecond
	askTime   = 2 * time.Second
	// sayEvery is how often it says what it waits for.
	sayEvery = 10 * time.Second
	// surveyEvery is how often a node that waits for a majority asks who is there.
	surveyEvery = time.Second
	// maxReport bounds a report.
	maxReport = 1 << 20
)

// What a log lacks while the node starts.
const (
	lacksLeader  = "has no leader that is known here"
	lacksAnswer  = "its leader does not answer"
	lacksReplica = "its state is brought from another node"
	lacksEntries = "is brought up to date"
)

// ask returns what the node at an address says of itself. It is nil for this node's own address.
func (p *peers) ask(ctx context.Context, addr string) (*founding.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	who, err := p.net.Who(ctx, addr)
	if wrong := new(peernet.WrongPortError); errors.As(err, &wrong) {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "%s is the %s port of a server, for clients, and not where a node talks with other nodes", addr, wrong.Protocol).
			WithHint("name the address that the node there was given as --peer-addr")
	}
	if err != nil {
		return nil, err
	}
	if who.Node == p.cfg.NodeID && who.Data == p.net.Self().Data {
		return nil, nil
	}
	p.sight(who, addr)
	c, err := p.net.Dial(ctx, who.Node, serviceFounding)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // only read from
	if err := c.SetDeadline(time.Now().Add(askTime)); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(c, maxReport))
	if err != nil {
		return nil, fmt.Errorf("ask node %s for its group: %w", who.Node, err)
	}
	var r founding.Report
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&r); err != nil {
		return nil, fmt.Errorf("ask node %s for its group: %w", who.Node, err)
	}
	for _, m := range r.In { // where it may have met them since this node ran last
		p.hear(m)
	}
	return &r, nil
}

// asked is what came of asking an address.
type asked struct {
	addr   string
	report *founding.Report // nil = it is this node's, or err
	err    error
}

// askAll asks addresses at the same time, and returns what came of each, in their order.
func (p *peers) askAll(ctx context.Context, addrs []string) []asked {
	out := make([]asked, len(addrs))
	var g sync.WaitGroup
	for i, addr := range addrs {
		g.Go(func() {
			r, err := p.ask(ctx, addr)
			out[i] = asked{addr, r, err}
		})
	}
	g.Wait()
	return out
}

// answer shows what came of asking, with the node that is known to be there; false for this node's own address.
func (a asked) answer(node string) (answer, bool) {
	out := answer{Addr: a.addr, Node: node}
	var refusal *peernet.Refusal
	var sys syscall.Errno
	switch {
	case a.report != nil:
		out.Node = a.report.Node
	case a.err == nil:
		return out, false
	case errors.As(a.err, &refusal):
		out.Node = refusal.Peer.Node
		out.Problem = refusal.Message
		if refusal.Reason == peernet.ReasonGroup {
			out.Group = refusal.Peer.Group
		}
	case errors.Is(a.err, context.DeadlineExceeded):
		out.Problem = fmt.Sprintf("no answer in %s", askTime)
	case errors.As(a.err, &sys):
		out.Problem = sys.Error()
	default:
		out.Problem = a.err.Error()
	}
	return out, true
}

// find looks for the node's group until it has one, and returns what to write down.
func (p *peers) find(ctx context.Context) (*founding.Founding, error) {
	said, why := time.Time{}, ""
	for {
		var others []founding.Report
		var missing []string
		var heard []answer
		for _, a := range p.askAll(ctx, p.cfg.Join) {
			if shown, ok := a.answer(""); ok {
				heard = append(heard, shown)
			}
			if dataflow.ReasonOf(a.err) == dataflow.ReasonRequestInvalid {
				return nil, fmt.Errorf("--join: %w", a.err)
			}
			switch r := a.report; {
			case a.err != nil:
				p.logger.Debug("look for the group", "addr", a.addr, "error", a.err)
				missing = append(missing, a.addr)
			case r == nil: // this node
			case slices.ContainsFunc(others, func(o founding.Report) bool { return o.Node == r.Node && o.Data == r.Data }):
			default:
				others = append(others, *r)
			}
		}
		d, err := founding.Decide(p.report(), others, missing)
		if err != nil {
			return nil, err
		}
		switch d.Kind {
		case founding.Found:
			var id dataflow.GroupID
			if _, err := rand.Read(id[:]); err != nil {
				return nil, err
			}
			d.Founding.Group = hex.EncodeToString(id[:])
			if d.Founding.Shards == 0 {
				d.Founding.Shards = DefaultShards
			}
			return d.Founding, nil
		case founding.Adopt:
			return d.Founding, nil
		case founding.Join:
			return &founding.Founding{Group: d.Group, Shards: d.Shards}, nil
		}
		p.start.doing("it has no group yet: "+d.Why, "")
		p.start.heard(heard)
		if d.Why != why || time.Since(said) >= sayEvery {
			p.logger.Info("no group yet", "why", d.Why)
			said, why = time.Now(), d.Why
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("look for the node's group: %s: %w", d.Why, context.Cause(ctx))
		case <-time.After(lookEvery):
		}
	}
}

// survey keeps asking who is there of a node's group, for those who want to know what its start waits for, until the function
// that it returns is called. In a group of one node it does nothing.
func (s *storage) survey(ctx context.Context) (stop func()) {
	if s.peers == nil {
		s.start.doing("it applies what its logs hold", "")
		return func() {}
	}
	s.start.doing("it waits for its group", "a node serves when a majority of its group answers and it is up to date; start the nodes that do not answer")
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.start.heard(s.peers.whoIsThere(ctx))
			select {
			case <-time.After(surveyEvery):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-done }
}

// place is where a node is expected.
type place struct{ addr, node string }

// places returns where the other nodes of the group are, as far as this one knows, and the addresses of --join.
func (p *peers) places() []place {
	p.mu.Lock()
	defer p.mu.Unlock()
	var known []founding.Member
	if f := p.mu.self.Founding; f != nil {
		known = f.Members
	}
	if len(p.mu.book) > 0 {
		known = p.mu.book
	}
	if p.mu.meta != nil && len(p.mu.meta.State().InMembers()) > 0 {
		known = nil
		for _, m := range p.mu.meta.State().InMembers() {
			known = append(known, founding.Member{Node: m.ID, PeerAddr: m.PeerAddr})
		}
	}
	var out []place
	for _, m := range known {
		if m.Node != p.cfg.NodeID && m.PeerAddr != "" {
			out = append(out, place{m.PeerAddr, m.Node})
		}
	}
	for _, addr := range p.cfg.Join {
		if addr != p.mu.self.PeerAddr && !slices.ContainsFunc(out, func(o place) bool { return o.addr == addr }) {
			out = append(out, place{addr: addr})
		}
	}
	return out
}

// joins returns the addresses of --join without this node's.
func (p *peers) joins() []string {
	self := p.report().PeerAddr
	return slices.DeleteFunc(slices.Clone(p.cfg.Join), func(addr string) bool { return addr == self })
}

// foreign returns NODE_CONFLICT when a node whose directory belongs to a group waits where another group is: no node of its own
// answers, and more than half of the other addresses of --join are of the other one. With fewer it could be the others that are
// wrong there: it waits, and says whom it has met.
func foreign(dir, group string, join []string, heard []answer) error {
	var others []answer
	for _, a := range heard {
		switch {
		case a.Group == "" && a.Problem == "":
			return nil
		case a.Group != "" && slices.Contains(join, a.Addr):
			others = append(others, a)
		}
	}
	if 2*len(others) <= len(join) {
		return nil
	}
	return dataflow.Errorf(dataflow.ReasonNodeConflict, "data directory %s belongs to group %s, and the nodes at --join do not: %s", dir, group, others[0]).
		WithHint("start the node with the directory that it has in that group, or with the addresses of its own group as --join; to join that group as a new node, start it with an empty directory and another --node-id, then weir cluster add it").
		WithMeta("group", group).WithMeta("other_group", others[0].Group)
}

// whoIsThere asks the places of the group.
func (p *peers) whoIsThere(ctx context.Context) []answer {
	places := p.places()
	addrs := make([]string, len(places))
	for i, at := range places {
		addrs[i] = at.addr
	}
	var out []answer
	for i, a := range p.askAll(ctx, addrs) {
		shown, ok := a.answer(places[i].node)
		same := func(o answer) bool { return o.Node == shown.Node && shown.Node != "" } // it may be known by two addresses
		if ok && !slices.ContainsFunc(out, same) {
			out = append(out, shown)
		}
	}
	slices.SortStableFunc(out, compareAnswers)
	return out
}

// applied waits until this node has applied what was committed to a log before. In a group of several it waits for the
// others as long as it takes.
func (s *storage) applied(ctx context.Context, name string, log committed) error {
	s.start.lacks(name, lacksEntries)
	defer s.start.lacks(name, "")
	p := s.peers
	if p == nil {
		if err := log.WaitLeader(ctx); err != nil {
			return err
		}
		return log.Barrier(ctx)
	}
	said := time.Now()
	for {
		try, cancel := context.WithTimeout(ctx, askTime)
		lacks := lacksLeader
		err := log.WaitLeader(try)
		if err == nil {
			lacks = lacksAnswer
			err = log.Barrier(try)
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		switch dataflow.ReasonOf(err).Kind() {
		case dataflow.KindUnavailable, dataflow.KindUnknown, dataflow.KindDeadline, dataflow.KindOverloaded:
		default:
			return err
		}
		s.start.lacks(name, lacks)
		if err := foreign(p.cfg.DataDir, p.net.Self().Group, p.joins(), s.start.answers()); err != nil {
			return err
		}
		if err := p.left(ctx); err != nil {
			return err
		}
		if time.Since(said) >= sayEvery {
			p.logger.Info("waiting for a majority of the group", "log", name, "error", err)
			said = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

// committed is what applied needs of a log.
type committed interface {
	WaitLeader(ctx context.Context) error
	Barrier(ctx context.Context) error
}
