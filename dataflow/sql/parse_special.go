package sql

// specialForm parses the arguments of the functions that SQL writes with keywords, up to the closing parenthesis. It
// reports false, with nothing consumed, for all other functions.
func (p *parser) specialForm(c *Call) bool {
	switch c.Func.Name {
	case "extract":
		p.extract(c)
	case "position":
		p.position(c)
	case "substring":
		p.substring(c)
	case "trim":
		p.trim(c)
	case "overlay":
		p.overlay(c)
	default:
		return false
	}
	return true
}

// extract parses field FROM x.
func (p *parser) extract(c *Call) {
	t := p.peek()
	if t.kind != kindWord && t.kind != kindString && t.kind != kindQuoted {
		p.expected("a field: extract(hour FROM x)")
		return
	}
	p.next()
	if p.isPunct(",") {
		p.failf(p.peek().at, "expected FROM, found a comma: write extract(%s FROM …)", t.text)
		return
	}
	if p.expect("from") {
		c.Args = []Expr{&Literal{Kind: LiteralString, Text: fold(t.text), At: t.at}, p.expression()}
	}
}

// position parses a IN b.
func (p *parser) position(c *Call) {
	part := p.deeper(precRange + 1)
	if p.isPunct(",") {
		p.failf(p.peek().at, "expected IN, found a comma: write position(part IN text), or strpos(text, part)")
		return
	}
	if p.expect("in") {
		c.Args = []Expr{part, p.deeper(precRange + 1)}
	}
}

// substring parses x FROM a [FOR b], x FOR b and x, a, b.
func (p *parser) substring(c *Call) {
	c.Args = []Expr{p.expression()}
	switch {
	case p.accept("from"):
		c.Args = append(c.Args, p.expression())
		if p.accept("for") {
			c.Args = append(c.Args, p.expression())
		}
	case p.accept("for"):
		one := &Literal{Kind: LiteralInteger, Text: "1", At: p.last}
		c.Args = append(c.Args, one, p.expression())
		if p.accept("from") {
			c.Args[1] = p.expression()
		}
	case p.is("similar"):
		p.unsupported(p.peek().at, "substring(… SIMILAR …) is not supported: write substring(text FROM 'regular expression')")
	default:
		for p.acceptPunct(",") {
			c.Args = append(c.Args, p.expression())
		}
	}
}

// trim parses [LEADING|TRAILING|BOTH] [characters] FROM text, and text [, characters].
func (p *parser) trim(c *Call) {
	c.Func.Name = "btrim"
	switch {
	case p.accept("leading"):
		c.Func.Name = "ltrim"
	case p.accept("trailing"):
		c.Func.Name = "rtrim"
	default:
		p.accept("both")
	}
	if p.accept("from") {
		c.Args = p.expressionList()
		return
	}
	first := p.expression()
	if p.accept("from") {
		c.Args = []Expr{p.expression(), first}
		return
	}
	c.Args = []Expr{first}
	for p.acceptPunct(",") {
		c.Args = append(c.Args, p.expression())
	}
}

// overlay parses text PLACING new FROM a [FOR b].
func (p *parser) overlay(c *Call) {
	text := p.expression()
	if !p.expect("placing") {
		return
	}
	with := p.expression()
	if !p.expect("from") {
		return
	}
	c.Args = []Expr{text, with, p.expression()}
	if p.accept("for") {
		c.Args = append(c.Args, p.expression())
	}
}
