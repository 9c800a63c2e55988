package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// fakeNATS answers what a natsConn sends: calls of the API with api, and a row with an acknowledgement while acks are left.
func fakeNATS(t *testing.T, api map[string]string, acks int) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				fmt.Fprint(nc, "INFO {}\r\nPING\r\n")
				in, left := bufio.NewReader(nc), acks
				rows := 0
				for {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					f := strings.Fields(line)
					if f[0] != "PUB" {
						continue
					}
					var n int
					fmt.Sscan(f[3], &n)
					if _, err := io.CopyN(io.Discard, in, int64(n+2)); err != nil {
						return
					}
					answer := `{"stream":"s","seq":1}`
					if call, ok := strings.CutPrefix(f[1], "$JS.API."); ok {
						call = call[:strings.LastIndexByte(call, '.')]
						if answer = api[call]; answer == "count" {
							answer = fmt.Sprintf(`{"state":{"messages":%d}}`, rows)
						}
					} else if rows++; left == 0 {
						answer = `{"error":{"description":"no quorum"}}`
					} else {
						left--
					}
					fmt.Fprintf(nc, "MSG %s 1 %d\r\n%s\r\n", f[2], len(answer), answer)
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestRowsForNATSCountWhenTheyAreAcknowledged(t *testing.T) {
	api := map[string]string{"STREAM.DELETE": `{"success":true}`, "STREAM.CREATE": `{"config":{}}`, "STREAM.INFO": "count"}
	l, err := openNATS(t.Context(), fakeNATS(t, api, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	if rate, err := l.load(t.Context(), 20*time.Millisecond); err != nil || rate <= 0 {
		t.Errorf("%f rows per second, %v", rate, err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}

func TestRowsThatNATSDoesNotHoldAreVoid(t *testing.T) {
	api := map[string]string{"STREAM.DELETE": `{"success":true}`, "STREAM.CREATE": `{"config":{}}`, "STREAM.INFO": `{"state":{"messages":1}}`}
	l, err := openNATS(t.Context(), fakeNATS(t, api, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if _, err := l.load(t.Context(), 20*time.Millisecond); !Void(err) {
		t.Error(err)
	}
}

func TestWhatNATSRefusesIsTold(t *testing.T) {
	api := map[string]string{"STREAM.DELETE": `{"error":{"description":"stream not found"}}`, "STREAM.CREATE": `{"error":{"description":"insufficient resources"}}`}
	if _, err := openNATS(t.Context(), fakeNATS(t, api, 0)); !errors.Is(err, errNATSRefuses) || !strings.Contains(err.Error(), "insufficient resources") {
		t.Error(err)
	}
	api["STREAM.CREATE"] = `{"config":{}}`
	l, err := openNATS(t.Context(), fakeNATS(t, api, 5))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.close() }()
	if _, err := l.load(t.Context(), 20*time.Millisecond); !errors.Is(err, errNATSRefuses) || !strings.Contains(err.Error(), "no quorum") {
		t.Error(err)
	}
}
