package sql

import (
	"fmt"
	"strings"
)

// primary parses what operators apply to: literals, names, calls, CASE, CAST and expressions in parentheses.
func (p *parser) primary() Expr {
	t := p.peek()
	switch t.kind {
	case kindInteger:
		p.next()
		return &Literal{Kind: LiteralInteger, Text: t.text, At: t.at}
	case kindDecimal:
		p.next()
		return &Literal{Kind: LiteralDecimal, Text: t.text, At: t.at}
	case kindString:
		p.next()
		return &Literal{Kind: LiteralString, Text: t.text, At: t.at}
	case kindParam:
		p.unsupported(t.at, "parameters such as %s are not there yet: write the value", t.text)
	case kindQuoted:
		return p.nameOrCall()
	case kindPunct:
		if t.text == "(" {
			return p.parenthesis()
		}
	case kindWord:
		return p.wordPrimary(t)
	}
	p.expected("an expression")
	return &Literal{At: t.at}
}

// parenthesis parses (expression).
func (p *parser) parenthesis() Expr {
	open := p.next().at
	if p.startsQuery() {
		return p.subquery(open, open, false)
	}
	e := p.expression()
	if t := p.peek(); t.punct(",") {
		p.unsupported(t.at, "row values (a, b) are not there yet: compare the columns one by one, a = 1 AND b = 2")
	}
	p.closeParen(open, "or an operator ")
	return e
}

// startsQuery reports whether a query comes next.
func (p *parser) startsQuery() bool {
	t := p.peek()
	return t.word("select") || t.word("with") || t.word("values")
}

// subquery parses a query up to the ) that closes the ( at open; start is where the expression starts.
func (p *parser) subquery(start, open Span, exists bool) Expr {
	e := &Subquery{Exists: exists, Query: p.query()}
	p.closeQuery(open)
	e.At = p.since(start)
	return e
}

func (p *parser) wordPrimary(t token) Expr {
	switch t.text {
	case "null":
		p.next()
		return &Literal{Kind: LiteralNull, At: t.at}
	case "true":
		p.next()
		return &Literal{Kind: LiteralTrue, At: t.at}
	case "false":
		p.next()
		return &Literal{Kind: LiteralFalse, At: t.at}
	case "case":
		return p.caseExpr()
	case "cast":
		return p.castExpr()
	case "try_cast":
		if p.nextPunct("(") {
			p.unsupported(t.at, "TRY_CAST is not there: guard CAST with CASE WHEN x ~ '^-?[0-9]+$' THEN x::BIGINT END")
		}
	case "current_timestamp", "localtimestamp":
		p.next()
		if p.isPunct("(") {
			p.unsupported(p.peek().at, "%s takes no ( ) here", p.upper(t))
		}
		if t.text == "localtimestamp" {
			p.unsupported(t.at, "LOCALTIMESTAMP is not supported: write now()")
		}
		return &Call{Func: Ident{"now", t.at}, At: t.at}
	case "current_date":
		p.next()
		return &Cast{X: &Call{Func: Ident{"now", t.at}, At: t.at}, Type: TypeName{Name: "DATE", At: t.at}, At: t.at}
	case "current_time", "localtime":
		p.unsupported(t.at, "%s: there is no type TIME yet; write now()", p.upper(t))
		return &Literal{At: t.at}
	case "current_user", "session_user", "user", "current_role", "current_catalog", "current_schema":
		p.unsupported(t.at, "%s: there are no users yet", p.upper(t))
		return &Literal{At: t.at}
	case "exists":
		if p.nextPunct("(") {
			p.next()
			open := p.next().at
			return p.subquery(t.at, open, true)
		}
	case "array":
		p.next()
		if !p.acceptPunct("[") {
			p.unsupported(t.at, "ARRAY(SELECT …) is not there: write ARRAY[…], or array_agg")
			return &Literal{At: t.at}
		}
		if p.acceptPunct("]") {
			if c := p.peek(); c.kind != kindOp || c.text != "::" {
				p.unsupported(t.at, "ARRAY[] has no type: write ARRAY[]::TEXT[]")
			}
			return &Literal{Kind: LiteralString, Text: "{}", At: p.since(t.at)}
		}
		c := &Call{Func: Ident{"array", t.at}, Args: p.expressionList()}
		p.expectPunct("]")
		c.At = p.since(t.at)
		return c
	case "row":
		if p.nextPunct("(") {
			p.unsupported(t.at, "ROW(…) is not there yet: write the columns one by one")
			return &Literal{At: t.at}
		}
	}
	if p.startsTypedLiteral() {
		return p.typedLiteral()
	}
	return p.nameOrCall()
}

// typedLiteral parses TYPE 'text'.
func (p *parser) typedLiteral() Expr {
	start := p.peek().at
	n := p.typeName()
	s := p.next()
	if t := p.peek(); n.Name == "INTERVAL" && t.kind == kindWord {
		switch t.text {
		case "year", "month", "day", "hour", "minute", "second":
			if p.next(); !wholeNumber(s.text) || p.is("to") {
				p.unsupported(t.at, "INTERVAL '%s' %s takes one whole number: write the units in the text, INTERVAL '1 year 2 months'", s.text, p.upper(t))
			}
			s.text += " " + t.text
		}
	}
	return &Cast{X: &Literal{Kind: LiteralString, Text: s.text, At: s.at}, Type: n, At: p.since(start)}
}

// wholeNumber reports whether a text is digits, perhaps behind a sign.
func wholeNumber(s string) bool {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// caseExpr parses CASE … END.
func (p *parser) caseExpr() Expr {
	start := p.next().at
	c := &Case{}
	if !p.is("when") {
		c.Operand = p.expression()
	}
	if !p.is("when") {
		p.expected("WHEN", "WHEN")
	}
	for p.accept("when") {
		w := When{Cond: p.expression()}
		p.expect("then")
		w.Result = p.expression()
		c.Whens = append(c.Whens, w)
	}
	if p.accept("else") {
		c.Else = p.expression()
	}
	if !p.accept("end") {
		line, column := p.src.Position(start.From)
		p.expected(fmt.Sprintf("WHEN, ELSE or END for the CASE at line %d, column %d", line, column), "WHEN", "ELSE", "END")
	}
	c.At = p.since(start)
	return c
}

// castExpr parses CAST(x AS type).
func (p *parser) castExpr() Expr {
	start := p.next().at
	open := p.peek().at
	if !p.expectPunct("(") {
		return &Literal{At: start}
	}
	c := &Cast{X: p.expression()}
	p.expect("as")
	c.Type = p.typeName()
	p.closeParen(open, "")
	c.At = p.since(start)
	return c
}

// nameOrCall parses a column's name or a call of a function.
func (p *parser) nameOrCall() Expr {
	t := p.peek()
	if p.nextPunct("(") && (t.kind == kindQuoted || !reserved[t.text]) {
		return p.call()
	}
	n := p.qualifiedName("an expression")
	if p.err == nil && p.isPunct("(") {
		p.unsupported(n.At, "functions have no schema: write %s(…)", n.Parts[len(n.Parts)-1].Name)
	}
	return &n
}

// call parses name(…) and the special forms of SQL.
func (p *parser) call() *Call {
	name := p.next()
	c := &Call{Func: Ident{name.text, name.at}}
	open := p.next().at
	switch {
	case name.kind == kindWord && p.specialForm(c):
	case p.acceptOp("*"):
		c.Star = true
	case p.isPunct(")"):
	default:
		p.arguments(c)
	}
	if p.accept("order") && p.expect("by") {
		c.OrderBy = p.orderList()
	}
	p.closeParen(open, "or , ")
	c.At = p.since(name.at)
	p.afterCall(c)
	return c
}

func (p *parser) arguments(c *Call) {
	c.Distinct = p.accept("distinct")
	if !c.Distinct {
		p.accept("all")
	}
	if t := p.peek(); t.word("variadic") {
		p.unsupported(t.at, "VARIADIC is not supported")
	}
	if t := p.peek(); t.word("select") {
		p.unsupported(t.at, "a subquery as an argument stands in parentheses of its own: f((SELECT …))")
	}
	c.Args = p.expressionList()
}

// afterCall parses WITHIN GROUP and FILTER, and refuses OVER and its relatives.
func (p *parser) afterCall(c *Call) {
	if t := p.peek(); t.word("within") && p.nextIs("group") {
		p.within(c)
	}
	if p.is("filter") && p.nextPunct("(") {
		p.next()
		open := p.next().at
		p.expect("where")
		c.Filter = p.expression()
		p.closeParen(open, "")
		c.At = p.since(c.At)
	}
	if t := p.peek(); (t.word("ignore") || t.word("respect")) && p.nextIs("nulls") {
		p.unsupported(t.at, "%s NULLS is not there: NULLs are respected", p.upper(t))
	}
	if p.is("over") {
		c.Over = p.window()
		c.At = p.since(c.At)
	}
}

// within parses WITHIN GROUP (ORDER BY …).
func (p *parser) within(c *Call) {
	at := p.next().at
	p.next()
	if len(c.OrderBy) > 0 {
		p.unsupported(at, "%s has ORDER BY twice: write it in WITHIN GROUP (…) only", c.Func.Name)
	}
	open := p.peek().at
	if !p.acceptPunct("(") {
		p.expected("( after WITHIN GROUP", "(")
		return
	}
	p.expect("order")
	p.expect("by")
	c.Within, c.OrderBy = true, p.orderList()
	p.closeParen(open, "")
	c.At = p.since(c.At)
}
