package jsonb

import "bytes"

// Equal reports whether two values are equal: equal texts, but for zeros at the end of numbers with a point.
func Equal(a, b []byte) bool {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		x, y := a[i], b[j]
		switch {
		case x != y:
			return false
		case x == '"':
			to, end := endString(a, i), endString(b, j)
			if !bytes.Equal(a[i:to], b[j:end]) {
				return false
			}
			i, j = to, end
		case KindOf(a[i:]) == Number:
			to, end := end(a, i), end(b, j)
			if !bytes.Equal(trimZeros(a[i:to]), trimZeros(b[j:end])) {
				return false
			}
			i, j = to, end
		default:
			i, j = i+1, j+1
		}
	}
	return i == len(a) && j == len(b)
}

// trimZeros returns a number without zeros at the end of its fraction.
func trimZeros(n []byte) []byte {
	if bytes.IndexByte(n, '.') < 0 {
		return n
	}
	return bytes.TrimRight(bytes.TrimRight(n, "0"), ".")
}

func scalar(v []byte) bool {
	k := KindOf(v)
	return k != Array && k != Object
}

// Contains reports whether b is in a, as PostgreSQL's @> has it: every member of an object b is in a, every element of
// an array b is in an element of a, in any order; an array contains a scalar that is one of its elements.
func Contains(a, b []byte) bool {
	switch {
	case KindOf(a) == Array && scalar(b):
		return hasElement(a, b)
	case scalar(a) && scalar(b):
		return Equal(a, b)
	}
	return within(a, b)
}

func hasElement(a, x []byte) bool {
	for y := range Elements(a) {
		if Equal(y, x) {
			return true
		}
	}
	return false
}

// within is Contains below the top, where an array does not contain a scalar.
func within(a, b []byte) bool {
	kind := KindOf(b)
	if KindOf(a) != kind {
		return false
	}
	switch kind {
	case Object:
		for k, y := range Members(b) {
			x, ok := Field(a, unquote(k))
			if !ok || !within(x, y) {
				return false
			}
		}
		return true
	case Array:
		for y := range Elements(b) {
			if scalar(y) {
				if !hasElement(a, y) {
					return false
				}
				continue
			}
			found := false
			for x := range Elements(a) {
				if found = within(x, y); found {
					break
				}
			}
			if !found {
				return false
			}
		}
		return true
	}
	return Equal(a, b)
}
