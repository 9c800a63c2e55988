package shard

import (
	"log/slog"
	"time"

	"github.com/weirdb/weir/dataflow"
)

// Config configures a Log. Zero fields take the defaults that their comments name.
type Config struct {
	Shard   dataflow.ShardID
	Replica Replica // the shard's state; required
	Entries Entries // the shard's group in the node's log store; required

	SnapshotBytes    int64         // log bytes after which a snapshot is taken; default 64 MiB
	CacheBytes       int64         // recently applied rows kept in memory for tailing tasks; default 8 MiB
	MaxInflightBytes int64         // proposed but unanswered bytes before OVERLOADED; default 32 MiB
	MaxProducers     int           // producers remembered before OVERLOADED; default 65,536
	MaxKeys          int           // idempotency keys remembered before OVERLOADED; default 1,048,576
	KeyTTL           time.Duration // log time for which an idempotency key is remembered; default 24 h
	ProducerTTL      time.Duration // log time for which an idle producer is remembered; default 7 days

	Now    func() int64 // the wall clock in µs since 1970, read only to fill proposals; default time.Now
	Logger *slog.Logger // default slog.Default
}
