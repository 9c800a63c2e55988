package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write what came out into the scripts")

// TestMain lets the test binary be the program weir, so that scripts run it as users do.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weir": main})
}

// TestScripts runs testdata/script/*.txtar against real server processes. Besides testscript's commands there are:
//
//	server [FLAG...]        starts weir server on free ports with data in $WORK/data; sets WEIR_ADDR, HTTP and HTTP_ADDR
//	server-stop [SIGNAL]    ends it (TERM, INT: it must exit with 0; KILL) and waits
//	code N ARG...           runs weir, which must exit with N
//	masked FILE             writes stdout to FILE, with times, tokens and the like replaced
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			s := &scriptServer{}
			e.Values[serverKey{}] = s
			e.Defer(s.kill)
			e.Setenv("WEIR_ADDR", "127.0.0.1:1")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"server":      startScriptServer,
			"server-stop": stopScriptServer,
			"masked":      masked,
			"code":        exitsWith,
		},
	})
}

type serverKey struct{}

// scriptServer is the server process of a script.
type scriptServer struct {
	cmd    *exec.Cmd
	reader sync.WaitGroup
	log    strings.Builder // after reader
}

func (s *scriptServer) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // it may have ended
		s.reader.Wait()
		_ = s.cmd.Wait() // killed
		s.cmd = nil
	}
}

func scriptServerOf(ts *testscript.TestScript) *scriptServer {
	s, ok := ts.Value(serverKey{}).(*scriptServer)
	if !ok {
		ts.Fatalf("no server")
	}
	return s
}

var servingLine = regexp.MustCompile(`msg=serving grpc=(\S+) http=(\S+)`)

func startScriptServer(ts *testscript.TestScript, neg bool, args []string) {
	s := scriptServerOf(ts)
	if neg || s.cmd != nil {
		ts.Fatalf("server: is running, or negated")
	}
	weir, err := exec.LookPath("weir") // what testscript has put in PATH
	ts.Check(err)
	grpcAddr, httpAddr := ts.Getenv("WEIR_ADDR"), ts.Getenv("HTTP_ADDR")
	if httpAddr == "" { // a server that is started again has its ports again
		grpcAddr, httpAddr = "127.0.0.1:0", "127.0.0.1:0"
	}
	s.cmd = exec.Command(weir, append([]string{"server", "--data-dir", ts.MkAbs("data"), "--grpc-addr", grpcAddr, "--http-addr", httpAddr}, args...)...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := s.cmd.StderrPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	serving := make(chan []string, 1)
	s.reader.Go(func() {
		defer close(serving)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			fmt.Fprintln(&s.log, lines.Text())
			if m := servingLine.FindStringSubmatch(lines.Text()); m != nil {
				serving <- m[1:]
			}
		}
		_, _ = io.Copy(io.Discard, stderr) // after an overlong line
	})
	addrs, ok := <-serving
	if !ok {
		s.reader.Wait()
		log := s.log.String()
		_ = s.cmd.Wait()
		s.cmd = nil
		ts.Fatalf("the server did not start:\n%s", log)
	}
	ts.Setenv("WEIR_ADDR", addrs[0])
	ts.Setenv("HTTP_ADDR", addrs[1])
	ts.Setenv("HTTP", "http://"+addrs[1])
}

func stopScriptServer(ts *testscript.TestScript, neg bool, args []string) {
	s := scriptServerOf(ts)
	if s.cmd == nil || neg {
		ts.Fatalf("server-stop: no server runs, or negated")
	}
	signals := map[string]syscall.Signal{"": syscall.SIGTERM, "TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}
	sig, ok := signals[strings.Join(args, " ")]
	if !ok {
		ts.Fatalf("server-stop: %v", args)
	}
	ts.Check(s.cmd.Process.Signal(sig))
	s.reader.Wait()
	err := s.cmd.Wait()
	s.cmd = nil
	if sig != syscall.SIGKILL && err != nil {
		ts.Fatalf("the server ended with %v:\n%s", err, s.log.String())
	}
	s.log.Reset()
}

// masks replace what differs from run to run.
var masks = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`"(age_ms|behind_ms|behind_rows|checkpoint_id|bytes|log_index|digest)":\d+`), `"$1":0`},
	{regexp.MustCompile(`"(token)":"[^"]*"`), `"$1":"TOKEN"`},
	{regexp.MustCompile(`"(cluster_id|version|commit|go_version|acknowledged_after)":"[^"]*"`), `"$1":"X"`},
	{regexp.MustCompile(`committed \S+ ago`), "committed AGE ago"},
	{regexp.MustCompile(`, [\d,]+ rows? behind \([^)]*\)|, covers everything acknowledged`), ", FRESH"},
	{regexp.MustCompile(`cut \d+ of`), "cut N of"},
	{regexp.MustCompile(`in [\d.]+(s|ms|µs)`), "in TOOK"},
}

func masked(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: masked FILE")
	}
	out := ts.ReadFile("stdout")
	for _, m := range masks {
		out = m.re.ReplaceAllString(out, m.with)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(out), 0o644))
}

func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: code N ARG...")
	}
	err := ts.Exec("weir", args[1:]...)
	got := "0"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = fmt.Sprint(exit.ExitCode())
	} else {
		ts.Check(err)
	}
	if got != args[0] {
		ts.Fatalf("weir exited with %s, not %s", got, args[0])
	}
}
