package expr_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
)

var record = flag.Bool("record", false, "record the answers of testdata from a private PostgreSQL 15 (initdb, postgres and psql in PATH)")

// TestPostgres evaluates every expression of testdata and compares with the recorded answer.
//
// A file holds blocks of expressions, one per line. Those of "postgres" blocks are recorded: go test -run TestPostgres
// -record asks PostgreSQL and rewrites the files; without the flag nothing but the files is needed. Where an answer is
// the start of an error message, Weir's has to start so. "weir" blocks hold what Weir answers otherwise, or alone.
func TestPostgres(t *testing.T) {
	var pg *postgres
	if *record {
		pg = startPostgres(t)
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	datadriven.Walk(t, "testdata/postgres", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			lines := strings.Split(strings.TrimSpace(d.Input), "\n")
			answer := answerOf
			switch {
			case d.Cmd == "postgres" && pg != nil:
				answer = pg.answer
			case d.Cmd != "postgres" && d.Cmd != "weir":
				t.Fatalf("unknown command %s", d.Cmd)
			}
			var b strings.Builder
			for _, line := range lines {
				fmt.Fprintf(&b, "%s  →  %s\n", line, answer(line))
			}
			return b.String()
		})
	})
}

// answerOf evaluates an expression and describes the result: its type and value, or the error.
func answerOf(text string) string {
	e, err := parse(text)
	if err != nil {
		return "error: " + message(err)
	}
	v, err := expr.EvalRow(e, nil, nil, 0)
	if err != nil {
		return "error: " + message(err)
	}
	return describe(v)
}

func message(err error) string {
	var e *dataflow.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

func describe(v dataflow.Value) string {
	name := strings.ToLower(v.Type.String())
	if v.Type == dataflow.TypeUnknown {
		name = "text"
	}
	if v.Null {
		return name + " NULL"
	}
	if v.Type == dataflow.TypeText {
		return name + " " + strconv.Quote(v.Str)
	}
	return name + " " + expr.FormatValue(v)
}

// postgres is a private server.
type postgres struct{ dir string }

func startPostgres(t *testing.T) *postgres {
	dir, err := os.MkdirTemp("/tmp", "weirpg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// PostgreSQL refuses to run as root.
	var attr *syscall.SysProcAttr
	if os.Getuid() == 0 {
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
	data := filepath.Join(dir, "data")
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.SysProcAttr, cmd.Dir = attr, dir
		return cmd
	}
	if out, err := run("initdb", "-D", data, "-U", "weir", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := run("postgres", "-D", data, "-c", "listen_addresses=", "-k", dir, "-c", "timezone=UTC", "-c", "fsync=off")
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
		out, err := exec.Command("psql", "-h", dir, "-U", "weir", "-d", "postgres", "-c", "select 1").CombinedOutput()
		if err == nil {
			return pg
		}
		if i == 2000 {
			t.Fatalf("postgres does not answer: %s\n%s", out, log.String())
		}
	}
}

const pgSep = "\x1f" // between the columns of an answer

func (pg *postgres) psqlArgs() []string {
	return []string{"-h", pg.dir, "-U", "weir", "-d", "postgres", "-XAtq", "-F", pgSep, "-v", "VERBOSITY=terse"}
}

// pgQuery asks for the type and the value of an expression.
func pgQuery(text string) string {
	return fmt.Sprintf("select pg_typeof(x), x is null, x::text from (select (%s) as x) t", text)
}

// answer asks the server.
func (pg *postgres) answer(text string) string {
	out, _ := exec.Command("psql", append(pg.psqlArgs(), "-c", pgQuery(text))...).CombinedOutput()
	return pgAnswer(string(out))
}

// pgAnswer describes what psql prints as answerOf does. PostgreSQL's integer is Weir's BIGINT.
func pgAnswer(out string) string {
	if _, msg, failed := strings.Cut(out, "ERROR:  "); failed {
		msg, _, _ = strings.Cut(msg, "\n")
		if i := strings.LastIndex(msg, " at character "); i >= 0 {
			msg = msg[:i]
		}
		return "error: " + pgTypes(msg)
	}
	parts := strings.SplitN(strings.TrimSuffix(out, "\n"), pgSep, 3)
	if len(parts) != 3 {
		return "no answer: " + out
	}
	name := parts[0]
	switch name {
	case "integer", "smallint":
		name = "bigint"
	case "timestamp with time zone":
		name = "timestamptz"
	}
	switch {
	case parts[1] == "t":
		return name + " NULL"
	case name == "text":
		return name + " " + strconv.Quote(parts[2])
	}
	return name + " " + parts[2]
}

// pgTypes writes the types in messages about signatures as Weir does.
func pgTypes(msg string) string {
	for _, about := range []string{"does not exist", "cannot cast", "cannot be matched", "is not unique", "type integer"} {
		if strings.Contains(msg, about) {
			return strings.NewReplacer("integer", "bigint", "timestamp with time zone", "timestamptz").Replace(msg)
		}
	}
	return msg
}
