package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/weirdb/weir/dataflow"
)

// Base says what the store of a replica holds of one pipeline: the state at a cut. It is the base marker (S3, P6).
type Base struct {
	// Checkpoint is the newest cut that is known to be equal to the store's state.
	Checkpoint dataflow.CheckpointID
	Timeline   dataflow.Timeline
	// MetaIndex is the meta log's index of that cut's commit: a node serves the replica once its meta FSM has passed it.
	MetaIndex dataflow.LogIndex
	// Ref is the last delta that the store holds.
	Ref dataflow.DeltaRef
	// Digest is that delta's digest.
	Digest uint64
}

func (b Base) String() string { return fmt.Sprintf("cut %d at delta %s", b.Checkpoint, b.Ref) }

const (
	baseVersion = 1
	baseSize    = 1 + 6*8 + 4
)

// droppedMarker is the marker of a pipeline that was dropped. It stays, so that a log that is replayed from before the
// drop is not taken for one whose store has been lost.
var droppedMarker = []byte{0}

var errBase = errors.New("damaged base marker")

// encode returns the marker's value: version u8, then checkpoint, timeline, meta index, incarnation, seq, digest as
// little-endian u64, then CRC32C of all that.
func (b Base) encode() []byte {
	out := make([]byte, 0, baseSize)
	out = append(out, baseVersion)
	for _, v := range [...]uint64{uint64(b.Checkpoint), uint64(b.Timeline), uint64(b.MetaIndex), uint64(b.Ref.Incarnation), uint64(b.Ref.Seq), b.Digest} {
		out = binary.LittleEndian.AppendUint64(out, v)
	}
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

func decodeBase(v []byte) (Base, error) {
	if len(v) != baseSize || v[0] != baseVersion {
		return Base{}, fmt.Errorf("%w: %d bytes of an unknown version", errBase, len(v))
	}
	if binary.LittleEndian.Uint32(v[baseSize-4:]) != crc32.Checksum(v[:baseSize-4], castagnoli) {
		return Base{}, fmt.Errorf("%w: it fails its checksum", errBase)
	}
	var f [6]uint64
	for i := range f {
		f[i] = binary.LittleEndian.Uint64(v[1+8*i:])
	}
	return Base{
		Checkpoint: dataflow.CheckpointID(f[0]),
		Timeline:   dataflow.Timeline(f[1]),
		MetaIndex:  dataflow.LogIndex(f[2]),
		Ref:        dataflow.DeltaRef{Incarnation: dataflow.Incarnation(f[3]), Seq: dataflow.DeltaSeq(f[4])},
		Digest:     f[5],
	}, nil
}

// Keys of the store: headerKey, and per pipeline its marker's key (the uid, 8 bytes big-endian), which is the first of
// its range, followed by uid ‖ stage (4 bytes big-endian) ‖ key.
var headerKey = []byte{0}

func appendPipeline(dst []byte, uid dataflow.PipelineUID) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(uid))
}

// storePrefix is the length of uid ‖ stage.
const storePrefix = 12

func appendStoreKey(dst []byte, uid dataflow.PipelineUID, stage dataflow.StageID, key []byte) []byte {
	dst = binary.BigEndian.AppendUint32(appendPipeline(dst, uid), uint32(stage))
	return append(dst, key...)
}

// prefixEnd returns the smallest key above all that start with p, in place; nil when there is none.
func prefixEnd(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i]++; p[i] != 0 {
			return p[:i+1]
		}
	}
	return nil
}
