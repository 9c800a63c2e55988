package agg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Merge folds a partial accumulator of the same layout into acc, as if acc had seen its rows. acc is changed in place
// when the size allows; the result replaces it. Errors are those of Update.
func (l *Layout) Merge(acc, partial []byte) ([]byte, error) {
	addInt(acc, getInt(partial))
	for i := range l.slots {
		s := &l.slots[i]
		var err error
		switch s.op {
		case opRows:
		case opCount:
			addInt(acc[s.off:], getInt(partial[s.off:]))
		case opInt:
			p, q := acc[s.off:], partial[s.off:]
			addInt(p, getInt(q))
			lo, carry := bits.Add64(binary.LittleEndian.Uint64(p[8:]), binary.LittleEndian.Uint64(q[8:]), 0)
			hi, _ := bits.Add64(binary.LittleEndian.Uint64(p[16:]), binary.LittleEndian.Uint64(q[16:]), carry)
			binary.LittleEndian.PutUint64(p[8:], lo)
			binary.LittleEndian.PutUint64(p[16:], hi)
		case opFloat:
			p, q := acc[s.off:], partial[s.off:]
			addInt(p, getInt(q))
			putFloat(p[8:], getFloat(p[8:])+getFloat(q[8:]))
			for k := 16; k < floatSize; k += 8 {
				addInt(p[k:], getInt(q[k:]))
			}
		case opDec:
			acc, err = l.mergeDec(acc, s, i, partial)
		case opBool:
			p, q := acc[s.off:], partial[s.off:]
			addInt(p, getInt(q))
			addInt(p[8:], getInt(q[8:]))
		case opBag:
			acc, err = l.mergeBag(acc, s, i, partial)
		case opHLL:
			acc, err = l.mergeHLL(acc, i, partial)
		case opBits:
			mergeBits(acc[s.off:], partial[s.off:], s.spec.Fn)
		case opVarInt:
			mergeVarInt(acc[s.off:], partial[s.off:])
		case opVarFloat:
			mergeVarFloat(acc[s.off:], partial[s.off:])
		case opVarDec:
			addInt(acc[s.off:], getInt(partial[s.off:]))
			acc, err = l.mergeVarDec(acc, i, l.tail(partial, i))
		case opPick:
			acc, err = l.mergePick(acc, s, i, partial)
		default:
			acc, err = l.mergeBest(acc, s, i, partial)
		}
		if err != nil {
			return acc, err
		}
	}
	return acc, nil
}

// Exact reports whether Merge gives, bytes and all, what Update of the same rows gives, however the rows were cut into partials,
// and does not fail where Update has not: DOUBLE sums and variances round, any takes the last row, and a bag may be full.
func (l *Layout) Exact() bool {
	for i := range l.slots {
		switch l.slots[i].op {
		case opFloat, opVarFloat, opAnyInt, opAnyFloat, opAnyText, opAnyDec, opAnyCell, opBag:
			return false
		}
	}
	return true
}

func (l *Layout) mergeDec(acc []byte, s *slot, i int, partial []byte) ([]byte, error) {
	addInt(acc[s.off:], getInt(partial[s.off:]))
	part := l.tail(partial, i)
	if len(part) == 0 {
		return acc, nil
	}
	var sum, other numSum
	if err := sum.load(l.tail(acc, i)); err != nil {
		return acc, corrupt(err)
	}
	if err := other.load(part); err != nil {
		return acc, corrupt(err)
	}
	sum.merge(&other)
	var buf [64]byte
	return l.setTail(acc, i, sum.append(buf[:0]))
}

var (
	errShort  = errors.New("shorter than its fixed part")
	errLength = errors.New("its parts do not add up to its length")
	errState  = errors.New("unknown state of a value")
	errText   = errors.New("TEXT is not valid UTF-8")
)

func corrupt(err error) error {
	return dataflow.Errorf(dataflow.ReasonCorrupt, "state of a group is damaged: %w", err)
}

// Check validates the structure of bytes that are not trusted: after it, no method panics for them or finds damage. The
// error is CORRUPT.
func (l *Layout) Check(acc []byte) error {
	if len(acc) < l.fixed {
		return corrupt(errShort)
	}
	rest := acc[l.fixed:]
	for i := range l.slots {
		s := &l.slots[i]
		switch s.op {
		case opMinInt, opMaxInt, opMinFloat, opMaxFloat, opAnyInt, opAnyFloat:
			if acc[s.off] > stateValue || acc[s.off] == stateNull && s.spec.Fn != Any {
				return corrupt(errState)
			}
		}
		if s.length == 0 {
			continue
		}
		n := l.tailLen(acc, i)
		if n > len(rest) {
			return corrupt(errLength)
		}
		tail := rest[:n]
		rest = rest[n:]
		if err := s.checkTail(acc, tail); err != nil {
			return corrupt(fmt.Errorf("%s: %w", s.spec, err))
		}
	}
	if len(rest) != 0 {
		return corrupt(errLength)
	}
	return nil
}

func (s *slot) checkTail(acc, tail []byte) error {
	switch s.op {
	case opDec:
		var sum numSum
		return sum.load(tail)
	case opBag:
		return s.checkBag(acc, tail)
	case opPick:
		return s.checkPick(acc, tail)
	case opHLL:
		if varState(acc, s) == stateNull {
			return errState
		}
		return checkHLL(tail)
	case opVarDec:
		var v varSums
		return v.load(tail)
	}
	switch state := varState(acc, s); {
	case state == stateNull && s.spec.Fn != Any:
		return errState
	case state != stateValue:
		return nil
	}
	switch {
	case s.op == opAnyCell:
		rest, err := batch.ReadCell(tail, batch.NewVector(s.spec.ArgType, 1))
		if err == nil && len(rest) != 0 {
			err = errLength
		}
		return err
	case s.spec.ArgType.Form() == dataflow.FormBytes:
		if s.spec.ArgType != dataflow.TypeBytea && !utf8.Valid(tail) {
			return errText
		}
		return nil
	}
	var d apd.Decimal
	rest, err := batch.ReadDecimal(tail, &d)
	if err == nil && len(rest) != 0 {
		err = errLength
	}
	return err
}
