package shard

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
)

// TestMachineFollowsItsRules plays the scenarios of testdata/machine. Each command is one entry; the machine's answer
// is printed. "snapshot" persists the machine and goes on with the restored one, "state" prints it.
func TestMachineFollowsItsRules(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/machine", func(t *testing.T, path string) {
		m, index := newMachine(), dataflow.LogIndex(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "reset":
				m, index = newMachine(), 0
				return "ok\n"
			case "state":
				return describe(m)
			case "snapshot":
				m = reopen(t, m)
				return fmt.Sprintf("ok, keeps the log from %d\n", m.references().low())
			}
			index++
			if d.HasArg("at") {
				d.ScanArgs(t, "at", &index)
			}
			c := parseCommand(t, d)
			entry := appendEntry(nil, c)
			decoded, err := decode(entry)
			if err != nil {
				t.Fatalf("%s: decode: %v", d.Pos, err)
			}
			return describeOutcome(c, m.step(index, decoded))
		})
	})
}

func parseCommand(t *testing.T, d *datadriven.TestData) command {
	num := func(name string, def uint64) uint64 {
		if d.HasArg(name) {
			d.ScanArgs(t, name, &def)
		}
		return def
	}
	str := func(name string) (s string) {
		if d.HasArg(name) {
			d.ScanArgs(t, name, &s)
		}
		return s
	}
	ref := func(name string) (r dataflow.DeltaRef) {
		if s := str(name); s != "" {
			if _, err := fmt.Sscanf(s, "%d.%d", &r.Incarnation, &r.Seq); err != nil {
				d.Fatalf(t, "%s: %v", s, err)
			}
		}
		return r
	}
	stream := dataflow.StreamID(num("stream", 1))
	pipeline := dataflow.PipelineUID(num("pipeline", 1))
	now := int64(num("now", 0))
	r := ref("delta")
	id := dataflow.DeltaID{Pipeline: pipeline, Incarnation: r.Incarnation, Seq: r.Seq}
	switch d.Cmd {
	case "append":
		data := str("data")
		if data == "" {
			data = "rows"
		}
		c := &appendRows{
			stream: stream, now: now, count: int(num("rows", 1)), rows: []byte(data), digest: xxhash.Sum64String(data),
			producer: str("producer"), epoch: dataflow.ProducerEpoch(num("epoch", 0)), first: dataflow.Seq(num("first", 0)),
		}
		if key := str("key"); key != "" {
			c.hasKey, c.key = true, hashKey(stream, key)
		}
		if c.hasKey || c.producer != "" {
			c.limit = int(num("limit", 100))
		}
		return c
	case "open":
		return &openProducer{
			stream: stream, now: now, producer: str("producer"), epoch: dataflow.ProducerEpoch(num("epoch", 0)), limit: int(num("limit", 100)),
		}
	case "expire-anonymous":
		return &expireAnonymous{now: now, before: int64(num("before", 0))}
	case "expire":
		return &expire{now: now, producersBefore: int64(num("producers", 0)), keysBefore: int64(num("keys", 0))}
	case "trim":
		return &trimStream{stream: stream, now: now, to: dataflow.Offset(num("to", 0)), why: TrimAge, known: dataflow.PipelineUID(num("known", 0))}
	case "seal-stream":
		return &sealStream{stream: stream}
	case "drop-stream":
		return &dropStream{stream: stream}
	case "chunk":
		return &deltaChunk{delta: id, chunk: int(num("n", 0)), data: []byte(str("data"))}
	case "end":
		var digest dataflow.DeltaDigest
		var chunks []string
		if data := str("data"); data != "" {
			chunks = strings.Split(data, "+")
		}
		for _, c := range chunks {
			digest = digest.Add([]byte(c))
		}
		return &endDelta{delta: id, chunks: len(chunks), digest: uint64(digest)}
	case "begin":
		return &beginIncarnation{pipeline: pipeline, min: dataflow.Incarnation(num("incarnation", 0)), base: ref("base")}
	case "settle":
		return &settle{pipeline: pipeline, upTo: ref("to")}
	case "drop-pipeline":
		return &dropPipeline{pipeline: pipeline}
	}
	d.Fatalf(t, "unknown command %q", d.Cmd)
	return nil
}

func describeOutcome(c command, o outcome) string {
	if o.err != nil {
		reason := ""
		if r := dataflow.ReasonOf(o.err); r != dataflow.ReasonInternal {
			reason = string(r) + ": "
		}
		return fmt.Sprintf("refused: %s%v\n", reason, o.err)
	}
	a := o.appended
	switch c.(type) {
	case *appendRows:
		switch {
		case a.Overlap:
			return fmt.Sprintf("overlap, last=%d\n", a.LastSeq)
		case a.Duplicate:
			return fmt.Sprintf("duplicate [%d,%d) at=%d last=%d\n", a.First, a.Next, a.AppendTime, a.LastSeq)
		}
		return fmt.Sprintf("[%d,%d) at=%d last=%d\n", a.First, a.Next, a.AppendTime, a.LastSeq)
	case *openProducer:
		return fmt.Sprintf("last=%d\n", o.last)
	case *endDelta:
		return fmt.Sprintf("at %d, replica told: %v\n", o.index, o.fresh)
	case *deltaChunk, *beginIncarnation, *settle, *dropPipeline:
		return fmt.Sprintf("replica told: %v\n", o.fresh)
	}
	return "ok\n"
}

// describe prints everything that a machine remembers.
func describe(m *machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "applied=%d now=%d floor=%d\n", m.applied, m.now, m.references().low())
	for _, id := range slices.Sorted(maps.Keys(m.streams)) {
		s := m.streams[id]
		fmt.Fprintf(&b, "stream %d: [%d,%d) %d bytes", id, s.start(), s.end, s.retainedBytes())
		for i, r := range s.batches {
			fmt.Fprintf(&b, " %d+%d@%d", r.first, s.next(i)-r.first, r.index)
		}
		if s.trim != (Trim{}) {
			fmt.Fprintf(&b, " trimmed to %d for %s at %d", s.trim.To, s.trim.Reason, s.trim.Time)
		}
		b.WriteByte('\n')
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.producers), compareProducerKeys) {
		p := m.producers[k]
		fmt.Fprintf(&b, "producer %s of stream %d: epoch=%d last=%d used=%d", k.name, k.stream, p.epoch, p.last, p.used)
		for _, s := range p.recent[:p.n] {
			fmt.Fprintf(&b, " %d+%d→%d", s.first, s.count, s.offset)
		}
		b.WriteByte('\n')
	}
	if n := len(m.keys.entries); n > 0 {
		fmt.Fprintf(&b, "keys: %d, from %d to %d\n", n, m.keys.entries[0].time, m.keys.entries[n-1].time)
	}
	for _, uid := range slices.Sorted(maps.Keys(m.pipelines)) {
		p := m.pipelines[uid]
		fmt.Fprintf(&b, "pipeline %d: incarnation %d from %s, next %d, settled %s", uid, p.min, p.base, p.next, p.settled)
		for _, d := range p.deltas {
			fmt.Fprintf(&b, " %s:", d.ref)
			for _, c := range d.chunks {
				fmt.Fprintf(&b, "%d,", c.index)
			}
			if d.end == 0 {
				b.WriteString("open")
			} else {
				fmt.Fprintf(&b, "end@%d", d.end)
			}
		}
		b.WriteByte('\n')
	}
	if ids := m.sealedStreams(); len(ids) > 0 {
		fmt.Fprintf(&b, "sealed: streams %v\n", slices.Sorted(maps.Keys(ids)))
	}
	if len(m.droppedStreams)+len(m.droppedPipelines) > 0 {
		fmt.Fprintf(&b, "dropped: streams %v, pipelines %v\n",
			slices.Sorted(maps.Keys(m.droppedStreams)), slices.Sorted(maps.Keys(m.droppedPipelines)))
	}
	return b.String()
}

// reopen returns the machine that a snapshot of m restores, having checked that it is the same.
func reopen(t testing.TB, m *machine) *machine {
	t.Helper()
	data := persist(t, m.freeze())
	got, err := readMachine(data)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	if again := persist(t, got); !bytes.Equal(data, again) {
		t.Fatalf("a restored machine has another snapshot:\n%s\n%s", describe(m), describe(got))
	}
	return got
}

func persist(t testing.TB, m *machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.write(&b); err != nil {
		t.Fatalf("persist: %v", err)
	}
	return b.Bytes()
}

// low returns the first entry that is referred to, or the floor.
func (r references) low() dataflow.LogIndex {
	if len(r.islands) > 0 {
		return r.islands[0].First
	}
	return r.floor
}
