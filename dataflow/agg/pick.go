package agg

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/weirdb/weir/dataflow/batch"
)

// This file is min_by and max_by over rows that are never taken back: the one key that a bag of them would have first or
// last. Format of the tail: where the value begins in the key, as a varint, then the key. It is empty before the first row.

var errPick = errors.New("malformed value of min_by or max_by")

// pickRow takes over row of b when it is better than what acc holds.
func (l *Layout) pickRow(acc []byte, s *slot, i int, b *batch.Batch, row int, weight int64) ([]byte, error) {
	if weight == 0 {
		return acc, nil
	}
	if weight < 0 {
		return acc, errRetract(s)
	}
	var buf [96]byte
	key, split, ok := s.key(buf[:0], b, row)
	if !ok {
		return acc, nil
	}
	return l.pick(acc, s, i, key, split)
}

func (l *Layout) pick(acc []byte, s *slot, i int, key []byte, split int) ([]byte, error) {
	if tail := l.tail(acc, i); len(tail) > 0 {
		have, _, err := readPick(tail)
		if err != nil {
			return acc, corrupt(err)
		}
		if c := bytes.Compare(key, have); c == 0 || c > 0 != (s.spec.Fn == MaxBy) {
			return acc, nil
		}
	}
	var buf [128]byte
	return l.setTail(acc, i, append(binary.AppendUvarint(buf[:0], uint64(split)), key...))
}

func readPick(tail []byte) (key []byte, split int, err error) {
	n, k := binary.Uvarint(tail)
	if k <= 0 || n > uint64(len(tail)-k) {
		return nil, 0, errPick
	}
	return tail[k:], int(n), nil
}

func (l *Layout) mergePick(acc []byte, s *slot, i int, partial []byte) ([]byte, error) {
	tail := l.tail(partial, i)
	if len(tail) == 0 {
		return acc, nil
	}
	key, split, err := readPick(tail)
	if err != nil {
		return acc, corrupt(err)
	}
	return l.pick(acc, s, i, key, split)
}

// checkPick validates what acc holds, of bytes that are not trusted.
func (s *slot) checkPick(acc, tail []byte) error {
	if varState(acc, s) != stateValue {
		if varState(acc, s) == stateNull {
			return errState
		}
		return nil
	}
	key, split, err := readPick(tail)
	if err != nil {
		return err
	}
	return s.checkValue(key[split:], batch.NewVector(s.spec.ArgType, 1))
}

func (l *Layout) pickResult(s *slot, tail []byte, out *batch.Vector) {
	if key, split, err := readPick(tail); len(tail) == 0 || err != nil || s.appendValue(key[split:], out) != nil {
		out.AppendNull()
	}
}
