package weir

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// compareLinger is how much longer than others rows wait that are to be compared: that works only when they come in the
// batch that they came with the first time.
const compareLinger = time.Second

// chunk is a piece of one shard's rows that is sent at once.
type chunk struct {
	shard dataflow.ShardID
	first dataflow.Seq
	rows  *batch.Batch
	bytes int
	given uint64    // number, from 1, of its first row among all rows that the window was given
	since time.Time // when its first row was appended
	probe bool      // rows that the log has, sent again to compare them or to learn their place
	away  bool      // it is under way
	sent  time.Time // since when
}

func (c *chunk) last() dataflow.Seq { return c.first + dataflow.Seq(c.rows.N) - 1 }

// lane is one shard's numbering (P8).
type lane struct {
	next  dataflow.Seq   // number of the row that is appended next
	known dataflow.Seq   // the log had all rows up to this number when the producer was opened
	edges []dataflow.Seq // first numbers of the last batches of known rows: these are sent again, for the log to compare
	open  *chunk         // takes rows; nil = none
	like  size           // of the chunk that was sealed last: the next is likely to be as large
	// skipped is the last row that was not sent because the log had it, with its number.
	skipped      *batch.Batch
	skippedSeq   dataflow.Seq
	skippedGiven uint64 // its number among all rows that were given

	to  string // the node that its chunks are to go to; anyNode = the one that the client uses for everything
	at  string // the node that its chunks under way were sent to: others follow there, so that none overtakes them
	out int    // how many are under way
}

// anyNode stands for the node that a client uses for everything: it takes the rows of all shards.
const anyNode = ""

// window is what a producer has taken and not yet seen acknowledged: rows are placed and numbered, gathered in chunks,
// sent in order per shard, and acknowledged in order per node. It is pure: no I/O, no clock, no lock.
type window struct {
	schema     dataflow.Schema
	placer     *key.Placer
	lanes      []lane
	chunkBytes int

	queue    []*chunk            // sealed, not acknowledged, in the order in which they were sealed
	ways     map[string][]*chunk // those under way, by node, in the order in which they were sent
	sent     int                 // how many are under way
	probes   int                 // how many of these are probes
	bytes    int                 // of queue and of the open chunks
	given    uint64              // rows
	appended uint64
	dups     uint64
	skips    uint64
}

// newWindow returns a window for a session of a named producer; partitionBy are the columns of PARTITION BY, last the
// numbers that each shard's log knows.
func newWindow(name string, schema dataflow.Schema, partitionBy []int, last []dataflow.Seq, chunkBytes int) *window {
	w := &window{schema: schema, lanes: make([]lane, len(last)), chunkBytes: chunkBytes, ways: make(map[string][]*chunk)}
	w.placer = key.NewPlacer(partitionBy, len(last), key.FirstRun(name))
	for i := range w.lanes {
		w.lanes[i] = lane{next: 1, known: last[i]}
	}
	return w
}

// add takes rows [from, to) of b.
func (w *window) add(b *batch.Batch, from, to int, now time.Time) {
	lastSkipped := make(map[dataflow.ShardID]int)
	for i := from; i < to; i++ {
		at := w.placer.Place(b, i)
		l := &w.lanes[at]
		seq := l.next
		l.next++
		w.given++
		if seq <= l.known {
			w.skips++
			if len(l.edges) > 0 && seq >= l.edges[0] {
				w.compare(at, seq, b, i, now)
				delete(lastSkipped, at)
				l.skipped = nil
				continue
			}
			lastSkipped[at] = i
			l.skippedSeq, l.skippedGiven = seq, w.given
			continue
		}
		size := b.RowBytes(i)
		if l.open != nil && l.open.bytes+size > w.chunkBytes {
			w.seal(at)
		}
		if l.open == nil {
			l.open = &chunk{shard: at, first: seq, rows: l.like.batch(w.schema), given: w.given, since: now}
		}
		for c, v := range l.open.rows.Cols {
			v.AppendFrom(b.Cols[c], i)
		}
		l.open.rows.N++
		l.open.bytes += size
		w.bytes += size
		if l.open.bytes >= w.chunkBytes || l.open.rows.N == dataflow.MaxBatchRows {
			w.seal(at)
		}
	}
	for at, i := range lastSkipped {
		w.lanes[at].skipped = b.Select([]int32{int32(i)})
	}
}

// compare sends row i of b, which the log has, again, in the batch that it came with the first time: the log compares
// them. The rows before the batches that it remembers are taken for the same.
func (w *window) compare(at dataflow.ShardID, seq dataflow.Seq, b *batch.Batch, i int, now time.Time) {
	l := &w.lanes[at]
	if l.open == nil {
		l.open = &chunk{shard: at, first: seq, rows: batch.NewBatch(w.schema), given: w.given, since: now, probe: true}
	}
	for c, v := range l.open.rows.Cols {
		v.AppendFrom(b.Cols[c], i)
	}
	size := b.RowBytes(i)
	l.open.rows.N++
	l.open.bytes += size
	w.bytes += size
	if seq == l.known || slices.Contains(l.edges, seq+1) {
		w.seal(at)
	}
}

// missing returns how many rows that the log has were not given to this producer.
func (w *window) missing() uint64 {
	var n uint64
	for i := range w.lanes {
		if l := &w.lanes[i]; l.known >= l.next {
			n += uint64(l.known - l.next + 1)
		}
	}
	return n
}

func (w *window) seal(at dataflow.ShardID) {
	l := &w.lanes[at]
	if c := l.open; c != nil {
		w.queue = append(w.queue, c)
		l.open, l.like = nil, sizeOf(c.rows)
	}
}

// size is how large a batch was: its rows, and the bytes of each TEXT column.
type size struct {
	rows  int
	bytes []int
}

func sizeOf(b *batch.Batch) size {
	s := size{rows: b.N, bytes: make([]int, len(b.Cols))}
	for i, v := range b.Cols {
		s.bytes[i] = len(v.Data)
	}
	return s
}

// batch returns an empty batch with room for as much, so that it does not grow by copying.
func (s size) batch(schema dataflow.Schema) *batch.Batch {
	b := batch.NewBatch(schema)
	if s.rows == 0 {
		return b
	}
	for i, c := range schema {
		b.Cols[i] = batch.NewVector(c.Type, s.rows)
		if s.bytes[i] > 0 {
			b.Cols[i].Data = make([]byte, 0, s.bytes[i])
		}
	}
	return b
}

// sealOldest seals the chunk that is open for longest, if its first row came at or before t, and otherwise returns when that was;
// the zero time when none is open.
func (w *window) sealOldest(t time.Time) (sealed bool, oldest time.Time) {
	first := -1
	for at := range w.lanes {
		c := w.lanes[at].open
		if c == nil {
			continue
		}
		since := c.since
		if c.probe {
			since = since.Add(compareLinger)
		}
		if first < 0 || since.Before(oldest) {
			first, oldest = at, since
		}
	}
	if first < 0 || oldest.After(t) {
		return false, oldest
	}
	w.seal(dataflow.ShardID(first))
	return true, oldest
}

// sealAll seals every open chunk. A shard of which all rows were known gets its last row sent again: the answer says
// where it stands, so that the token covers it.
func (w *window) sealAll() {
	for at := range w.lanes {
		l := &w.lanes[at]
		w.seal(dataflow.ShardID(at))
		if l.skipped != nil && l.skippedSeq == l.next-1 {
			c := &chunk{shard: dataflow.ShardID(at), first: l.skippedSeq, rows: l.skipped, bytes: l.skipped.RowBytes(0), given: l.skippedGiven, probe: true}
			w.bytes += c.bytes
			w.queue = append(w.queue, c)
		}
		l.skipped = nil
	}
}

// next returns the chunk to send now, at most limit being under way, and the node to send it to; or nil.
func (w *window) next(limit int, now time.Time) (c *chunk, node string) {
	if w.sent >= limit {
		return nil, anyNode
	}
	for _, c := range w.queue {
		l := &w.lanes[c.shard]
		switch {
		case c.away:
			continue
		case !c.probe && w.probes > 0:
			// New rows wait until those that were to be compared have been found equal.
			return nil, anyNode
		case l.out > 0 && l.at != l.to:
			continue // it moves to another node when what is under way has been answered
		}
		l.at = l.to
		l.out++
		w.sent++
		if c.probe {
			w.probes++
		}
		c.away, c.sent = true, now
		w.ways[l.at] = append(w.ways[l.at], c)
		return c, l.at
	}
	return nil, anyNode
}

// rewind says that the connections have ended: everything that is not acknowledged is sent again, with the same numbers.
func (w *window) rewind() {
	for _, c := range w.queue {
		c.away = false
	}
	for i := range w.lanes {
		w.lanes[i].out = 0
	}
	w.sent, w.probes = 0, 0
	clear(w.ways)
}

// lead says which node the chunks of a shard are to go to from now on.
func (w *window) lead(at dataflow.ShardID, node string) { w.lanes[at].to = node }

// avoid lets no more chunks go to a node.
func (w *window) avoid(node string) {
	for i := range w.lanes {
		if l := &w.lanes[i]; l.to == node {
			l.to = anyNode
		}
	}
}

// oldest returns the oldest chunk that is under way to a node, or nil.
func (w *window) oldest(node string) *chunk {
	if way := w.ways[node]; len(way) > 0 {
		return way[0]
	}
	return nil
}

func (w *window) empty() bool {
	if len(w.queue) > 0 {
		return false
	}
	for i := range w.lanes {
		if w.lanes[i].open != nil {
			return false
		}
	}
	return true
}

// acknowledge takes a node's answer to the oldest chunk that is under way to it. again = the log knew some of the chunk's rows:
// they have been cut off it, and everything must be sent again.
func (w *window) acknowledge(node string, a *weirv1.AppendResponse) (again bool, err error) {
	c := w.oldest(node)
	if c == nil {
		return false, dataflow.Errorf(dataflow.ReasonInternal, "the server acknowledged rows that are not under way")
	}
	at := slices.Index(w.queue, c)
	if len(a.GetShards()) != 1 || a.GetShards()[0].GetShard() != uint32(c.shard) {
		return false, dataflow.Errorf(dataflow.ReasonInternal, "the server acknowledged other shards than shard %d, whose turn it was", c.shard)
	}
	s := a.GetShards()[0]
	if s.GetOverlap() {
		last := dataflow.Seq(s.GetLastSeq())
		if last < c.first || last >= c.last() {
			return false, dataflow.Errorf(dataflow.ReasonInternal, "the server knows rows up to %d and says that this overlaps rows %d to %d", last, c.first, c.last())
		}
		known := int(last - c.first + 1)
		rest := &chunk{shard: c.shard, first: last + 1, rows: c.rows.Slice(known, c.rows.N), given: c.given, since: c.since}
		for i := range rest.rows.N {
			rest.bytes += rest.rows.RowBytes(i)
		}
		w.bytes += rest.bytes - c.bytes
		w.queue[at] = rest
		w.dups += uint64(known)
		return true, nil
	}
	if at == 0 {
		w.queue[0] = nil
		w.queue = w.queue[1:]
	} else {
		w.queue = slices.Delete(w.queue, at, at+1)
	}
	way := w.ways[node]
	way[0] = nil
	w.ways[node] = way[1:]
	w.lanes[c.shard].out--
	w.sent--
	if c.probe {
		w.probes--
	}
	w.bytes -= c.bytes
	switch {
	case c.probe:
	case s.GetDuplicate():
		w.dups += uint64(c.rows.N)
	default:
		w.appended += uint64(c.rows.N)
	}
	return false, nil
}

// reused adds to SEQUENCE_REUSED, which is a node's answer to the oldest chunk, where its rows are among those that were given:
// numbers are per shard, and say nothing to who has a file.
func (w *window) reused(node string, e *dataflow.Error) *dataflow.Error {
	c := w.oldest(node)
	if e.Reason != dataflow.ReasonSequenceReused || c == nil {
		return e
	}
	told := *e
	told.Message = fmt.Sprintf("%s; the first of them is row %d of those given now", e.Message, c.given)
	return &told
}

// resumable reports whether a node's OUT_OF_ORDER answer to the oldest chunk names a row that can still be sent.
func (w *window) resumable(node string, e *dataflow.Error) bool {
	wanted, err := strconv.ParseUint(e.Metadata["expected"], 10, 64)
	c := w.oldest(node)
	return err == nil && c != nil && dataflow.Seq(wanted) >= c.first
}

// message returns a chunk as a request. The chunk's rows must not change while it is in use; they never do.
func (c *chunk) message(columns func(b *batch.Batch, from, to int) *weirv1.ColumnBatch) *weirv1.ShardRows {
	return &weirv1.ShardRows{Shard: uint32(c.shard), FirstSeq: uint64(c.first), Batch: columns(c.rows, 0, c.rows.N)}
}
