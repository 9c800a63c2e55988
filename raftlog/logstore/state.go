package logstore

import (
	"encoding/binary"
	"slices"
)

// groupState is what is durable about a group besides its entries.
type groupState struct {
	// first and last are the range that Raft has. When its log is empty, last is first-1: the index up to which entries may
	// still be retained, and behind which the log goes on; both are 0 in a new log.
	first, last uint64
	// start is the lowest index that counts: what older segments may still hold below it was forgotten, when the log went
	// on elsewhere than behind what it had.
	start uint64
	// floor is the lowest index that is retained whatever Raft deletes.
	floor uint64
	// cuts say which ends of segments were deleted after the segments had been sealed. Kept beside the state on disk.
	cuts []cut
	// kv is the stable store: Raft's term and vote.
	kv map[string][]byte
}

// low returns the lowest index that is wanted: by Raft or by Retain.
func (s *groupState) low() uint64 { return max(s.start, min(s.first, s.floor)) }

// empty says that Raft has no entries.
func (s *groupState) empty() bool { return s.first > s.last || s.last == 0 }

// stored takes note of an entry stored behind the last, or anywhere when the log is empty, while seq was the newest
// segment. forget = it does not go on behind what is retained, so nothing of that stays.
func (s *groupState) stored(index, seq uint64) (forget bool) {
	if s.empty() {
		if s.last == 0 || index != s.last+1 {
			if forget = s.last > 0; forget {
				s.cuts = addCut(s.cuts, seq, 0)
			}
			s.start = index
		}
		s.first = index
	}
	s.last = index
	return forget
}

// emptied takes note that all that Raft had was deleted.
func (s *groupState) emptied() { s.last = s.first - 1 }

// appendState appends the payload of a state record.
func appendState(dst []byte, groups []*GroupLog) []byte {
	for _, g := range groups {
		dst = binary.AppendUvarint(dst, uint64(g.id))
		dst = appendBytes(dst, []byte(g.name))
		dst = binary.AppendUvarint(dst, g.w.first)
		dst = binary.AppendUvarint(dst, g.w.last)
		dst = binary.AppendUvarint(dst, g.w.start)
		dst = binary.AppendUvarint(dst, g.w.floor)
		dst = binary.AppendUvarint(dst, uint64(len(g.w.kv)))
		dst = appendPairs(dst, g.w.kv)
	}
	return dst
}

// namedState is one group of a state record.
type namedState struct {
	id   uint32
	name string
	groupState
}

// decodeState decodes the payload of a state record.
func decodeState(b []byte) ([]namedState, error) {
	var out []namedState
	d := decoder{b: b}
	for len(d.b) > 0 {
		id := d.uvarint()
		s := namedState{id: uint32(id), name: string(d.bytes())}
		s.first, s.last, s.start, s.floor = d.uvarint(), d.uvarint(), d.uvarint(), d.uvarint()
		n := d.uvarint()
		if d.bad || id > 1<<32-1 || s.name == "" || s.first > s.last+1 || s.first == 0 && s.last > 0 || n > uint64(len(d.b)) {
			return nil, errInvalid
		}
		s.kv = make(map[string][]byte, n)
		for range n {
			k, v := d.bytes(), d.bytes()
			s.kv[string(k)] = slices.Clone(v)
		}
		if d.bad {
			return nil, errInvalid
		}
		out = append(out, s)
	}
	return out, nil
}

// appendPairs appends keys and values in the keys' order.
func appendPairs(dst []byte, kv map[string][]byte) []byte {
	keys := make([]string, 0, len(kv))
	for k := range kv {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		dst = appendBytes(appendBytes(dst, []byte(k)), kv[k])
	}
	return dst
}

// decodePairs decodes the payload of a stable record into kv.
func decodePairs(b []byte, kv map[string][]byte) error {
	d := decoder{b: b}
	for len(d.b) > 0 {
		k, v := d.bytes(), d.bytes()
		if d.bad {
			return errInvalid
		}
		kv[string(k)] = slices.Clone(v)
	}
	return nil
}
