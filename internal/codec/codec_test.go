package codec_test

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirdb/weir/internal/codec"
)

// pieces cuts a message as gRPC hands it over: in the frames in which it came.
func pieces(b []byte, size int) mem.BufferSlice {
	var out mem.BufferSlice
	for len(b) > 0 {
		n := min(size, len(b))
		out = append(out, mem.SliceBuffer(bytes.Clone(b[:n])))
		b = b[n:]
	}
	return out
}

func TestMessagesAreThoseOfGRPCsOwnCodec(t *testing.T) {
	own := encoding.GetCodecV2("proto")
	pool := new(codec.Pool)
	for _, share := range []bool{false, true} {
		c := codec.New(pool, share)
		if c.Name() != own.Name() {
			t.Fatalf("named %q", c.Name())
		}
		for _, n := range []int{0, 1, 1000, 1 << 10, 16<<10 - 1, 16 << 10, 100_000, 5 << 20} {
			m := wrapperspb.Bytes(bytes.Repeat([]byte{7}, n))
			sent, err := c.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			want, err := own.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(sent.Materialize(), want.Materialize()) {
				t.Fatalf("%d bytes are sent otherwise", n)
			}
			got := wrapperspb.Bytes([]byte("what was there before"))
			if err := c.Unmarshal(pieces(sent.Materialize(), 16<<10), got); err != nil {
				t.Fatal(err)
			}
			sent.Free()
			// The pool hands the buffers out again, and somebody writes to them.
			for range 4 {
				b := pool.Get(n + 16)
				for i := range *b {
					(*b)[i] = 0xff
				}
				pool.Put(b)
			}
			if !proto.Equal(m, got) {
				t.Fatalf("share=%v: %d bytes came as others", share, n)
			}
		}
	}
}

func TestDamagedMessagesAreErrors(t *testing.T) {
	for _, share := range []bool{false, true} {
		c := codec.New(new(codec.Pool), share)
		b := append([]byte{0x0a, 0xff, 0xff, 0xff, 0x7f}, make([]byte, 64<<10)...) // a field longer than the message
		if err := c.Unmarshal(pieces(b, 16<<10), new(wrapperspb.BytesValue)); err == nil {
			t.Fatal("taken")
		}
		if err := c.Unmarshal(pieces(b, 16<<10), "no message"); err == nil {
			t.Fatal("taken")
		}
		if _, err := c.Marshal(42); err == nil {
			t.Fatal("taken")
		}
	}
}

func TestBuffersOfThePoolHaveTheLengthAskedFor(t *testing.T) {
	pool := new(codec.Pool)
	for round := range 3 {
		for _, n := range []int{0, 1, 1023, 1024, 1025, 4 << 20, 4<<20 + 1} {
			b := pool.Get(n)
			if len(*b) != n {
				t.Fatalf("round %d: asked for %d bytes, got %d", round, n, len(*b))
			}
			*b = (*b)[:n/2]
			pool.Put(b)
		}
	}
	odd := make([]byte, 3000) // not of the pool: it may hold 2048
	pool.Put(&odd)
	if b := pool.Get(4096); len(*b) != 4096 {
		t.Fatal("a buffer that is too small was handed out")
	}
}
