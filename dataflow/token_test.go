package dataflow_test

import (
	"reflect"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

var group = dataflow.GroupID{1, 2, 3}

func TestTokensComeBackAsTheyWereGiven(t *testing.T) {
	tok := dataflow.Token{Group: group, Positions: dataflow.Positions{{Stream: 1, Shard: 0}: 17, {Stream: 900, Shard: 7}: 1 << 40}}
	got, err := dataflow.ParseToken(tok.String(), group)
	if err != nil || !reflect.DeepEqual(got, tok) {
		t.Fatalf("got %v, %v; want %v", got, err, tok)
	}
	st := dataflow.SessionToken{Group: group, Pipeline: 4, Timeline: 1, Checkpoint: 99}
	if got, err := dataflow.ParseSessionToken(st.String(), group); err != nil || got != st {
		t.Fatalf("got %v, %v; want %v", got, err, st)
	}
	pt := dataflow.PageToken{Group: group, Pipeline: 4, Timeline: 1, Checkpoint: 99, Lease: "abc", Request: 12345678901, After: []byte{0, 255}}
	if got, err := dataflow.ParsePageToken(pt.String(), group); err != nil || !reflect.DeepEqual(got, pt) {
		t.Fatalf("got %v, %v; want %v", got, err, pt)
	}
}

func TestTokenOfAnotherGroupIsForeign(t *testing.T) {
	tok := dataflow.Token{Group: dataflow.GroupID{9}}
	if _, err := dataflow.ParseToken(tok.String(), group); dataflow.ReasonOf(err) != dataflow.ReasonTokenForeign {
		t.Fatalf("got %v", err)
	}
}

func TestEveryDamagedTokenIsRefused(t *testing.T) {
	text := []byte(dataflow.Token{Group: group, Positions: dataflow.Positions{{Stream: 1}: 5}}.String())
	for i := range text {
		for _, c := range []byte("A0_-z=") {
			if text[i] == c {
				continue
			}
			bad := append([]byte(nil), text...)
			bad[i] = c
			// The unused bits of base64's last character carry nothing: a token that decodes to the same is not damaged.
			if got, err := dataflow.ParseToken(string(bad), group); err == nil && got.String() != string(text) {
				t.Fatalf("byte %d as %q was accepted", i, c)
			}
		}
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add(dataflow.Token{Group: group, Positions: dataflow.Positions{{Stream: 1}: 5}}.String())
	f.Add(dataflow.SessionToken{Group: group}.String())
	f.Add(dataflow.PageToken{Group: group, Lease: "x"}.String())
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if tok, err := dataflow.ParseToken(text, group); err == nil {
			if back, err := dataflow.ParseToken(tok.String(), group); err != nil || !reflect.DeepEqual(back, tok) {
				t.Fatalf("%q: %v, %v", text, back, err)
			}
		}
		_, _ = dataflow.ParseSessionToken(text, group)
		_, _ = dataflow.ParsePageToken(text, group)
	})
}

func TestAJoinedTokenCoversWhatBothCover(t *testing.T) {
	group := dataflow.GroupID{1}
	at := func(shard dataflow.ShardID) dataflow.StreamShard {
		return dataflow.StreamShard{Stream: 3, Shard: shard}
	}
	a := dataflow.Token{Group: group, Positions: dataflow.Positions{at(0): 5, at(1): 9}}.String()
	b := dataflow.Token{Group: group, Positions: dataflow.Positions{at(1): 4, at(2): 7}}.String()
	got, err := dataflow.JoinTokens(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if want := (dataflow.Token{Group: group, Positions: dataflow.Positions{at(0): 5, at(1): 9, at(2): 7}}).String(); got != want {
		t.Errorf("joined: %s, want %s", got, want)
	}
	for _, none := range [][2]string{{a, ""}, {"", a}} {
		if got, err := dataflow.JoinTokens(none[0], none[1]); err != nil || got != a {
			t.Errorf("joined with nothing: %s, %v", got, err)
		}
	}
	if _, err := dataflow.JoinTokens(a, dataflow.Token{Group: dataflow.GroupID{2}}.String()); dataflow.ReasonOf(err) != dataflow.ReasonTokenForeign {
		t.Errorf("of two groups: %v", err)
	}
	for _, bad := range [][2]string{{a, "t1"}, {"t1", a}} {
		if _, err := dataflow.JoinTokens(bad[0], bad[1]); dataflow.ReasonOf(err) != dataflow.ReasonTokenInvalid {
			t.Errorf("damaged: %v", err)
		}
	}
}
