package conformance

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// program is a file of testdata.
type program struct {
	name   string // of the pipeline
	schema string
	feeds  []feed
	views  []block
}

// feed is rows of a stream, in order.
type feed struct {
	stream string
	rows   []string // JSON objects
}

// block is a view or a query.
type block struct {
	name     string // of the view
	sql      string // with {name} for streams and views
	onlyView bool
	digest   bool
	ordered  bool // the order of the rows means something
	folds    []string
	differs  string
}

// names finds the streams and views that a SELECT reads.
var names = regexp.MustCompile(`\{(\w+)\}`)

// streams finds what the schema declares.
func (p *program) streams() []string {
	var out []string
	for _, m := range createStream.FindAllStringSubmatch(p.schema, -1) {
		out = append(out, m[1])
	}
	return out
}

// deployed returns the SQL file of the pipeline. Every stream gets a table with all of its rows, for queries.
func (p *program) deployed() string {
	var b strings.Builder
	b.WriteString(p.schema + "\n")
	for _, m := range createStream.FindAllStringSubmatch(p.schema, -1) {
		keys, others := "_shard, _offset", ""
		for _, col := range splitColumns(m[2]) {
			name, typ := strings.Fields(col)[0], strings.Fields(col)[1]
			if typ == "JSONB" || strings.HasSuffix(typ, "[]") { // no key
				others += fmt.Sprintf(", max(%s::text)::%s AS %s", name, typ, name)
				continue
			}
			keys += ", " + name
		}
		fmt.Fprintf(&b, "CREATE MATERIALIZED VIEW %s_rows AS SELECT %s%s FROM %s GROUP BY %s;\n", m[1], keys, others, m[1], keys)
	}
	for _, v := range p.views {
		fmt.Fprintf(&b, "CREATE MATERIALIZED VIEW %s AS\n%s;\n", v.name, v.inFile())
	}
	return b.String()
}

// splitColumns takes the columns of CREATE STREAM apart.
func splitColumns(list string) []string {
	var out []string
	depth, from := 0, 0
	list = strings.TrimSuffix(strings.TrimPrefix(list, "("), ")")
	for i, c := range list {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, list[from:i])
				from = i + 1
			}
		}
	}
	return append(out, list[from:])
}

// inFile returns the SELECT as a view of the file, or of PostgreSQL.
func (c *block) inFile() string {
	return names.ReplaceAllString(strings.TrimRight(strings.TrimSpace(c.sql), ";"), "$1")
}

// asQuery returns the SELECT as a query over the tables of the pipeline.
func (c *block) asQuery(p *program) string {
	streams := p.streams()
	return names.ReplaceAllStringFunc(c.sql, func(s string) string {
		name := strings.Trim(s, "{}")
		if slices.Contains(streams, name) {
			name += "_rows"
		}
		return p.name + "." + name
	})
}

// blockOf reads a view or query block.
func blockOf(t *testing.T, d *datadriven.TestData) block {
	t.Helper()
	c := block{sql: strings.TrimSpace(d.Input)}
	for _, arg := range d.CmdArgs {
		switch {
		case arg.Key == "only" && slices.Equal(arg.Vals, []string{"view"}):
			c.onlyView = true
		case arg.Key == "digest":
			c.digest = true
		case arg.Key == "fold":
			c.folds = arg.Vals
		case arg.Key == "differs" && len(arg.Vals) == 1:
			c.differs = arg.Vals[0]
		case d.Cmd == "view" && len(arg.Vals) == 0 && c.name == "":
			c.name = arg.Key
		default:
			t.Fatalf("%s: unknown argument %s", d.Pos, arg)
		}
	}
	for _, f := range c.folds {
		if folds[f] == "" {
			t.Fatalf("%s: unknown fold %s", d.Pos, f)
		}
	}
	if c.differs != "" && differences[c.differs] == "" {
		t.Fatalf("%s: unknown difference %s", d.Pos, c.differs)
	}
	if d.Cmd == "view" && c.name == "" {
		t.Fatalf("%s: the view has no name", d.Pos)
	}
	c.ordered = d.Cmd == "view" || orderBy.MatchString(c.sql)
	return c
}

// orderBy finds a query's own ORDER BY: the files keep it on the last line.
var orderBy = regexp.MustCompile(`(?i)ORDER BY[^)]*$`)

// readProgram collects a file's program without changing the file.
func readProgram(t *testing.T, path string) *program {
	t.Helper()
	p := &program{name: strings.TrimSuffix(filepath.Base(path), ".txt")}
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "schema":
			p.schema = strings.TrimSpace(d.Input)
		case "rows":
			p.feeds = append(p.feeds, feedOf(t, d))
		case "view":
			p.views = append(p.views, blockOf(t, d))
		case "query":
			blockOf(t, d)
		default:
			t.Fatalf("%s: unknown block %s", d.Pos, d.Cmd)
		}
		return d.Expected
	})
	return p
}

func feedOf(t *testing.T, d *datadriven.TestData) feed {
	t.Helper()
	var f feed
	d.ScanArgs(t, "stream", &f.stream)
	if !d.HasArg("generate") {
		f.rows = strings.Split(strings.TrimSpace(d.Input), "\n")
		return f
	}
	var name string
	var n int
	var seed uint64
	d.ScanArgs(t, "generate", &name)
	d.MaybeScanArgs(t, "n", &n)
	d.MaybeScanArgs(t, "seed", &seed)
	gen := generators[name]
	if gen == nil {
		t.Fatalf("%s: there is no generator %s", d.Pos, name)
	}
	f.rows = gen(t, n, seed)
	return f
}
