package raftlog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/weirdb/weir/internal/vfs"
)

// snapshotBytes returns the file of a small snapshot.
func snapshotBytes(t testing.TB) []byte {
	t.Helper()
	fs := vfs.NewCrashableMem()
	s, err := openSnapshots(fs, "d")
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.Create(1, 10, 2, raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "a"}}}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write([]byte("the state")); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := fs.UnsafeGetFileDataBuffer("d/snapshots/" + k.ID() + snapshotSuffix)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b)
}

func TestEveryFlippedBitOfASnapshotIsNoticed(t *testing.T) {
	b := snapshotBytes(t)
	for i := range len(b) * 8 {
		c := bytes.Clone(b)
		c[i/8] ^= 1 << (i % 8)
		if _, err := readSnapshotMeta(bytes.NewReader(c), int64(len(c))); err != nil {
			continue
		}
		if err := verifySnapshot(bytes.NewReader(c), int64(len(c))); !errors.Is(err, ErrSnapshotDamaged) {
			t.Errorf("bit %d: %v", i, err)
		}
	}
}

func TestCancelledSnapshotLeavesNothing(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s, err := openSnapshots(fs, "d")
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.Create(1, 10, 2, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := k.Cancel(); err != nil {
			t.Error(err)
		}
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if names, err := fs.List("d/snapshots"); err != nil || len(names) != 0 {
		t.Errorf("left %v, %v", names, err)
	}
}

func FuzzReadSnapshotMeta(f *testing.F) {
	f.Add(snapshotBytes(f))
	f.Add([]byte(snapshotMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readSnapshotMeta(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if m.Size < 0 || m.Size > int64(len(b)) {
			t.Fatalf("accepted a state of %d bytes in %d", m.Size, len(b))
		}
		_ = verifySnapshot(bytes.NewReader(b), int64(len(b)))
	})
}
