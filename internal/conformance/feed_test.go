package conformance

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/internal/wire"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// feeder gives a program its rows in random pieces, and breaks what runs in between.
type feeder struct {
	t        *testing.T
	node     *nodetest.Node
	rng      *rand.Rand
	pipeline string
	token    string // covers everything that was appended
	streams  map[string]*source
}

// source is a stream with the rows that are still to come.
type source struct {
	name        string
	rows        []string
	schema      dataflow.Schema
	partitioned bool
	session     *weirv1.ProducerSession
	next        []dataflow.Seq // per shard
}

// run appends all rows.
func (f *feeder) run(p *program) {
	f.t.Helper()
	total := 0
	f.streams = make(map[string]*source)
	var open []*source
	for _, name := range p.streams() {
		f.streams[name] = f.open(name)
		open = append(open, f.streams[name])
	}
	for _, fd := range p.feeds {
		s := f.streams[fd.stream]
		if s == nil {
			f.t.Fatalf("there are rows for %s, which is no stream of the program", fd.stream)
		}
		s.rows = append(s.rows, fd.rows...)
		total += len(fd.rows)
	}
	// What happens between batches, by how many rows are left.
	type event struct {
		left int
		do   func()
	}
	var events []event
	for _, do := range []func(){f.checkpoint, f.checkpoint, f.crash, f.crash, f.fail} {
		events = append(events, event{f.rng.IntN(total + 1), do})
	}
	slices.SortStableFunc(events, func(a, b event) int { return b.left - a.left })
	for left := total; ; {
		for len(events) > 0 && events[0].left >= left {
			events[0].do()
			events = events[1:]
		}
		if left == 0 {
			return
		}
		s := open[f.rng.IntN(len(open))]
		if n := min(1+f.rng.IntN(1+total/12), len(s.rows)); n > 0 {
			f.send(s, s.rows[:n])
			s.rows, left = s.rows[n:], left-n
		}
	}
}

func (f *feeder) open(name string) *source {
	f.t.Helper()
	r, err := f.node.Ingest().OpenProducer(context.Background(), &weirv1.OpenProducerRequest{Stream: name, Producer: "conformance"})
	if err != nil {
		f.t.Fatalf("open the producer of %s: %v", name, err)
	}
	s := &source{name: name, schema: wire.Schema(r.GetStream().GetColumns()), partitioned: len(r.GetStream().GetPartitionBy()) > 0,
		session: &weirv1.ProducerSession{Name: "conformance", Epoch: r.GetEpoch()}, next: make([]dataflow.Seq, r.GetShards())}
	for i := range s.next {
		s.next[i] = 1
	}
	return s
}

// send appends rows: plainly, or numbered by a producer that gives each shard a random part.
func (f *feeder) send(s *source, rows []string) {
	f.t.Helper()
	text := []byte(strings.Join(rows, "\n"))
	req := &weirv1.AppendRequest{Stream: s.name, PreviousToken: f.token}
	if s.partitioned || f.rng.IntN(3) == 0 {
		req.JsonRows = text
		f.append(req, len(rows), 0)
		return
	}
	all, err := wire.DecodeJSONRows(context.Background(), s.schema, text)
	if err != nil {
		f.t.Fatalf("rows of %s: %v", s.name, err)
	}
	req.Producer = s.session
	parts := make([][]int32, len(s.next))
	for i := range all.N {
		at := f.rng.IntN(len(parts))
		parts[at] = append(parts[at], int32(i))
	}
	for shard, sel := range parts {
		if len(sel) == 0 {
			continue
		}
		part := all.Select(sel)
		req.Shards = append(req.Shards, &weirv1.ShardRows{Shard: uint32(shard), FirstSeq: uint64(s.next[shard]), Batch: wire.EncodeColumns(part, 0, part.N)})
		s.next[shard] += dataflow.Seq(part.N)
	}
	f.append(req, len(rows), 0)
	if f.rng.IntN(4) == 0 { // a sender that has not seen the answer
		if f.rng.IntN(2) == 0 {
			f.crash()
		}
		f.append(req, 0, len(rows))
	}
}

func (f *feeder) append(req *weirv1.AppendRequest, rows, duplicates int) {
	f.t.Helper()
	r, err := f.node.Ingest().Append(context.Background(), req)
	if err != nil {
		f.t.Fatalf("append to %s: %v", req.GetStream(), err)
	}
	if r.GetRows() != uint64(rows) || r.GetDuplicates() != uint64(duplicates) {
		f.t.Fatalf("append to %s: %d rows written and %d known, want %d and %d", req.GetStream(), r.GetRows(), r.GetDuplicates(), rows, duplicates)
	}
	f.token = r.GetToken()
}

func (f *feeder) checkpoint() { f.node.Checkpoint(f.pipeline) }

// crash pulls the plug, often while a checkpoint is on its way.
func (f *feeder) crash() {
	f.t.Helper()
	if f.rng.IntN(3) > 0 {
		if _, err := f.node.Pipelines().TriggerCheckpoint(context.Background(), &weirv1.TriggerCheckpointRequest{Pipeline: f.pipeline}); err != nil {
			f.t.Fatalf("trigger a checkpoint: %v", err)
		}
		if f.rng.IntN(2) == 0 && f.token != "" {
			f.node.WaitProcessed(f.token)
		}
	}
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * f.rng.IntN(3)}
	if cfg.UnsyncedDataPercent > 0 {
		cfg.RNG = f.rng
	}
	f.node.Crash(cfg)
}

// fail crashes the dataflow alone.
func (f *feeder) fail() { f.node.CrashDataflow(f.pipeline) }
