package sql

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/weirdb/weir/dataflow"
)

const (
	// maxOperators bounds the operators of one statement: a+a+… becomes a tree as deep as it is long.
	maxOperators = 5_000
	// maxStatements bounds the statements of a file.
	maxStatements = 1_000
)

// Parse parses a deploy file: SET, CREATE STREAM, CREATE VIEW and CREATE MATERIALIZED VIEW, separated by semicolons.
// Its errors are *dataflow.Error with SQL_SYNTAX, SQL_UNSUPPORTED or TOO_LARGE.
func Parse(text string) (*File, error) {
	p, err := newParser(text)
	if err != nil {
		return nil, err
	}
	f := p.file()
	if p.err != nil {
		return nil, p.err
	}
	return f, nil
}

// file parses statements up to the end of the text.
func (p *parser) file() *File {
	f := &File{Source: p.src}
	for {
		for p.acceptPunct(";") {
		}
		if p.peek().kind == kindEnd {
			break
		}
		if len(f.Statements) == maxStatements {
			p.failf(p.peek().at, "a file has at most %d statements", maxStatements)
			break
		}
		if s := p.statement(); s != nil {
			f.Statements = append(f.Statements, s)
		}
		if p.peek().kind != kindEnd && !p.acceptPunct(";") {
			p.expected("; or the end of the text")
		}
	}
	return f
}

// ParseQuery parses one query, with or without a semicolon. Errors are as Parse's.
func ParseQuery(text string) (*Select, error) {
	p, err := newParser(text)
	if err != nil {
		return nil, err
	}
	s := p.wholeQuery()
	if p.err != nil {
		return nil, p.err
	}
	return s, nil
}

// ParseStatement parses what a query request may hold: one query, or EXPLAIN and what it explains. One of its results is not
// nil. Errors are as Parse's.
func ParseStatement(text string) (*Select, *Explain, error) {
	p, err := newParser(text)
	if err != nil {
		return nil, nil, err
	}
	var s *Select
	var e *Explain
	if p.is("explain") {
		e = p.explain()
	} else {
		s = p.wholeQuery()
	}
	if p.err != nil {
		return nil, nil, p.err
	}
	return s, e, nil
}

// wholeQuery parses a query up to the end of the text.
func (p *parser) wholeQuery() *Select {
	s := p.query()
	p.queryEnd()
	return s
}

// explain parses EXPLAIN and what it explains, up to the end of the text.
func (p *parser) explain() *Explain {
	p.next()
	switch t := p.peek(); {
	case t.punct("(") && !p.queryInParentheses(), t.word("analyze"), t.word("analyse"), t.word("verbose"):
		p.unsupported(t.at, "options of EXPLAIN are not there yet: write EXPLAIN SELECT …")
	case p.startsQuery() || t.punct("("):
		return &Explain{Source: p.src, Query: p.wholeQuery()}
	case t.word("create") || t.word("set"):
		return &Explain{Source: p.src, File: p.file()}
	case t.kind == kindQuoted || t.kind == kindWord && !isReserved(t) && p.nextPunct("."):
		n := p.qualifiedName("pipeline.table")
		p.queryEnd()
		return &Explain{Source: p.src, Table: &n}
	case t.kind == kindWord && refusedStatements[t.text] != "":
		p.unsupported(t.at, "%s: %s", p.upper(t), refusedStatements[t.text])
	default:
		p.expected("a query, CREATE MATERIALIZED VIEW … or pipeline.table after EXPLAIN", "SELECT", "CREATE", "WITH")
	}
	return nil
}

// queryEnd fails unless the text ends, with or without a semicolon.
func (p *parser) queryEnd() {
	p.acceptPunct(";")
	if t := p.peek(); t.kind != kindEnd {
		if p.atStatementEnd(t) {
			p.unsupported(t.at, "a query is one SELECT: send the statements one by one")
		}
		p.refuseClause()
		p.expected("the end of the query")
	}
}

// parser holds the place in the text and the first error.
type parser struct {
	windows   []namedWindow // that no WINDOW has defined yet
	src       *Source
	lex       lexer
	ahead     []token // tokens read and not consumed
	last      Span    // the last consumed token
	err       *dataflow.Error
	broken    *dataflow.Error // why the last token ahead is kindBroken
	depth     int
	operators int
	lastTerm  *Select // the SELECT that was parsed last, for what may follow it; nil for another kind of query
}

func newParser(text string) (*parser, error) {
	if len(text) > dataflow.MaxSQLBytes {
		return nil, dataflow.Errorf(dataflow.ReasonTooLarge, "the SQL text has %d bytes; at most %d are allowed", len(text), dataflow.MaxSQLBytes)
	}
	src := NewSource(text)
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) {
			return nil, src.Errorf(dataflow.ReasonSQLSyntax, Span{i, i + 1}, "the text is not UTF-8: byte 0x%02x", text[i])
		}
		if r == 0 {
			return nil, src.Errorf(dataflow.ReasonSQLSyntax, Span{i, i + 1}, "the text has a zero byte")
		}
	}
	return &parser{src: src, lex: lexer{src: src}}, nil
}

// fail records the first error. After it the parser sees only the end of the text.
func (p *parser) fail(err *dataflow.Error) {
	if p.err == nil {
		p.err = err
		p.ahead = p.ahead[:0]
	}
}

func (p *parser) failf(at Span, format string, args ...any) {
	if p.err == nil {
		p.fail(p.src.Errorf(dataflow.ReasonSQLSyntax, at, format, args...))
	}
}

func (p *parser) unsupported(at Span, format string, args ...any) {
	if p.err == nil {
		p.fail(p.src.Errorf(dataflow.ReasonSQLUnsupported, at, format, args...))
	}
}

// expected fails: something other than the next token was expected. Words are keywords that the next token may be a
// misspelling of.
func (p *parser) expected(what string, words ...string) {
	if p.err != nil {
		return
	}
	t := p.peek()
	if p.err != nil { // the next token is broken in itself
		return
	}
	hint := ""
	if t.kind == kindWord {
		hint = dataflow.DidYouMean(p.src.Text(t.at), words)
	}
	if isReserved(t) && (strings.Contains(what, "name") || what == "an expression" && p.usedAsColumn()) {
		hint = fmt.Sprintf("; %s is a keyword: as a name it is written %q in double quotes", strings.ToUpper(t.text), t.text)
	}
	if t.kind == kindWord && p.last.To == t.at.From && p.last.To > p.last.From && p.src.Text(p.last)[p.last.To-p.last.From-1] == '\'' {
		hint = "; a quote inside a string is written twice, 'it''s'"
	}
	p.failf(t.at, "expected %s, found %s%s", what, p.describe(t), hint)
}

// usedAsColumn reports whether the reserved word that comes next is followed by what follows a column.
func (p *parser) usedAsColumn() bool {
	after := p.peekAt(1)
	return after.kind == kindOp || after.punct(",") || after.punct(")") || after.word("from") || after.word("as")
}

func isReserved(t token) bool {
	return t.kind == kindWord && (reserved[t.text] || functionOnly[t.text])
}

// peekAt returns the token n places ahead without consuming it. A broken token fails the parse when it comes next, not
// when it is looked ahead to, so that it does not hide an error before it.
func (p *parser) peekAt(n int) token {
	for p.err == nil && len(p.ahead) <= n {
		if len(p.ahead) > 0 && p.ahead[len(p.ahead)-1].kind == kindBroken {
			return p.ahead[len(p.ahead)-1]
		}
		t, err := p.lex.next()
		if err != nil {
			t, p.broken = token{kind: kindBroken}, err
		}
		p.ahead = append(p.ahead, t)
	}
	if p.err == nil && n == 0 && p.ahead[0].kind == kindBroken {
		p.fail(p.broken)
	}
	if p.err != nil {
		return token{kind: kindEnd, at: p.last}
	}
	return p.ahead[n]
}

func (p *parser) peek() token { return p.peekAt(0) }

// next consumes a token.
func (p *parser) next() token {
	t := p.peek()
	if len(p.ahead) > 0 {
		p.ahead = p.ahead[:copy(p.ahead, p.ahead[1:])]
		p.last = t.at
	}
	return t
}

func (p *parser) is(word string) bool       { return p.peek().word(word) }
func (p *parser) isPunct(s string) bool     { return p.peek().punct(s) }
func (p *parser) nextIs(word string) bool   { return p.peekAt(1).word(word) }
func (p *parser) nextPunct(s string) bool   { return p.peekAt(1).punct(s) }
func (p *parser) since(start Span) Span     { return Span{start.From, max(p.last.To, start.To)} }
func (p *parser) upper(t token) string      { return strings.ToUpper(t.text) }
func (p *parser) acceptPunct(s string) bool { return p.acceptIf(p.isPunct(s)) }
func (p *parser) acceptOp(s string) bool    { return p.acceptIf(p.peek().op(s)) }

func (p *parser) acceptIf(ok bool) bool {
	if ok {
		p.next()
	}
	return ok
}

// accept consumes the keywords if all of them come next.
func (p *parser) accept(words ...string) bool {
	for i, w := range words {
		if !p.peekAt(i).word(w) {
			return false
		}
	}
	for range words {
		p.next()
	}
	return true
}

// expect consumes a keyword or fails.
func (p *parser) expect(word string) bool {
	if p.accept(word) {
		return true
	}
	upper := strings.ToUpper(word)
	p.expected(upper, upper)
	return false
}

// expectPunct consumes a punctuation mark or fails.
func (p *parser) expectPunct(s string) bool {
	if p.acceptPunct(s) {
		return true
	}
	p.expected(s)
	return false
}

// closeParen consumes the ) that closes the ( at open, or fails and says which one is open.
func (p *parser) closeParen(open Span, or string) {
	if p.acceptPunct(")") || p.err != nil {
		return
	}
	line, column := p.src.Position(open.From)
	p.expected(fmt.Sprintf(") %sto close the ( at line %d, column %d", or, line, column))
}

// nested runs parse one level deeper, or fails when the text nests too deeply.
func (p *parser) nested(at Span, parse func()) {
	if p.depth >= dataflow.MaxSQLDepth {
		p.failf(at, "this is nested more than %d levels deep", dataflow.MaxSQLDepth)
		return
	}
	p.depth++
	parse()
	p.depth--
}

// name reads a name: a word that is not reserved, or a quoted name.
func (p *parser) name(what string) Ident {
	t := p.peek()
	if t.kind == kindQuoted || t.kind == kindWord && !isReserved(t) {
		p.next()
		return Ident{t.text, t.at}
	}
	p.expected(what)
	return Ident{At: t.at}
}

// definedName reads a name that the statement gives to something, and checks its form.
func (p *parser) definedName(what string) Ident {
	id := p.name(what)
	if p.err != nil {
		return id
	}
	if t := p.peek(); t.op("-") && t.at.From == id.At.To {
		p.failf(t.at, "a name has no -: write %s_%s", id.Name, fold(p.src.Text(p.peekAt(1).at)))
	}
	p.checkName(id)
	return id
}

func (p *parser) checkName(id Ident) {
	if dataflow.ValidName(id.Name) {
		return
	}
	if len(id.Name) > dataflow.MaxNameLen {
		p.failf(id.At, "this name has %d bytes; at most %d are allowed", len(id.Name), dataflow.MaxNameLen)
		return
	}
	p.failf(id.At, "%q cannot be a name: names are lower-case letters a to z, digits and _, and do not start with a digit", id.Name)
}

// nameList reads (a, b, …); the ( is the next token.
func (p *parser) nameList(what string) []Ident {
	open := p.next().at
	var names []Ident
	for {
		names = append(names, p.definedName(what))
		if !p.acceptPunct(",") {
			break
		}
	}
	p.closeParen(open, "or , ")
	return names
}

// atStatementEnd reports whether t is a word that starts a statement.
func (p *parser) atStatementEnd(t token) bool {
	return t.kind == kindWord && (t.text == "select" || t.text == "set" || t.text == "create" || refusedStatements[t.text] != "")
}
