package bench

import (
	"context"
	"encoding/json"
	"math/bits"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// The rows that clients send have 100 bytes of values: a key, when the row was due, and text that does not compress.
const (
	rowBytes = 100
	padBytes = rowBytes - 16
)

var loadSchema = dataflow.Schema{
	{Name: "k", Type: dataflow.TypeBigInt, NotNull: true},
	{Name: "t", Type: dataflow.TypeBigInt, NotNull: true},
	{Name: "pad", Type: dataflow.TypeText, NotNull: true},
}

// xorshift is a small generator of random numbers: the same ones in every run.
type xorshift uint64

func (x *xorshift) next() uint64 {
	*x ^= *x << 13
	*x ^= *x >> 7
	*x ^= *x << 17
	return uint64(*x)
}

// below returns a number from 0 to n-1.
func (x *xorshift) below(n uint64) uint64 {
	hi, _ := bits.Mul64(x.next(), n)
	return hi
}

// load makes rows and knows what they add up to (B2). Its keys come once each in turn, then at random. It is for one
// goroutine.
type load struct {
	keys   uint64
	random xorshift
	pads   []byte   // text to cut pads from
	offs   []uint32 // of a TEXT vector of pads
	ints   [2][]int64
	truth
}

// truth is what the table of all rows sent must say.
type truth struct {
	rows uint64
	sum  uint64 // of the keys of all rows
	keys uint64 // distinct
}

// maxLoadBatch bounds the rows of one batch of a load.
const maxLoadBatch = 4096

func newLoad(keys uint64) *load {
	l := &load{keys: keys, random: 88172645463325252}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	l.pads = make([]byte, maxLoadBatch*padBytes+4096)
	for i := range l.pads {
		l.pads[i] = letters[l.random.next()>>58]
	}
	for i := range maxLoadBatch + 1 {
		l.offs = append(l.offs, uint32(i*padBytes))
	}
	return l
}

// note counts a row that is sent.
func (l *load) note(key uint64, fresh bool) {
	l.rows++
	l.sum += key
	if fresh {
		l.truth.keys++
	}
}

// next returns n rows that are due at t. The batch is good until the next call.
func (l *load) next(n int, t time.Time) *batch.Batch {
	k, at := l.ints[0][:0], l.ints[1][:0]
	for range n {
		key := l.rows
		fresh := key < l.keys
		if !fresh {
			key = l.random.below(l.keys)
		}
		l.note(key, fresh)
		k, at = append(k, int64(key)), append(at, t.UnixMicro())
	}
	l.ints = [2][]int64{k, at}
	from := l.random.below(4096)
	return &batch.Batch{Schema: loadSchema, N: n, Cols: []*batch.Vector{
		{Type: dataflow.TypeBigInt, Ints: k},
		{Type: dataflow.TypeBigInt, Ints: at},
		{Type: dataflow.TypeText, Offs: l.offs[:n+1], Data: l.pads[from : from+uint64(n*padBytes)]},
	}}
}

// check compares what a query of one row says with what was sent. The query names its columns rows, sum and keys.
func (t truth) check(ctx context.Context, c *weir.Client, sql, token string) error {
	var got struct {
		Rows, Sum, Keys uint64
	}
	answer, err := c.Query(ctx, sql, weir.ReadOptions{MinToken: token, MaxWait: settleTimeout})
	if err != nil {
		return err
	}
	row, ok := answer.Next()
	if !ok {
		return voidf("%s has no row: %v", sql, answer.Err())
	}
	if err := json.Unmarshal(row, &got); err != nil {
		return voidf("%s answers %s: %v", sql, row, err)
	}
	if got.Rows != t.rows || got.Sum != t.sum || got.Keys != t.keys {
		return voidf("the table counts %d rows of %d keys with sum %d; sent were %d rows of %d keys with sum %d",
			got.Rows, got.Keys, got.Sum, t.rows, t.keys, t.sum)
	}
	return nil
}

// settleTimeout bounds how long a benchmark waits for the node to catch up.
const settleTimeout = 2 * time.Minute
