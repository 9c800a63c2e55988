package node

import (
	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/node/founding"
	"github.com/weirdb/weir/raftlog/meta"
)

// A node finds another one by its name: where the group's own records say that it is, or where it has just answered.
//
// Records are written by a group that has met: when all nodes start at once at new addresses, none of them is where the
// records of the others say, and they can only meet at the addresses of --join; and one that is started at a new address is not sent
// the log in which to write it down unless the others know where. So a sighting wins over what was recorded when it
// was made, until the record changes, which is newer then, or the node is not met there any more.
//
// The directory's id tells nodes of one name apart. A copy of a directory that runs beside the original is not told apart.

// sighting is where a node has answered when it was asked for its name, or said that it is.
type sighting struct {
	addr     string
	recorded string // where the node was then by the group's records; "" = they did not know it
}

// sight notes where a node is said to be, but not another one of that name. Whether it is the one that is meant shows when it is dialled
// there.
func (p *peers) sight(who peernet.Identity, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	recorded, data, _ := p.recordedLocked(who.Node)
	if data != "" && who.Data != data {
		return
	}
	if addr == recorded {
		delete(p.mu.seen, who.Node)
		return
	}
	p.mu.seen[who.Node] = sighting{addr, recorded}
}

// hear notes where a node is by the records of another one, unless it was met itself.
func (p *peers) hear(m founding.Member) {
	p.mu.Lock()
	_, met := p.mu.seen[m.Node]
	recorded, _, _ := p.recordedLocked(m.Node)
	p.mu.Unlock()
	if !met && m.PeerAddr != recorded && m.Node != p.cfg.NodeID {
		p.sight(peernet.Identity{Node: m.Node, Data: m.Data}, m.PeerAddr)
	}
}

// met notes where a node is that has connected to this one. It is peernet.Config.Met.
func (p *peers) met(who peernet.Peer) { p.sight(who.Identity, who.Addr) }

// missed forgets a sighting: the node was not met there. It is peernet.Config.Missed.
func (p *peers) missed(node, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.seen[node].addr == addr {
		delete(p.mu.seen, node)
	}
}

// resolve says where a node is. It is a peernet.Resolver.
func (p *peers) resolve(node string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	recorded, _, gone := p.recordedLocked(node)
	if gone {
		return "", false
	}
	if s, ok := p.mu.seen[node]; ok {
		if s.recorded == recorded {
			return s.addr, true
		}
		delete(p.mu.seen, node)
	}
	return recorded, recorded != ""
}

// recordedLocked says where a node is, and with which data directory, by the newest record of the group: the meta log, the book that the
// node keeps, or the agreement of the founders. p.mu is held.
func (p *peers) recordedLocked(node string) (addr, data string, gone bool) {
	if p.mu.meta != nil {
		if m := p.mu.meta.State().Member(node); m != nil {
			return m.PeerAddr, m.DataID, m.State == meta.MemberGone
		}
	}
	if m := p.inBookLocked(node); m != nil {
		return m.PeerAddr, m.Data, false
	}
	if f := p.mu.self.Founding; f != nil {
		if m := f.Member(node); m != nil {
			return m.PeerAddr, m.Data, false
		}
	}
	return "", "", false
}
