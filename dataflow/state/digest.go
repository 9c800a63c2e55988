package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pace"
)

// Digest describes all of a pipeline's state at a cut in a shard: equal on every replica, whatever lies in layers there and
// what in the store.
type Digest struct {
	Sum     uint64 // XXH64 over stage, key and value of each entry, in order
	Entries int64
	Bytes   int64 // of keys and values
}

func (d Digest) String() string {
	return fmt.Sprintf("%016x over %d entries, %d bytes", d.Sum, d.Entries, d.Bytes)
}

// digestBatch is how many entries are read between two looks at the limiter and the context.
const digestBatch = 1024

// Digest reads all of a pipeline's state at a cut, at the limiter's pace. It holds a view for that time. Errors are View's
// and CORRUPT.
func (r *Replica) Digest(ctx context.Context, pipeline dataflow.PipelineUID, cut dataflow.CheckpointID, limit *pace.Limiter) (Digest, error) {
	v, err := r.View(pipeline, cut)
	if err != nil {
		return Digest{}, err
	}
	defer v.Release()
	stages, err := v.stages()
	if err != nil {
		return Digest{}, err
	}
	var d Digest
	h := xxhash.New()
	for _, stage := range stages {
		if err := v.digest(ctx, stage, h, &d, limit); err != nil {
			return Digest{}, err
		}
	}
	d.Sum = h.Sum64()
	return d, nil
}

func (v *View) digest(ctx context.Context, stage dataflow.StageID, h *xxhash.Digest, d *Digest, limit *pace.Limiter) (err error) {
	it := v.Iter(stage, nil, nil)
	defer func() { err = errors.Join(err, it.Close()) }()
	var head [12]byte
	bytes := 0
	for n := 1; it.Next(); n++ {
		binary.LittleEndian.PutUint32(head[:], uint32(stage))
		binary.LittleEndian.PutUint32(head[4:], uint32(len(it.Key())))
		binary.LittleEndian.PutUint32(head[8:], uint32(len(it.Value())))
		for _, part := range [...][]byte{head[:], it.Key(), it.Value()} {
			if _, err := h.Write(part); err != nil {
				return err
			}
		}
		size := len(it.Key()) + len(it.Value())
		d.Entries, d.Bytes, bytes = d.Entries+1, d.Bytes+int64(size), bytes+size
		if n%digestBatch == 0 {
			if err := limit.Wait(ctx, bytes); err != nil {
				return err
			}
			bytes = 0
		}
	}
	return limit.Wait(ctx, bytes)
}

// stages returns the stages that the view may have entries of, ascending.
func (v *View) stages() ([]dataflow.StageID, error) {
	all := stages(v.layers)
	if v.snap == nil {
		return all, nil
	}
	if v.r.closed.Load() {
		return nil, errShuttingDown()
	}
	it, err := v.snap.NewIter(nil)
	if err != nil {
		return nil, corrupt(err)
	}
	first := appendPipeline(nil, v.uid)
	end := prefixEnd(slices.Clone(first))
	for ok := it.SeekGE(appendStoreKey(nil, v.uid, 0, nil)); ok; {
		key := it.Key()
		if end != nil && string(key) >= string(end) {
			break
		}
		all = append(all, dataflow.StageID(binary.BigEndian.Uint32(key[len(first):])))
		next := prefixEnd(slices.Clone(key[:storePrefix]))
		if next == nil {
			break
		}
		ok = it.SeekGE(next)
	}
	if err := errors.Join(corrupt(it.Error()), it.Close()); err != nil {
		return nil, err
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
