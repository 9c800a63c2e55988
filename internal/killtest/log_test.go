package killtest

import (
	"context"
	"fmt"
	"hash/crc32"
	"strings"

	weir "github.com/weirdb/weir/clients/go"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// rowReader checks the rows of a stream as they are read back, and says what the model folds.
type rowReader interface {
	// read takes the row at the next offset of a shard.
	read(shard int, offset uint64, text []byte) (any, error)
	// holds reports whether the first n rows of a sender have been read.
	holds(sender string, n int) error
	// count returns how many rows of a sender have been read.
	count(sender string) int
}

// streamLog is the acknowledged log of a stream, as far as it has been read back.
type streamLog struct {
	stream string
	reader rowReader
	rows   [][]any    // per shard, what the model folds
	sums   [][]uint32 // per shard, a checksum of each row with its append time
	// trimmed is how many rows were no longer kept when everything was read again.
	trimmed int
}

func newStreamLog(stream string, shards int, r rowReader) *streamLog {
	return &streamLog{stream: stream, reader: r, rows: make([][]any, shards), sums: make([][]uint32, shards)}
}

func (l *streamLog) length() int {
	n := 0
	for _, rows := range l.rows {
		n += len(rows)
	}
	return n
}

// from names the offsets to read on from.
func (l *streamLog) from() string {
	parts := make([]string, len(l.rows))
	for s, rows := range l.rows {
		parts[s] = fmt.Sprintf("%d:%d", s, len(rows))
	}
	return strings.Join(parts, ",")
}

// extend reads what has been appended since the last time.
func (l *streamLog) extend(ctx context.Context, c *weir.Client) error {
	for r, err := range c.ReadStream(ctx, weir.ReadStream{Stream: l.stream, From: l.from()}) {
		if err != nil {
			return fmt.Errorf("read %s: %w", l.stream, err)
		}
		s, offset := int(r.GetShard()), r.GetOffset()
		if s >= len(l.rows) || offset != uint64(len(l.rows[s])) {
			return violation("K2: %s: shard %d has offset %d after %d rows", l.stream, s, offset, len(l.rows[s]))
		}
		v, err := l.reader.read(s, offset, r.GetRow())
		if err != nil {
			return violation("K1: %s: shard %d, offset %d: %v", l.stream, s, offset, err)
		}
		l.rows[s] = append(l.rows[s], v)
		l.sums[s] = append(l.sums[s], sumOf(r))
	}
	return nil
}

// reread reads everything that is kept again and compares it with what was read before (K2).
func (l *streamLog) reread(ctx context.Context, c *weir.Client) error {
	next := make([]int, len(l.rows))
	seen := make([]bool, len(l.rows))
	for r, err := range c.ReadStream(ctx, weir.ReadStream{Stream: l.stream}) {
		if err != nil {
			return fmt.Errorf("read %s again: %w", l.stream, err)
		}
		s, offset := int(r.GetShard()), r.GetOffset()
		if !seen[s] {
			seen[s], next[s] = true, int(offset)
			l.trimmed += int(offset)
		}
		if offset != uint64(next[s]) {
			return violation("K2: %s: shard %d has offset %d where %d was", l.stream, s, offset, next[s])
		}
		next[s]++
		if offset < uint64(len(l.sums[s])) && l.sums[s][offset] != sumOf(r) {
			return violation("K2: %s: the row of shard %d, offset %d is another one now: %s at %s", l.stream, s, offset, r.GetRow(), r.GetAppendTime().AsTime())
		}
	}
	for s, n := range next {
		if seen[s] && n < len(l.rows[s]) {
			return violation("K2: %s: shard %d had %d rows, and has %d", l.stream, s, len(l.rows[s]), n)
		}
	}
	return nil
}

func sumOf(r *weirv1.StreamRow) uint32 {
	sum := crc32.ChecksumIEEE(r.GetRow())
	at := r.GetAppendTime().AsTime().UnixMicro()
	return sum ^ uint32(at) ^ uint32(at>>32)*31
}

// replay is a model that has folded the log up to some positions.
type replay struct {
	log   *streamLog
	model model
	at    []uint64 // per shard
}

func newReplay(l *streamLog, m model) *replay {
	return &replay{log: l, model: m, at: make([]uint64, len(l.rows))}
}

// covers reports whether positions are nowhere behind what has been folded.
func (r *replay) covers(positions []uint64) bool {
	for s, at := range r.at {
		if positions[s] < at {
			return false
		}
	}
	return true
}

// advance folds on to positions, which must cover what has been folded and be in the log.
func (r *replay) advance(positions []uint64) error {
	for s, to := range positions {
		if to > uint64(len(r.log.rows[s])) {
			return violation("K3: the cut names offset %d of shard %d of %s, whose log has %d rows", to, s, r.log.stream, len(r.log.rows[s]))
		}
		for ; r.at[s] < to; r.at[s]++ {
			r.model.apply(r.log.rows[s][r.at[s]])
		}
	}
	return nil
}

// end folds all of the log.
func (r *replay) end() error {
	to := make([]uint64, len(r.at))
	for s, rows := range r.log.rows {
		to[s] = uint64(len(rows))
	}
	return r.advance(to)
}

// violationError says that Weir broke a rule, as opposed to that the test could not ask.
type violationError struct{ text string }

func (e *violationError) Error() string { return e.text }

func violation(format string, args ...any) error {
	return &violationError{fmt.Sprintf(format, args...)}
}
