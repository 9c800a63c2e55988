package shard

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

// commands has one of each kind, and of each way an append can be.
func commands() []command {
	return []command{
		&appendRows{stream: 1, now: 5, count: 3, digest: 7, rows: []byte("rows")},
		&appendRows{stream: 1, now: -5, count: maxCount, rows: []byte{}},
		&appendRows{stream: 1 << 40, count: 1, producer: "p", epoch: 2, first: 9, limit: 10, rows: []byte("x")},
		&appendRows{stream: 1, count: 1, hasKey: true, key: hashKey(1, "k"), limit: 10, rows: []byte("x")},
		&openProducer{stream: 3, now: 1 << 50, producer: "name", epoch: 4, limit: 1},
		&expire{now: 3, producersBefore: 2, keysBefore: -1},
		&deltaChunk{delta: dataflow.DeltaID{Pipeline: 1, Incarnation: 2, Seq: 3}, chunk: 300, data: []byte("data")},
		&endDelta{delta: dataflow.DeltaID{Pipeline: 1, Incarnation: 2, Seq: 3}, chunks: 301, digest: 1 << 63},
		&beginIncarnation{pipeline: 1, min: 2, base: dataflow.DeltaRef{Incarnation: 1, Seq: 7}},
		&settle{pipeline: 1, upTo: dataflow.DeltaRef{Incarnation: 1, Seq: 7}},
		&dropPipeline{pipeline: 1 << 63},
		&trimStream{stream: 1, now: 9, to: 100, why: TrimSize},
		&dropStream{stream: 2},
		&expireAnonymous{now: 5, before: -7},
		&sealStream{stream: 300},
		&trimStream{stream: 1, now: 9, to: 100, why: TrimAge, known: 300},
	}
}

func TestCommandsSurviveTheirEncoding(t *testing.T) {
	t.Parallel()
	for _, c := range commands() {
		got, err := decode(appendEntry(nil, c))
		if err != nil || !reflect.DeepEqual(c, got) {
			t.Errorf("%T: %+v came back as %+v, %v", c, c, got, err)
		}
	}
}

// TestEntriesOfVersion1AreReadForEver holds the bytes of stored entries fast: logs hold them for as long as streams
// retain their rows.
func TestEntriesOfVersion1AreReadForEver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		c    command
		want string
	}{
		{commands()[0], "\x01\x01\x01\x0a\x03\x07\x00\x00\x00\x00\x00\x00\x00\x00rows"},
		{commands()[2], "\x01\x01\x80\x80\x80\x80\x80\x20\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01\x01p\x02\x09\x0ax"},
		{commands()[4], "\x01\x02\x03\x80\x80\x80\x80\x80\x80\x80\x04\x04name\x04\x01"},
		{commands()[5], "\x01\x03\x06\x04\x01"},
		{commands()[6], "\x01\x04\x01\x02\x03\xac\x02data"},
		{commands()[7], "\x01\x05\x01\x02\x03\xad\x02\x00\x00\x00\x00\x00\x00\x00\x80"},
		{commands()[8], "\x01\x06\x01\x02\x01\x07"},
		{commands()[9], "\x01\x07\x01\x01\x07"},
		{commands()[11], "\x01\x09\x01\x12\x64\x02"},
		{commands()[12], "\x01\x0a\x02"},
		{commands()[13], "\x01\x0b\x0a\x0d"},
		{commands()[14], "\x01\x0c\xac\x02"},
		{commands()[15], "\x01\x0d\x01\x12\x64\x01\xac\x02"},
	} {
		if got := appendEntry(nil, tc.c); string(got) != tc.want {
			t.Errorf("%T is encoded as %q, want %q", tc.c, got, tc.want)
		}
	}
}

func TestDamagedEntriesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range commands() {
		whole := appendEntry(nil, c)
		header := len(whole)
		switch c := c.(type) {
		case *appendRows:
			header -= len(c.rows)
		case *deltaChunk:
			header -= len(c.data)
		}
		for n := range header {
			if _, err := decode(whole[:n]); !errors.Is(err, errBadEntry) {
				t.Errorf("%T cut at %d: %v", c, n, err)
			}
		}
	}
	for _, entry := range []string{"", "\x02\x01", "\x01\x00", "\x01\xff", "\x01\x0a\x02\x00"} {
		if _, err := decode([]byte(entry)); !errors.Is(err, errBadEntry) {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, c := range commands() {
		f.Add(appendEntry(nil, c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decode(data)
		if err != nil {
			return
		}
		// What decodes says the same when it is encoded again, and any machine takes it.
		again, err := decode(appendEntry(nil, c))
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%+v came back as %+v, %v", c, again, err)
		}
		m := newMachine()
		m.step(1, c)
		m.step(2, c)
		reopen(t, m)
	})
}

func FuzzReadSnapshot(f *testing.F) {
	m := newMachine()
	f.Add(persist(f, m))
	for i, c := range commands() {
		m.step(dataflow.LogIndex(i+1), c)
		f.Add(persist(f, m))
	}
	begin := &beginIncarnation{pipeline: 9, min: 1}
	m.step(20, begin)
	m.step(21, &deltaChunk{delta: dataflow.DeltaID{Pipeline: 9, Incarnation: 1, Seq: 1}, data: []byte("x")})
	f.Add(persist(f, m))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readMachine(data)
		if err != nil {
			return
		}
		// Whatever is taken for a machine can be used as one.
		m = reopen(t, m)
		for i, c := range commands() {
			m.step(m.applied+dataflow.LogIndex(i+1), c)
		}
		m.references()
		m.past()
		for _, s := range m.streams {
			s.find(s.start())
			s.offsetAt(0)
			s.offsetKeeping(1)
		}
	})
}

func TestASnapshotStaysAsItWasWhileTheMachineGoesOn(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.step(1, &beginIncarnation{pipeline: 1, min: 1})
	id := dataflow.DeltaID{Pipeline: 1, Incarnation: 1, Seq: 1}
	m.step(2, &deltaChunk{delta: id, chunk: 0, data: []byte("a")})
	m.step(3, &appendRows{stream: 1, count: 1, producer: "p", epoch: 1, first: 1, limit: 9})
	m.step(4, &appendRows{stream: 1, count: 1, hasKey: true, limit: 9})
	m.step(5, &dropStream{stream: 7})
	frozen := m.freeze()
	want := persist(t, m)

	m.step(6, &deltaChunk{delta: id, chunk: 1, data: []byte("b")})
	m.step(7, &appendRows{stream: 1, count: 1, producer: "p", epoch: 2, first: 2, limit: 9})
	m.step(8, &appendRows{stream: 1, count: 1, hasKey: true, key: keyHash{1}, limit: 9, now: 5})
	m.step(9, &trimStream{stream: 1, to: 2})
	m.step(10, &expire{keysBefore: 3})
	m.step(11, &beginIncarnation{pipeline: 1, min: 2})
	m.step(12, &dropPipeline{pipeline: 1})
	m.step(13, &dropStream{stream: 1})
	if got := persist(t, frozen); !bytes.Equal(got, want) {
		t.Errorf("the snapshot has changed:\n%s", describe(frozen))
	}
}

func TestSnapshotsOfVersion1AreRead(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.step(1, &appendRows{stream: 1, count: 1, producer: "p", epoch: 1, first: 1, limit: 9})
	m.step(2, &dropStream{stream: 7})
	now := persist(t, m)
	if at := len(snapshotMagic); now[at] != snapshotVersion || now[len(now)-1] != 0 {
		t.Fatalf("the snapshot %q does not end with the number of sealed streams", now)
	}
	old := bytes.Clone(now[:len(now)-1])
	old[len(snapshotMagic)] = 1
	got, err := readMachine(old)
	if err != nil {
		t.Fatal(err)
	}
	if describe(got) != describe(m) {
		t.Errorf("version 1 is read as\n%s\nwant\n%s", describe(got), describe(m))
	}
	for _, v := range []byte{0, snapshotVersion + 1} {
		old[len(snapshotMagic)] = v
		if _, err := readMachine(old); !errors.Is(err, errBadEntry) {
			t.Errorf("version %d: %v", v, err)
		}
	}
}
