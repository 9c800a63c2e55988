package sql

import (
	"strconv"
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// typeSpellings maps what can stand for a type to its canonical name, by the words that PostgreSQL has for it.
var typeSpellings = map[string]string{
	"boolean": "BOOLEAN", "bool": "BOOLEAN",
	"bigint": "BIGINT", "int8": "BIGINT",
	"double precision": "DOUBLE PRECISION", "double": "DOUBLE PRECISION", "float8": "DOUBLE PRECISION", "float": "DOUBLE PRECISION",
	"text":        "TEXT",
	"timestamptz": "TIMESTAMPTZ", "timestamp with time zone": "TIMESTAMPTZ",
	"numeric": "NUMERIC", "decimal": "NUMERIC", "dec": "NUMERIC",
	"interval": "INTERVAL",
	"date":     "DATE",
	"jsonb":    "JSONB", "bytea": "BYTEA",
}

// refusedTypes holds types that PostgreSQL and its relatives have, with what to write instead.
var refusedTypes = map[string]string{
	"int": "write BIGINT", "integer": "write BIGINT", "int4": "write BIGINT", "int2": "write BIGINT", "smallint": "write BIGINT",
	"tinyint": "write BIGINT", "int64": "write BIGINT", "int32": "write BIGINT", "long": "write BIGINT", "oid": "write BIGINT", "uint64": "write NUMERIC",
	"serial": "there are no sequences: every stream has _shard and _offset", "bigserial": "there are no sequences: every stream has _shard and _offset",
	"real": "write DOUBLE PRECISION", "float4": "write DOUBLE PRECISION", "float64": "write DOUBLE PRECISION",
	"varchar": "write TEXT", "char": "write TEXT", "character": "write TEXT", "character varying": "write TEXT", "bpchar": "write TEXT", "name": "write TEXT",
	"string": "write TEXT", "citext": "write TEXT, and lower(…) where case should not count",
	"timestamp": "write TIMESTAMPTZ", "timestamp without time zone": "write TIMESTAMPTZ", "datetime": "write TIMESTAMPTZ",
	"time": "not yet: write TIMESTAMPTZ", "timetz": "not yet: write TIMESTAMPTZ",
	"json": "write JSONB", "blob": "write BYTEA", "uuid": "not yet: write TEXT",
	"money": "write BIGINT and count cents", "inet": "not yet: write TEXT", "xml": "write TEXT", "bit": "not supported: write BIGINT", "enum": "write TEXT",
	"array": "write the type of the elements and [], TEXT[]", "row": "write JSONB, or a column for each field", "struct": "write JSONB, or a column for each field",
	"map": "write JSONB",
}

// typeNames are the accepted spellings that a misspelled type is compared with.
var typeNames = []string{"BIGINT", "BOOLEAN", "BYTEA", "DATE", "DOUBLE PRECISION", "DOUBLE", "INTERVAL", "JSONB", "NUMERIC", "TEXT", "TIMESTAMPTZ"}

// typeName reads the name of a type.
func (p *parser) typeName() TypeName {
	t := p.peek()
	if t.kind != kindWord && t.kind != kindQuoted {
		p.expected("a type: BIGINT, TEXT, BOOLEAN, DOUBLE PRECISION, NUMERIC, TIMESTAMPTZ, DATE, INTERVAL, JSONB or BYTEA")
		return TypeName{At: t.at}
	}
	p.next()
	spelling := t.text
	switch {
	case t.word("double"):
		p.accept("precision")
	case t.word("character"), t.word("char"):
		if p.accept("varying") {
			spelling += " varying"
		}
	case t.word("timestamp"), t.word("time"):
		for _, zone := range []string{"with", "without"} {
			if p.accept(zone, "time", "zone") {
				spelling += " " + zone + " time zone"
			}
		}
	}
	name, ok := typeSpellings[spelling]
	if !ok {
		at := p.since(t.at)
		base, _, _ := strings.Cut(spelling, " ")
		instead := refusedTypes[spelling]
		if instead == "" {
			instead = refusedTypes[base]
		}
		if instead != "" {
			p.unsupported(at, "type %s: %s", strings.ToUpper(spelling), instead)
		} else {
			p.failf(at, "there is no type %s%s", spelling, dataflow.DidYouMean(spelling, typeNames))
		}
		return TypeName{At: at}
	}
	n := TypeName{Name: name, At: p.since(t.at)}
	if open := p.peek(); open.punct("(") && name != "BOOLEAN" {
		if name != "NUMERIC" {
			p.unsupported(open.at, "%s takes no ( ): leave the length out", name)
		}
		p.precision(&n)
		n.At = p.since(t.at)
	}
	if p.isPunct("[") {
		p.next()
		if p.peek().kind == kindInteger {
			p.next()
		}
		p.expectPunct("]")
		n.Array = true
		n.At = p.since(t.at)
		if p.isPunct("[") {
			p.unsupported(p.peek().at, "arrays have one dimension")
		}
	}
	return n
}

// precision reads the (precision [, scale]) of NUMERIC.
func (p *parser) precision(n *TypeName) {
	open := p.next().at
	number := func(what string, least, most int) int {
		minus := least < 0 && p.acceptOp("-")
		t := p.peek()
		v, err := strconv.Atoi(t.text)
		if minus {
			v = -v
		}
		if t.kind != kindInteger || err != nil || v < least || v > most {
			p.failf(t.at, "the %s of NUMERIC is a number from %d to %d", what, least, most)
			return 0
		}
		p.next()
		return v
	}
	n.Precision = number("precision", 1, 1000)
	if p.acceptPunct(",") {
		n.Scale = number("scale", -1000, 1000)
	}
	p.closeParen(open, "or , ")
	if p.isPunct("[") && n.Precision != 0 {
		p.unsupported(p.peek().at, "an array of NUMERIC takes no precision: write NUMERIC[]")
	}
}

// startsTypedLiteral reports whether a type name and a string come next: TIMESTAMPTZ '2026-01-01'.
func (p *parser) startsTypedLiteral() bool {
	t := p.peek()
	if t.kind != kindWord {
		return false
	}
	n := 1
	switch {
	case t.text == "timestamp" && (p.peekAt(1).word("with") || p.peekAt(1).word("without")):
		n = 4
	case t.text == "double" && p.peekAt(1).word("precision"):
		n = 2
	}
	if p.peekAt(n).kind != kindString {
		return false
	}
	return typeSpellings[t.text] != "" || refusedTypes[t.text] != ""
}
