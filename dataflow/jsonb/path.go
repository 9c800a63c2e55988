package jsonb

import (
	"fmt"
	"math"
	"strconv"
)

// Change says what to do at the end of a path.
type Change uint8

const (
	Set          Change = iota // replace what is there, or put a new member or element where there is none
	Replace                    // replace what is there
	InsertBefore               // put a new element before the one that is there, or a new member
	InsertAfter                // put a new element behind it, or a new member
	Delete                     // leave out what is there
)

// AtPath appends v with a change at the end of a path of keys and numbers, as PostgreSQL's setPath makes it; a nil step is NULL.
// value is the new one, in normal form. A path that leads nowhere changes nothing. Errors say which step makes no sense;
// dst is as it was then.
func AtPath(dst, v []byte, path [][]byte, change Change, value []byte) ([]byte, error) {
	kind := KindOf(v)
	switch {
	case kind != Object && kind != Array && change == Delete:
		return dst, fmt.Errorf("cannot delete path in scalar")
	case kind != Object && kind != Array:
		return dst, fmt.Errorf("cannot set path in scalar")
	case len(path) == 0:
		return append(dst, v...), nil
	case Len(v) == 0 && (change == Delete || change == Replace):
		return append(dst, v...), nil
	}
	p := pathChange{path: path, change: change, value: value}
	out, err := p.apply(dst, v, 0)
	if err != nil {
		return dst, err
	}
	return out, nil
}

type pathChange struct {
	path   [][]byte
	change Change
	value  []byte
}

// inserts reports whether what is not there is made.
func (p *pathChange) inserts() bool { return p.change != Replace && p.change != Delete }

// apply appends v as it is after the steps from level on.
func (p *pathChange) apply(dst, v []byte, level int) ([]byte, error) {
	if p.path[level] == nil {
		return dst, fmt.Errorf("path element at position %d is null", level+1)
	}
	switch KindOf(v) {
	case Object:
		return p.object(dst, v, level)
	case Array:
		return p.array(dst, v, level)
	}
	return append(dst, v...), nil
}

func (p *pathChange) object(dst, v []byte, level int) ([]byte, error) {
	step, last := p.path[level], level == len(p.path)-1
	if _, have := Field(v, step); !have {
		if !last || !p.inserts() {
			return append(dst, v...), nil
		}
		member := append(AppendString([]byte{'{'}, step), ": "...)
		return merge(dst, v, append(append(member, p.value...), '}')), nil
	}
	var err error
	dst = append(dst, '{')
	first := true
	for k, x := range Members(v) {
		at := string(unquote(k)) == string(step)
		if at && last && p.change == Delete {
			continue
		}
		if !first {
			dst = append(dst, ", "...)
		}
		first = false
		dst = append(append(dst, k...), ": "...)
		switch {
		case !at:
			dst = append(dst, x...)
		case !last:
			if dst, err = p.apply(dst, x, level+1); err != nil {
				return dst, err
			}
		case p.change == InsertBefore || p.change == InsertAfter:
			return dst, fmt.Errorf("cannot replace existing key")
		default:
			dst = append(dst, p.value...)
		}
	}
	return append(dst, '}'), nil
}

func (p *pathChange) array(dst, v []byte, level int) ([]byte, error) {
	step, last := p.path[level], level == len(p.path)-1
	at, err := strconv.ParseInt(string(step), 10, 32)
	if err != nil {
		return dst, fmt.Errorf("path element at position %d is not an integer: %q", level+1, step)
	}
	n := int64(Len(v))
	switch {
	case at < 0 && -at > n:
		at = math.MinInt64
	case at < 0:
		at += n
	}
	dst = append(dst, '[')
	first := true
	add := func(x []byte) {
		if !first {
			dst = append(dst, ", "...)
		}
		first = false
		dst = append(dst, x...)
	}
	if (at == math.MinInt64 || n == 0) && last && p.inserts() {
		add(p.value)
		at = math.MinInt64
	}
	i := int64(0)
	for x := range Elements(v) {
		switch {
		case i != at:
			add(x)
		case !last:
			add(nil)
			if dst, err = p.apply(dst, x, level+1); err != nil {
				return dst, err
			}
		case p.change == Set || p.change == Replace:
			add(p.value)
		case p.change == InsertBefore:
			add(p.value)
			add(x)
		case p.change == InsertAfter:
			add(x)
			add(p.value)
		}
		i++
	}
	if at >= n && last && p.inserts() {
		add(p.value)
	}
	return append(dst, ']'), nil
}

// Pretty appends v with a line for each member and element, each level four blanks further in. ok is false when that has
// more than limit bytes: deep values have many blanks.
func Pretty(dst, v []byte, limit int) (out []byte, ok bool) {
	p := printer{dst: dst, most: len(dst) + limit}
	p.print(v, 0)
	return p.dst, len(p.dst) <= p.most
}

type printer struct {
	dst  []byte
	most int // length of dst from which on nothing more is worth printing
}

func (p *printer) line(depth int) {
	p.dst = append(p.dst, '\n')
	for range depth {
		p.dst = append(p.dst, "    "...)
	}
}

// next begins a member or an element.
func (p *printer) next(depth int, first *bool) {
	if !*first {
		p.dst = append(p.dst, ',')
	}
	*first = false
	p.line(depth + 1)
}

func (p *printer) print(v []byte, depth int) {
	first := true
	switch KindOf(v) {
	case Object:
		p.dst = append(p.dst, '{')
		for k, x := range Members(v) {
			if len(p.dst) > p.most {
				return
			}
			p.next(depth, &first)
			p.dst = append(append(p.dst, k...), ": "...)
			p.print(x, depth+1)
		}
		p.line(depth)
		p.dst = append(p.dst, '}')
	case Array:
		p.dst = append(p.dst, '[')
		for x := range Elements(v) {
			if len(p.dst) > p.most {
				return
			}
			p.next(depth, &first)
			p.print(x, depth+1)
		}
		p.line(depth)
		p.dst = append(p.dst, ']')
	default:
		p.dst = append(p.dst, v...)
	}
}
