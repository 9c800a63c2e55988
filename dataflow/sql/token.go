package sql

import (
	"fmt"
	"strings"
)

// kind classes tokens.
type kind uint8

const (
	kindEnd     kind = iota
	kindWord         // an unquoted name or keyword, folded to lower case
	kindQuoted       // a "quoted" name
	kindInteger      // 12
	kindDecimal      // 1.5, 1e3
	kindString       // 'text', E'text', $$text$$
	kindOp           // an operator, :: included
	kindPunct        // ( ) [ ] , ; . :
	kindParam        // $1
	kindBroken       // no token: an error of the lexer
)

// token is one token. For strings and quoted names text is the value, otherwise the spelling (words folded).
type token struct {
	kind kind
	text string
	at   Span
}

// word reports whether t is the keyword w.
func (t token) word(w string) bool { return t.kind == kindWord && t.text == w }

// punct reports whether t is the punctuation mark s.
func (t token) punct(s string) bool { return t.kind == kindPunct && t.text == s }

// op reports whether t is the operator s.
func (t token) op(s string) bool { return t.kind == kindOp && t.text == s }

// describe names the token in an error message.
func (p *parser) describe(t token) string {
	switch t.kind {
	case kindEnd:
		return "the end of the text"
	case kindString:
		return "a string"
	case kindInteger, kindDecimal:
		return "the number " + t.text
	case kindQuoted:
		return fmt.Sprintf("%q", t.text)
	}
	return p.src.Text(t.at)
}

// The words that cannot be names unless quoted: PostgreSQL's reserved words.
var reserved = wordSet(`all analyse analyze and any array as asc asymmetric both case cast check collate column constraint
	create current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc
	distinct do else end except false fetch for foreign from grant group having in initially intersect into lateral leading
	limit localtime localtimestamp not null offset on only or order placing primary references returning select
	session_user some symmetric table then to trailing true union unique user using variadic when where window with`)

// The words that can name a function but neither a column nor a table unless quoted.
var functionOnly = wordSet(`authorization binary collation concurrently cross current_schema freeze full ilike inner is
	isnull join left like natural notnull outer overlaps right similar tablesample verbose`)

// The words that cannot be an alias without AS, besides the two sets above.
var notBareAlias = wordSet(`char character day filter hour minute month over precision second varying within without year`)

func wordSet(words string) map[string]bool {
	set := make(map[string]bool)
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}
