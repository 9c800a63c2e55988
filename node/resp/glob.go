package resp

import "strings"

// globMatch reports whether s matches a pattern as Redis has them: * is any text, ? any byte, [abc] [a-z] [^a] one byte of a
// set, \ takes the next byte as it is. It takes time in the product of the lengths at most.
func globMatch(pattern, s string) bool {
	p, i := 0, 0
	starP, starI := -1, 0 // where to go on when what follows the last * does not fit
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			starP, starI = p, i
			p++
			continue
		}
		if p < len(pattern) {
			if next, ok := globByte(pattern, p, s[i]); ok {
				p, i = next, i+1
				continue
			}
		}
		if starP < 0 {
			return false
		}
		starI++
		p, i = starP+1, starI
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// globByte matches one byte against what stands at p, which is not *, and returns where the pattern goes on.
func globByte(pattern string, p int, c byte) (next int, ok bool) {
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '[':
		return globSet(pattern, p+1, c)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return p + 1, pattern[p] == c
}

// globSet matches a byte against the set that begins at p. One that is not closed goes to the end of the pattern.
func globSet(pattern string, p int, c byte) (next int, ok bool) {
	negated := p < len(pattern) && pattern[p] == '^'
	if negated {
		p++
	}
	for p < len(pattern) && pattern[p] != ']' {
		if pattern[p] == '\\' && p+1 < len(pattern) {
			p++
		}
		lo, hi := pattern[p], pattern[p]
		if p+2 < len(pattern) && pattern[p+1] == '-' && pattern[p+2] != ']' {
			hi = pattern[p+2]
			p += 2
		}
		if lo > hi {
			lo, hi = hi, lo
		}
		ok = ok || lo <= c && c <= hi
		p++
	}
	return min(p+1, len(pattern)), ok != negated
}

// globPrefix returns the text that everything which matches begins with, and whether only that text itself matches.
func globPrefix(pattern string) (prefix string, whole bool) {
	var b strings.Builder
	for p := 0; p < len(pattern); p++ {
		switch pattern[p] {
		case '*', '?', '[':
			return b.String(), false
		case '\\':
			if p+1 < len(pattern) {
				p++
			}
		}
		b.WriteByte(pattern[p])
	}
	return b.String(), true
}
