package shard

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/logstore"
)

// entryMap is a Store of which only the entries are used.
type entryMap struct {
	raftlog.LogStore
	cmds map[dataflow.LogIndex][]byte
}

func (s *entryMap) Entry(i dataflow.LogIndex) ([]byte, error) {
	if cmd, ok := s.cmds[i]; ok {
		return cmd, nil
	}
	return nil, fmt.Errorf("no entry %d", i)
}

func (s *entryMap) Stored(i dataflow.LogIndex) (logstore.Stored, error) {
	return logstore.Stored{}, fmt.Errorf("no entry %d", i)
}

func (s *entryMap) Size(...dataflow.LogRange) int64 { return 0 }

func (s *entryMap) Behind() int64 { return 0 }

func (s *entryMap) Needless(dataflow.LogIndex, ...dataflow.LogRange) int64 { return 0 }

func (s *entryMap) Retain(dataflow.LogIndex, ...dataflow.LogRange) {}

// countingReplica counts the chunks it is given, and keeps the last one.
type countingReplica struct {
	chunks int
	last   []byte
}

func (r *countingReplica) ApplyChunk(_ dataflow.LogIndex, _ dataflow.DeltaID, _ int, data []byte) error {
	r.chunks++
	r.last = data
	return nil
}
func (r *countingReplica) EndDelta(dataflow.LogIndex, dataflow.DeltaID, int, uint64) error {
	return nil
}
func (r *countingReplica) BeginIncarnation(dataflow.LogIndex, dataflow.PipelineUID, dataflow.Incarnation, dataflow.DeltaRef) error {
	return nil
}
func (r *countingReplica) Settle(dataflow.LogIndex, dataflow.PipelineUID, dataflow.DeltaRef) error {
	return nil
}
func (r *countingReplica) DropPipeline(dataflow.LogIndex, dataflow.PipelineUID) error { return nil }

// testFSM returns a log without a group, as the apply goroutine sees it.
func testFSM() (fsm, *entryMap, *countingReplica) {
	store, replica := &entryMap{cmds: make(map[dataflow.LogIndex][]byte)}, &countingReplica{}
	cfg := Config{Store: store, Replica: replica}
	cfg.ensureDefaults()
	return fsm{newLog(cfg)}, store, replica
}

func TestAnEntryThatDoesNotDecodeFreezesTheLog(t *testing.T) {
	t.Parallel()
	f, _, _ := testFSM()
	rows := appendEntry(nil, &appendRows{stream: 1, count: 1})
	f.Apply(1, rows)
	if out := f.Apply(2, []byte("\x07what is this")).(outcome); !errors.Is(out.err, errBadEntry) {
		t.Errorf("the entry came to %v", out.err)
	}
	if err := <-f.Failed(); !errors.Is(err, errBadEntry) {
		t.Errorf("failed with %v", err)
	}
	if out := f.Apply(3, rows).(outcome); !errors.Is(out.err, errBadEntry) {
		t.Errorf("the next entry came to %v", out.err)
	}
	if _, end, _ := f.Range(1); end != 1 || f.Log.AppliedIndex() != 1 {
		t.Errorf("%d rows at index %d after the freeze", end, f.Log.AppliedIndex())
	}
	if _, err := f.Snapshot(); err == nil {
		t.Error("a frozen log gave a snapshot")
	}
	if err := f.Restore(bytes.NewReader(persist(t, newMachine()))); err == nil {
		t.Error("a frozen log was restored")
	}
}

func TestAnEntryIsAppliedOnce(t *testing.T) {
	t.Parallel()
	f, _, _ := testFSM()
	rows := appendEntry(nil, &appendRows{stream: 1, count: 1})
	f.Apply(5, rows)
	f.Apply(5, rows)
	f.Apply(4, rows)
	f.Apply(6, rows)
	if _, end, _ := f.Range(1); end != 2 {
		t.Errorf("%d rows", end)
	}
}

func TestASnapshotOfAnotherNodeReplacesTheStateWhenItsEntriesAreHere(t *testing.T) {
	t.Parallel()
	leader, entries, _ := testFSM()
	for i, c := range []command{
		&appendRows{stream: 1, count: 3, rows: []byte("leader")},
		&beginIncarnation{pipeline: 1, min: 1},
		&deltaChunk{delta: dataflow.DeltaID{Pipeline: 1, Incarnation: 1, Seq: 1}, data: []byte("chunk")},
	} {
		index := dataflow.LogIndex(i + 1)
		entries.cmds[index] = appendEntry(nil, c)
		if out := leader.Apply(index, entries.cmds[index]).(outcome); out.err != nil {
			t.Fatal(out.err)
		}
	}
	s, err := leader.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	var b bytes.Buffer
	if err := s.Persist(&b); err != nil {
		t.Fatal(err)
	}

	f, here, replica := testFSM()
	f.Apply(1, appendEntry(nil, &appendRows{stream: 1, count: 1, rows: []byte("follower")}))
	if err := f.Restore(bytes.NewReader(b.Bytes()[:b.Len()-1])); !errors.Is(err, errBadEntry) {
		t.Errorf("half a snapshot: %v", err)
	}
	here.cmds = entries.cmds
	changed := f.Changed()
	if err := f.Restore(bytes.NewReader(b.Bytes())); err != nil {
		t.Fatal(err)
	}
	<-changed
	rows, err := f.Read(1, 0, 9)
	if err != nil || len(rows) != 1 || string(rows[0].Data) != "leader" || rows[0].Count != 3 {
		t.Errorf("rows %+v, %v", rows, err)
	}
	if replica.chunks != 1 || f.Log.AppliedIndex() != 3 {
		t.Errorf("%d chunks at index %d", replica.chunks, f.Log.AppliedIndex())
	}

	// An entry that is there but another one is not taken for it.
	f, here, _ = testFSM()
	here.cmds = map[dataflow.LogIndex][]byte{3: appendEntry(nil, &deltaChunk{delta: dataflow.DeltaID{Pipeline: 1, Incarnation: 1, Seq: 1}, data: []byte("other")})}
	if err := f.Restore(bytes.NewReader(b.Bytes())); dataflow.ReasonOf(err) != dataflow.ReasonCorrupt {
		t.Errorf("restore over another chunk: %v", err)
	}
	if err := <-f.Failed(); err == nil {
		t.Error("the log goes on")
	}
}

func TestOffsetsAreFoundByTimeAndSize(t *testing.T) {
	t.Parallel()
	f, _, _ := testFSM()
	for i, size := range []int{10, 20, 30, 40} {
		f.Apply(dataflow.LogIndex(i+1), appendEntry(nil, &appendRows{stream: 1, now: int64(100 * (i + 1)), count: 5, rows: make([]byte, size)}))
	}
	f.Apply(5, appendEntry(nil, &trimStream{stream: 1, to: 5}))
	for _, tc := range []struct {
		time int64
		want dataflow.Offset
	}{{0, 5}, {200, 5}, {201, 10}, {300, 10}, {400, 15}, {401, 20}} {
		if got := f.OffsetAt(1, tc.time); got != tc.want {
			t.Errorf("offset at %d is %d, want %d", tc.time, got, tc.want)
		}
	}
	for _, tc := range []struct {
		bytes int64
		want  dataflow.Offset
	}{{1000, 5}, {90, 5}, {89, 10}, {70, 10}, {69, 15}, {40, 15}, {39, 15}, {0, 15}} { // the newest batch stays
		if got := f.OffsetKeeping(1, tc.bytes); got != tc.want {
			t.Errorf("offset keeping %d bytes is %d, want %d", tc.bytes, got, tc.want)
		}
	}
	for _, tc := range []struct{ from, batch dataflow.Offset }{{0, 5}, {5, 5}, {9, 5}, {10, 10}, {19, 15}, {20, 20}, {99, 20}} {
		if got := f.BatchAt(1, tc.from); got != tc.batch {
			t.Errorf("offset %d is in batch %d, want %d", tc.from, got, tc.batch)
		}
	}
	for _, tc := range []struct {
		from dataflow.Offset
		want int64
	}{{0, 90}, {5, 90}, {9, 90}, {10, 70}, {14, 70}, {19, 40}, {20, 0}, {99, 0}} {
		if got := f.BytesFrom(1, tc.from); got != tc.want {
			t.Errorf("%d bytes from %d on, want %d", got, tc.from, tc.want)
		}
	}
	for offset, want := range map[dataflow.Offset]int64{4: 200, 5: 200, 12: 300, 20: 0} {
		if got := f.AppendTime(1, offset); got != want {
			t.Errorf("row %d was appended at %d, want %d", offset, got, want)
		}
	}
	if f.OffsetAt(2, 0) != 0 || f.OffsetKeeping(2, 0) != 0 || f.BatchAt(2, 7) != 0 || f.BytesFrom(2, 0) != 0 || f.AppendTime(2, 0) != 0 || f.LastTrim(2) != (Trim{}) {
		t.Error("a stream without rows has offsets")
	}
}

func TestASnapshotThatCannotBeWrittenSaysSo(t *testing.T) {
	t.Parallel()
	f, _, _ := testFSM()
	s, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if err := s.Persist(brokenWriter{}); !errors.Is(err, errWrite) {
		t.Errorf("persist: %v", err)
	}
}

var errWrite = errors.New("cannot write")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errWrite }

func TestWhatIsKeptOfAnEntryIsACopy(t *testing.T) {
	t.Parallel()
	f, _, replica := testFSM()
	f.Apply(1, appendEntry(nil, &beginIncarnation{pipeline: 1, min: 1}))
	rows := appendEntry(nil, &appendRows{stream: 1, count: 1, rows: []byte("rows")})
	chunk := appendEntry(nil, &deltaChunk{delta: dataflow.DeltaID{Pipeline: 1, Incarnation: 1, Seq: 1}, data: []byte("chunk")})
	f.Apply(2, rows)
	f.Apply(3, chunk)
	clear(rows)
	clear(chunk)
	got, err := f.Read(1, 0, 1)
	if err != nil || len(got) != 1 || string(got[0].Data) != "rows" {
		t.Errorf("read %+v, %v", got, err)
	}
	if string(replica.last) != "chunk" {
		t.Errorf("the replica has %q", replica.last)
	}
}

func TestALargeSnapshotIsTakenMoreRarely(t *testing.T) {
	t.Parallel()
	f, _, _ := testFSM()
	if got := f.snapshotAfter(); got != DefaultSnapshotBytes {
		t.Errorf("after %d bytes without a snapshot", got)
	}
	f.mu.snapshot.size = DefaultSnapshotBytes
	if got := f.snapshotAfter(); got != snapshotGrowth*DefaultSnapshotBytes {
		t.Errorf("after %d bytes with a large one", got)
	}
}
