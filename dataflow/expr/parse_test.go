package expr_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
)

// parser reads the expressions of the test cases. It knows just enough SQL for them and leaves the rest to the package.
type parser struct {
	tokens []token
	i      int
	// literal makes an expression of a literal in the text; typed says that it has a type of its own.
	literal func(v dataflow.Value, typed bool) expr.Expr
	column  func(name string) (expr.Expr, bool)
}

type token struct {
	kind byte // 'i' identifier or keyword, 'n' number, 's' string, 'o' operator, 0 end
	text string
}

func constant(v dataflow.Value, _ bool) expr.Expr { return expr.NewConst(v) }

func parse(text string) (expr.Expr, error) {
	p := parser{literal: constant}
	return p.parse(text)
}

type parseError string

func (e parseError) Error() string { return string(e) }

func (p *parser) parse(text string) (e expr.Expr, err error) {
	p.tokens, p.i = lex(text), 0
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			e, err = nil, r
		default:
			panic(r)
		}
	}()
	e = p.expr(0)
	if p.peek().kind != 0 {
		return nil, parseError(fmt.Sprintf("trailing %q in %q", p.peek().text, text))
	}
	return e, nil
}

func lex(s string) []token {
	var out []token
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\n':
			i++
		case c == '\'' || (c == 'e' || c == 'E') && i+1 < len(s) && s[i+1] == '\'':
			escapes := c != '\''
			if escapes {
				i++
			}
			var b strings.Builder
			for i++; i < len(s); i++ {
				if escapes && s[i] == '\\' {
					i++
					b.WriteString(map[byte]string{'n': "\n", 't': "\t", '\\': "\\"}[s[i]])
					continue
				}
				if s[i] == '\'' {
					if i+1 < len(s) && s[i+1] == '\'' {
						i++
					} else {
						break
					}
				}
				b.WriteByte(s[i])
			}
			i++
			out = append(out, token{'s', b.String()})
		case c >= '0' && c <= '9' || c == '.' && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9':
			j := i
			for j < len(s) && (s[j] >= '0' && s[j] <= '9' || s[j] == '.' || s[j] == 'e' || (s[j] == '-' || s[j] == '+') && s[j-1] == 'e') {
				j++
			}
			out = append(out, token{'n', s[i:j]})
			i = j
		case c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			j := i
			for j < len(s) && (s[j] == '_' || s[j] >= 'a' && s[j] <= 'z' || s[j] >= 'A' && s[j] <= 'Z' || s[j] >= '0' && s[j] <= '9') {
				j++
			}
			out = append(out, token{'i', strings.ToLower(s[i:j])})
			i = j
		default:
			op := ""
			for _, o := range []string{"->>", "#>>", "!~*", "->", "#>", "@>", "<@", "?|", "?&", "#-", "&&", "::", "||", "<=", ">=", "<>", "!=", "!~", "~*", "<<", ">>"} {
				if strings.HasPrefix(s[i:], o) {
					op = o
					break
				}
			}
			if op == "" {
				op = s[i : i+1]
			}
			out = append(out, token{'o', op})
			i += len(op)
		}
	}
	return out
}

func (p *parser) peek() token {
	if p.i < len(p.tokens) {
		return p.tokens[p.i]
	}
	return token{}
}

func (p *parser) take(texts ...string) bool {
	for k, text := range texts {
		if p.i+k >= len(p.tokens) || p.tokens[p.i+k].kind == 's' || p.tokens[p.i+k].text != text {
			return false
		}
	}
	p.i += len(texts)
	return true
}

func (p *parser) need(text string) {
	if !p.take(text) {
		panic(parseError(fmt.Sprintf("want %q, have %q", text, p.peek().text)))
	}
}

func must(e expr.Expr, err error) expr.Expr {
	if err != nil {
		panic(err)
	}
	return e
}

func call(name string, args ...expr.Expr) expr.Expr { return must(expr.NewCall(name, args...)) }

const (
	levelOr = iota + 1
	levelAnd
	levelNot
	levelIs
	levelCompare
	levelLike
	levelOther
	levelAdd
	levelMul
	levelPower
	levelSign
	levelCast
)

func (p *parser) expr(level int) expr.Expr {
	var left expr.Expr
	switch {
	case p.take("not"):
		left = call("not", p.expr(levelNot))
	default:
		left = p.primary()
	}
	for {
		t := p.peek()
		if t.kind != 'i' && t.kind != 'o' {
			return left
		}
		binary := func(own int) bool {
			if own < level {
				return false
			}
			p.i++
			for _, q := range []string{"any", "all"} {
				if p.take(q, "(") {
					left = call(t.text+" "+q, left, p.expr(0))
					p.need(")")
					return true
				}
			}
			left = call(t.text, left, p.expr(own+1))
			return true
		}
		ok := false
		switch t.text {
		case "or":
			ok = binary(levelOr)
		case "and":
			ok = binary(levelAnd)
		case "=", "<>", "!=", "<", ">", "<=", ">=":
			ok = binary(levelCompare)
		case "->", "->>", "#>", "#>>", "#-", "&&", "@>", "<@", "?", "?|", "?&", "||", "~", "~*", "!~", "!~*", "&", "|", "#", "<<", ">>":
			ok = binary(levelOther)
		case "+", "-":
			ok = binary(levelAdd)
		case "*", "/", "%":
			ok = binary(levelMul)
		case "^":
			ok = binary(levelPower)
		case "is":
			if levelIs >= level {
				ok = true
				p.i++
				left = p.is(left)
			}
		case "[":
			ok = true
			p.i++
			index := p.expr(0)
			if p.peek().text == ":" {
				p.i++
				left = call("[:]", left, index, p.expr(0))
			} else {
				left = call("[]", left, index)
			}
			p.need("]")
		case "::":
			ok = true
			p.i++
			left = must(expr.NewCast(left, p.typeName()))
		case "not", "in", "like", "ilike", "between":
			if levelLike >= level {
				ok = true
				left = p.matching(left)
			}
		}
		if !ok {
			return left
		}
	}
}

func (p *parser) is(left expr.Expr) expr.Expr {
	name := "is "
	if p.take("not") {
		name += "not "
	}
	if p.take("distinct", "from") {
		return call(name+"distinct from", left, p.expr(levelIs+1))
	}
	name += p.peek().text
	p.i++
	return call(name, left)
}

func (p *parser) matching(left expr.Expr) expr.Expr {
	name := ""
	if p.take("not") {
		name = "not "
	}
	op := p.peek().text
	p.i++
	switch op {
	case "in":
		p.need("(")
		return call(name+"in", append([]expr.Expr{left}, p.list()...)...)
	case "between":
		lo := p.expr(levelLike + 1)
		p.need("and")
		hi := p.expr(levelLike + 1)
		e := call("and", call(">=", left, lo), call("<=", left, hi))
		if name != "" {
			e = call("not", e)
		}
		return e
	}
	args := []expr.Expr{left, p.expr(levelLike + 1)}
	if p.take("escape") {
		args = append(args, p.expr(levelLike+1))
	}
	return call(name+op, args...)
}

// list reads arguments up to the closing parenthesis.
func (p *parser) list() []expr.Expr {
	var args []expr.Expr
	for !p.take(")") {
		if len(args) > 0 {
			p.need(",")
		}
		args = append(args, p.expr(0))
	}
	return args
}

func (p *parser) typeName() dataflow.Type {
	t := p.peek()
	p.i++
	typ := p.scalarType(t)
	if p.take("[", "]") {
		return dataflow.ArrayOf(typ)
	}
	return typ
}

func (p *parser) scalarType(t token) dataflow.Type {
	switch t.text {
	case "jsonb":
		return dataflow.TypeJSONB
	case "bytea":
		return dataflow.TypeBytea
	case "date":
		return dataflow.TypeDate
	case "bigint", "int8", "int", "integer":
		return dataflow.TypeBigInt
	case "boolean", "bool":
		return dataflow.TypeBool
	case "double":
		p.need("precision")
		return dataflow.TypeDouble
	case "float8":
		return dataflow.TypeDouble
	case "numeric":
		return dataflow.TypeNumeric
	case "timestamptz":
		return dataflow.TypeTimestamp
	case "interval":
		return dataflow.TypeInterval
	case "text":
		return dataflow.TypeText
	}
	panic(parseError("type " + t.text))
}

func (p *parser) number(text string) expr.Expr {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return p.literal(dataflow.BigInt(n), true)
	}
	v, err := expr.ParseValue(dataflow.TypeNumeric, text)
	if err != nil {
		panic(err)
	}
	return p.literal(v, true)
}

func (p *parser) primary() expr.Expr {
	t := p.peek()
	p.i++
	switch t.kind {
	case 'n':
		return p.number(t.text)
	case 's':
		return p.literal(dataflow.Text(t.text), false)
	case 'o':
		switch t.text {
		case "(":
			e := p.expr(0)
			p.need(")")
			return e
		case "-", "+", "~":
			if t.text == "-" && p.peek().kind == 'n' {
				n := p.peek().text
				if _, err := strconv.ParseInt("-"+n, 10, 64); err == nil && !(p.i+1 < len(p.tokens) && (p.tokens[p.i+1].text == "::" || p.tokens[p.i+1].text == "^")) {
					p.i++
					return p.number("-" + n)
				}
			}
			return call(t.text, p.expr(levelSign))
		}
	case 'i':
		switch t.text {
		case "null":
			return p.literal(dataflow.NullValue(dataflow.TypeUnknown), false)
		case "true", "false":
			return p.literal(dataflow.Bool(t.text == "true"), true)
		case "case":
			return p.caseExpr()
		case "cast":
			p.need("(")
			e := p.expr(0)
			p.need("as")
			e = must(expr.NewCast(e, p.typeName()))
			p.need(")")
			return e
		case "array":
			p.need("[")
			var items []expr.Expr
			for !p.take("]") {
				if len(items) > 0 {
					p.need(",")
				}
				items = append(items, p.expr(0))
			}
			return call("array", items...)
		case "interval":
			return p.typed(dataflow.TypeInterval)
		case "date":
			return p.typed(dataflow.TypeDate)
		case "timestamptz":
			return p.typed(dataflow.TypeTimestamp)
		}
		if p.take("(") {
			return p.function(t.text)
		}
		if p.column != nil {
			if e, ok := p.column(t.text); ok {
				return e
			}
		}
	}
	panic(parseError(fmt.Sprintf("unexpected %q", t.text)))
}

func (p *parser) typed(t dataflow.Type) expr.Expr {
	v, err := expr.ParseValue(t, p.peek().text)
	if err != nil {
		panic(err)
	}
	p.i++
	return p.literal(v, true)
}

func (p *parser) caseExpr() expr.Expr {
	var subject, els expr.Expr
	if p.peek().text != "when" {
		subject = p.expr(0)
	}
	var whens []expr.When
	for p.take("when") {
		cond := p.expr(0)
		if subject != nil {
			cond = call("=", subject, cond)
		}
		p.need("then")
		whens = append(whens, expr.When{Cond: cond, Then: p.expr(0)})
	}
	if p.take("else") {
		els = p.expr(0)
	}
	p.need("end")
	return must(expr.NewCase(whens, els))
}

func (p *parser) function(name string) expr.Expr {
	switch name {
	case "extract":
		field := p.peek().text
		p.i++
		p.need("from")
		e := p.expr(0)
		p.need(")")
		return call("extract", expr.NewConst(dataflow.Text(field)), e)
	case "overlay":
		args := []expr.Expr{p.expr(0)}
		for !p.take(")") {
			if !p.take("placing") && !p.take("from") && !p.take("for") {
				p.need(",")
			}
			args = append(args, p.expr(0))
		}
		return call("overlay", args...)
	case "position":
		a := p.expr(levelLike + 1)
		p.need("in")
		b := p.expr(0)
		p.need(")")
		return call("position", a, b)
	case "substring":
		a := p.expr(0)
		if p.take("from") {
			args := []expr.Expr{a, p.expr(0)}
			if p.take("for") {
				args = append(args, p.expr(0))
			}
			p.need(")")
			return call("substring", args...)
		}
		if !p.take(",") {
			panic(parseError("substring"))
		}
		return call("substring", append([]expr.Expr{a}, p.list()...)...)
	case "trim":
		fn := "btrim"
		switch {
		case p.take("both"):
		case p.take("leading"):
			fn = "ltrim"
		case p.take("trailing"):
			fn = "rtrim"
		}
		a := p.expr(0)
		if p.take("from") {
			b := p.expr(0)
			p.need(")")
			return call(fn, b, a)
		}
		if p.take(",") {
			return call(fn, append([]expr.Expr{a}, p.list()...)...)
		}
		p.need(")")
		return call(fn, a)
	}
	return call(name, p.list()...)
}
