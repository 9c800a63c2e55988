package jsonb

// Concat appends a || b: objects are merged, the members of b replacing those of a; anything else becomes one array, of
// the elements of arrays and of other values themselves.
func Concat(dst, a, b []byte) []byte {
	if KindOf(a) == Object && KindOf(b) == Object {
		return merge(dst, a, b)
	}
	dst = append(dst, '[')
	first := true
	add := func(v []byte) {
		if !first {
			dst = append(dst, ", "...)
		}
		first = false
		dst = append(dst, v...)
	}
	for _, v := range [][]byte{a, b} {
		if KindOf(v) != Array {
			add(v)
			continue
		}
		for x := range Elements(v) {
			add(x)
		}
	}
	return append(dst, ']')
}

// merge walks both objects, whose members are in order.
func merge(dst, a, b []byte) []byte {
	type member struct{ key, value []byte }
	var right []member
	for k, v := range Members(b) {
		right = append(right, member{k, v})
	}
	dst = append(dst, '{')
	first := true
	add := func(k, v []byte) {
		if !first {
			dst = append(dst, ", "...)
		}
		first = false
		dst = append(append(append(dst, k...), ": "...), v...)
	}
	for k, v := range Members(a) {
		key := unquote(k)
		for len(right) > 0 && compareKeys(unquote(right[0].key), key) < 0 {
			add(right[0].key, right[0].value)
			right = right[1:]
		}
		if len(right) > 0 && compareKeys(unquote(right[0].key), key) == 0 {
			continue // the right one comes next
		}
		add(k, v)
	}
	for _, m := range right {
		add(m.key, m.value)
	}
	return append(dst, '}')
}

// Without appends v without the members whose keys, or the strings in an array that, drop reports.
func Without(dst, v []byte, drop func(key []byte) bool) []byte {
	first := true
	comma := func() {
		if !first {
			dst = append(dst, ", "...)
		}
		first = false
	}
	switch KindOf(v) {
	case Object:
		dst = append(dst, '{')
		for k, x := range Members(v) {
			if drop(unquote(k)) {
				continue
			}
			comma()
			dst = append(append(append(dst, k...), ": "...), x...)
		}
		return append(dst, '}')
	case Array:
		dst = append(dst, '[')
		for x := range Elements(v) {
			if KindOf(x) == String && drop(unquote(x)) {
				continue
			}
			comma()
			dst = append(dst, x...)
		}
		return append(dst, ']')
	}
	return append(dst, v...)
}

// WithoutAt appends an array without its element i; -1 is the last one.
func WithoutAt(dst, v []byte, i int64) []byte {
	if i < 0 {
		i += int64(Len(v))
	}
	dst = append(dst, '[')
	at, first := int64(0), true
	for x := range Elements(v) {
		if at++; at-1 == i {
			continue
		}
		if !first {
			dst = append(dst, ", "...)
		}
		first = false
		dst = append(dst, x...)
	}
	return append(dst, ']')
}

// StripNulls appends v without the members of objects that are null, at any depth.
func StripNulls(dst, v []byte) []byte {
	first := true
	comma := func() {
		if !first {
			dst = append(dst, ", "...)
		}
		first = false
	}
	switch KindOf(v) {
	case Object:
		dst = append(dst, '{')
		for k, x := range Members(v) {
			if KindOf(x) == Null {
				continue
			}
			comma()
			dst = StripNulls(append(append(dst, k...), ": "...), x)
		}
		return append(dst, '}')
	case Array:
		dst = append(dst, '[')
		for x := range Elements(v) {
			comma()
			dst = StripNulls(dst, x)
		}
		return append(dst, ']')
	}
	return append(dst, v...)
}

// Key returns the text of a key as Members gives it.
func Key(k []byte) []byte { return unquote(k) }
