// Package postgres starts a private PostgreSQL server for tests that record its answers (go test -record). Nothing else
// needs one: recorded answers are in testdata. initdb, postgres and psql must be in PATH.
package postgres

import (
	"bytes"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Server is a running server, in UTC and UTF-8, with the collation C.UTF-8. It listens on a socket of its own.
type Server struct{ dir string }

// Start starts a server that ends with the test. Settings are as postgres -c takes them.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "weirpg") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	var attr *syscall.SysProcAttr
	if os.Getuid() == 0 { // PostgreSQL refuses to run as root
		attr = &syscall.SysProcAttr{Credential: nobody(t)}
		if err := os.Chown(dir, int(attr.Credential.Uid), int(attr.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
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
	args := []string{"-D", data, "-k", dir}
	for _, s := range append([]string{"listen_addresses=", "timezone=UTC", "fsync=off"}, settings...) {
		args = append(args, "-c", s)
	}
	server := command("postgres", args...)
	var log bytes.Buffer
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Process.Signal(syscall.SIGINT); err != nil {
			t.Errorf("stop postgres: %v", err)
		}
		_ = server.Wait() // how it ends after its last answer says nothing
	})
	s := &Server{dir: dir}
	for range 2000 {
		if out, err := s.Psql("-c", "SELECT 1").CombinedOutput(); err == nil && strings.TrimSpace(string(out)) == "1" {
			return s
		}
	}
	t.Fatalf("postgres does not answer:\n%s", log.String())
	return nil
}

func nobody(t testing.TB) *syscall.Credential {
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// Psql returns a call of psql: bare rows, terse errors, and what args add.
func (s *Server) Psql(args ...string) *exec.Cmd {
	return exec.Command("psql", append([]string{"-h", s.dir, "-U", "weir", "-d", "postgres", "-XAtq", "-v", "VERBOSITY=terse"}, args...)...)
}

// ErrorOf returns the message of the first error in what psql has printed, without its position.
func ErrorOf(output string) (message string, failed bool) {
	_, message, failed = strings.Cut(output, "ERROR:  ")
	message, _, _ = strings.Cut(message, "\n")
	if i := strings.LastIndex(message, " at character "); i >= 0 {
		message = message[:i]
	}
	return message, failed
}

// Recorded returns the answer that a data-driven test gives for a block whose answer was recorded, when it has asked Weir.
// -rewrite alone must not change what PostgreSQL said: under it (rewriting), an answer that differs from the recorded one fails
// the test, which leaves the file as it is.
func Recorded(t testing.TB, rewriting bool, recorded, answer string) string {
	t.Helper()
	if rewriting && strings.TrimSuffix(answer, "\n") != strings.TrimSuffix(recorded, "\n") {
		t.Fatalf("PostgreSQL's answer is recorded, and -rewrite without -record does not replace it: it was\n%sand is\n%s", recorded, answer)
	}
	return answer
}
