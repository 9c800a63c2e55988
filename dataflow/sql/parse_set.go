package sql

// setOperations parses terms that UNION, EXCEPT and INTERSECT connect; INTERSECT binds more tightly.
func (p *parser) setOperations() *Select {
	left := p.intersections()
	for p.is("union") || p.is("except") {
		left = p.setOperation(left, (*parser).intersections)
	}
	return left
}

func (p *parser) intersections() *Select {
	left := p.term()
	for p.is("intersect") {
		left = p.setOperation(left, (*parser).term)
	}
	return left
}

// setOperation parses the keyword that comes next, and what stands behind it.
func (p *parser) setOperation(left *Select, right func(*parser) *Select) *Select {
	t := p.next()
	op := &SetOp{Kind: map[string]SetKind{"union": SetUnion, "intersect": SetIntersect, "except": SetExcept}[t.text], L: left, At: t.at}
	if p.operators++; p.operators > maxSetOperations {
		p.failf(t.at, "a query connects at most %d SELECTs by UNION and its relatives", maxSetOperations)
	}
	if !p.accept("distinct") {
		op.All = p.accept("all")
	}
	if by := p.peek(); by.word("corresponding") || by.word("by") {
		p.unsupported(by.at, "%s CORRESPONDING is not supported: columns are matched by position", op.Kind)
	}
	op.R = right(p)
	return &Select{Source: p.src, At: t.at, Set: op}
}

// maxSetOperations bounds the tree of UNION and its relatives, which is as deep as it is long.
const maxSetOperations = 200

// term parses what UNION and its relatives connect: a SELECT, VALUES or a query in parentheses.
func (p *parser) term() *Select {
	s := &Select{Source: p.src}
	p.lastTerm = s
	switch t := p.peek(); {
	case t.word("select"):
		windows := len(p.windows)
		s.At = p.next().at
		p.selectBody(s)
		if !p.atOrder() { // whose OVER may still name a window
			p.settleWindows(s, windows)
		}
	case t.word("values"):
		p.values(s)
	case t.punct("("):
		p.next()
		s = p.query()
		p.closeQuery(t.at)
		p.lastTerm = nil
	case t.word("table"):
		p.unsupported(t.at, "TABLE is not supported: write SELECT * FROM …")
	case t.word("create") || t.word("set"):
		p.unsupported(t.at, "%s is not a query: put it into a file and run weir deploy", p.upper(t))
	case t.kind == kindWord && refusedStatements[t.text] != "":
		p.unsupported(t.at, "%s: %s", p.upper(t), refusedStatements[t.text])
	default:
		p.expected("SELECT", "SELECT", "WITH")
	}
	return s
}

// values parses VALUES (…), (…).
func (p *parser) values(s *Select) {
	s.At = p.next().at
	p.lastTerm = nil
	for {
		open := p.peek().at
		if !p.expectPunct("(") {
			return
		}
		row := p.expressionList()
		p.closeParen(open, "or , ")
		if len(s.Values) > 0 && len(row) != len(s.Values[0]) && p.err == nil {
			p.failf(p.since(open), "the rows of VALUES have the same number of columns: the first has %d, this one has %d", len(s.Values[0]), len(row))
		}
		s.Values = append(s.Values, row)
		if !p.acceptPunct(",") {
			return
		}
	}
}
