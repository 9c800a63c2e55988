package agg

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow/batch"
)

// This file is min, max and any. Among values that are equal but print differently (0 and -0, 1.0 and 1.00) min takes
// the first and max the last in the order (value, sign of zero or scale): which one PostgreSQL shows depends on the
// order of the rows, and here the result must not (A1).

// bestRow takes over row of col, which is not NULL, when it is better than what acc holds.
func (l *Layout) bestRow(acc []byte, s *slot, i int, col *batch.Vector, row int) ([]byte, error) {
	switch s.op {
	case opMinInt, opMaxInt:
		bestInt(acc[s.off:], s.op == opMaxInt, col.Ints[row])
	case opMinFloat, opMaxFloat:
		bestFloat(acc[s.off:], s.op == opMaxFloat, col.Floats[row])
	case opMinText, opMaxText:
		return l.bestText(acc, s, i, col.Text(row))
	case opMinDec, opMaxDec:
		return l.bestDec(acc, s, i, &col.Decs[row], nil)
	}
	return acc, nil
}

func bestInt(p []byte, largest bool, v int64) {
	if p[0] == stateNone || (v > getInt(p[1:])) == largest {
		p[0] = stateValue
		putInt(p[1:], v)
	}
}

func bestFloat(p []byte, largest bool, v float64) {
	if p[0] == stateNone || compareFloats(v, getFloat(p[1:])) > 0 == largest {
		p[0] = stateValue
		if v != v {
			v = math.NaN() // one NaN, whatever its payload was
		}
		putFloat(p[1:], v)
	}
}

// compareFloats orders -Infinity < … < -0 < 0 < … < Infinity < NaN.
func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		if a != 0 || math.Signbit(a) == math.Signbit(b) {
			return 0
		}
		if math.Signbit(a) {
			return -1
		}
		return 1
	case a == a:
		return -1
	case b == b:
		return 1
	}
	return 0
}

func (l *Layout) bestText(acc []byte, s *slot, i int, v []byte) ([]byte, error) {
	if varState(acc, s) == stateValue {
		c := bytes.Compare(v, l.tail(acc, i))
		if c == 0 || c > 0 != (s.op == opMaxText) {
			return acc, nil
		}
	}
	return l.setTail(acc, i, v)
}

// bestDec takes over v when it is better. enc is v encoded, or nil.
func (l *Layout) bestDec(acc []byte, s *slot, i int, v *apd.Decimal, enc []byte) ([]byte, error) {
	if varState(acc, s) == stateValue {
		var have apd.Decimal
		if _, err := batch.ReadDecimal(l.tail(acc, i), &have); err != nil {
			return acc, corrupt(err)
		}
		c := CompareDecimals(v, &have)
		if c == 0 {
			c = int(have.Exponent) - int(v.Exponent)
		}
		if c == 0 || c > 0 != (s.op == opMaxDec) {
			return acc, nil
		}
	}
	if enc == nil {
		var buf [40]byte
		enc = batch.AppendDecimal(buf[:0], v)
	}
	return l.setTail(acc, i, enc)
}

// CompareDecimals orders NUMERIC as PostgreSQL does: NaN is equal to itself and greater than all else, Infinity
// included.
func CompareDecimals(a, b *apd.Decimal) int {
	an, bn := a.Form == apd.NaN || a.Form == apd.NaNSignaling, b.Form == apd.NaN || b.Form == apd.NaNSignaling
	switch {
	case an && bn:
		return 0
	case an:
		return 1
	case bn:
		return -1
	}
	return a.Cmp(b)
}

// setRow makes row of col the value of an any.
func (l *Layout) setRow(acc []byte, s *slot, i int, col *batch.Vector, row int, null bool) ([]byte, error) {
	switch s.op {
	case opAnyInt, opAnyFloat:
		p := acc[s.off:]
		if null {
			p[0] = stateNull
			putInt(p[1:], 0)
			return acc, nil
		}
		p[0] = stateValue
		if s.op == opAnyInt {
			putInt(p[1:], col.Ints[row])
		} else {
			putFloat(p[1:], col.Floats[row])
		}
		return acc, nil
	case opAnyText:
		if !null {
			return l.setTail(acc, i, col.Text(row))
		}
	case opAnyDec:
		if !null {
			var buf [40]byte
			return l.setTail(acc, i, batch.AppendDecimal(buf[:0], &col.Decs[row]))
		}
	case opAnyCell:
		if !null {
			return l.setTail(acc, i, batch.AppendCell(nil, col, row))
		}
	}
	return l.setNull(acc, s, i)
}

// setNull makes NULL the value of a variable-width any.
func (l *Layout) setNull(acc []byte, s *slot, i int) ([]byte, error) {
	acc, err := l.setTail(acc, i, nil)
	if err == nil {
		binary.LittleEndian.PutUint32(acc[s.length:], stateNull)
	}
	return acc, err
}

// mergeBest folds the min, max or any of a partial into acc.
func (l *Layout) mergeBest(acc []byte, s *slot, i int, part []byte) ([]byte, error) {
	switch s.op {
	case opMinInt, opMaxInt, opMinFloat, opMaxFloat, opAnyInt, opAnyFloat:
		p, q := acc[s.off:], part[s.off:]
		if q[0] == stateNone {
			return acc, nil
		}
		switch s.op {
		case opAnyInt, opAnyFloat:
			copy(p[:fixSize], q[:fixSize])
		case opMinInt, opMaxInt:
			bestInt(p, s.op == opMaxInt, getInt(q[1:]))
		default:
			bestFloat(p, s.op == opMaxFloat, getFloat(q[1:]))
		}
		return acc, nil
	}
	state := varState(part, s)
	if state == stateNone {
		return acc, nil
	}
	v := l.tail(part, i)
	switch s.op {
	case opMinText, opMaxText:
		return l.bestText(acc, s, i, v)
	case opMinDec, opMaxDec:
		var d apd.Decimal
		if _, err := batch.ReadDecimal(v, &d); err != nil {
			return acc, corrupt(err)
		}
		return l.bestDec(acc, s, i, &d, v)
	}
	if state == stateNull {
		return l.setNull(acc, s, i)
	}
	return l.setTail(acc, i, v)
}
