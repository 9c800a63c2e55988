package node

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node/founding"
)

// identity is node.json.
//
// Group and Shards are written at the end of the first start: from then on the meta log holds the group's name, and the
// log store a log for each shard. So a start that does not find these knows that they were lost. A directory that an older
// version made, or whose first start was interrupted, has neither; the next start writes them. Marked says that log/ and
// the shards' directories carry the group's id too, see markFile; older versions did not mark them.
type identity struct {
	Format int    `json:"format"`
	Node   string `json:"node"`
	Group  string `json:"group,omitempty"`  // the group's id in hexadecimal
	Shards int    `json:"shards,omitempty"` // of the group
	Marked bool   `json:"marked,omitempty"`
	// Data is the id of this directory: a node is its data, and one that has lost it is another.
	Data string `json:"data,omitempty"`
	// Founding is how the node came to a group of several: with whom it founded it, or, without members, that it was taken
	// into it later. It is written before any log of the group is opened.
	Founding *founding.Founding `json:"founding,omitempty"`
}

// dataFormat is the version of the directory's layout.
const dataFormat = 1

const identityFile = "node.json"

// identify reads node.json, or writes it into a new directory.
func (s *storage) identify(cfg *Config) error {
	path := cfg.FS.PathJoin(cfg.DataDir, identityFile)
	b, err := vfs.ReadFile(cfg.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := refuseForeign(cfg.FS, cfg.DataDir); err != nil {
			return err
		}
		data, err := newDataID()
		if err != nil {
			return err
		}
		s.id = identity{Format: dataFormat, Node: cfg.NodeID, Data: data}
		return s.writeIdentity(cfg)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &s.id); err != nil {
		return dataflow.Errorf(dataflow.ReasonCorrupt, "%s is damaged: it holds %s instead of the node's and the group's names: %w", path, quoteStart(b), err)
	}
	if s.id.Data == "" { // of an older version; it is written with the group
		if s.id.Data, err = newDataID(); err != nil {
			return err
		}
	}
	switch {
	case s.id.Format != dataFormat:
		return fmt.Errorf("data directory %s has format %d; this version reads %d", cfg.DataDir, s.id.Format, dataFormat)
	case s.id.Node != cfg.NodeID:
		return fmt.Errorf("data directory %s belongs to node %s, not %s", cfg.DataDir, s.id.Node, cfg.NodeID)
	case s.id.Founding != nil && !cfg.group():
		return fmt.Errorf("data directory %s belongs to a node of a group of several: say where the others reach it with --peer-addr, and --join", cfg.DataDir)
	case s.id.Founding == nil && s.id.Group != "" && cfg.group():
		return fmt.Errorf("data directory %s belongs to a group of one node that no other can join; start it without --peer-addr, or name a new directory", cfg.DataDir)
	}
	return nil
}

// newDataID names a data directory like no other.
func newDataID() (string, error) {
	var data [16]byte
	if _, err := rand.Read(data[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(data[:]), nil
}

func (s *storage) writeIdentity(cfg *Config) error {
	b, err := json.Marshal(s.id)
	if err != nil {
		return err
	}
	return vfs.WriteFile(cfg.FS, cfg.FS.PathJoin(cfg.DataDir, identityFile), append(b, '\n'))
}

// remember writes the group into node.json, once everything that it implies is on disk.
func (s *storage) remember(cfg *Config) error {
	st := s.meta.State()
	if s.id.Group == st.ClusterID && s.id.Marked {
		return nil
	}
	if err := s.writeMarks(cfg, st.ClusterID, st.Shards); err != nil {
		return err
	}
	s.id.Group, s.id.Shards, s.id.Marked = st.ClusterID, st.Shards, true
	return s.writeIdentity(cfg)
}

// refuseForeign refuses a directory without node.json that has other files: it is somebody else's. What a start leaves
// behind that was ended before it wrote node.json is Weir's own.
func refuseForeign(f vfs.FS, dir string) error {
	names, err := f.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		switch name {
		case "LOCK", identityFile + ".tmp", "lost+found":
		default:
			return fmt.Errorf("data directory %s is not Weir's: it has no %s, but %s; name an empty or new directory", dir, identityFile, name)
		}
	}
	return nil
}

// shardGroup names the log of a shard in the log store.
func shardGroup(id dataflow.ShardID) string { return shardGroupPrefix + id.String() }

const shardGroupPrefix = "shard-"

// remains says what a directory holds that only a group with a meta log can have made; "" when there is nothing. A first
// start makes none of it before the group's name is in the meta log.
func (s *storage) remains(cfg *Config) (string, error) {
	if s.id.Group != "" {
		return fmt.Sprintf("%s names group %s", identityFile, s.id.Group), nil
	}
	for _, name := range s.logs.Names() {
		if strings.HasPrefix(name, shardGroupPrefix) {
			return fmt.Sprintf("log holds the log of %s", name), nil
		}
	}
	for _, dir := range []string{cfg.FS.PathJoin(cfg.DataDir, "shards"), cfg.FS.PathJoin(cfg.DataDir, "meta", "snapshots")} {
		names, err := cfg.FS.List(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if len(names) > 0 {
			return fmt.Sprintf("%s holds %s", dir, names[0]), nil
		}
	}
	return "", nil
}

// refuseLostMeta refuses to make a meta log beside what an earlier one has made: streams and pipelines would get ids that
// are in use, and with them the rows and the state of others. file is where the meta log is, or should be.
func (s *storage) refuseLostMeta(cfg *Config, file string) error {
	found, err := s.remains(cfg)
	if err != nil || found == "" {
		return err
	}
	return dataflow.Errorf(dataflow.ReasonCorrupt, "data directory %s: the meta log %s is missing or empty, but %s", cfg.DataDir, file, found)
}

// checkGroup compares the meta log with node.json.
func (s *storage) checkGroup(cfg *Config) error {
	st := s.meta.State()
	switch {
	case s.id.Group == "":
		return nil
	case s.id.Group != st.ClusterID:
		return dataflow.Errorf(dataflow.ReasonCorrupt, "data directory %s belongs to group %s, as %s says, but its meta log is that of group %s",
			cfg.DataDir, s.id.Group, identityFile, st.ClusterID)
	case s.id.Shards != st.Shards:
		return dataflow.Errorf(dataflow.ReasonCorrupt, "data directory %s has %d shards, as %s says, but its meta log has %d",
			cfg.DataDir, s.id.Shards, identityFile, st.Shards)
	}
	return nil
}

// checkShardLogs refuses a log store that has lost a shard's log.
func (s *storage) checkShardLogs(cfg *Config) error {
	have := make(map[string]bool)
	for _, name := range s.logs.Names() {
		have[name] = true
	}
	for i := range s.id.Shards {
		if name := shardGroup(dataflow.ShardID(i)); !have[name] {
			return dataflow.Errorf(dataflow.ReasonCorrupt, "data directory %s: %s does not hold the log of %s, or its files were lost",
				cfg.DataDir, cfg.FS.PathJoin(cfg.DataDir, "log"), name)
		}
	}
	return nil
}
