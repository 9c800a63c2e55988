package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/weirdb/weir/internal/testkit/postgres"
)

// database is a private PostgreSQL, to record answers.
type database struct{ *postgres.Server }

// Separators that no answer contains.
const (
	unitSep   = "\x1f"
	recordSep = "\x1e"
	nullText  = "\x01"
)

// run sends statements and returns what psql prints.
func (pg database) run(script string) (string, error) {
	cmd := pg.Psql("-F", unitSep, "-R", recordSep, "-P", "null="+nullText, "-v", "ON_ERROR_STOP=1", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if m, ok := postgres.ErrorOf(errs.String()); ok {
			return "", errors.New(m)
		}
		return "", fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.String(), nil
}

var (
	createStream = regexp.MustCompile(`(?is)CREATE\s+STREAM\s+(\w+)\s*(\(.*?\))\s*(?:PARTITION\s+BY\s*\([^)]*\)\s*)?(?:WITH\s*\([^)]*\)\s*)?;`)
	setStatement = regexp.MustCompile(`(?im)^SET .*;$`)
)

// load makes the program's streams tables, fills them, and makes its views.
func (pg database) load(t *testing.T, p *program) {
	t.Helper()
	var b strings.Builder
	b.WriteString("DROP SCHEMA public CASCADE; CREATE SCHEMA public;\n")
	b.WriteString(createStream.ReplaceAllString(setStatement.ReplaceAllString(p.schema, ""), "CREATE TABLE $1 $2;") + "\n")
	for _, f := range p.feeds {
		fmt.Fprintf(&b, "INSERT INTO %s SELECT * FROM json_populate_recordset(null::%s, $weir$[%s]$weir$);\n", f.stream, f.stream, strings.Join(f.rows, ",\n"))
	}
	for _, v := range p.views {
		fmt.Fprintf(&b, "CREATE VIEW %s AS %s;\n", v.name, translate(names.ReplaceAllString(v.sql, "$1")))
	}
	for _, stmt := range strings.SplitAfter(b.String(), ";\n") {
		if _, err := pg.run(stmt); err != nil {
			t.Fatalf("%s: %v in\n%s", p.name, err, stmt)
		}
	}
}

// translations are aggregates that PostgreSQL does not have, and what gives the same there.
var translations = []struct {
	weir *regexp.Regexp
	pg   string
}{
	{regexp.MustCompile(`\b(?:min_by|arg_min)\((\w+), (\w+)\) FILTER \(WHERE ([^)]*)\)`), "(array_agg($1 ORDER BY $2, $1) FILTER (WHERE $2 IS NOT NULL AND $3))[1]"},
	{regexp.MustCompile(`\b(?:min_by|arg_min)\((\w+), (\w+)\)`), "(array_agg($1 ORDER BY $2, $1) FILTER (WHERE $2 IS NOT NULL))[1]"},
	{regexp.MustCompile(`\b(?:max_by|arg_max)\((\w+), (\w+)\)`), "(array_agg($1 ORDER BY $2 DESC, $1 DESC) FILTER (WHERE $2 IS NOT NULL))[1]"},
}

// translate writes a SELECT for PostgreSQL.
func translate(sql string) string {
	for _, t := range translations {
		sql = t.weir.ReplaceAllString(sql, t.pg)
	}
	return sql
}

// ask runs a SELECT.
func (pg database) ask(t *testing.T, sql string) *table {
	t.Helper()
	sql = translate(sql)
	sql = strings.TrimRight(strings.TrimSpace(sql), ";")
	desc, err := pg.run(sql + "\n\\gdesc\n")
	if err != nil {
		return &table{err: err.Error()}
	}
	rows, err := pg.run(sql + ";")
	if err != nil {
		return &table{err: err.Error()}
	}
	return tableOf(t, sql, desc, rows)
}

// askAll runs SELECTs of one line in one session.
func (pg database) askAll(t *testing.T, list []block) []*table {
	t.Helper()
	const mark = "@@weir@@"
	var script bytes.Buffer
	for _, c := range list {
		sql := translate(c.inFile())
		fmt.Fprintf(&script, "%s\n\\gdesc\n\\echo '%s'\n%s;\n\\echo '%s'\n", sql, mark, sql, mark)
	}
	cmd := pg.Psql("-F", unitSep, "-R", recordSep, "-P", "null="+nullText, "-f", "-")
	cmd.Stdin = &script
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, text)
	}
	parts := strings.Split(string(text), mark+"\n")
	if len(parts) != 2*len(list)+1 {
		t.Fatalf("%d answers to %d queries", len(parts)/2, len(list))
	}
	out := make([]*table, len(list))
	for i := range list {
		out[i] = tableOf(t, list[i].sql, parts[2*i], parts[2*i+1])
	}
	return out
}

// tableOf reads what psql has printed: the columns, and the rows.
func tableOf(t *testing.T, sql, desc, rows string) *table {
	t.Helper()
	for _, text := range []string{desc, rows} {
		if m, failed := postgres.ErrorOf(text); failed {
			return &table{err: m}
		}
	}
	out := &table{}
	for _, line := range strings.Split(strings.TrimRight(desc, "\n"+recordSep), recordSep) {
		name, typ, _ := strings.Cut(line, unitSep)
		out.cols = append(out.cols, column{name, weirType(strings.TrimSpace(typ))})
	}
	if rows == "" {
		return out
	}
	for _, line := range strings.Split(strings.TrimSuffix(rows, "\n"), recordSep) {
		row := strings.Split(line, unitSep)
		if len(row) != len(out.cols) {
			t.Fatalf("%d columns and %d values in %q of\n%s", len(out.cols), len(row), line, sql)
		}
		cells := make([]cell, len(row))
		for i, text := range row {
			cells[i] = cell{text: text, null: text == nullText}
		}
		out.rows = append(out.rows, cells)
	}
	return out
}

// weirType names a type of PostgreSQL as Weir does. PostgreSQL's integer is Weir's BIGINT.
func weirType(t string) string {
	t, _, _ = strings.Cut(t, "(") // the precision of NUMERIC
	switch t {
	case "integer", "smallint", "bigint":
		return "BIGINT"
	case "timestamp with time zone":
		return "TIMESTAMPTZ"
	case "name", "character varying":
		return "TEXT"
	}
	return strings.ToUpper(t)
}
