package sql

// orderBy parses ORDER BY.
func (p *parser) orderBy(s *Select) {
	t := p.peek()
	if !p.accept("order") {
		return
	}
	if !p.expect("by") {
		return
	}
	s.OrderAt = p.since(t.at)
	s.OrderBy = p.orderList()
}

// orderList parses expression [ASC|DESC] [NULLS FIRST|LAST], … .
func (p *parser) orderList() []Order {
	var list []Order
	for {
		o := Order{Expr: p.expression()}
		if u := p.peek(); u.word("using") {
			p.unsupported(u.at, "ORDER BY … USING is not supported: write ASC or DESC")
		}
		if p.accept("desc") {
			o.Desc = true
		} else {
			p.accept("asc")
		}
		o.NullsFirst = o.Desc
		if p.accept("nulls") {
			switch {
			case p.accept("first"):
				o.NullsFirst = true
			case p.accept("last"):
				o.NullsFirst = false
			default:
				p.expected("FIRST or LAST after NULLS", "FIRST", "LAST")
			}
		}
		list = append(list, o)
		if !p.acceptPunct(",") {
			return list
		}
	}
}

// limit parses LIMIT, OFFSET and FETCH FIRST, in any order.
func (p *parser) limit(s *Select) {
	for p.err == nil {
		t := p.peek()
		switch {
		case p.accept("limit"):
			p.limitOnce(s.Limit, t)
			s.LimitAt = t.at
			if p.accept("all") {
				continue
			}
			s.Limit = p.expression()
			if c := p.peek(); c.punct(",") {
				p.unsupported(c.at, "LIMIT a, b is not supported: write LIMIT b OFFSET a")
			}
		case p.accept("offset"):
			p.limitOnce(s.Offset, t)
			s.OffsetAt = t.at
			s.Offset = p.expression()
			if !p.accept("rows") {
				p.accept("row")
			}
		case t.word("fetch"):
			p.limitOnce(s.Limit, t)
			s.LimitAt = t.at
			s.Limit = p.fetch()
		default:
			return
		}
	}
}

func (p *parser) limitOnce(have Expr, t token) {
	if have != nil {
		p.failf(t.at, "%s is given twice", p.upper(t))
	}
}

// fetch parses FETCH {FIRST|NEXT} [n] {ROW|ROWS} ONLY.
func (p *parser) fetch() Expr {
	p.next()
	if !p.accept("first") && !p.accept("next") {
		p.expected("FIRST after FETCH", "FIRST", "NEXT")
	}
	var n Expr = &Literal{Kind: LiteralInteger, Text: "1", At: p.last}
	if !p.is("row") && !p.is("rows") {
		n = p.primary()
	}
	if !p.accept("rows") && !p.accept("row") {
		p.expected("ROWS ONLY", "ROWS")
	}
	if t := p.peek(); t.word("with") {
		p.unsupported(t.at, "WITH TIES is not supported")
	}
	p.expect("only")
	return n
}
