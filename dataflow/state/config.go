package state

import (
	"errors"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// Config says how to open a Replica.
type Config struct {
	// FS is the file system; vfs.Default when nil.
	FS vfs.FS
	// Dir is the replica's own directory. It is made when absent.
	Dir string
	// Shard is the shard whose state this is. A directory remembers it and refuses another one.
	Shard dataflow.ShardID
	// Cache is shared by all replicas of a node, and outlives them; nil = a small one of its own.
	Cache *Cache
	// Logger receives what Pebble and the replica have to say; slog.Default() when nil.
	Logger *slog.Logger
}

// Default sizes.
const (
	// DefaultCacheBytes is the size of the block cache when nobody says.
	DefaultCacheBytes = 64 << 20
	// cacheFiles is how many SST files a Cache keeps open.
	cacheFiles = 1000
)

// EnsureDefaults fills what is not set.
func (c *Config) EnsureDefaults() {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// Validate reports what is missing or wrong.
func (c *Config) Validate() error {
	if c.Dir == "" {
		return errors.New("state: Dir is not set")
	}
	return nil
}

// Cache holds blocks and open files of the stores of all replicas of a node.
type Cache struct {
	blocks *pebble.Cache
	files  *pebble.FileCache
}

// NewCache returns a cache of the given size in bytes; 0 = DefaultCacheBytes. Close it after the replicas that use it.
func NewCache(bytes int64) *Cache {
	if bytes <= 0 {
		bytes = DefaultCacheBytes
	}
	return &Cache{blocks: pebble.NewCache(bytes), files: pebble.NewFileCache(2, cacheFiles)}
}

// Close gives the cache's memory back once no replica uses it.
func (c *Cache) Close() {
	c.files.Unref()
	c.blocks.Unref()
}
