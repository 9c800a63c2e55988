package peernet

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// FuzzReadHello reads anything as a hello and as an answer: what is accepted must be what its encoding says, and nothing
// may be read behind it.
func FuzzReadHello(f *testing.F) {
	h := hello{version: Version, from: Identity{"n1", "d", "g", "name", "n1:7712"}, target: "n2", service: "raft:meta"}
	b, err := h.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	a := answer{version: Version, reason: ReasonData, from: h.from, message: "why"}
	if b, err = a.encode(); err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("WEIRPEER\x07\x00\x00\x00"))
	f.Add([]byte("WEIRANSW\x02\x00\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(append(in[:len(in):len(in)], "rest"...))
		if h, err := readHello(r); err == nil && h.version == Version {
			out, err := h.encode()
			if err != nil {
				t.Fatal(err)
			}
			again, err := readHello(bytes.NewReader(out))
			if err != nil || !reflect.DeepEqual(again, h) {
				t.Fatalf("%+v became %+v, %v", h, again, err)
			}
		}
		if a, err := readAnswer(bytes.NewReader(in)); err == nil && a.version == Version {
			out, err := a.encode()
			if err != nil {
				t.Fatal(err)
			}
			again, err := readAnswer(bytes.NewReader(out))
			if err != nil || !reflect.DeepEqual(again, a) {
				t.Fatalf("%+v became %+v, %v", a, again, err)
			}
		}
	})
}

func TestAHelloIsReadToItsLastByteAndNoFurther(t *testing.T) {
	h := hello{version: Version, from: Identity{Node: "n1", Data: "d"}, service: "grpc"}
	b, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(append(b, "PRI * HTTP/2.0"...))
	if _, err := readHello(r); err != nil || r.Len() != len("PRI * HTTP/2.0") {
		t.Errorf("%d bytes are left, %v", r.Len(), err)
	}
	for n := range b {
		if _, err := readHello(bytes.NewReader(b[:n])); err == nil {
			t.Errorf("%d of %d bytes make a hello", n, len(b))
		}
	}
}

func TestANameThatIsTooLongIsNotSent(t *testing.T) {
	h := hello{version: Version, service: strings.Repeat("x", maxBody)}
	if _, err := h.encode(); err == nil {
		t.Error("it was")
	}
}

func TestGroupsFitByIDAndBeforeItByName(t *testing.T) {
	id := func(group, name string) Identity { return Identity{Group: group, GroupName: name} }
	for _, c := range []struct {
		a, b Identity
		want bool
	}{
		{id("", "a"), id("", "a"), true},
		{id("", "a"), id("", "b"), false},
		{id("1", "a"), id("", "a"), true},
		{id("1", "a"), id("", "b"), false},
		{id("1", "a"), id("1", "b"), true},
		{id("1", "a"), id("2", "a"), false},
	} {
		if c.a.fits(c.b) != c.want || c.b.fits(c.a) != c.want {
			t.Errorf("%+v and %+v: want %v", c.a, c.b, c.want)
		}
	}
}
