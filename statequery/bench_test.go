package statequery_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/statequery"
)

// benchKeys is how many keys the benchmarks' table has. The store behind it answers at once, so that the engine is what is
// measured.
const benchKeys = 10_000

// flatStore answers from one map, without locks, copies or waits.
type flatStore struct {
	*world
	values map[string][]byte
}

func (s *flatStore) View(context.Context, dataflow.ShardID, dataflow.PipelineUID, dataflow.CheckpointID) (statequery.View, error) {
	return flatView{s}, nil
}

type flatView struct{ s *flatStore }

func (s *flatStore) Live(dataflow.PipelineUID) statequery.Live { return flatLive{s.world.Live(0), s} }

func (v flatView) Get(_ dataflow.StageID, k, dst []byte) ([]byte, bool, error) {
	val, ok := v.s.values[string(k)]
	return append(dst, val...), ok, nil
}
func (v flatView) GetAll(stage dataflow.StageID, l *dataflow.Lookups) error {
	return getAll(l, func(k []byte) ([]byte, bool, error) { return v.Get(stage, k, nil) })
}
func (v flatView) Iter(dataflow.StageID, []byte, []byte) statequery.Iter { panic("not measured") }
func (v flatView) Changes(statequery.View, dataflow.StageID, []byte, []byte) statequery.Iter {
	panic("not measured")
}
func (v flatView) Release() {}

type flatLive struct {
	statequery.Live
	s *flatStore
}

func (l flatLive) Get(_ dataflow.StageID, _ dataflow.ShardID, k, dst []byte) ([]byte, bool, error) {
	val, ok := l.s.values[string(k)]
	return append(dst, val...), ok, nil
}

func (l flatLive) Committed(_ dataflow.StageID, _ dataflow.ShardID, _ dataflow.CheckpointID, k, dst []byte) ([]byte, bool, bool) {
	val, ok := l.s.values[string(k)]
	return append(dst, val...), ok, true
}

func (l flatLive) GetAll(stage dataflow.StageID, shard dataflow.ShardID, all *dataflow.Lookups) error {
	return getAll(all, func(k []byte) ([]byte, bool, error) { return l.Get(stage, shard, k, nil) })
}

func (l flatLive) CommittedAll(_ dataflow.StageID, _ dataflow.ShardID, _ dataflow.CheckpointID, all *dataflow.Lookups) {
	for _, i := range all.Open() {
		if val, ok := l.s.values[string(all.Key(i))]; ok {
			all.Found(i, val)
		} else {
			all.Absent(i)
		}
	}
}

func benchWorld(b *testing.B) (*world, *flatStore) {
	w := newWorld(b, 8)
	for i := range benchKeys {
		w.add(g2(fmt.Sprintf("key%06d", i), int64(i)), 1)
	}
	w.commit()
	s := &flatStore{world: w, values: w.mu.live.values["counts"]}
	return w, s
}

func benchRow(i int) dataflow.Row {
	i %= benchKeys
	return dataflow.Row{lit(fmt.Sprintf("key%06d", i)), dataflow.BigInt(int64(i))}
}

func BenchmarkGet(b *testing.B) {
	w, s := benchWorld(b)
	e := w.engine(func(c *statequery.Config) { c.Store = s })
	keys := make([]dataflow.Row, 1024)
	for i := range keys {
		keys[i] = benchRow(i * 7)
	}
	for _, o := range []dataflow.ReadOptions{{}, {Isolation: dataflow.ReadUncommitted}} {
		b.Run(o.Isolation.String(), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				rows, _, err := e.Get(b.Context(), pipelineName, "counts", keys[i%len(keys)], o)
				if err != nil || rows.N != 1 {
					b.Fatal(rows, err)
				}
				i++
			}
		})
	}
}

func BenchmarkReader(b *testing.B) {
	w, s := benchWorld(b)
	e := w.engine(func(c *statequery.Config) { c.Store = s })
	keys := make([]dataflow.Row, 1024)
	for i := range keys {
		keys[i] = benchRow(i * 7)
	}
	for _, pipelined := range []int{1, 16} {
		b.Run(fmt.Sprintf("pipelined=%d", pipelined), func(b *testing.B) {
			rd := e.NewReader()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i%pipelined == 0 {
					rd.End()
					rd.Begin()
				}
				t, err := rd.Table([]byte(pipelineName + ".counts"))
				if err != nil {
					b.Fatal(err)
				}
				if row, err := t.Get(b.Context(), keys[i%len(keys)], dataflow.ReadCommitted); err != nil || row == nil {
					b.Fatal(row, err)
				}
				i++
			}
			rd.End()
		})
	}
}

func BenchmarkBatchGet100(b *testing.B) {
	w, s := benchWorld(b)
	e := w.engine(func(c *statequery.Config) { c.Store = s })
	keys := make([]dataflow.Row, 100)
	for i := range keys {
		keys[i] = benchRow(i * 7)
	}
	b.ReportAllocs()
	for b.Loop() {
		if rows, _, _, err := e.BatchGet(b.Context(), pipelineName, "counts", keys, dataflow.ReadOptions{}); err != nil || rows.N != 100 {
			b.Fatal(err)
		}
	}
}
