package sql

import (
	"math"
	"strconv"

	"github.com/weirdb/weir/dataflow"
)

// Precedences, weakest first: PostgreSQL's table.
const (
	precOr = 1 + iota
	precAnd
	precNot
	precIs
	precCompare // < > = <= >= <>: do not chain
	precRange   // BETWEEN IN LIKE ILIKE: do not chain
	precOther   // all other operators: || ~ ~* …
	precAdd
	precMultiply
	precPower
	precAtTimeZone
	precUnary
	precCast
)

// expression parses an expression.
func (p *parser) expression() Expr { return p.deeper(precOr) }

// deeper parses an operand one level of nesting deeper.
func (p *parser) deeper(least int) Expr {
	start := p.peek().at
	var e Expr = &Literal{At: start}
	p.nested(start, func() { e = p.operand(least) })
	return e
}

// operand parses an expression whose operators all bind at least as tightly as least.
func (p *parser) operand(least int) Expr {
	left := p.prefix(least)
	unchained := 0 // the precedence of a preceding operator that does not chain
	for p.err == nil {
		prec, ok := p.infix()
		if !ok || prec < least {
			break
		}
		if prec == unchained {
			p.refuseChain(left, prec)
			break
		}
		if p.operators++; p.operators > maxOperators {
			p.failf(p.peek().at, "a statement has at most %d operators; write IN (…) for many comparisons", maxOperators)
			break
		}
		unchained = 0
		if prec == precCompare || prec == precRange {
			unchained = prec
		}
		left = p.apply(left, prec)
	}
	return left
}

func (p *parser) refuseChain(left Expr, prec int) {
	if b, ok := left.(*Binary); ok && prec == precCompare {
		if and, ok := b.R.(*Binary); ok && and.Op == "&&" {
			p.failf(and.OpAt, "the operator && is of arrays: write AND")
			return
		}
	}
	if prec == precCompare {
		p.failf(p.peek().at, "comparisons do not chain: write a < b AND b < c, or parentheses")
		return
	}
	p.failf(p.peek().at, "%s does not chain: write parentheses", p.upper(p.peek()))
}

// infix returns the precedence of the operator that comes next, if one does.
func (p *parser) infix() (int, bool) {
	t := p.peek()
	switch t.kind {
	case kindOp:
		return p.operatorPrecedence(t)
	case kindPunct:
		return precCast, t.text == "["
	case kindWord:
	default:
		return 0, false
	}
	switch t.text {
	case "or":
		return precOr, true
	case "and":
		return precAnd, true
	case "is", "isnull", "notnull":
		return precIs, true
	case "between", "in", "like", "ilike", "similar":
		return precRange, true
	case "not":
		switch next := p.peekAt(1); {
		case next.word("between"), next.word("in"), next.word("like"), next.word("ilike"), next.word("similar"):
			return precRange, true
		}
	case "at":
		return precAtTimeZone, p.nextIs("time") || p.nextIs("local")
	case "collate":
		return precAtTimeZone, true
	case "operator":
		return precOther, p.nextPunct("(")
	case "overlaps":
		return precOther, true
	case "rlike", "regexp", "glob", "div", "mod", "xor":
		// Operators of other systems: an alias cannot be meant when an expression follows.
		next := p.peekAt(1)
		return precOther, next.kind == kindString || next.kind == kindInteger
	}
	return 0, false
}

func (p *parser) operatorPrecedence(t token) (int, bool) {
	switch t.text {
	case "::":
		return precCast, true
	case "^":
		return precPower, true
	case "*", "/", "%":
		return precMultiply, true
	case "+", "-":
		return precAdd, true
	case "=", "<", ">", "<=", ">=", "<>":
		return precCompare, true
	case "==", ":=", "=>":
		return precCompare, true
	}
	return precOther, true
}

// apply parses the operator that comes next, and its right side.
func (p *parser) apply(left Expr, prec int) Expr {
	t := p.next()
	if t.kind == kindOp && t.text == "::" {
		n := p.typeName()
		return &Cast{X: left, Type: n, At: p.since(left.Span())}
	}
	if t.kind == kindOp {
		if instead := refusedOperators[t.text]; instead != "" {
			p.unsupported(t.at, "the operator %s: %s", p.src.Text(t.at), instead)
			return left
		}
		if prec == precOther && !otherOperators[t.text] {
			p.unsupported(t.at, "there is no operator %s", p.src.Text(t.at))
			return left
		}
		if any := p.peek(); (any.word("any") || any.word("all") || any.word("some")) && p.nextPunct("(") {
			return p.quantified(left, t)
		}
		right := p.operand(prec + 1)
		return &Binary{Op: t.text, OpAt: t.at, L: left, R: right, At: p.since(left.Span())}
	}
	switch t.text {
	case "or", "and":
		right := p.operand(prec + 1)
		return &Binary{Op: p.upper(t), OpAt: t.at, L: left, R: right, At: p.since(left.Span())}
	case "isnull":
		return &Is{X: left, Kind: IsNull, At: p.since(left.Span())}
	case "notnull":
		return &Is{X: left, Kind: IsNull, Not: true, At: p.since(left.Span())}
	case "is":
		return p.isTest(left)
	case "not":
		return p.rangeTest(left, p.next(), true, t.at)
	case "between", "in", "like", "ilike", "similar":
		return p.rangeTest(left, t, false, t.at)
	case "at":
		return p.atTimeZone(left, t)
	case "[":
		if p.isPunct(":") {
			return p.slice(left, t, &Literal{Kind: LiteralInteger, Text: "1", At: t.at})
		}
		index := p.expression()
		if p.isPunct(":") {
			return p.slice(left, t, index)
		}
		p.expectPunct("]")
		return &Binary{Op: "[]", OpAt: t.at, L: left, R: index, At: p.since(left.Span())}
	case "collate":
		p.unsupported(t.at, "COLLATE is not supported: text compares by bytes, as COLLATE \"C\"; leave it out")
	case "rlike", "regexp":
		p.unsupported(t.at, "%s: write ~", p.upper(t))
	case "div", "mod":
		p.unsupported(t.at, "%s: write / or %% (division of BIGINT gives BIGINT)", p.upper(t))
	default:
		p.unsupported(t.at, "%s is not supported", p.upper(t))
	}
	return left
}

// slice parses the end of array[from:to], a call of the function SliceFunction. A bound that is left out is that of the array.
func (p *parser) slice(array Expr, open token, from Expr) Expr {
	p.expectPunct(":")
	to := Expr(&Literal{Kind: LiteralInteger, Text: strconv.FormatInt(math.MaxInt64, 10), At: p.peek().at})
	if !p.isPunct("]") {
		to = p.expression()
	}
	p.expectPunct("]")
	return &Call{Func: Ident{SliceFunction, open.at}, Args: []Expr{array, from, to}, At: p.since(array.Span())}
}

// quantified parses op ANY (array) and op ALL (array).
func (p *parser) quantified(left Expr, op token) Expr {
	word := p.next()
	open := p.next().at
	if t := p.peek(); t.word("select") || t.word("with") {
		p.unsupported(word.at, "%s (SELECT …) is not there yet: write IN (…), EXISTS (SELECT …), or comparisons with AND and OR", p.upper(word))
		return left
	}
	if operatorsOfAny[op.text] == "" {
		p.unsupported(word.at, "%s %s(…) is not there yet: write comparisons with AND and OR", p.src.Text(op.at), p.upper(word))
		return left
	}
	array := p.expression()
	p.closeParen(open, "")
	quantifier := " any"
	if word.word("all") {
		quantifier = " all"
	}
	return &Binary{Op: operatorsOfAny[op.text] + quantifier, OpAt: op.at, L: left, R: array, At: p.since(left.Span())}
}

// operatorsOfAny are the operators that ANY and ALL take.
var operatorsOfAny = map[string]string{"=": "=", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

// otherOperators are the operators of precedence precOther that can be written.
var otherOperators = map[string]bool{"||": true, "~": true, "~*": true, "!~": true, "!~*": true, "&": true, "|": true, "#": true, "<<": true, ">>": true,
	"->": true, "->>": true, "#>": true, "#>>": true, "#-": true, "&&": true, "@>": true, "<@": true, "?": true, "?|": true, "?&": true,
	"~~": true, "!~~": true, "~~*": true, "!~~*": true, "^@": true}

// isTest parses what follows IS.
func (p *parser) isTest(left Expr) Expr {
	is := p.last
	not := p.accept("not")
	kinds := []struct {
		word string
		kind IsKind
	}{{"null", IsNull}, {"true", IsTrue}, {"false", IsFalse}, {"unknown", IsUnknown}}
	for _, k := range kinds {
		if p.accept(k.word) {
			return &Is{X: left, Kind: k.kind, Not: not, At: p.since(left.Span())}
		}
	}
	t := p.peek()
	if p.accept("distinct") {
		p.expect("from")
		right := p.operand(precCompare + 1)
		return &Distinct{L: left, R: right, Not: not, OpAt: is, At: p.since(left.Span())}
	}
	if t.word("json") || t.word("document") || t.word("normalized") || t.word("of") {
		p.unsupported(t.at, "IS %s is not supported", p.upper(t))
	}
	p.expected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM after IS", "NULL", "TRUE", "FALSE", "UNKNOWN", "DISTINCT", "NOT")
	return left
}

// rangeTest parses what follows BETWEEN, IN, LIKE and ILIKE, the word op; at is where the operator starts.
func (p *parser) rangeTest(left Expr, op token, not bool, at Span) Expr {
	at = p.since(at)
	switch op.text {
	case "between":
		b := &Between{X: left, Not: not, OpAt: at}
		b.Symmetric = p.accept("symmetric")
		if !b.Symmetric {
			p.accept("asymmetric")
		}
		b.Lo = p.operand(precRange + 1)
		p.expect("and")
		b.Hi = p.operand(precRange + 1)
		b.At = p.since(left.Span())
		return b
	case "in":
		return p.inList(left, not, at)
	case "similar":
		p.unsupported(at, "SIMILAR TO is not supported: write LIKE, or ~ with a regular expression")
		return left
	}
	l := &Like{X: left, Not: not, Insensitive: op.text == "ilike", OpAt: at}
	if any := p.peek(); (any.word("any") || any.word("all") || any.word("some")) && p.nextPunct("(") {
		p.unsupported(any.at, "LIKE %s(…) is not there yet: write LIKE … OR LIKE …", p.upper(any))
	}
	l.Pattern = p.operand(precRange + 1)
	if p.accept("escape") {
		l.Escape = p.operand(precRange + 1)
	}
	l.At = p.since(left.Span())
	return l
}

func (p *parser) inList(left Expr, not bool, at Span) Expr {
	in := &In{X: left, Not: not, OpAt: at}
	open := p.peek().at
	if !p.acceptPunct("(") {
		p.expected("( and values after IN")
		return in
	}
	if p.startsQuery() {
		in.Query = p.query()
		p.closeQuery(open)
		in.At = p.since(left.Span())
		return in
	}
	in.List = p.expressionList()
	p.closeParen(open, "or , ")
	in.At = p.since(left.Span())
	return in
}

// expressionList parses e, e, … .
func (p *parser) expressionList() []Expr {
	var list []Expr
	for {
		list = append(list, p.expression())
		if !p.acceptPunct(",") {
			return list
		}
	}
}

func (p *parser) atTimeZone(left Expr, t token) Expr {
	if p.accept("local") {
		p.unsupported(p.since(t.at), "AT LOCAL is not supported: write AT TIME ZONE 'UTC'")
		return left
	}
	p.accept("time")
	p.expect("zone")
	zone := p.operand(precAtTimeZone + 1)
	return &Call{Func: Ident{"timezone", t.at}, Args: []Expr{zone, left}, At: p.since(left.Span())}
}

// prefix parses prefix operators and what they apply to.
func (p *parser) prefix(least int) Expr {
	t := p.peek()
	if t.word("not") {
		if least > precNot {
			p.failf(t.at, "NOT binds more weakly than what stands before it: write parentheses, (NOT …)")
		}
		p.next()
		return &Unary{Op: "NOT", X: p.deeper(precNot), At: p.since(t.at)}
	}
	if t.kind != kindOp {
		return p.primary()
	}
	switch t.text {
	case "-", "+", "~", "@", "|/", "||/":
		p.next()
		prec := precUnary
		if t.text != "-" && t.text != "+" {
			prec = precOther
		}
		return &Unary{Op: t.text, X: p.deeper(prec), At: p.since(t.at)}
	case "*":
		p.failf(t.at, "expected an expression, found *: it stands alone in a SELECT list, as t.*, or in count(*)")
	}
	if instead := refusedOperators[t.text]; instead != "" {
		p.fail(p.src.Errorf(dataflow.ReasonSQLUnsupported, t.at, "the operator %s: %s", p.src.Text(t.at), instead))
	}
	p.expected("an expression")
	return &Literal{At: t.at}
}
