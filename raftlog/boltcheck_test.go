package raftlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog"
	"github.com/weirdb/weir/raftlog/frame"
)

// boltEntries is how many entries a test's file has: enough for branch pages.
const boltEntries = 300

// boltFile returns the bytes of a closed bbolt file with entries of many sizes, one of which takes several pages.
func boltFile(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "meta.db")
	b, err := raftlog.OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= boltEntries; i += 50 {
		var logs []*raft.Log
		for j := i; j < i+50; j++ {
			size := 20 + j%7*40
			if j == 100 {
				size = 20_000
			}
			logs = append(logs, &raft.Log{Index: j, Term: 1, Type: raft.LogCommand, Data: frame.Append(nil, bytes.Repeat([]byte{byte(j)}, int(size)))})
		}
		if err := b.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		if err := b.SetUint64([]byte("CurrentTerm"), i); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.DeleteRange(1, 70); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// readBolt writes the bytes into a file and reads all that a start reads.
func readBolt(t *testing.T, data []byte) (err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "meta.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := raftlog.OpenBolt(path)
	if err != nil {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("the error does not name the file: %v", err)
		}
		return err
	}
	defer func() {
		if cerr := b.Close(); cerr != nil {
			t.Error(cerr)
		}
	}()
	if _, err := b.GetUint64([]byte("CurrentTerm")); err != nil {
		return err
	}
	first, err := b.FirstIndex()
	if err != nil {
		return err
	}
	last, err := b.LastIndex()
	if err != nil {
		return err
	}
	for i := max(first, 1); i <= last; i++ { // an empty log has 0 and 0
		var l raft.Log
		if err := b.GetLog(i, &l); err != nil {
			return err
		}
	}
	return nil
}

func TestASoundBoltFileIsOpened(t *testing.T) {
	if err := readBolt(t, boltFile(t)); err != nil {
		t.Error(err)
	}
}

// TestABoltFileInUseIsAlwaysSound copies a file after each write, as a killed process leaves it.
func TestABoltFileInUseIsAlwaysSound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.db")
	b, err := raftlog.OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	random := rand.New(rand.NewPCG(3, 4))
	first, next := uint64(1), uint64(1)
	for step := range 150 {
		switch {
		case step%10 == 9 && next > first:
			to := first + random.Uint64N(next-first)
			err = b.DeleteRange(first, to)
			first = to + 1
		case step%10 == 4 && next > first:
			from := first + random.Uint64N(next-first)
			err = b.DeleteRange(from, next-1)
			next = from
		default:
			var logs []*raft.Log
			for range 1 + random.IntN(60) {
				logs = append(logs, &raft.Log{Index: next, Term: 1, Data: make([]byte, random.IntN(1<<random.IntN(14)))})
				next++
			}
			err = b.StoreLogs(logs)
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := readBolt(t, data); err != nil {
			t.Fatalf("step %d, entries %d to %d: %v", step, first, next-1, err)
		}
	}
}

// TestADamagedBoltFileIsRefusedAndNeverPanics damages a file at many places. A panic of bbolt's, or a read behind the
// file's end, would end the test's process.
func TestADamagedBoltFileIsRefusedAndNeverPanics(t *testing.T) {
	sound := boltFile(t)
	const page = 4096
	random := rand.New(rand.NewPCG(1, 2))
	var cases []struct {
		name string
		data []byte
	}
	add := func(data []byte, name string, args ...any) {
		cases = append(cases, struct {
			name string
			data []byte
		}{fmt.Sprintf(name, args...), data})
	}
	flip := func(bit int) {
		data := bytes.Clone(sound)
		data[bit/8] ^= 1 << (bit % 8)
		add(data, "flip bit %d of byte %d", bit%8, bit/8)
	}
	for at := 0; at < len(sound); at += page {
		data := bytes.Clone(sound)
		clear(data[at : at+page])
		add(data, "page %d is zero", at/page)
		data = bytes.Clone(sound)
		clear(data[at : at+512])
		add(data, "the begin of page %d is zero", at/page)
		for range 12 { // headers and the first elements say most
			flip(8*at + random.IntN(8*64))
		}
	}
	for range 300 {
		flip(random.IntN(8 * len(sound)))
	}
	for size := 1; size < len(sound); size += 3000 {
		add(bytes.Clone(sound[:size]), "cut to %d bytes", size)
	}
	refused := 0
	for _, c := range cases {
		if err := readBolt(t, c.data); err != nil {
			refused++
			if reason := dataflow.ReasonOf(err); reason != dataflow.ReasonCorrupt && !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("%s: %s: %v", c.name, reason, err)
			}
		}
	}
	t.Logf("%d of %d refused", refused, len(cases))
	if refused < len(cases)/10 {
		t.Errorf("only %d of %d were refused", refused, len(cases))
	}
}
