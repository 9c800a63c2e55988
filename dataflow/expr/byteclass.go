package expr

import (
	"regexp/syntax"
	"unicode"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow/batch"
)

// byteClass splits by a table: a byte that separates, alone or in runs.
type byteClass struct {
	sep [256]bool
	run bool // a run of separators counts as one
	// asciiOnly: the table is right for ASCII texts, others take the long way.
	asciiOnly bool
}

// splitClass recognises patterns that are one class of characters or one character, alone or with + behind, as
// [^a-z0-9]+ or \s+ or a comma; nil for all else. The pattern is Go's.
func splitClass(p string) *byteClass {
	re, err := syntax.Parse(p, syntax.Perl)
	if err != nil {
		return nil
	}
	bc := &byteClass{}
	if re.Op == syntax.OpPlus && re.Flags&syntax.NonGreedy == 0 {
		bc.run, re = true, re.Sub[0]
	}
	var ranges []rune
	switch {
	case re.Op == syntax.OpCharClass:
		ranges = re.Rune
	case re.Op == syntax.OpLiteral && len(re.Rune) == 1 && re.Flags&syntax.FoldCase == 0:
		ranges = []rune{re.Rune[0], re.Rune[0]}
	default:
		return nil
	}
	beyond := 0 // characters beyond ASCII that separate
	for i := 0; i < len(ranges); i += 2 {
		lo, hi := ranges[i], ranges[i+1]
		for r := lo; r <= hi && r < utf8.RuneSelf; r++ {
			bc.sep[r] = true
		}
		if hi >= utf8.RuneSelf {
			beyond += int(hi - max(lo, utf8.RuneSelf) + 1)
		}
	}
	all := beyond == unicode.MaxRune-utf8.RuneSelf+1
	switch {
	case beyond == 0:
	case all && bc.run:
		// Each byte of such a character separates, and the run makes one of them.
		for c := utf8.RuneSelf; c < 256; c++ {
			bc.sep[c] = true
		}
	default:
		bc.asciiOnly = true
	}
	return bc
}

// appendParts appends the parts of s between separators.
func (bc *byteClass) appendParts(elems *batch.Vector, s []byte) {
	data, offs := elems.Data, elems.Offs
	from := 0
	for i := 0; i < len(s); i++ {
		if !bc.sep[s[i]] {
			continue
		}
		data = append(data, s[from:i]...)
		offs = append(offs, uint32(len(data)))
		if bc.run {
			for i+1 < len(s) && bc.sep[s[i+1]] {
				i++
			}
		}
		from = i + 1
	}
	data = append(data, s[from:]...)
	elems.Data, elems.Offs = data, append(offs, uint32(len(data)))
}
