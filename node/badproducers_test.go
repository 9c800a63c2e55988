package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestBadProducersAreRefusedAndNothingIsDoubled(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	open := func(ctx context.Context, name string) (*weirv1.ProducerSession, error) {
		r, err := v.Ingest().OpenProducer(ctx, &weirv1.OpenProducerRequest{Stream: "s", Producer: name})
		return &weirv1.ProducerSession{Name: name, Epoch: r.GetEpoch()}, err
	}
	send := func(ctx context.Context, p *weirv1.ProducerSession, shard uint32, first uint64, keys ...string) (*weirv1.AppendResponse, error) {
		r, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", Producer: p, Shards: []*weirv1.ShardRows{
			{Shard: shard, FirstSeq: first, Batch: cols(uint32(len(keys)), texts("k", keys...))}}})
		v.rows += int(r.GetRows())
		return r, err
	}
	// after opens a session, sends rows 1 and 2, and then what the case is about.
	after := func(f func(ctx context.Context, p *weirv1.ProducerSession) error) func(context.Context) error {
		return func(ctx context.Context) error {
			p, err := open(ctx, fmt.Sprintf("p%d", rand.Uint64()))
			if err != nil {
				return err
			}
			if _, err := send(ctx, p, 1, 1, "a", "b"); err != nil {
				return err
			}
			return f(ctx, p)
		}
	}
	just := func(shard uint32, first uint64, keys ...string) func(ctx context.Context, p *weirv1.ProducerSession) error {
		return func(ctx context.Context, p *weirv1.ProducerSession) error {
			_, err := send(ctx, p, shard, first, keys...)
			return err
		}
	}
	v.run([]badCall{
		{"a name that does not print", func(ctx context.Context) error {
			_, err := open(ctx, "\x00")
			return err
		}, reasons(dataflow.ReasonRequestInvalid)},
		{"a gap", after(just(1, 4, "d")), reasons(dataflow.ReasonOutOfOrder)},
		{"the same again", after(func(ctx context.Context, p *weirv1.ProducerSession) error {
			r, err := send(ctx, p, 1, 1, "a", "b")
			if err == nil && (r.GetRows() != 0 || r.GetDuplicates() != 2 || !r.GetShards()[0].GetDuplicate()) {
				return fmt.Errorf("the repetition was answered %v", r)
			}
			return err
		}), reasons("")},
		{"an overlap", after(func(ctx context.Context, p *weirv1.ProducerSession) error {
			r, err := send(ctx, p, 1, 2, "b", "c")
			if err == nil && (r.GetRows() != 0 || !r.GetShards()[0].GetOverlap() || r.GetShards()[0].GetLastSeq() != 2) {
				return fmt.Errorf("the overlap was answered %v", r)
			}
			return err
		}), reasons("")},
		{"the same numbers with other rows", after(just(1, 1, "a", "x")), reasons(dataflow.ReasonSequenceReused)},
		{"number 0", after(just(1, 0, "a")), reasons(dataflow.ReasonRequestInvalid)},
		{"the largest number", after(just(1, math.MaxUint64, "a")), reasons(dataflow.ReasonRequestInvalid, dataflow.ReasonOutOfOrder)},
		{"numbers that wrap around", after(just(1, math.MaxUint64, "a", "b")), reasons(dataflow.ReasonRequestInvalid)},
		{"a shard that is not there", after(just(2, 1, "a")), reasons(dataflow.ReasonRequestInvalid)},
		{"shard -1", after(just(math.MaxUint32, 1, "a")), reasons(dataflow.ReasonRequestInvalid)},
		{"shard 2^31", after(just(1<<31, 1, "a")), reasons(dataflow.ReasonRequestInvalid)},
		{"shard 2^32-1 that would be 65535 cut short", after(just(1<<16, 1, "a")), reasons(dataflow.ReasonRequestInvalid)},
		{"a shard twice", after(func(ctx context.Context, p *weirv1.ProducerSession) error {
			part := &weirv1.ShardRows{Shard: 0, FirstSeq: 1, Batch: cols(1, texts("k", "a"))}
			_, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", Producer: p, Shards: []*weirv1.ShardRows{part, part}})
			return err
		}), reasons(dataflow.ReasonRequestInvalid)},
		{"a bad part beside a good one", after(func(ctx context.Context, p *weirv1.ProducerSession) error {
			_, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", Producer: p, Shards: []*weirv1.ShardRows{
				{Shard: 0, FirstSeq: 1, Batch: cols(1, texts("k", "a"))}, {Shard: 1, FirstSeq: 3, Batch: cols(1, ints("k", 1))}}})
			return err
		}), reasons(dataflow.ReasonRowInvalid)},
		{"an unknown producer with number 7", func(ctx context.Context) error {
			_, err := send(ctx, &weirv1.ProducerSession{Name: "nobody", Epoch: 1}, 0, 7, "a")
			return err
		}, reasons(dataflow.ReasonUnknownProducer)},
		{"an unknown producer with number 1", func(ctx context.Context) error {
			_, err := send(ctx, &weirv1.ProducerSession{Name: "nobody", Epoch: 1}, 0, 1, "a")
			return err
		}, reasons(dataflow.ReasonUnknownProducer)},
		{"a session that was never opened", after(func(ctx context.Context, p *weirv1.ProducerSession) error {
			_, err := send(ctx, &weirv1.ProducerSession{Name: p.GetName(), Epoch: math.MaxUint64}, 1, 3, "c")
			if _, err := send(ctx, p, 1, 3, "c"); err != nil {
				return fmt.Errorf("the open session was fenced: %w", err)
			}
			again, oerr := open(ctx, p.GetName())
			if oerr != nil {
				return fmt.Errorf("the name was fenced for good: %w", oerr)
			}
			if _, err := send(ctx, again, 1, 4, "d"); err != nil {
				return fmt.Errorf("the next session was fenced: %w", err)
			}
			return err
		}), reasons(dataflow.ReasonUnknownProducer)},
		{"epoch 0", func(ctx context.Context) error {
			_, err := send(ctx, &weirv1.ProducerSession{Name: "nobody"}, 0, 1, "a")
			return err
		}, reasons(dataflow.ReasonRequestInvalid)},
		{"no name", func(ctx context.Context) error { _, err := open(ctx, ""); return err }, reasons(dataflow.ReasonRequestInvalid)},
		{"a name of 10,000 bytes", func(ctx context.Context) error {
			_, err := open(ctx, strings.Repeat("n", 10_000))
			return err
		}, reasons(dataflow.ReasonRequestInvalid)},
		{"two live clients of one name", func(ctx context.Context) error {
			older, err := open(ctx, "twice")
			if err != nil {
				return err
			}
			if _, err := send(ctx, older, 0, 1, "first"); err != nil {
				return err
			}
			newer, err := open(ctx, "twice")
			if err != nil {
				return err
			}
			if _, err := send(ctx, newer, 0, 2, "second"); err != nil {
				return err
			}
			_, err = send(ctx, older, 0, 2, "second")
			return err
		}, reasons(dataflow.ReasonProducerFenced)},
		{"a row in the wrong shard", func(ctx context.Context) error {
			r, err := v.Ingest().OpenProducer(ctx, &weirv1.OpenProducerRequest{Stream: "placed", Producer: "p"})
			if err != nil {
				return err
			}
			p := &weirv1.ProducerSession{Name: "p", Epoch: r.GetEpoch()}
			_, err = v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "placed", Producer: p, Shards: []*weirv1.ShardRows{
				{Shard: 0, FirstSeq: 1, Batch: cols(8, texts("k", "a", "b", "c", "d", "e", "f", "g", "h"))}}})
			return err
		}, reasons(dataflow.ReasonRowInvalid)},
	})

	t.Run("fifty batches in flight, sent again by a second session", func(t *testing.T) {
		for attempt := range 2 {
			p, err := open(t.Context(), "fifty")
			if err != nil {
				t.Fatal(err)
			}
			call, err := v.Ingest().AppendStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				if err := call.Send(&weirv1.AppendStreamRequest{Append: &weirv1.AppendRequest{Stream: "s", Producer: p, Shards: []*weirv1.ShardRows{
					{Shard: 0, FirstSeq: uint64(2*i + 1), Batch: cols(2, texts("k", fmt.Sprint(i), "fifty"))}}}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := call.CloseSend(); err != nil {
				t.Fatal(err)
			}
			var rows, duplicates uint64
			for {
				r, err := call.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				rows, duplicates = rows+r.GetAppended().GetRows(), duplicates+r.GetAppended().GetDuplicates()
			}
			if rows != 100*uint64(1-attempt) || duplicates != 100*uint64(attempt) {
				t.Errorf("attempt %d wrote %d rows and knew %d", attempt, rows, duplicates)
			}
			v.rows += int(rows)
		}
		v.probe("fifty batches")
	})

	t.Run("cancelled after sending, before the answer", func(t *testing.T) {
		p, err := open(t.Context(), "hasty")
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(20) {
			ctx, cancel := context.WithCancel(t.Context())
			call, err := v.Ingest().AppendStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := call.Send(&weirv1.AppendStreamRequest{Append: &weirv1.AppendRequest{Stream: "s", Producer: p, Shards: []*weirv1.ShardRows{
				{Shard: 1, FirstSeq: i + 1, Batch: cols(1, texts("k", "hasty"))}}}}); err != nil {
				t.Fatal(err)
			}
			cancel()
			r, err := send(t.Context(), p, 1, i+1, "hasty")
			if err != nil || r.GetRows()+r.GetDuplicates() != 1 {
				t.Fatalf("row %d sent again: %v, %v", i+1, r, err)
			}
			v.rows += int(r.GetDuplicates()) // the first try wrote it
		}
		v.Checkpoint("v")
		if row, _, _ := v.Get("v", "by_k", nodetest.Committed, "hasty"); row != `{"k":"hasty","n":20,"total":null}` {
			t.Errorf("twenty rows became %s", row)
		}
	})
	v.intact()
}
