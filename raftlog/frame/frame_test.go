package frame_test

import (
	"bytes"
	"testing"

	"github.com/weirdb/weir/raftlog/frame"
)

func TestOpenReturnsWhatWasFramed(t *testing.T) {
	for _, cmd := range [][]byte{nil, {0}, []byte("hello"), make([]byte, 1<<20)} {
		got, err := frame.Open(frame.Append([]byte("prefix"), cmd)[len("prefix"):])
		if err != nil || !bytes.Equal(got, cmd) {
			t.Errorf("%d bytes came back as %d, %v", len(cmd), len(got), err)
		}
	}
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	b := frame.Append(nil, []byte("a command"))
	for i := range len(b) * 8 {
		c := bytes.Clone(b)
		c[i/8] ^= 1 << (i % 8)
		if _, err := frame.Open(c); err == nil {
			t.Errorf("bit %d", i)
		}
	}
	for i := range b {
		if _, err := frame.Open(b[:i]); err == nil {
			t.Errorf("%d bytes of %d passed", i, len(b))
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(frame.Append(nil, []byte("x")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if cmd, err := frame.Open(b); err == nil && !bytes.Equal(frame.Append(nil, cmd), b) {
			t.Fatal("framing what was opened gives other bytes")
		}
	})
}
