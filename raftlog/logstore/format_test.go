package logstore

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
)

func sampleBatch(at int64) []byte {
	var w batchWriter
	w.reset(7, at)
	w.add(&record{kind: kindEntry, logType: 0, group: 1, index: 5, term: 2, appended: 77}, []byte("hello"))
	w.add(&record{kind: kindEntry, flags: flagExtensions, group: 1, index: 6, term: 2}, []byte{2, 0, 0, 0}, []byte("ex"), []byte("data"))
	w.add(&record{kind: kindTruncate, flags: flagForget, group: 1})
	w.add(&record{kind: kindStable, group: 2}, appendPairs(nil, map[string][]byte{"b": []byte("2"), "a": nil}))
	return bytes.Clone(w.finish())
}

func TestBatchDecodesToWhatWasEncoded(t *testing.T) {
	b := sampleBatch(dataOffset)
	recs, size, err := decodeBatch(append(bytes.Clone(b), "what follows"...), 7, dataOffset)
	if err != nil || size != int64(len(b)) || len(recs) != 4 {
		t.Fatalf("%d records, size %d of %d, %v", len(recs), size, len(b), err)
	}
	r := recs[0]
	if r.kind != kindEntry || r.group != 1 || r.index != 5 || r.term != 2 || r.appended != 77 || string(r.payload) != "hello" || r.offset != dataOffset+batchHead {
		t.Errorf("record 0 is %+v", r)
	}
	ext, data, err := splitExtensions(&recs[1].record)
	if err != nil || string(ext) != "ex" || string(data) != "data" {
		t.Errorf("record 1 is %q, %q, %v", ext, data, err)
	}
	kv := map[string][]byte{}
	if err := decodePairs(recs[3].payload, kv); err != nil || string(kv["b"]) != "2" || len(kv) != 2 {
		t.Errorf("record 3 is %v, %v", kv, err)
	}
}

func TestBatchOfAnotherPlaceOrLifeIsInvalid(t *testing.T) {
	b := sampleBatch(dataOffset)
	if _, _, err := decodeBatch(b, 8, dataOffset); err == nil {
		t.Error("another nonce passed")
	}
	if _, _, err := decodeBatch(b, 7, dataOffset+8); err == nil {
		t.Error("another offset passed")
	}
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 0x10
		if _, _, err := decodeBatch(c, 7, dataOffset); err == nil {
			t.Errorf("a flipped bit in byte %d passed", i)
		}
		if _, _, err := decodeBatch(b[:i], 7, dataOffset); err == nil {
			t.Errorf("the first %d bytes passed", i)
		}
	}
}

// reseal makes the checksums of fuzzed bytes right, so that the fuzzer reaches what lies behind them.
func reseal(b []byte, nonce uint64, at int64) {
	if len(b) < batchHead {
		return
	}
	pos := batchHead
	for pos+recordHead <= len(b) {
		n := int(binary.LittleEndian.Uint32(b[pos+4:]))
		if n < 0 || n > len(b)-pos-recordHead {
			break
		}
		binary.LittleEndian.PutUint32(b[pos:], crc(nonce, b[pos+4:pos+recordHead+n]))
		pos += recordHead + n
	}
	binary.LittleEndian.PutUint32(b, batchMagic)
	binary.LittleEndian.PutUint64(b[8:], uint64(at))
	binary.LittleEndian.PutUint32(b[20:], crc(nonce, b[:20]))
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add(sampleBatch(dataOffset), false)
	f.Add(sampleBatch(dataOffset), true)
	f.Add([]byte("BTCH"), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			b = bytes.Clone(b)
			reseal(b, 7, dataOffset)
		}
		recs, size, err := decodeBatch(b, 7, dataOffset)
		if err != nil {
			return
		}
		if size > int64(len(b)) {
			t.Fatalf("size %d of %d", size, len(b))
		}
		var w batchWriter
		w.reset(7, dataOffset)
		for i := range recs {
			r := &recs[i]
			_, _, _ = splitExtensions(&r.record)
			_, _ = decodeState(r.payload)
			_ = decodePairs(r.payload, map[string][]byte{})
			_ = decodeIndex(r.payload, func(uint32, uint64, loc) {})
			w.add(&r.record, r.payload)
		}
		if !bytes.Equal(w.finish(), b[:size]) {
			t.Fatal("encoding what was decoded gives other bytes")
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	g := &GroupLog{id: 3, name: "shard-3", w: groupState{first: 5, last: 9, start: 2, floor: 4, kv: map[string][]byte{"CurrentTerm": {1}}}}
	f.Add(appendState(nil, []*GroupLog{g}))
	f.Fuzz(func(t *testing.T, b []byte) {
		states, err := decodeState(b)
		if err != nil {
			return
		}
		for _, s := range states {
			if s.name == "" || s.first > s.last {
				t.Fatalf("accepted %+v", s)
			}
		}
	})
}

func FuzzDecodeIndex(f *testing.F) {
	seg := &segment{}
	g := &GroupLog{id: 1}
	for i := range uint64(5) {
		g.pub.entries.put(10+i, seg, loc{dataOffset + uint32(i)*100, 100})
	}
	f.Add(appendIndex(nil, []*GroupLog{g}, seg, false))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		if err := decodeIndex(b, func(_ uint32, _ uint64, l loc) {
			if l.offset < dataOffset || l.size < recordHead {
				t.Fatalf("accepted %+v", l)
			}
			n++
		}); err == nil && n*2 > len(b) {
			t.Fatalf("%d entries from %d bytes", n, len(b))
		}
	})
}

func FuzzDecodeHeads(f *testing.F) {
	f.Add(appendHeader(nil, 3, 7))
	f.Add(appendSeal(nil, 7, 9000))
	f.Fuzz(func(t *testing.T, b []byte) {
		if seq, nonce, err := decodeHeader(b); err == nil && !bytes.Equal(appendHeader(nil, seq, nonce), b[:headerSize]) {
			t.Fatal("header differs")
		}
		if at, err := decodeSeal(b, 7); err == nil && !bytes.Equal(appendSeal(nil, 7, at), b[:sealSize]) {
			t.Fatal("seal differs")
		}
	})
}

func FuzzDecodeCensus(f *testing.F) {
	c := &census{
		spans: []span{{first: 3, n: 2, groups: []uint32{0, 4}}, {first: 9, n: 1}},
		cuts:  []groupCut{{group: 4, cut: cut{seq: 4, last: 70}}},
	}
	f.Add(c.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCensus(b)
		if err != nil {
			return
		}
		again, err := decodeCensus(c.append(nil))
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%+v is %+v when encoded and decoded, %v", c, again, err)
		}
	})
}
