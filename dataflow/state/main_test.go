package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/vfs"
)

// childEnv is set in the process that TestAFailedDiskIsReportedAndNothingExits starts: what Pebble leaves behind when its
// disk fails cannot be stopped, so that test runs in a process of its own, without the leak check.
const childEnv = "WEIR_STATE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

const (
	testShard = dataflow.ShardID(3)
	testDir   = "data/shard-3"
)

func openTest(t testing.TB, fs vfs.FS) *Replica {
	t.Helper()
	r, err := OpenReplica(Config{FS: fs, Dir: testDir, Shard: testShard, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func closeTest(t testing.TB, r *Replica) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// rows is the state of a pipeline: "stage/key" to value.
type rows map[string]string

func rowKey(stage dataflow.StageID, key []byte) string { return fmt.Sprintf("%d/%s", stage, key) }

// change is one entry of a delta; a nil value deletes.
type change struct {
	stage dataflow.StageID
	key   string
	val   []byte
}

func (r rows) with(changes []change) rows {
	out := maps.Clone(r)
	if out == nil {
		out = rows{}
	}
	for _, c := range changes {
		if c.val == nil {
			delete(out, rowKey(c.stage, []byte(c.key)))
		} else {
			out[rowKey(c.stage, []byte(c.key))] = string(c.val)
		}
	}
	return out
}

// encodeDelta writes changes as one delta: of those of one key the last.
func encodeDelta(t testing.TB, changes []change) (chunks [][]byte, digest uint64) {
	t.Helper()
	last := map[string]int{}
	for i, c := range changes {
		last[rowKey(c.stage, []byte(c.key))] = i
	}
	w := NewDeltaWriter()
	for i, c := range changes {
		if last[rowKey(c.stage, []byte(c.key))] == i {
			w.Add(c.stage, []byte(c.key), c.val)
		}
	}
	n, d, err := w.Finish(func(i int, data []byte) error {
		if i != len(chunks) {
			t.Fatalf("chunk %d came as number %d", len(chunks), i)
		}
		chunks = append(chunks, data)
		return nil
	})
	if err != nil || n != len(chunks) {
		t.Fatalf("%d chunks, %d emitted, error %v", n, len(chunks), err)
	}
	return chunks, uint64(d)
}

// feed applies a whole delta.
func feed(t testing.TB, r *Replica, d dataflow.DeltaID, changes []change) (digest uint64) {
	t.Helper()
	chunks, digest := encodeDelta(t, changes)
	for i, c := range chunks {
		if err := r.ApplyChunk(0, d, i, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.EndDelta(0, d, len(chunks), digest); err != nil {
		t.Fatal(err)
	}
	return digest
}

func commitOf(uid dataflow.PipelineUID, id dataflow.CheckpointID, ref dataflow.DeltaRef, digest uint64) *dataflow.CheckpointCommit {
	return &dataflow.CheckpointCommit{
		Pipeline: uid, Timeline: 1, Incarnation: ref.Incarnation, ID: id, MetaIndex: dataflow.LogIndex(100 + id),
		Shards: []dataflow.ShardCommit{{Shard: testShard, Seq: ref.Seq, Digest: digest}},
	}
}

// checkView compares a view with the state it should be, by iteration, by ranges and by look-ups of present and absent
// keys.
func checkView(v *View, want rows, stages dataflow.StageID) error {
	got := rows{}
	for s := range stages {
		var last []byte
		it := v.Iter(s, nil, nil)
		for it.Next() {
			if last != nil && bytes.Compare(last, it.Key()) >= 0 {
				return errors.Join(fmt.Errorf("stage %d: key %q after %q", s, it.Key(), last), it.Close())
			}
			last = bytes.Clone(it.Key())
			got[rowKey(s, it.Key())] = string(it.Value())
		}
		if err := it.Close(); err != nil {
			return err
		}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("cut %d at %s: iterated %v, want %v", v.Checkpoint(), v.Ref(), got, want)
	}
	for s := range stages {
		var all dataflow.Lookups
		all.Begin(1 << 30)
		for i := range 45 * 3 { // more than one step of getSome
			key := []byte(testKey(i % 45))
			all.Add(dataflow.HashKey(key), key)
		}
		if err := v.GetAll(s, &all); err != nil {
			return err
		}
		for i := range int32(all.Len()) {
			val, ok := all.Value(i)
			w, there := want[rowKey(s, all.Key(i))]
			if ok != there || string(val) != w || len(all.Open()) > 0 {
				return fmt.Errorf("cut %d: with others %d/%s = %q, %v, want %q, %v", v.Checkpoint(), s, all.Key(i), val, ok, w, there)
			}
		}
		for i := range 45 {
			key := testKey(i)
			val, ok, err := v.Get(s, []byte(key), nil)
			if err != nil {
				return err
			}
			w, there := want[rowKey(s, []byte(key))]
			if ok != there || string(val) != w {
				return fmt.Errorf("cut %d: get %d/%s = %q, %v, want %q, %v", v.Checkpoint(), s, key, val, ok, w, there)
			}
		}
	}
	var inRange, wantRange []string
	lo, hi := testKey(10), testKey(30)
	it := v.Iter(0, []byte(lo), []byte(hi))
	for it.Next() {
		inRange = append(inRange, string(it.Key()))
	}
	if err := it.Close(); err != nil {
		return err
	}
	for i := range 45 {
		if k := testKey(i); k >= lo && k < hi {
			if _, ok := want[rowKey(0, []byte(k))]; ok {
				wantRange = append(wantRange, k)
			}
		}
	}
	slices.Sort(wantRange)
	if !slices.Equal(inRange, wantRange) {
		return fmt.Errorf("cut %d: range %v, want %v", v.Checkpoint(), inRange, wantRange)
	}
	return nil
}

// checkChanges compares what changes from an older view to a newer one with their states: applied to the older it gives the
// newer, each key comes once and in order, and bounds are kept.
func checkChanges(older, newer *View, was, want rows, stages dataflow.StageID) error {
	got := maps.Clone(was)
	if got == nil {
		got = rows{}
	}
	for s := range stages {
		var last []byte
		it := newer.Changes(older, s, nil, nil)
		for it.Next() {
			if last != nil && bytes.Compare(last, it.Key()) >= 0 {
				return errors.Join(fmt.Errorf("stage %d: key %q after %q", s, it.Key(), last), it.Close())
			}
			last = bytes.Clone(it.Key())
			if it.Value() == nil {
				delete(got, rowKey(s, it.Key()))
			} else {
				got[rowKey(s, it.Key())] = string(it.Value())
			}
		}
		if err := it.Close(); err != nil {
			return err
		}
		lo, hi := []byte(testKey(10)), []byte(testKey(30))
		it = newer.Changes(older, s, lo, hi)
		for it.Next() {
			if bytes.Compare(it.Key(), lo) < 0 || bytes.Compare(it.Key(), hi) >= 0 {
				return errors.Join(fmt.Errorf("key %q is not between %q and %q", it.Key(), lo, hi), it.Close())
			}
		}
		if err := it.Close(); err != nil {
			return err
		}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("from cut %d to %d the changes give %v, want %v", older.Checkpoint(), newer.Checkpoint(), got, want)
	}
	return nil
}

// testKey gives keys of different lengths, some a prefix of others.
func testKey(i int) string {
	k := fmt.Sprintf("k%02d", i/2)
	if i%2 == 1 {
		k += "-longer than eight bytes"
	}
	return k
}

func mustView(t testing.TB, r *Replica, uid dataflow.PipelineUID, id dataflow.CheckpointID) *View {
	t.Helper()
	v, err := r.View(uid, id)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func wantReason(t testing.TB, err error, reason dataflow.Reason) {
	t.Helper()
	if dataflow.ReasonOf(err) != reason {
		t.Fatalf("error %v, want %s", err, reason)
	}
}
