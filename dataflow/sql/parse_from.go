package sql

// from parses what FROM lists: tables, subqueries and joins, and set-returning functions over their rows.
func (p *parser) from() *From {
	f := p.joined()
	for p.err == nil && p.isPunct(",") {
		comma := p.next().at
		if p.startsRowFunction() {
			p.unnest(f, comma, false)
			continue
		}
		f = p.join(&Join{Kind: JoinCross, L: f, At: comma})
		f.Join.R = p.lateralItem(p.joined)
		f.At = p.since(f.At)
	}
	return f
}

// startsRowFunction reports whether [LATERAL] and a function that makes rows of each row come next, and consumes LATERAL.
func (p *parser) startsRowFunction() bool {
	if t := p.peekAt(1); p.is("lateral") && t.kind == kindWord && setFunctions[t.text] && p.peekAt(2).punct("(") {
		p.next()
	}
	return p.startsSetFunction()
}

// join returns the join as what FROM reads, and counts it: the tree is as deep as it is long.
func (p *parser) join(j *Join) *From {
	if p.operators++; p.operators > maxOperators {
		p.failf(j.At, "a statement has at most %d operators and joins", maxOperators)
	}
	return &From{Join: j, At: j.L.At}
}

// lateral accepts LATERAL before a function, which may always name the tables to its left, and before a subquery.
func (p *parser) lateral() bool {
	if !p.accept("lateral") {
		return false
	}
	if t := p.peek(); !p.startsSetFunction() && !t.punct("(") {
		p.unsupported(t.at, "LATERAL stands before UNNEST(…), another function that makes rows, or a subquery in parentheses: leave it out")
	}
	return true
}

// lateralItem parses what stands behind a comma or JOIN, [LATERAL] included.
func (p *parser) lateralItem(parse func() *From) *From {
	lateral := p.lateral()
	f := parse()
	if lateral {
		of := f
		for of.Join != nil && of.Subquery == nil { // (SELECT …) JOIN …
			of = of.Join.L
		}
		of.Lateral = true
	}
	return f
}

// joined parses a table and the joins behind it.
func (p *parser) joined() *From {
	f := p.fromItem()
	for p.err == nil {
		t := p.peek()
		switch {
		case t.word("cross"):
			p.next()
			if !p.accept("join") {
				p.expected("JOIN after CROSS", "JOIN")
			}
			at := p.since(t.at)
			if p.startsRowFunction() {
				p.unnest(f, at, false)
				continue
			}
			f = p.join(&Join{Kind: JoinCross, L: f, At: at})
			f.Join.R = p.lateralItem(p.fromItem)
		case t.word("join"), t.word("inner"), t.word("left"), t.word("right"), t.word("full"), t.word("natural"):
			f = p.conditionalJoin(f)
		case t.word("tablesample"):
			p.unsupported(t.at, "TABLESAMPLE is not supported")
		case t.word("as") && p.nextIs("of"), t.word("for") && p.nextIs("system_time"):
			p.unsupported(t.at, "AS OF is not supported: a request names the checkpoint that it reads")
		default:
			return f
		}
		f.At = p.since(f.At)
	}
	return f
}

// conditionalJoin parses [NATURAL] [INNER|LEFT|RIGHT|FULL] JOIN table ON condition.
func (p *parser) conditionalJoin(left *From) *From {
	start := p.peek().at
	j := &Join{L: left, Natural: p.accept("natural")}
	switch {
	case p.accept("inner"):
	case p.accept("left"):
		j.Kind = JoinLeft
	case p.accept("right"):
		j.Kind = JoinRight
	case p.accept("full"):
		j.Kind = JoinFull
	}
	if j.Kind != JoinInner {
		p.accept("outer")
	}
	if !p.accept("join") {
		p.expected("JOIN", "JOIN", "OUTER")
	}
	j.At = p.since(start)
	if t := p.peek(); p.startsRowFunction() {
		if p.unnest(left, j.At, j.Kind == JoinLeft); j.Kind != JoinInner && j.Kind != JoinLeft {
			p.unsupported(t.at, "%s JOIN of a function that makes rows of each row is not there: write CROSS JOIN or LEFT JOIN … ON true", j.Kind)
		}
		return left
	}
	f := p.join(j)
	j.R = p.lateralItem(p.fromItem)
	if j.Natural {
		return f
	}
	switch {
	case p.accept("on"):
		j.On = p.expression()
	case p.is("using"):
		p.next()
		if !p.isPunct("(") {
			p.expected("( and column names: USING (column, …)")
			return f
		}
		j.Using = p.nameList("a column's name")
	default:
		p.expected("ON and the join's condition, or USING (columns)", "ON", "USING")
	}
	return f
}

// fromItem parses one table, subquery, function or join in parentheses, with its alias.
func (p *parser) fromItem() *From {
	start := p.peek().at
	f := &From{}
	p.accept("only")
	switch t := p.peek(); {
	case t.punct("("):
		if !p.queryInParentheses() {
			p.next()
			p.nested(t.at, func() { f = p.from() })
			p.closeParen(t.at, "or JOIN ")
			if a := p.peek(); a.word("as") {
				p.unsupported(a.at, "a name for a join is not there yet: give the tables in it names")
			}
			return f
		}
		p.next()
		f.Subquery = p.query()
		p.closeQuery(t.at)
	case t.word("generate_series") && p.nextPunct("("):
		f.Call = p.call()
	case p.startsSetFunction(), t.word("lateral"):
		p.unsupported(t.at, "FROM starts with a stream, view or table: write FROM s, UNNEST(…) AS t(x)")
	case (t.word("tumble") || t.word("hop") || t.word("session")) && p.nextPunct("("):
		p.unsupported(t.at, "%s(…) is not there yet: a window of time is a group, GROUP BY date_trunc('minute', at) or date_bin('5 minutes', at, '2020-01-01')", t.text)
	case (t.kind == kindWord || t.kind == kindQuoted) && p.nextPunct("("):
		p.unsupported(t.at, "%s(…) is not supported in FROM: only generate_series is, and UNNEST and regexp_split_to_table after a stream, view or table", t.text)
	default:
		n := p.qualifiedName("the name of a stream, view or table")
		f.Name = &n
	}
	f.Alias, f.Columns = p.tableAlias()
	f.At = p.since(start)
	return f
}

// queryInParentheses reports whether the ( that comes next opens a query, not a join.
func (p *parser) queryInParentheses() bool {
	n := 1
	for ; n < maxParentheses && p.peekAt(n).punct("("); n++ {
	}
	t := p.peekAt(n)
	return t.word("select") || t.word("with") || t.word("values") || t.kind == kindWord && refusedStatements[t.text] != "" && !p.peekAt(n+1).punct(".")
}

// maxParentheses bounds how far ahead it is looked for a query.
const maxParentheses = 200
