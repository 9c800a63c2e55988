package weir

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// ListStreams returns all streams by name.
func (c *Client) ListStreams(ctx context.Context) ([]*weirv1.Stream, error) {
	var all []*weirv1.Stream
	for token := ""; ; {
		r, err := call(ctx, c, repeatable, c.ingest.ListStreams, &weirv1.ListStreamsRequest{PageToken: token})
		if err != nil {
			return nil, err
		}
		all = append(all, r.GetStreams()...)
		if token = r.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

// DescribeStream returns a stream, its extent per shard, and who holds its rows.
func (c *Client) DescribeStream(ctx context.Context, stream string) (*weirv1.DescribeStreamResponse, error) {
	return call(ctx, c, repeatable, c.ingest.DescribeStream, &weirv1.DescribeStreamRequest{Stream: stream})
}

// DeleteStream drops a stream and its rows. Refused with STREAM_IN_USE while pipelines read it. It is not made twice by
// itself.
func (c *Client) DeleteStream(ctx context.Context, stream string) error {
	_, err := call(ctx, c, once, c.ingest.DeleteStream, &weirv1.DeleteStreamRequest{Stream: stream})
	return err
}

// SetStreamOptions changes options of a stream; the others stay as they are.
func (c *Client) SetStreamOptions(ctx context.Context, stream string, options map[string]string) (*weirv1.Stream, error) {
	r, err := call(ctx, c, repeatable, c.ingest.SetStreamOptions, &weirv1.SetStreamOptionsRequest{Stream: stream, Options: options})
	return r.GetStream(), err
}

// SealStream ends a stream: it takes no more rows.
func (c *Client) SealStream(ctx context.Context, stream string) (*weirv1.Stream, error) {
	r, err := call(ctx, c, repeatable, c.ingest.SealStream, &weirv1.SealStreamRequest{Stream: stream})
	return r.GetStream(), err
}

// ReadStream describes a reading of a stream.
type ReadStream struct {
	Stream string
	// From is earliest (also when empty), latest, or SHARD:OFFSET, several separated by commas.
	From string
	// Follow goes on with rows as they are appended, until the context ends.
	Follow bool
	// Limit ends the reading after this many rows; 0 = no limit.
	Limit uint64
	// NumbersAsStrings writes BIGINT and NUMERIC values as JSON strings.
	NumbersAsStrings bool
}

// ReadStream ranges over the acknowledged rows of a stream, per shard in order of offset. The last pair holds the error
// that ended the reading, if one did. A reading that breaks off is not taken up again by itself: what was seen says from
// where to go on.
func (c *Client) ReadStream(ctx context.Context, r ReadStream) iter.Seq2[*weirv1.StreamRow, error] {
	return func(yield func(*weirv1.StreamRow, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the call when the range loop is left
		req := &weirv1.ReadStreamRequest{Stream: r.Stream, From: r.From, Follow: r.Follow, Limit: r.Limit, Numbers: weirv1.Numbers_NUMBERS_JSON}
		if r.NumbersAsStrings {
			req.Numbers = weirv1.Numbers_NUMBERS_STRING
		}
		var rows grpc.ServerStreamingClient[weirv1.ReadStreamResponse]
		var first *weirv1.ReadStreamResponse
		err := c.retry(ctx, repeatable, func(ctx context.Context) (err error) {
			if rows, err = c.ingest.ReadStream(ctx, req); err != nil {
				return err
			}
			first, err = rows.Recv()
			if errors.Is(err, io.EOF) {
				err = errNoEnd()
			}
			return err
		})
		for m := first; err == nil; {
			for _, row := range m.GetRows() {
				if !yield(row, nil) {
					return
				}
			}
			if m.GetEnd() {
				return
			}
			m, err = rows.Recv()
			if errors.Is(err, io.EOF) {
				err = errNoEnd()
			} else {
				err = c.errorOf(ctx, err)
			}
		}
		yield(nil, err)
	}
}

// errNoEnd says that an answer broke off: its last message is missing.
func errNoEnd() error {
	return dataflow.Errorf(dataflow.ReasonUnreachable, "the server ended the answer in the middle").WithHint("read again from where it ended")
}
