package jsonb_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow/jsonb"
)

const limit = 1 << 20

func TestTheNormalFormIsNormal(t *testing.T) {
	for _, text := range []string{
		`{"b":1,"a":[1.50,{"z":null,"y":"\u0041\n"}],"b":2}`, `[]`, `{}`, `"x"`, `-0`, `1e3`, `[1.5e-3,0.00]`, `{"aa":1,"b":2,"\u0062":3}`,
	} {
		once, err := jsonb.Append(nil, []byte(text), limit)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		twice, err := jsonb.Append(nil, once, limit)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s: %s, again %s, %v", text, once, twice, err)
		}
	}
}

func TestWhatFailsLeavesNothingBehind(t *testing.T) {
	dst := []byte("before")
	for _, text := range []string{`{"a":[1,2,`, `[1e200000]`, strings.Repeat("[", jsonb.MaxDepth+2), "\"\xff\"", `"` + strings.Repeat("x", 100) + `"`} {
		got, err := jsonb.Append(dst, []byte(text), 50)
		if err == nil || string(got) != "before" {
			t.Errorf("%.20q: %q, %v", text, got, err)
		}
	}
}

func TestAShortNumberCannotStandForALongOne(t *testing.T) {
	if _, err := jsonb.Append(nil, []byte("[1e100000,1e100000]"), 150000); !errors.Is(err, jsonb.ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
}

// FuzzAppend compares with encoding/json about what is JSON, and holds the rules of the normal form.
func FuzzAppend(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[true,null,-1.5e-3],"b":"\ud83d\ude00"}`, `[[[]]]`, `"\\"`, `{"":{"":{}}}`, "[1 ,2]", `0.10`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := jsonb.Append(nil, text, limit)
		if err != nil {
			return
		}
		if !json.Valid(text) || !json.Valid(v) {
			t.Fatalf("%q gave %q", text, v)
		}
		again, err := jsonb.Append(nil, v, limit)
		if err != nil || !bytes.Equal(v, again) {
			t.Fatalf("%q normal %q again %q, %v", text, v, again, err)
		}
		if !jsonb.Equal(v, v) || !jsonb.Contains(v, v) {
			t.Fatalf("%q is not equal to itself", v)
		}
		n := 0
		for k, x := range jsonb.Members(v) {
			n++
			if y, ok := jsonb.Field(v, jsonb.Key(k)); !ok || !bytes.Equal(x, y) {
				t.Fatalf("%q: member %q is not found", v, k)
			}
		}
		for x := range jsonb.Elements(v) {
			if y, ok := jsonb.At(v, int64(n)); !ok || !bytes.Equal(x, y) {
				t.Fatalf("%q: element %d is not found", v, n)
			}
			n++
		}
	})
}

// FuzzBroken gives the readers bytes that are no value: they may say anything, but they end.
func FuzzBroken(f *testing.F) {
	f.Add([]byte(`{"a": [1, "`), []byte(`[1`))
	f.Add([]byte(`[,,]`), []byte(`{"a" 1}`))
	f.Fuzz(func(_ *testing.T, a, b []byte) {
		jsonb.Equal(a, b)
		jsonb.Contains(a, b)
		jsonb.Has(a, b)
		jsonb.Step(a, b)
		jsonb.At(a, -1)
		jsonb.Text(a)
		jsonb.Concat(nil, a, b)
		jsonb.StripNulls(nil, a)
		jsonb.Without(nil, a, func([]byte) bool { return true })
		jsonb.WithoutAt(nil, a, 0)
	})
}

func BenchmarkField(b *testing.B) {
	v, _ := jsonb.Append(nil, []byte(`{"user":"u17","action":"click","at":"2026-11-29T10:00:00Z","props":{"page":"/home","ms":12.5,"tags":["a","b"]}}`), limit)
	b.SetBytes(int64(len(v)))
	b.ReportAllocs()
	for b.Loop() {
		jsonb.Field(v, []byte("user"))
	}
}

func BenchmarkAppend(b *testing.B) {
	text := []byte(`{"user":"u17","action":"click","at":"2026-11-29T10:00:00Z","props":{"page":"/home","ms":12.5,"tags":["a","b"]}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf, _ = jsonb.Append(buf[:0], text, limit)
	}
}
