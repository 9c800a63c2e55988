package sql

import "github.com/weirdb/weir/dataflow"

// query parses [WITH …] a SELECT, or several that UNION and its relatives connect, with ORDER BY and LIMIT behind them.
func (p *parser) query() *Select {
	s := &Select{Source: p.src}
	p.nested(p.peek().at, func() {
		windows := len(p.windows)
		with := &Select{}
		if p.accept("with") {
			p.ctes(with)
		}
		s = p.setOperations()
		last := p.lastTerm
		if len(s.With) > 0 && len(with.With) > 0 || s.Ordered() && p.atOrder() {
			s = p.around(s)
		}
		s.With = append(with.With, s.With...)
		p.orderBy(s)
		p.limit(s)
		p.selectEnd(last)
		p.settleWindows(last, windows)
	})
	return s
}

// atOrder reports whether ORDER BY, LIMIT or OFFSET comes next.
func (p *parser) atOrder() bool {
	t := p.peek()
	return t.word("order") || t.word("limit") || t.word("offset") || t.word("fetch")
}

// Ordered reports whether a query has an ORDER BY, a LIMIT or an OFFSET.
func (s *Select) Ordered() bool { return len(s.OrderBy) > 0 || s.Limit != nil || s.Offset != nil }

// around returns SELECT * FROM (s).
func (p *parser) around(s *Select) *Select {
	return &Select{Source: p.src, At: s.At, Items: []Item{{Star: true, At: s.At}}, From: &From{Subquery: s, At: s.At}}
}

// ctes parses name [(columns)] AS (query), … .
func (p *parser) ctes(s *Select) {
	if t := p.peek(); t.word("recursive") {
		p.unsupported(t.at, "WITH RECURSIVE is not supported")
	}
	for {
		c := CTE{Name: p.definedName("the name of a query")}
		if p.isPunct("(") {
			c.Columns = p.nameList("a column's name")
		}
		p.expect("as")
		if !p.accept("not", "materialized") { // hints to an optimizer: they change no result
			p.accept("materialized")
		}
		open := p.peek().at
		if !p.expectPunct("(") {
			return
		}
		c.Query = p.query()
		p.closeQuery(open)
		s.With = append(s.With, c)
		if !p.acceptPunct(",") {
			return
		}
	}
}

// closeQuery consumes the ) behind a subquery, or refuses by name what stands there.
func (p *parser) closeQuery(open Span) {
	if !p.isPunct(")") {
		p.refuseClause()
	}
	p.closeParen(open, "")
}

// refuseClause fails when a clause comes next that SELECT has elsewhere, or that stands in the wrong place.
func (p *parser) refuseClause() {
	t := p.peek()
	if t.kind != kindWord || p.err != nil {
		return
	}
	if t.text == "left" || t.text == "right" {
		if next := p.peekAt(1); !next.word("join") && !next.word("outer") {
			return
		}
	}
	if instead := refusedClauses[t.text]; instead != "" {
		p.unsupported(t.at, "%s: %s", p.upper(t), instead)
	}
	for _, clause := range []string{"from", "where", "group", "having", "order", "limit", "offset"} {
		if t.text == clause {
			p.failf(t.at, "%s stands in the wrong place or twice: the order is SELECT, FROM, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, OFFSET", p.upper(t))
		}
	}
}

// The keywords that may follow each part of a SELECT, for near misses.
var (
	afterItems = []string{"FROM", "AS", "WHERE", "GROUP", "ORDER"}
	afterFrom  = []string{"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "CROSS", "JOIN"}
)

func (p *parser) selectBody(s *Select) {
	p.selectDistinct(s)
	for {
		if t := p.peek(); t.word("from") && p.err == nil {
			what := "expected an expression, found FROM"
			if len(s.Items) > 0 {
				what += ": remove the comma before it"
			}
			p.failf(t.at, "%s", what)
		}
		s.Items = append(s.Items, p.item())
		if !p.acceptPunct(",") {
			break
		}
	}
	if t := p.peek(); t.word("into") {
		p.refuseClause()
	}
	if p.accept("from") {
		s.From = p.from()
	}
	if p.accept("where") {
		s.Where = p.expression()
	}
	if p.is("group") {
		p.groupBy(s)
	}
	if t := p.peek(); p.accept("having") {
		s.HavingAt = t.at
		s.Having = p.expression()
	}
	p.windowClause(s)
}

// selectEnd fails unless what follows can follow a SELECT.
func (p *parser) selectEnd(s *Select) {
	t := p.peek()
	if t.kind == kindEnd || t.punct(")") || t.punct(";") || t.word("with") {
		return
	}
	p.refuseClause()
	if s == nil {
		p.expected("ORDER BY, LIMIT or the end of the query", "ORDER", "LIMIT", "UNION")
		return
	}
	switch {
	case t.word("create"), t.word("set"):
		p.failf(t.at, "expected ; before the next statement, found %s", p.upper(t))
	case t.punct(",") && s.From != nil:
		p.failf(t.at, "expected the next clause, found a comma: remove it")
	case s.From == nil && notBareAlias[t.text]:
		p.failf(t.at, "expected FROM, found %s; as a name of a column it is written AS %s", p.describe(t), t.text)
	case s.From == nil:
		p.expected("a comma or FROM", afterItems...)
	case s.Where == nil && s.GroupBy == nil:
		p.expected("WHERE, GROUP BY, ORDER BY, LIMIT or the end of the SELECT", afterFrom...)
	default:
		p.expected("an operator, the next clause or the end of the SELECT", "GROUP", "HAVING", "ORDER", "LIMIT", "AND", "OR")
	}
}

func (p *parser) selectDistinct(s *Select) {
	t := p.peek()
	if p.accept("all") {
		return
	}
	if p.accept("distinct") {
		s.Distinct, s.DistinctAt = true, t.at
		if on := p.peek(); on.word("on") {
			p.unsupported(on.at, "DISTINCT ON is not there yet: write row_number() OVER (PARTITION BY … ORDER BY …) AS n in a subquery, and WHERE n = 1 around it")
		}
	}
	if t := p.peek(); t.word("top") && p.peekAt(1).kind == kindInteger {
		p.unsupported(t.at, "TOP is not supported: write LIMIT at the end")
	}
}

// item parses one expression of the SELECT list.
func (p *parser) item() Item {
	start := p.peek().at
	if p.acceptOp("*") {
		return Item{Star: true, At: start}
	}
	if t := p.peek(); (t.kind == kindWord || t.kind == kindQuoted) && p.nextPunct(".") && p.peekAt(2).op("*") {
		p.next()
		p.next()
		p.next()
		return Item{Star: true, Qualifier: t.text, At: p.since(start)}
	}
	it := Item{Expr: p.expression()}
	it.Alias = p.itemAlias()
	it.At = p.since(start)
	return it
}

// itemAlias parses [AS] name. After AS every word is a name.
func (p *parser) itemAlias() *Ident {
	if p.accept("as") {
		t := p.peek()
		if t.kind == kindWord || t.kind == kindQuoted {
			p.next()
			return &Ident{t.text, t.at}
		}
		p.expected("a name after AS")
		return nil
	}
	t := p.peek()
	if t.kind == kindQuoted || t.kind == kindWord && !isReserved(t) && !notBareAlias[t.text] {
		if dataflow.Nearest(t.text, []string{"from"}) != "" { // SELECT a FORM s
			if next := p.peekAt(1); next.kind == kindWord && !isReserved(next) {
				p.expected("FROM", "FROM")
			}
		}
		p.next()
		return &Ident{t.text, t.at}
	}
	return nil
}

// unnest parses UNNEST(e) or regexp_split_to_table(…) with its alias.
func (p *parser) unnest(f *From, at Span, outer bool) {
	e := p.expression()
	call, ok := e.(*Call)
	if !ok {
		p.failf(e.Span(), "expected UNNEST(…) alone")
		return
	}
	u := Unnest{Outer: outer, Call: call, At: at.Join(e.Span())}
	if o := p.peek(); o.word("with") && p.nextIs("ordinality") {
		p.unsupported(o.at, "WITH ORDINALITY is not there yet")
	}
	u.Alias, u.Columns = p.tableAlias()
	if p.is("on") && p.nextIs("true") {
		p.next()
		p.next()
	}
	f.Unnests = append(f.Unnests, u)
}

// setFunctions are the functions that make rows of each row.
var setFunctions = map[string]bool{"unnest": true, "regexp_split_to_table": true, "string_to_table": true,
	"jsonb_array_elements": true, "jsonb_array_elements_text": true, "jsonb_object_keys": true, "jsonb_each": true, "jsonb_each_text": true, "generate_subscripts": true}

// startsSetFunction reports whether the call of a function that makes rows of each row starts here.
func (p *parser) startsSetFunction() bool {
	t := p.peek()
	return t.kind == kindWord && setFunctions[t.text] && p.nextPunct("(")
}

// tableAlias parses [[AS] name [(columns)]].
func (p *parser) tableAlias() (*Ident, []Ident) {
	t := p.peek()
	if t.word("as") && p.nextIs("of") {
		return nil, nil
	}
	if !p.accept("as") {
		if t.kind != kindQuoted && (t.kind != kindWord || isReserved(t)) {
			return nil, nil
		}
		if n := dataflow.Nearest(t.text, afterFrom); n != "" && p.peekAt(1).kind != kindEnd && p.looksLikeClause(n) {
			p.expected(n, n)
		}
	}
	id := p.name("a name for the table")
	if !p.isPunct("(") {
		return &id, nil
	}
	return &id, p.nameList("a column's name")
}

// looksLikeClause reports whether the next word, a near miss of the keyword, is followed by what follows the keyword
// rather than by what follows an alias.
func (p *parser) looksLikeClause(keyword string) bool {
	next := p.peekAt(1)
	switch keyword {
	case "GROUP", "ORDER":
		return next.word("by")
	case "LIMIT":
		return next.kind == kindInteger
	case "CROSS":
		return next.word("join")
	case "JOIN":
		return p.peekAt(2).word("on") || p.peekAt(2).word("using")
	}
	return next.kind == kindWord && !isReserved(next) && !next.word("join")
}

// groupBy parses GROUP BY.
func (p *parser) groupBy(s *Select) {
	p.next()
	if !p.expect("by") {
		return
	}
	if t := p.peek(); t.word("all") || t.word("distinct") {
		p.unsupported(t.at, "GROUP BY %s is not supported: write the columns", p.upper(t))
	}
	for {
		t := p.peek()
		switch {
		case (t.word("rollup") || t.word("cube")) && p.nextPunct("("), t.word("grouping") && p.nextIs("sets"):
			p.unsupported(t.at, "%s is not there yet: write one view per grouping", p.upper(t))
		case t.punct("(") && p.nextPunct(")"):
			p.unsupported(t.at, "GROUP BY () is not supported: leave it out; aggregates without GROUP BY give one row")
		}
		s.GroupBy = append(s.GroupBy, p.expression())
		if !p.acceptPunct(",") {
			return
		}
	}
}

// qualifiedName parses a or a.b or a.b.c.
func (p *parser) qualifiedName(what string) Name {
	start := p.peek().at
	n := Name{Parts: []Ident{p.name(what)}}
	for p.err == nil && p.isPunct(".") {
		dot := p.next()
		t := p.peek()
		if t.kind != kindWord && t.kind != kindQuoted {
			p.expected("a name after the dot")
			break
		}
		p.next()
		n.Parts = append(n.Parts, Ident{t.text, t.at})
		if len(n.Parts) > 3 {
			p.failf(dot.at.Join(t.at), "a name has at most three parts")
		}
	}
	n.At = p.since(start)
	return n
}

// String prints the name with its dots.
func (e *Name) String() string {
	s := ""
	for i, part := range e.Parts {
		if i > 0 {
			s += "."
		}
		s += part.Name
	}
	return s
}
