package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/nodetest"
)

const lostSQL = `
SET checkpoint.interval = 'off';
SET checkpoint.retained = '1';
CREATE STREAM events (k TEXT, v BIGINT) PARTITION BY (k);
CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS total FROM events GROUP BY k;
`

// written returns a closed node on disk with rows, committed checkpoints, and rows after the last one.
func written(t *testing.T, tuning node.Tuning, rounds int) (*nodetest.Node, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	n := nodetest.Open(t, nodetest.Options{Dir: dir, Tuning: tuning})
	n.Deploy("p", lostSQL)
	for i := range rounds {
		var rows []string
		for k := range 40 {
			rows = append(rows, fmt.Sprintf(`{"k":"k%d","v":%d}`, k, i))
		}
		n.Append("events", rows...)
		n.Checkpoint("p")
	}
	n.Append("events", `{"k":"late","v":1}`)
	n.Close()
	return n, dir
}

// refused checks that the node does not start, and that the message says the parts and names the directory.
func refused(t *testing.T, n *nodetest.Node, dir string, parts ...string) {
	t.Helper()
	for range 2 { // and does not next time
		err := n.Reopen()
		if err == nil {
			n.Close()
			t.Fatal("the node has started")
		}
		var e *dataflow.Error
		if !errors.As(err, &e) || e.Reason != dataflow.ReasonCorrupt {
			t.Fatalf("not CORRUPT: %v", err)
		}
		for _, part := range append(parts, dir) {
			if !strings.Contains(e.Message, part) {
				t.Errorf("the message lacks %q: %s", part, e.Message)
			}
		}
		steps := strings.Split(e.Message, ": ")
		for i, step := range steps[1:] {
			if strings.Contains(steps[i], step) || strings.HasPrefix(step, strings.TrimPrefix(steps[i], "open ")) {
				t.Errorf("the message repeats %q: %s", step, e.Message)
			}
		}
		if !strings.Contains(e.Hint, "backup") {
			t.Errorf("the hint is %q", e.Hint)
		}
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// segments returns the log's segment files, oldest first.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "log", "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d segments, %v", len(files), err)
	}
	slices.Sort(files)
	return files
}

// forgetGroup makes node.json what versions wrote that did not keep the group in it.
func forgetGroup(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "node.json"), []byte(`{"format":1,"node":"n1"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestALostMetaLogIsNotReplacedByANewOne(t *testing.T) {
	t.Parallel()
	for _, older := range []bool{false, true} {
		for name, lose := range map[string]func(t *testing.T, dir string){
			"raft.db is removed": func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "meta", "raft.db")) },
			"meta is removed":    func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "meta")) },
			"raft.db is empty":   func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "meta", "raft.db"), 0) },
			"meta and shards removed": func(t *testing.T, dir string) {
				remove(t, filepath.Join(dir, "meta"))
				remove(t, filepath.Join(dir, "shards"))
			},
			"meta and log removed": func(t *testing.T, dir string) {
				remove(t, filepath.Join(dir, "meta"))
				remove(t, filepath.Join(dir, "log"))
			},
		} {
			t.Run(fmt.Sprintf("%s, older %t", name, older), func(t *testing.T) {
				t.Parallel()
				n, dir := written(t, node.Tuning{}, 1)
				if older {
					forgetGroup(t, dir)
				}
				lose(t, dir)
				refused(t, n, dir)
			})
		}
	}
}

func TestAMetaLogWithItsSnapshotsOnlyIsRefused(t *testing.T) {
	t.Parallel()
	n, dir := written(t, nodetest.Restless(), 30)
	forgetGroup(t, dir)
	remove(t, filepath.Join(dir, "meta", "raft.db"))
	refused(t, n, dir, "meta log")
}

func TestTheMetaLogOfAnotherGroupIsRefused(t *testing.T) {
	t.Parallel()
	n, dir := written(t, node.Tuning{}, 1)
	_, other := written(t, node.Tuning{}, 1)
	b, err := os.ReadFile(filepath.Join(other, "meta", "raft.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "meta", "raft.db"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, n, dir, "group")
}

func TestAnOlderMetaLogIsRefused(t *testing.T) {
	t.Parallel()
	n, dir := written(t, node.Tuning{}, 1)
	path := filepath.Join(dir, "meta", "raft.db")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Reopen(); err != nil {
		t.Fatal(err)
	}
	n.Deploy("q", "CREATE STREAM others (k TEXT); CREATE MATERIALIZED VIEW c AS SELECT k, count(*) AS n FROM others GROUP BY k;")
	n.Append("others", `{"k":"a"}`)
	n.Close()
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, n, dir, "meta log")
}

func TestADirectoryOfAnOlderVersionIsOpenedAndLearnsItsGroup(t *testing.T) {
	t.Parallel()
	n, dir := written(t, node.Tuning{}, 1)
	path := filepath.Join(dir, "node.json")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var id struct {
		Group  string
		Shards int
	}
	if err := json.Unmarshal(want, &id); err != nil || id.Group == "" || id.Shards != 2 {
		t.Fatalf("node.json is %s, %v", want, err)
	}
	forgetGroup(t, dir)
	if err := n.Reopen(); err != nil {
		t.Fatal(err)
	}
	n.Close()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var now struct {
		Group  string
		Shards int
		Data   string
	}
	if err := json.Unmarshal(got, &now); err != nil || now.Group != id.Group || now.Shards != id.Shards || now.Data == "" {
		t.Errorf("node.json is %s, %v, want the group and shards of %s, and an id", got, err, want)
	}
}

func TestAFirstStartThatWasInterruptedIsGoneOnWith(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(dir, "meta", "snapshots"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "meta", "raft.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	forgetGroup(t, dir)
	n := nodetest.Open(t, nodetest.Options{Dir: dir})
	n.Deploy("p", lostSQL)
}

func TestALogThatLostItsEndIsRefused(t *testing.T) {
	t.Parallel()
	small := node.Tuning{SegmentBytes: 32 << 10}
	for _, c := range []struct {
		name string
		lose func(dir string)
		says string
	}{
		{"log is removed", func(dir string) { remove(t, filepath.Join(dir, "log")) }, "shard"},
		{"newest segment is removed", func(dir string) { s := segments(t, dir); remove(t, s[len(s)-1]) }, "segment"},
		{"newest segment is empty", func(dir string) { s := segments(t, dir); truncate(t, s[len(s)-1], 0) }, "segment"},
	} {
		for _, tuning := range []node.Tuning{small, nodetest.Restless()} {
			t.Run(fmt.Sprintf("%s, restless %t", c.name, tuning.SnapshotBytes != 0), func(t *testing.T) {
				t.Parallel()
				n, dir := written(t, tuning, 30)
				c.lose(dir)
				refused(t, n, dir, c.says)
			})
		}
	}
}

func TestALogThatWasCutInItsMiddleIsRefused(t *testing.T) {
	t.Parallel()
	restless := nodetest.Restless()
	restless.SegmentBytes = 0
	for name, tuning := range map[string]node.Tuning{"plain": {}, "restless": restless} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, dir := written(t, tuning, 30)
			s := segments(t, dir)
			info, err := os.Stat(s[0])
			if err != nil {
				t.Fatal(err)
			}
			truncate(t, s[0], info.Size()/2)
			refused(t, n, dir, "shard")
		})
	}
}

func TestALostLogIsNoticedByTheStateAlone(t *testing.T) {
	t.Parallel()
	n, dir := written(t, nodetest.Restless(), 30)
	forgetGroup(t, dir)
	remove(t, filepath.Join(dir, "log"))
	for _, shard := range []string{"0000", "0001"} {
		remove(t, filepath.Join(dir, "shards", shard, "snapshots"))
	}
	refused(t, n, dir, "log of shard")
}

// mixed returns a closed node whose directory has the given parts of another group's.
func mixed(t *testing.T, parts ...string) (*nodetest.Node, string) {
	t.Helper()
	n, dir := written(t, node.Tuning{}, 1)
	_, other := written(t, node.Tuning{}, 1)
	for _, part := range parts {
		remove(t, filepath.Join(dir, part))
		if err := os.Rename(filepath.Join(other, part), filepath.Join(dir, part)); err != nil {
			t.Fatal(err)
		}
	}
	return n, dir
}

// groupOf returns the group that a mark names.
func groupOf(t *testing.T, dir, part string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, part, "GROUP"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestPartsOfAnotherGroupAreRefused(t *testing.T) {
	t.Parallel()
	for _, parts := range [][]string{{"log"}, {"shards"}, {"shards/0001"}, {"log", "shards"}, {"meta", "node.json"}} {
		for _, older := range []bool{false, true} { // a node.json that an interrupted start left
			t.Run(fmt.Sprintf("%v, older %t", parts, older), func(t *testing.T) {
				t.Parallel()
				n, dir := mixed(t, parts...)
				if older {
					forgetGroup(t, dir)
				}
				theirs := parts[0]
				switch theirs {
				case "shards":
					theirs = "shards/0000"
				case "meta":
					theirs = "log"
				}
				refused(t, n, dir, "group", theirs, groupOf(t, dir, theirs))
			})
		}
	}
}

func TestALogOrAShardWithoutItsGroupIsRefused(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"log", "shards/0001"} {
		n, dir := written(t, node.Tuning{}, 1)
		remove(t, filepath.Join(dir, part, "GROUP"))
		refused(t, n, dir, part, "GROUP")
	}
}

func TestADirectoryWithoutMarksLearnsThem(t *testing.T) {
	t.Parallel()
	n, dir := written(t, node.Tuning{}, 1)
	want := groupOf(t, dir, "log")
	path := filepath.Join(dir, "node.json")
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"format":1,"node":"n1","group":%q,"shards":2}`, want), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"log", "shards/0000"} { // and a crash while they were written leaves some
		remove(t, filepath.Join(dir, part, "GROUP"))
	}
	if err := n.Reopen(); err != nil {
		t.Fatal(err)
	}
	n.Close()
	for _, part := range []string{"log", "shards/0000", "shards/0001"} {
		if got := groupOf(t, dir, part); got != want {
			t.Errorf("%s is of group %s, want %s", part, got, want)
		}
	}
	if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), `"marked":true`) {
		t.Errorf("node.json is %s, %v", b, err)
	}
}

func TestADamagedNodeFileIsRefusedWithWhatItHolds(t *testing.T) {
	t.Parallel()
	for content, says := range map[string]string{"": "nothing", `{"format":1,"no`: `"{\"format\":1,\"no"`, "\x00\x00": `"\x00\x00"`} {
		n, dir := written(t, node.Tuning{}, 1)
		if err := os.WriteFile(filepath.Join(dir, "node.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, n, dir, "node.json", "damaged", says)
	}
}
