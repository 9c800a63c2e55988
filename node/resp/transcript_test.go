package resp_test

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/node/resp"
)

// TestTranscripts plays the scenarios of testdata against a server with the tables of newFake. A block's command is
//
//	send [conn=NAME]   each line is a command, its words separated by blanks or quoted as in Go; lines go out together
//	raw                each line is bytes, escaped as in a Go string, then the client has no more to say
//
// and its answer is what came back, a line per line of the protocol, and (closed) when the server ended the connection.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "fuzz") {
			return
		}
		_, addr := serve(t, resp.Config{Backend: newFake(), Version: "test"})
		conns := map[string]*net.TCPConn{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "raw" {
				c := dial(t, addr)
				for line := range strings.Lines(d.Input) {
					s, err := strconv.Unquote(`"` + strings.ReplaceAll(strings.TrimSuffix(line, "\n"), `"`, `\"`) + `"`)
					if err != nil {
						d.Fatalf(t, "%q: %v", line, err)
					}
					_, _ = io.WriteString(c, s) // the server may have ended it
				}
				_ = c.CloseWrite()
				got, err := io.ReadAll(c)
				if err != nil && !strings.Contains(err.Error(), "reset") {
					d.Fatalf(t, "%v", err)
				}
				return lines(string(got))
			}
			name := "main"
			d.MaybeScanArgs(t, "conn", &name)
			if conns[name] == nil {
				conns[name] = dial(t, addr)
			}
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				out.WriteString(request(words(t, line)...))
			}
			got, closed := exchange(conns[name], out.String())
			if got = lines(got); closed {
				conns[name] = nil
				got += "(closed)\n"
			}
			return got
		})
	})
}

// end is what a transcript sends to see that all answers have come.
const end = "--the end of the answers--"

// exchange sends commands and returns the answers, and whether the server closed the connection after them.
func exchange(c net.Conn, commands string) (answers string, closed bool) {
	_, _ = io.WriteString(c, commands+request("ECHO", end)) // what fails is seen below
	mark := fmt.Sprintf("$%d\r\n%s\r\n", len(end), end)
	var b strings.Builder
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		b.Write(buf[:n])
		if s, ok := strings.CutSuffix(b.String(), mark); ok {
			return s, false
		}
		if err != nil {
			return b.String(), true
		}
	}
}

// lines shows answers with a line's end where they have one, and escapes the rest.
func lines(s string) string {
	var b strings.Builder
	for line := range strings.SplitAfterSeq(s, "\r\n") {
		if line == "" {
			continue
		}
		q := strconv.Quote(strings.TrimSuffix(line, "\r\n"))
		b.WriteString(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`) + "\n")
	}
	return b.String()
}

// words splits a line at blanks, but for those in quotes.
func words(t *testing.T, line string) (out []string) {
	t.Helper()
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if line[0] == '"' {
			q, err := strconv.QuotedPrefix(line)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			w, _ := strconv.Unquote(q) // QuotedPrefix has seen to it
			out, line = append(out, w), line[len(q):]
			continue
		}
		w, rest, _ := strings.Cut(line, " ")
		out, line = append(out, w), rest
	}
	return out
}
