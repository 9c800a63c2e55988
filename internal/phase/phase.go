package phase

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
)

// Phase is a kind of work that a kill can fall into. Written to files: append-only.
type Phase uint8

const (
	Restart  Phase = iota // the node opens its data directory, up to where it serves
	Recover               // an incarnation of a pipeline begins: fenced, loaded, its tasks started
	Append                // an append was handed to the shards' logs and has not been answered
	Barrier               // a barrier was injected and some task has not taken its snapshot
	Delta                 // a shard's delta is being written to its log
	Commit                // a checkpoint's commit was proposed to the meta log and has not been answered
	Publish               // a committed cut is being handed to the replicas
	Merge                 // committed layers are being folded into the store, or their deltas settled
	Snapshot              // a Raft log is being cut behind a snapshot
	Trim                  // rows of a stream are being dropped
	count
)

var names = [count]string{"restart", "recover", "append", "barrier", "delta", "commit", "publish", "merge", "snapshot", "trim"}

func (p Phase) String() string {
	if p < count {
		return names[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// All returns every phase.
func All() []Phase {
	all := make([]Phase, count)
	for i := range all {
		all[i] = Phase(i)
	}
	return all
}

// The file: a magic number, then a pair of counters per phase, entered and left, little-endian, one page in all.
const (
	magic    = 0x3130485052494557 // "WEIRPH01"
	fileSize = 4096
	pair     = 16 // bytes per phase
)

// Recorder counts the phases that this process enters and leaves. All methods may be called concurrently, and on nil.
type Recorder struct {
	counters []atomic.Uint64 // in the mapped file: entered and left, by turns
}

// Enter says that one piece of work in phase p begins. Leave must follow.
func (r *Recorder) Enter(p Phase) {
	if r != nil {
		r.counters[2*p].Add(1)
	}
}

// Leave says that a piece of work in phase p has ended, in whatever way.
func (r *Recorder) Leave(p Phase) {
	if r != nil {
		r.counters[2*p+1].Add(1)
	}
}

// Counts is the content of a record.
type Counts [count]struct{ Entered, Left uint64 }

// In returns how many pieces of work are, or at the process's end were, in phase p.
func (c *Counts) In(p Phase) uint64 {
	// The two counters are not read at one moment: a pair that was entered and left in between must not wrap around.
	if c[p].Left >= c[p].Entered {
		return 0
	}
	return c[p].Entered - c[p].Left
}

// Reader reads the record of another process.
type Reader struct{ f *os.File }

// NewReader opens the record at path. The file must exist.
func NewReader(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open phase record: %w", err)
	}
	return &Reader{f: f}, nil
}

// Read returns the counts of now. A record that no process has opened yet is empty.
func (r *Reader) Read() (Counts, error) {
	var c Counts
	var b [8 + count*pair]byte
	if _, err := r.f.ReadAt(b[:], 0); err != nil {
		return c, fmt.Errorf("read phase record: %w", err)
	}
	switch binary.LittleEndian.Uint64(b[:]) {
	case magic:
	case 0:
		return c, nil
	default:
		return c, fmt.Errorf("read phase record: %s is none", r.f.Name())
	}
	for p := range c {
		c[p].Entered = binary.LittleEndian.Uint64(b[8+p*pair:])
		c[p].Left = binary.LittleEndian.Uint64(b[16+p*pair:])
	}
	return c, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }
