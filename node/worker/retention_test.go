package worker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

// rows is a stream in a shard, a row per element: its age in hours, oldest first. Each row has 10 bytes. The first kept is
// start.
type rows struct {
	start dataflow.Offset
	ages  []int
}

const rowBytes = 10

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func (r rows) end() dataflow.Offset { return r.start + dataflow.Offset(len(r.ages)) }

func (r rows) Range(dataflow.StreamID) (start, end dataflow.Offset, bytes int64) {
	return r.start, r.end(), int64(len(r.ages)) * rowBytes
}

func (r rows) OffsetAt(_ dataflow.StreamID, t int64) dataflow.Offset {
	for i, age := range r.ages {
		if noon.Add(-time.Duration(age)*time.Hour).UnixMicro() >= t {
			return r.start + dataflow.Offset(i)
		}
	}
	return r.end()
}

func (r rows) OffsetKeeping(_ dataflow.StreamID, bytes int64) dataflow.Offset {
	return max(r.start, r.end()-min(r.end(), dataflow.Offset(bytes/rowBytes)))
}

// BatchAt makes batches of one row, but for those from offset 200 on, which are one batch.
func (r rows) BatchAt(_ dataflow.StreamID, offset dataflow.Offset) dataflow.Offset {
	return min(offset, max(200, r.start), r.end())
}

func TestRowsAreTrimmedToWhatIsWantedOrNeeded(t *testing.T) {
	const h = time.Hour
	aged := rows{100, []int{50, 40, 30, 20, 10, 5, 1}} // offsets 100 to 106
	cases := []struct {
		name  string
		opts  dataflow.StreamOptions
		claim dataflow.Offset
		total int64 // bytes in all shards; 0 = this shard's
		to    dataflow.Offset
		why   shard.TrimReason
	}{
		{"for ever", dataflow.StreamOptions{Grace: h}, unclaimed, 0, 0, 0},
		{"by age", dataflow.StreamOptions{Retention: 25 * h, Grace: h}, unclaimed, 0, 103, shard.TrimAge},
		{"all are young", dataflow.StreamOptions{Retention: 60 * h, Grace: h}, unclaimed, 0, 0, 0},
		{"all are old", dataflow.StreamOptions{Retention: h / 2, Grace: h}, unclaimed, 0, 107, shard.TrimAge},
		{"by age, up to what is needed", dataflow.StreamOptions{Retention: 25 * h, Grace: 100 * h}, 102, 0, 102, shard.TrimAge},
		{"what is needed is younger", dataflow.StreamOptions{Retention: 25 * h, Grace: h}, 105, 0, 103, shard.TrimAge},
		{"all are needed", dataflow.StreamOptions{Retention: 25 * h, Grace: 100 * h}, 100, 0, 0, 0},
		{"something dropped is needed", dataflow.StreamOptions{Retention: 25 * h, Grace: 100 * h}, 7, 0, 0, 0},
		{"needed for longer than the grace", dataflow.StreamOptions{Retention: 25 * h, Grace: 10 * h}, 100, 0, 102, shard.TrimGrace},
		{"the grace ends below what is needed", dataflow.StreamOptions{Retention: 25 * h, Grace: 10 * h}, 102, 0, 102, shard.TrimAge},
		{"no grace", dataflow.StreamOptions{Retention: 25 * h}, 101, 0, 103, shard.TrimGrace},
		{"by size", dataflow.StreamOptions{MaxBytes: 30, Grace: h}, unclaimed, 0, 104, shard.TrimSize},
		{"size is enough", dataflow.StreamOptions{MaxBytes: 70, Grace: h}, unclaimed, 0, 0, 0},
		{"by size, up to what is needed", dataflow.StreamOptions{MaxBytes: 30, Grace: 100 * h}, 103, 0, 103, shard.TrimSize},
		{"by size, needed for longer than the grace", dataflow.StreamOptions{MaxBytes: 30, Grace: 35 * h}, 100, 0, 102, shard.TrimGrace},
		{"by size, needed and young", dataflow.StreamOptions{MaxBytes: 30, Grace: 100 * h}, 100, 0, 0, 0},
		{"size goes further than age", dataflow.StreamOptions{Retention: 45 * h, MaxBytes: 30, Grace: 100 * h}, unclaimed, 0, 104, shard.TrimSize},
		{"age goes further than size", dataflow.StreamOptions{Retention: 7 * h, MaxBytes: 50, Grace: 100 * h}, unclaimed, 0, 105, shard.TrimAge},
		{"a shard that holds a half keeps a half", dataflow.StreamOptions{MaxBytes: 80, Grace: h}, unclaimed, 140, 103, shard.TrimSize},
		{"a shard that holds most, of a stream within its size", dataflow.StreamOptions{MaxBytes: 80, Grace: h}, unclaimed, 75, 0, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.total == 0 {
				c.total = int64(len(aged.ages)) * rowBytes
			}
			to, why := trimTo(&meta.Stream{ID: 1, Options: c.opts}, aged, c.claim, c.total, noon)
			if to != c.to || why != c.why {
				t.Errorf("trimmed to %d for reason %d, want %d for %d", to, why, c.to, c.why)
			}
		})
	}
	large := rows{198, []int{5, 5, 5, 5, 5}}
	opts := dataflow.StreamOptions{MaxBytes: 10, Grace: 100 * h}
	if to, why := trimTo(&meta.Stream{ID: 1, Options: opts}, large, 201, 50, noon); to != 200 || why != shard.TrimSize {
		t.Errorf("a batch that is needed in part is trimmed to %d for %d", to, why)
	}
	large.start, large.ages = 200, large.ages[2:]
	if to, why := trimTo(&meta.Stream{ID: 1, Options: opts}, large, 201, 30, noon); why != 0 {
		t.Errorf("it is trimmed to %d again, which changes nothing", to)
	}
	if to, why := trimTo(&meta.Stream{ID: 1, Options: dataflow.StreamOptions{Retention: h, MaxBytes: 10}}, rows{}, unclaimed, 0, noon); why != 0 {
		t.Errorf("an empty stream is trimmed to %d", to)
	}
}

// memGroup is a meta log of one goroutine.
type memGroup struct {
	fsm   *meta.FSM
	index dataflow.LogIndex
}

func (g *memGroup) Propose(_ context.Context, cmd []byte) (dataflow.LogIndex, any, error) {
	g.index++
	return g.index, g.fsm.Apply(g.index, cmd), nil
}
func (*memGroup) Barrier(context.Context) error { return nil }

func TestTheFirstClaimCounts(t *testing.T) {
	now := int64(1)
	fsm := meta.NewFSM()
	log := meta.New(&memGroup{fsm: fsm}, fsm, func() int64 { return now })
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(log.Bootstrap(ctx, "c", 3))
	st, _, err := log.CreateStream(ctx, meta.StreamDefinition{Name: "s", Schema: dataflow.Schema{{Name: "x", Type: dataflow.TypeText}},
		Options: []dataflow.Option{{Name: "retention.grace", Value: "1 h"}}})
	must(err)
	claims := func() []dataflow.Offset { return claimed(log.State(), st.ID) }
	if got := claims(); !slices.Equal(got, []dataflow.Offset{unclaimed, unclaimed, unclaimed}) {
		t.Errorf("nobody claims %v", got)
	}
	deploy := func(name string, start ...dataflow.Offset) *meta.Pipeline {
		at := make(dataflow.Positions)
		for i, o := range start {
			at[dataflow.StreamShard{Stream: st.ID, Shard: dataflow.ShardID(i)}] = o
		}
		p, _, err := log.CreatePipeline(ctx, meta.CreatePipeline{Name: name, Fingerprint: "f", Reads: map[string]dataflow.StreamID{"s": st.ID}, Start: at})
		must(err)
		return p
	}
	a := deploy("a", 5, 9, 2)
	deploy("b", 7, 3)
	if got := claims(); !slices.Equal(got, []dataflow.Offset{5, 3, 0}) {
		t.Errorf("both claim %v", got)
	}
	_, err = log.DeletePipeline(ctx, "b")
	must(err)
	if got := claims(); !slices.Equal(got, []dataflow.Offset{5, 9, 2}) {
		t.Errorf("one claims %v", got)
	}
	_, err = log.Stop(ctx, a.UID)
	must(err)
	_, err = log.MarkStopped(ctx, a.UID, 1)
	must(err)
	if got := claims(); !slices.Equal(got, []dataflow.Offset{5, 9, 2}) {
		t.Errorf("a stopped one claims %v", got)
	}
	now += (2 * time.Hour).Microseconds()
	must(log.Expire(ctx))
	if got := claims(); !slices.Equal(got, []dataflow.Offset{unclaimed, unclaimed, unclaimed}) {
		t.Errorf("after its grace it claims %v", got)
	}
}
