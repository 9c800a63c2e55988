// Package codec is gRPC's codec of protobuf messages with less work per byte, for connections that carry batches of rows.
//
// gRPC's own one clears every buffer that it takes from its pool, whose buffers above 32 KiB have a megabyte, and copies each
// bytes field once more out of it. Proto is the same on the wire and has the same name.
package codec

import (
	"fmt"
	"math/bits"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/runtime/protoiface"
)

// shareFrom is the size from which a message that shares gets memory of its own. Why not smaller: what is kept of a small
// message would keep the rest of it.
const shareFrom = 16 << 10

// Proto is a codec for grpc.ForceServerCodecV2 and grpc.ForceCodecV2. It is safe for concurrent use.
type Proto struct {
	pool  mem.BufferPool
	share bool
}

var _ encoding.CodecV2 = (*Proto)(nil)

// New returns a codec that takes its buffers from pool. With share, the bytes fields of a large message share the memory that
// the message was received in, which nobody writes to again: for receivers that keep a field for no longer than they would
// keep all of it.
func New(pool *Pool, share bool) *Proto { return &Proto{pool: pool, share: share} }

// Name implements encoding.CodecV2: what is sent is what gRPC's own codec sends.
func (*Proto) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (c *Proto) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(pb.Message)
	if !ok {
		return nil, fmt.Errorf("codec: marshal: %T is no protobuf message", v)
	}
	size := pb.Size(m)
	buf := c.pool.Get(size)
	out, err := pb.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buf)[:0], m)
	if err != nil {
		c.pool.Put(buf)
		return nil, fmt.Errorf("codec: marshal: %w", err)
	}
	*buf = out
	return mem.BufferSlice{mem.NewBuffer(buf, c.pool)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c *Proto) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(pb.Message)
	if !ok {
		return fmt.Errorf("codec: unmarshal: %T is no protobuf message", v)
	}
	if n := data.Len(); c.share && n >= shareFrom {
		b := make([]byte, n)
		data.CopyTo(b)
		return unmarshalShared(b, m)
	}
	buf := data.MaterializeToBuffer(c.pool)
	defer buf.Free()
	return pb.Unmarshal(buf.ReadOnlyData(), m)
}

// unmarshalShared is proto.Unmarshal, but that bytes fields share b.
func unmarshalShared(b []byte, m pb.Message) error {
	methods := m.ProtoReflect().ProtoMethods()
	if methods == nil || methods.Unmarshal == nil {
		return pb.Unmarshal(b, m)
	}
	pb.Reset(m)
	out, err := methods.Unmarshal(protoiface.UnmarshalInput{
		Message: m.ProtoReflect(), Buf: b, Flags: protoiface.UnmarshalAliasBuffer,
		Resolver: protoregistry.GlobalTypes, Depth: protowire.DefaultRecursionLimit,
	})
	if err != nil {
		return fmt.Errorf("codec: unmarshal: %w", err)
	}
	if out.Flags&protoiface.UnmarshalInitialized == 0 {
		return pb.CheckInitialized(m)
	}
	return nil
}

// The sizes of a Pool's buffers are the powers of two between these. Larger ones are made each time, smaller ones too: they
// cost less than the pool does.
const (
	minPooled = 10 // 1 KiB
	maxPooled = 22 // 4 MiB
)

// Pool is a mem.BufferPool whose buffers are not cleared: who takes one fills it before it is read, as gRPC and Proto do. Its
// zero value is an empty pool. It is safe for concurrent use.
type Pool struct {
	sized [maxPooled + 1]sync.Pool // of *[]byte, with a capacity of at least 1 << index
}

var _ mem.BufferPool = (*Pool)(nil)

// Get implements mem.BufferPool.
func (p *Pool) Get(length int) *[]byte {
	at := bits.Len(uint(max(length, 1) - 1)) // the smallest power of two that holds length
	if at < minPooled || at > maxPooled {
		b := make([]byte, length)
		return &b
	}
	if b, _ := p.sized[at].Get().(*[]byte); b != nil {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, 1<<at)
	return &b
}

// Put implements mem.BufferPool.
func (p *Pool) Put(b *[]byte) {
	at := bits.Len(uint(cap(*b))) - 1 // the greatest power of two that it holds
	if at < minPooled || at > maxPooled {
		return
	}
	p.sized[at].Put(b)
}
