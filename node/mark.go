package node

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// markFile is a file in log/ and in each shard's directory that holds the group's id: so these directories beside another
// group's meta/ and node.json are noticed.
//
// Marks are written at the end of the first whole start, all of them before node.json says that they are there
// (identity.Marked). So a start that was interrupted leaves some, of the group that the meta log names, or none; and only a
// directory of node.json's group can be there without its mark when node.json says that it has one: never.
const markFile = "GROUP"

// marked returns the directories that carry a mark, of a group with so many shards.
func (s *storage) marked(cfg *Config, shards int) []string {
	dirs := []string{cfg.FS.PathJoin(cfg.DataDir, "log")}
	for i := range shards {
		dirs = append(dirs, s.shardDir(cfg, dataflow.ShardID(i)))
	}
	return dirs
}

func (s *storage) shardDir(cfg *Config, id dataflow.ShardID) string {
	return cfg.FS.PathJoin(cfg.DataDir, "shards", fmt.Sprintf("%04d", id))
}

// checkMarks refuses directories with the mark of another group than the one that who names.
func (s *storage) checkMarks(cfg *Config, group string, shards int, who string) error {
	for _, dir := range s.marked(cfg, shards) {
		mark, err := readMark(cfg.FS, dir)
		if err != nil {
			return err
		}
		if mark != "" && mark != group {
			return dataflow.Errorf(dataflow.ReasonCorrupt, "data directory %s belongs to group %s, as %s says, but %s to group %s",
				cfg.DataDir, group, who, dir, mark)
		}
	}
	return nil
}

// checkMarked refuses directories without a mark, when node.json says that all have one. Those that are not there, or
// empty, are left to the checks of what they hold.
func (s *storage) checkMarked(cfg *Config) error {
	if !s.id.Marked {
		return nil
	}
	for _, dir := range s.marked(cfg, s.id.Shards) {
		if mark, err := readMark(cfg.FS, dir); err != nil || mark != "" {
			if err != nil {
				return err
			}
			continue
		}
		names, err := cfg.FS.List(dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0 {
			continue
		}
		if err != nil {
			return err
		}
		return dataflow.Errorf(dataflow.ReasonCorrupt, "data directory %s belongs to group %s, as %s says, but %s has no %s that says so: its files were lost, or are another's",
			cfg.DataDir, s.id.Group, identityFile, dir, markFile)
	}
	return nil
}

// readMark returns the group that a directory's mark names; "" when it has none.
func readMark(f vfs.FS, dir string) (string, error) {
	path := f.PathJoin(dir, markFile)
	b, err := vfs.ReadFile(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	mark := strings.TrimSuffix(string(b), "\n")
	if id, err := hex.DecodeString(mark); err != nil || len(id) != len(dataflow.GroupID{}) {
		return "", dataflow.Errorf(dataflow.ReasonCorrupt, "%s is damaged: it holds %s instead of a group's id", path, quoteStart(b))
	}
	return mark, nil
}

// writeMarks writes the marks that are missing.
func (s *storage) writeMarks(cfg *Config, group string, shards int) error {
	for _, dir := range s.marked(cfg, shards) {
		mark, err := readMark(cfg.FS, dir)
		if err != nil {
			return err
		}
		if mark != "" {
			continue
		}
		if err := vfs.WriteFile(cfg.FS, cfg.FS.PathJoin(dir, markFile), []byte(group+"\n")); err != nil {
			return err
		}
	}
	return nil
}

// quoteStart quotes the first bytes of a small file for a message.
func quoteStart(b []byte) string {
	const most = 64
	if len(b) == 0 {
		return "nothing"
	}
	if len(b) > most {
		return fmt.Sprintf("%q… (%d bytes)", b[:most], len(b))
	}
	return fmt.Sprintf("%q", b)
}
