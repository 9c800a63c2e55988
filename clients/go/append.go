package weir

import (
	"context"

	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Append is a plain append: a few rows at once. For many rows, or rows that must count once even when the sender is
// killed and starts again, there is Producer.
type Append struct {
	Stream string
	// Rows or JSON: the rows in columns, or one JSON object per line.
	Rows *batch.Batch
	JSON []byte
	// IdempotencyKey makes the append repeatable, also by another process: the same key with the same rows is answered
	// as before. Every shard remembers keys for a day, so they are for appends that matter, not for every row of a feed.
	// Without one, an append whose outcome is unknown is not made again: the error says so.
	IdempotencyKey string
	// PreviousToken is a token of an earlier append; the answer's token covers that too.
	PreviousToken string
}

// Append adds rows to a stream. They are checked as a whole before anything is written, and are on disk when it returns.
func (c *Client) Append(ctx context.Context, a Append) (*weirv1.AppendResponse, error) {
	req := &weirv1.AppendRequest{Stream: a.Stream, JsonRows: a.JSON, IdempotencyKey: a.IdempotencyKey, PreviousToken: a.PreviousToken}
	if a.Rows != nil {
		req.Batch = wire.EncodeColumns(a.Rows, 0, a.Rows.N)
	}
	safe := once
	if a.IdempotencyKey != "" {
		safe = repeatable
	}
	return call(ctx, c, safe, c.ingest.Append, req)
}
