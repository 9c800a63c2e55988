package sql

import "strings"

// statement parses one statement of a deploy file.
func (p *parser) statement() Statement {
	p.operators = 0
	t := p.peek()
	switch {
	case t.word("set"):
		return p.set()
	case t.word("create"):
		return p.create()
	case t.kind == kindWord && refusedStatements[t.text] != "":
		p.unsupported(t.at, "%s: %s", p.upper(t), refusedStatements[t.text])
	default:
		p.expected("CREATE STREAM, CREATE VIEW, CREATE MATERIALIZED VIEW or SET", "CREATE", "SET")
	}
	return nil
}

// set parses SET name = value and SET name TO value.
func (p *parser) set() Statement {
	start := p.next().at
	if t := p.peek(); t.word("local") || t.word("session") || t.word("time") {
		p.unsupported(t.at, "SET %s is not supported: SET option = value sets an option of the pipeline", p.upper(t))
	}
	o := p.option("the name of an option, for example checkpoint.interval")
	return &Set{At: p.since(start), Option: o}
}

// option parses dotted.name = value.
func (p *parser) option(what string) Option {
	start := p.peek().at
	parts := []string{p.optionName(what)}
	for p.acceptPunct(".") {
		parts = append(parts, p.optionName("the rest of the option's name"))
	}
	o := Option{Name: strings.Join(parts, ".")}
	if !p.acceptOp("=") && !p.accept("to") {
		p.expected("= and the option's value")
	}
	t := p.peek()
	switch t.kind {
	case kindString, kindInteger, kindDecimal, kindWord, kindQuoted:
		p.next()
		o.Value = t.text
	case kindOp:
		if t.op("-") && (p.peekAt(1).kind == kindInteger || p.peekAt(1).kind == kindDecimal) {
			p.next()
			o.Value = "-" + p.next().text
			break
		}
		fallthrough
	default:
		p.expected("a value: 'text', a number or a word")
	}
	o.ValueAt = p.since(t.at)
	o.At = p.since(start)
	if next := p.peek(); next.kind == kindWord && (t.kind == kindInteger || t.kind == kindDecimal) {
		p.failf(p.since(t.at).Join(next.at), "expected one value: write '%s %s' in quotes", t.text, p.src.Text(next.at))
	}
	return o
}

// optionName reads one part of an option's name; keywords are allowed.
func (p *parser) optionName(what string) string {
	t := p.peek()
	if t.kind != kindWord && t.kind != kindQuoted {
		p.expected(what)
		return ""
	}
	return p.next().text
}

func (p *parser) create() Statement {
	start := p.next().at
	t := p.peek()
	switch {
	case t.word("stream"):
		p.next()
		return p.createStream(p.since(start))
	case t.word("materialized"):
		p.next()
		if p.expect("view") {
			return p.createView(p.since(start), true)
		}
	case t.word("view"):
		p.next()
		return p.createView(p.since(start), false)
	case t.word("or"):
		p.unsupported(t.at, "CREATE OR REPLACE is not supported yet: delete the pipeline and deploy again; an equal file needs nothing")
	case t.kind == kindWord && refusedCreates[t.text] != "":
		p.unsupported(t.at, "CREATE %s: %s", p.upper(t), refusedCreates[t.text])
	default:
		p.expected("STREAM, VIEW or MATERIALIZED VIEW", "STREAM", "VIEW", "MATERIALIZED")
	}
	return nil
}

// createStream parses what follows CREATE STREAM. IF NOT EXISTS is accepted, since that is what it means anyway.
func (p *parser) createStream(at Span) Statement {
	p.accept("if", "not", "exists")
	s := &CreateStream{At: at, Name: p.definedName("the stream's name")}
	if t := p.peek(); t.word("as") {
		p.unsupported(t.at, "CREATE STREAM AS is not supported: a stream is an input; for a result write CREATE MATERIALIZED VIEW %s AS SELECT …", s.Name.Name)
	}
	open := p.peek().at
	if !p.acceptPunct("(") {
		p.expected("( and the stream's columns: CREATE STREAM name (column TYPE, …)")
	}
	for {
		if p.isPunct(")") {
			p.expected("a column: name TYPE [NOT NULL]")
		}
		s.Columns = append(s.Columns, p.columnDef())
		if !p.acceptPunct(",") {
			break
		}
	}
	p.closeParen(open, "or , ")
	for {
		t := p.peek()
		switch {
		case p.accept("partition", "by"):
			if len(s.PartitionBy) > 0 {
				p.failf(p.since(t.at), "PARTITION BY is given twice")
			}
			if !p.isPunct("(") {
				p.expected("( and column names: PARTITION BY (column, …)")
				return s
			}
			s.PartitionBy = p.nameList("a column's name")
		case p.accept("with"):
			s.Options = append(s.Options, p.optionList()...)
		case t.kind == kindWord && t.text == "partition":
			p.next()
			p.expect("by")
			return s
		default:
			return s
		}
		if p.err != nil {
			return s
		}
	}
}

// optionList parses (name = value, …).
func (p *parser) optionList() []Option {
	open := p.peek().at
	if !p.acceptPunct("(") {
		p.expected("( and options: WITH (retention = '7 days', …)")
	}
	var list []Option
	for {
		list = append(list, p.option("the name of an option, for example retention"))
		if !p.acceptPunct(",") {
			break
		}
	}
	p.closeParen(open, "or , ")
	return list
}

// columnDef parses name TYPE [NOT NULL].
func (p *parser) columnDef() ColumnDef {
	if t := p.peek(); t.kind == kindWord && refusedConstraints[t.text] != "" && p.err == nil {
		p.unsupported(t.at, "%s: %s", p.upper(t), refusedConstraints[t.text])
	}
	c := ColumnDef{Name: p.definedName("a column's name")}
	c.Type = p.typeName()
	for p.err == nil {
		t := p.peek()
		switch {
		case p.accept("not", "null"):
			c.NotNull = true
		case p.accept("null"):
		case t.kind == kindWord && refusedConstraints[t.text] != "":
			p.unsupported(t.at, "%s: %s", p.upper(t), refusedConstraints[t.text])
		case t.punct(",") || t.punct(")"):
			return c
		default:
			p.expected("NOT NULL, the next column after a comma, or )", "NOT")
		}
	}
	return c
}

// createView parses what follows CREATE [MATERIALIZED] VIEW.
func (p *parser) createView(at Span, materialized bool) Statement {
	if t := p.peek(); t.word("if") && p.nextIs("not") {
		p.unsupported(t.at, "IF NOT EXISTS is not supported here: leave it out; deploying an equal file again changes nothing")
	}
	v := &CreateView{At: at, Name: p.definedName("the view's name"), Materialized: materialized}
	if p.isPunct("(") {
		v.Columns = p.nameList("a column's name")
	}
	if t := p.peek(); t.word("with") || t.word("using") || t.word("tablespace") {
		p.unsupported(t.at, "options of a view are not supported: options of the pipeline are set by SET option = value; at the top of the file")
	}
	p.expect("as")
	v.Query = p.query()
	if t := p.peek(); t.word("with") {
		if p.nextIs("no") || p.nextIs("data") {
			p.unsupported(t.at, "WITH [NO] DATA is not supported: leave it out; a materialized view fills itself")
		}
		p.unsupported(t.at, "WITH behind a view is not supported: leave it out")
	}
	return v
}
