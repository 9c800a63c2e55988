package shard

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/weirdb/weir/dataflow"
)

// keyTable remembers idempotency keys in the order they came, which is that of their log time.
type keyTable struct {
	// entries never change, leave in front and come at the end, so a snapshot may share the slice.
	entries []keyEntry
	gone    uint64             // how many have left
	at      map[keyHash]uint64 // key → position, counted with those that have left
}

// keyEntry is an append with an idempotency key and the answer to it.
type keyEntry struct {
	key    keyHash
	digest uint64
	offset dataflow.Offset
	count  int
	time   int64 // append time
}

func (t *keyTable) find(k keyHash) (keyEntry, bool) {
	pos, ok := t.at[k]
	if !ok {
		return keyEntry{}, false
	}
	return t.entries[pos-t.gone], true
}

func (t *keyTable) add(e keyEntry) {
	if t.at == nil {
		t.at = make(map[keyHash]uint64)
	}
	t.at[e.key] = t.gone + uint64(len(t.entries))
	t.entries = append(t.entries, e)
}

// expire forgets the keys of before the given log time.
func (t *keyTable) expire(before int64) {
	n := 0
	for n < len(t.entries) && t.entries[n].time < before {
		delete(t.at, t.entries[n].key)
		n++
	}
	t.entries = t.entries[n:]
	t.gone += uint64(n)
}

// admit answers an append whose key is known; false = the key is new.
func (t *keyTable) admit(c *appendRows) (answer Appended, known bool, err error) {
	e, known := t.find(c.key)
	if !known {
		return answer, false, nil
	}
	if e.digest != c.digest {
		return answer, true, dataflow.Errorf(dataflow.ReasonIdempotencyKeyReused, "the idempotency key came before with other rows")
	}
	return Appended{First: e.offset, Next: e.offset + dataflow.Offset(e.count), Duplicate: true, AppendTime: e.time}, true, nil
}

// hashKey returns what stands for a stream and an idempotency key.
func hashKey(stream dataflow.StreamID, key string) keyHash {
	sum := sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, uint64(stream)), key...))
	return keyHash(sum[:len(keyHash{})])
}
