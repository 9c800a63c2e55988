package node

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"

	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node/founding"
	"github.com/weirdb/weir/raftlog/meta"
)

// bookFile holds who is in the group and where, as this node has last seen.
//
// The meta log says so, but what a log holds is known only when a majority has met again, and these must find each other
// before: of a group whose founders were replaced, none would know the others when all nodes start at once. The book is a
// hint, and lags behind: the meta log wins as soon as it knows a node. Without a book that can be read, a node knows its
// founders and --join.
const bookFile = "members.json"

// readBook takes over the members that the node knew when it ran last.
func (p *peers) readBook() {
	path := p.cfg.FS.PathJoin(p.cfg.DataDir, bookFile)
	b, err := vfs.ReadFile(p.cfg.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var book []founding.Member
	if err == nil {
		err = json.Unmarshal(b, &book)
	}
	if err != nil {
		p.logger.Warn("the members that this node knew cannot be read; it looks for them at --join", "file", path, "error", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.book = book
}

// inBook returns a node of the book; nil = it is not there. p.mu is held.
func (p *peers) inBookLocked(node string) *founding.Member {
	for i := range p.mu.book {
		if p.mu.book[i].Node == node {
			return &p.mu.book[i]
		}
	}
	return nil
}

// keepBook writes the members down whenever they have changed, until ctx ends.
func (p *peers) keepBook(ctx context.Context, m *meta.Log) error {
	var written []founding.Member
	for {
		changed := m.Changed()
		var book []founding.Member
		for _, m := range m.State().Members {
			if m.In() {
				book = append(book, founding.Member{Node: m.ID, Data: m.DataID, PeerAddr: m.PeerAddr})
			}
		}
		if !slices.Equal(book, written) {
			b, err := json.Marshal(book)
			if err != nil {
				return err
			}
			if err := vfs.WriteFile(p.cfg.FS, p.cfg.FS.PathJoin(p.cfg.DataDir, bookFile), append(b, '\n')); err != nil {
				// A disk that is full has room again, and what is not written is only missed by a start of the whole group.
				p.logger.Warn("write down the members of the group", "error", err)
			} else {
				written = book
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
