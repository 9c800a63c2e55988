package dataflow

import (
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// KeyGroups is the fixed number of key groups. It bounds the number of shards; it never changes, because every stored
// key's place follows from it. 1,024 leaves room for 1,024 shards and still keeps a per-group table cheap.
const KeyGroups = 1024

type (
	// ShardID numbers a shard of the group, from 0.
	ShardID uint32
	// KeyGroup is hash(key) mod KeyGroups.
	KeyGroup uint16
	// StreamID names a stream for good; a dropped stream's id is never reused.
	StreamID uint64
	// PipelineUID names one deployment of a pipeline for good; deleting and deploying again gives a new one.
	PipelineUID uint64
	// Offset counts the rows of one stream in one shard, from 0. As a position it is the next offset to read.
	Offset uint64
	// Seq counts the rows of one producer in one stream and shard, from 1 (P8).
	Seq uint64
	// ProducerEpoch fences older sessions of the same producer (P8). The first epoch is 1.
	ProducerEpoch uint64
	// CheckpointID numbers checkpoint attempts of a pipeline. Ids increase and are never reused (P3). Cut 0 is the
	// empty state a pipeline is deployed with.
	CheckpointID uint64
	// Incarnation numbers the runs of a pipeline (P4). The first is 1.
	Incarnation uint64
	// Timeline numbers the histories of a pipeline; a rewind opens a new one. The first is 1.
	Timeline uint64
	// DeltaSeq numbers the deltas of (pipeline, shard, incarnation), from 1 (P2). 0 means none.
	DeltaSeq uint64
	// LogIndex is the index of an entry in a Raft log.
	LogIndex uint64
	// StageID numbers the keyed stages of a plan, from 0, in topological order.
	StageID uint32
)

// LogRange is a stretch of a Raft log, both ends included.
type LogRange struct{ First, Last LogIndex }

func (s ShardID) String() string       { return strconv.FormatUint(uint64(s), 10) }
func (o Offset) String() string        { return strconv.FormatUint(uint64(o), 10) }
func (c CheckpointID) String() string  { return strconv.FormatUint(uint64(c), 10) }
func (i Incarnation) String() string   { return strconv.FormatUint(uint64(i), 10) }
func (u PipelineUID) String() string   { return strconv.FormatUint(uint64(u), 10) }
func (l LogIndex) String() string      { return strconv.FormatUint(uint64(l), 10) }
func (t Timeline) String() string      { return strconv.FormatUint(uint64(t), 10) }
func (e ProducerEpoch) String() string { return strconv.FormatUint(uint64(e), 10) }

// HashKey hashes a canonically encoded key (package dataflow/key). The function is XXH64 with seed 0, because every
// client language has it.
func HashKey(encoded []byte) uint64 { return xxhash.Sum64(encoded) }

// KeyGroupOf returns the key group of a hash: hash mod KeyGroups.
func KeyGroupOf(hash uint64) KeyGroup { return KeyGroup(hash % KeyGroups) }

// ShardOf returns the shard that owns a key group when the group has the given number of shards: each shard owns a
// contiguous range, and ranges differ in length by one at most.
func ShardOf(kg KeyGroup, shards int) ShardID { return ShardID(int(kg) * shards / KeyGroups) }

// MaxShards is the largest number of shards of a node group: each must own a key group.
const MaxShards = KeyGroups

// ParsePipelineTable splits "pipeline.table".
func ParsePipelineTable(s string) (pipeline, table string, err error) {
	for i := 0; i < len(s); i++ {
		if s[i] == '.' {
			if pipeline, table = s[:i], s[i+1:]; ValidName(pipeline) && ValidName(table) {
				return pipeline, table, nil
			}
			break
		}
	}
	return "", "", Errorf(ReasonKeyInvalid, "%q is not the name of a table", s).WithHint("write pipeline.table, for example wordcount.counts")
}

// StreamShard is one shard of one stream: the unit that offsets count in.
type StreamShard struct {
	Stream StreamID
	Shard  ShardID
}

func (s StreamShard) String() string { return fmt.Sprintf("%d/%d", s.Stream, s.Shard) }
