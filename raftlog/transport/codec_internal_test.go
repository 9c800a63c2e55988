package transport

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

var testHeader = raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n1"), Addr: []byte("n1")}

func requests() []any {
	return []any{
		&raft.AppendEntriesRequest{RPCHeader: testHeader, Term: 7, Entries: []*raft.Log{}},
		&raft.AppendEntriesRequest{RPCHeader: testHeader, Term: 7, PrevLogEntry: 8, PrevLogTerm: 6, LeaderCommitIndex: 1 << 40, Entries: []*raft.Log{
			{Index: 9, Term: 6, Type: raft.LogNoop},
			{Index: 10, Term: 7, Type: raft.LogCommand, Data: bytes.Repeat([]byte("large"), gatherFrom), AppendedAt: time.Unix(1, 2)},
			{Index: 11, Term: 7, Type: raft.LogConfiguration, Data: []byte("small"), Extensions: []byte("ext")},
			{Index: 12, Term: 7, Type: raft.LogCommand, Data: bytes.Repeat([]byte("x"), gatherFrom)},
		}},
		&raft.RequestVoteRequest{RPCHeader: testHeader, Term: 3, LastLogIndex: 4, LastLogTerm: 2, LeadershipTransfer: true},
		&raft.RequestPreVoteRequest{RPCHeader: testHeader, Term: 3, LastLogIndex: 4, LastLogTerm: 2},
		&ConsentRequest{raft.RequestPreVoteRequest{RPCHeader: testHeader, Term: 3, LastLogIndex: 4, LastLogTerm: 2}},
		&raft.TimeoutNowRequest{RPCHeader: testHeader},
		&raft.InstallSnapshotRequest{RPCHeader: testHeader, Leader: []byte("n1"), SnapshotVersion: 1, Term: 3, LastLogIndex: 4, LastLogTerm: 2,
			Configuration: []byte("conf"), ConfigurationIndex: 1, Size: 1 << 33},
	}
}

// encode returns a request as it goes over the connection.
func encode(t testing.TB, req any) []byte {
	t.Helper()
	b, large, err := appendRequest(make([]byte, 4), req)
	if err != nil {
		t.Fatal(err)
	}
	bufs, err := gather(nil, b, large)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Join(bufs, nil)
}

func TestRequestsArriveAsTheyWere(t *testing.T) {
	for _, want := range requests() {
		r := bytes.NewReader(encode(t, want))
		n, k, err := readHead(r)
		if err != nil || n != r.Len() {
			t.Fatalf("%T: a body of %d bytes for %d, %v", want, r.Len(), n, err)
		}
		body, _ := io.ReadAll(r)
		got, err := decodeRequest(k, body)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%T became %+v, %v", want, got, err)
		}
		for i := range body {
			if _, err := decodeRequest(k, body[:i:i]); err == nil && i < len(body) {
				t.Fatalf("%T: %d of %d bytes are a request", want, i, len(body))
			}
		}
		if _, err := decodeRequest(k, append(body, 0)); err == nil {
			t.Errorf("%T: a byte too much is a request", want)
		}
	}
}

func TestAnswersArriveAsTheyWere(t *testing.T) {
	for _, want := range []any{
		&raft.AppendEntriesResponse{RPCHeader: testHeader, Term: 1, LastLog: 2, Success: true},
		&raft.AppendEntriesResponse{RPCHeader: testHeader, Term: 1, LastLog: 2, NoRetryBackoff: true},
		&raft.RequestVoteResponse{RPCHeader: testHeader, Term: 1, Granted: true},
		&raft.RequestPreVoteResponse{RPCHeader: testHeader, Term: 1, Granted: true},
		&raft.InstallSnapshotResponse{RPCHeader: testHeader, Term: 1, Success: true},
		&raft.TimeoutNowResponse{RPCHeader: testHeader},
	} {
		b, err := appendAnswer(nil, want, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := decodeAnswer(kind(b[0]), b[1:], got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
		if b, err = appendAnswer(nil, want, errors.New("no")); err != nil {
			t.Fatal(err)
		}
		var remote remoteError
		if err := decodeAnswer(kind(b[0]), b[1:], got); !errors.As(err, &remote) || err.Error() != "no" {
			t.Errorf("an error became %v", err)
		}
	}
}

// FuzzDecode reads anything as a request and as an answer. What is read must encode to something that reads as the same.
func FuzzDecode(f *testing.F) {
	for _, r := range requests() {
		f.Add(encode(f, r)[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		k := kind(b[0])
		for _, resp := range []any{&raft.AppendEntriesResponse{}, &raft.RequestVoteResponse{}, &raft.InstallSnapshotResponse{}} {
			_ = decodeAnswer(k, b[1:], resp) // must not panic
		}
		req, err := decodeRequest(k, b[1:])
		if err != nil {
			return
		}
		out := encode(t, req)
		again, err := decodeRequest(kind(out[4]), out[5:])
		if err != nil || !reflect.DeepEqual(again, req) {
			t.Fatalf("%+v became %+v, %v", req, again, err)
		}
	})
}

func TestRequestsAreCutToTheLimit(t *testing.T) {
	r := &raft.AppendEntriesRequest{}
	for i := range 5 {
		r.Entries = append(r.Entries, &raft.Log{Index: uint64(i), Data: make([]byte, maxRequestBytes/2)})
	}
	limit(r)
	if len(r.Entries) != 2 {
		t.Errorf("%d entries are left", len(r.Entries))
	}
	r.Entries[0].Data = make([]byte, 2*maxRequestBytes)
	limit(r)
	if len(r.Entries) != 1 {
		t.Errorf("%d entries are left", len(r.Entries))
	}
	limit(r)
	if len(r.Entries) != 1 {
		t.Error("nothing is left")
	}
}
