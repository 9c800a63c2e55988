package link

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirdb/weir/dataflow/exchange"
)

// TestAPeerThatBreaksTheRulesEndsTheRun speaks to a node as a peer that loses, repeats or makes up frames (L2).
func TestAPeerThatBreaksTheRulesEndsTheRun(t *testing.T) {
	id := exchange.EdgeID{From: 0, To: 1}
	message := func(id exchange.EdgeID, number uint64) []byte {
		b := appendUvarint(appendEdge(beginFrame(nil, frameMessage), id), number)
		b, err := exchange.AppendMessage(b, schema, barrier(1))
		if err != nil {
			t.Fatal(err)
		}
		return endFrame(b, 0)
	}
	body := func(kind frameKind, bytes ...byte) []byte {
		return endFrame(append(beginFrame(nil, kind), bytes...), 0)
	}
	credit := func(id exchange.EdgeID, n uint64) []byte {
		return endFrame(appendUvarint(appendEdge(beginFrame(nil, frameCredit), id), n), 0)
	}
	damaged := message(id, 1)
	damaged[len(damaged)-1] ^= 1
	for _, c := range []struct {
		what, want string
		frames     [][]byte
	}{
		{"a gap", "message 2 came by stage 0 input 0 shard 0→1 after message 0", [][]byte{message(id, 2)}},
		{"a repetition", "message 1 came by stage 0 input 0 shard 0→1 after message 1", [][]byte{message(id, 1), message(id, 1)}},
		{"more than its credits", "without a credit", [][]byte{message(id, 1), message(id, 2), message(id, 3), message(id, 4), message(id, 5)}},
		{"another edge", "no edge from node n0", [][]byte{message(exchange.EdgeID{From: 0, To: 1, Input: 4}, 1)}},
		{"its own edge", "no edge from node n0", [][]byte{message(exchange.EdgeID{From: 1, To: 0}, 1)}},
		{"credits for nothing", "for messages that were not sent", [][]byte{credit(exchange.EdgeID{From: 1, To: 0}, 1)}},
		{"credits of another edge", "no edge to node n0", [][]byte{credit(id, 1)}},
		{"a damaged frame", "checksum", [][]byte{damaged}},
		{"half a frame", "unexpected EOF", [][]byte{message(id, 1)[:12]}},
		{"a frame without a kind", "malformed", [][]byte{make([]byte, frameHeader)}},
		{"a frame that is too large", "too large", [][]byte{binary.LittleEndian.AppendUint64(nil, 1<<31)}},
		{"a frame of no kind", "kind 99", [][]byte{body(99)}},
		{"half a credit", "malformed", [][]byte{body(frameCredit, 0, 0)}},
		{"a message of nobody", "malformed", [][]byte{body(frameMessage, 0xff)}},
		{"rows that are none", "malformed", [][]byte{endFrame(append(appendUvarint(appendEdge(beginFrame(nil, frameMessage), id), 1), byte(exchange.KindBarrier), 0), 0)}},
		{"a bye without a reason", "malformed", [][]byte{body(frameBye)}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, 2)
			m := g.start(1, 1, 1)
			shape := g.prepare(0, 1, 1)
			conn, err := g.dial(t.Context(), "n1")
			if err != nil {
				t.Fatal(err)
			}
			if err := shape.links.pairs["n1"].greet(conn); err != nil {
				t.Fatal(err)
			}
			<-m.linked
			go func() {
				for _, f := range c.frames {
					_, _ = conn.Write(f) // the node may have hung up
				}
				if strings.Contains(c.what, "half a frame") {
					_ = conn.Close()
				}
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
			var lost *LostError
			if err := <-m.ended; !errors.As(err, &lost) || lost.Ended || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: the run ended with %v", c.what, err)
			}
			g.close()
		})
	}
}

// TestGreetingsAreChecked speaks to a hub that expects a greeting.
func TestGreetingsAreChecked(t *testing.T) {
	for _, c := range []struct {
		what string
		hello
		raw  []byte
		want string
	}{
		{what: "nothing", raw: []byte{}, want: "greeting"},
		{what: "noise", raw: []byte("GET / HTTP/1.1\r\n\r\n"), want: "too large"},
		{what: "another version", raw: endFrame(append(beginFrame(nil, frameHello), 200), 0), want: "speaks version 200"},
		{what: "no hello", raw: endFrame(beginFrame(nil, framePing), 0), want: "malformed"},
		{what: "another node's name", hello: hello{Pipeline: 1, Incarnation: 1, From: "n7", To: "n1"}, want: "it dials as n7"},
		{what: "a name that does not dial", hello: hello{Pipeline: 1, Incarnation: 1, From: "n1", To: "n1"}, want: "it dials as n1"},
		{what: "for another node", hello: hello{Pipeline: 1, Incarnation: 1, From: "n0", To: "n9"}, want: "to n9"},
		{what: "a pipeline that does not run", hello: hello{Pipeline: 5, Incarnation: 1, From: "n0", To: "n1"}, want: "has not started incarnation 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, 2)
			m := g.start(1, 1, 1)
			synctest.Wait()
			a, b := net.Pipe()
			handled := make(chan error, 1)
			go func() { handled <- g.hubs[1].Handle(b) }()
			raw := c.raw
			if raw == nil {
				raw = c.append(nil)
			}
			go func() {
				_, _ = a.Write(raw) // it may be refused before its end
				_, _ = io.Copy(io.Discard, a)
			}()
			if err := <-handled; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.what, err)
			}
			_ = a.Close()
			m.stop()
			g.close()
		})
	}
}

func TestHelloArrivesAsItWas(t *testing.T) {
	h := hello{Pipeline: 7, Incarnation: 9, From: "n1", To: "node-2", Edges: 300, Fingerprint: 1<<63 + 5}
	frame := h.append(nil)
	got, err := parseHello(frame[frameHeader+1:])
	if err != nil || got != h {
		t.Errorf("got %s, %v", got, err)
	}
	for n := range len(frame) - frameHeader - 1 {
		if _, err := parseHello(frame[frameHeader+1:][:n]); err == nil {
			t.Errorf("%d bytes of a hello are taken", n)
		}
	}
	r := refusal{code: refuseStale, newest: 5, reason: strings.Repeat("x", 2*maxReason)}
	if got, err := parseRefusal(r.append(nil)[frameHeader+1:]); err != nil || got.code != r.code || got.newest != 5 || len(got.reason) != maxReason {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzReceived(f *testing.F) {
	f.Add(uint8(frameCredit), []byte{0, 0, 1, 0, 1})
	f.Add(uint8(frameMessage), []byte{0, 0, 0, 1, 1, 2, 1})
	f.Add(uint8(frameBye), []byte{1})
	f.Add(uint8(frameHello), hello{From: "a", To: "b"}.append(nil)[frameHeader+1:])
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		h := Open(Config{Node: "n1"})
		l := h.Links(Run{Pipeline: 1, Incarnation: 1, Owners: []string{"n0", "n1"}})
		in := exchange.NewInbox(2, exchange.Credits)
		if err := l.In(exchange.EdgeID{From: 0, To: 1}, schema, in.Edge(0), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Out(exchange.EdgeID{From: 1, To: 0}, schema); err != nil {
			t.Fatal(err)
		}
		_ = l.pairs["n0"].received(frameKind(kind), body) // it does not panic, and credits stay within bounds
		_, _ = parseHello(body)
		_, _ = parseRefusal(body)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
