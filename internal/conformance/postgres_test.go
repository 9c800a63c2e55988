package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// postgres is a private server, to record answers.
type postgres struct {
	dir string /* of the socket */
}

func startPostgres(t *testing.T) *postgres {
	dir, err := os.MkdirTemp("/tmp", "weirpg") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var attr *syscall.SysProcAttr
	if os.Getuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.SysProcAttr, cmd.Dir = attr, dir
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-U", "weir", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := command("postgres", "-D", data, "-c", "listen_addresses=", "-k", dir, "-c", "timezone=UTC", "-c", "fsync=off",
		"-c", "client_min_messages=warning")
	var log bytes.Buffer
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT)
		_ = server.Wait()
	})
	pg := &postgres{dir: dir}
	for i := 0; ; i++ {
		_, err := pg.run("SELECT 1")
		if err == nil {
			return pg
		}
		if i == 2000 {
			t.Fatalf("postgres does not answer: %v\n%s", err, log.String())
		}
	}
}

// Separators that no answer contains.
const (
	unitSep   = "\x1f"
	recordSep = "\x1e"
	nullText  = "\x01"
)

// run sends statements and returns what psql prints.
func (pg *postgres) run(script string) (string, error) {
	cmd := exec.Command("psql", "-h", pg.dir, "-U", "weir", "-d", "postgres", "-XAtq", "-F", unitSep, "-R", recordSep,
		"-P", "null="+nullText, "-v", "VERBOSITY=terse", "-v", "ON_ERROR_STOP=1", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if _, m, ok := strings.Cut(errs.String(), "ERROR:  "); ok {
			m, _, _ = strings.Cut(m, "\n")
			if i := strings.LastIndex(m, " at character "); i >= 0 {
				m = m[:i]
			}
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
func (pg *postgres) load(t *testing.T, p *program) {
	t.Helper()
	var b strings.Builder
	b.WriteString("DROP SCHEMA public CASCADE; CREATE SCHEMA public;\n")
	b.WriteString(createStream.ReplaceAllString(setStatement.ReplaceAllString(p.schema, ""), "CREATE TABLE $1 $2;") + "\n")
	for _, f := range p.feeds {
		fmt.Fprintf(&b, "INSERT INTO %s SELECT * FROM json_populate_recordset(null::%s, $weir$[%s]$weir$);\n", f.stream, f.stream, strings.Join(f.rows, ",\n"))
	}
	for _, v := range p.views {
		fmt.Fprintf(&b, "CREATE VIEW %s AS %s;\n", v.name, names.ReplaceAllString(v.sql, "$1"))
	}
	for _, stmt := range strings.SplitAfter(b.String(), ";\n") {
		if _, err := pg.run(stmt); err != nil {
			t.Fatalf("%s: %v in\n%s", p.name, err, stmt)
		}
	}
}

// ask runs a SELECT.
func (pg *postgres) ask(t *testing.T, sql string) *table {
	t.Helper()
	sql = strings.TrimRight(strings.TrimSpace(sql), ";")
	desc, err := pg.run(sql + "\n\\gdesc\n")
	if err != nil {
		return &table{err: err.Error()}
	}
	out := &table{}
	for _, line := range strings.Split(strings.TrimRight(desc, "\n"+recordSep), recordSep) {
		name, typ, _ := strings.Cut(line, unitSep)
		out.cols = append(out.cols, column{name, weirType(strings.TrimSpace(typ))})
	}
	rows, err := pg.run(sql + ";")
	if err != nil {
		return &table{err: err.Error()}
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
