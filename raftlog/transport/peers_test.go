package transport_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/internal/peernet/peernettest"
	"github.com/weirdb/weir/raftlog/transport"
)

// member is one side of a group over a network in memory.
type member struct {
	net   *peernet.Net
	peers *transport.Peers
}

var header = func(node string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte(node), Addr: []byte(node)}
}

// join opens a member whose address is its name. answer stands in for its Raft.
func join(t *testing.T, w *peernettest.Network, name string, answer func(raft.RPC)) *member {
	t.Helper()
	n, err := peernet.Open(peernet.Config{Self: peernet.Identity{Node: name, Data: "d-" + name}, Network: w.Host(name),
		Resolve: func(node string) (string, bool) { return node + ":1", true }})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Listen(name + ":1"); err != nil {
		t.Fatal(err)
	}
	p, err := transport.Over(n, "shard-1")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case rpc := <-p.Consumer():
				answer(rpc)
			case <-stop:
				return
			}
		}
	})
	m := &member{net: n, peers: p}
	t.Cleanup(func() {
		close(stop)
		m.close(t)
		wg.Wait()
	})
	return m
}

func (m *member) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(m.peers.Close(), m.net.Close()); err != nil {
		t.Error(err)
	}
}

// appendAll answers every AppendEntries, and remembers the entries' bytes.
type appendAll struct {
	mu   sync.Mutex
	got  []string
	sent int
}

func (a *appendAll) answer(rpc raft.RPC) {
	r := rpc.Command.(*raft.AppendEntriesRequest)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent++
	ok := true
	for i, e := range r.Entries {
		ok = ok && e.Index == r.PrevLogEntry+uint64(i)+1
		a.got = append(a.got, string(e.Data))
	}
	rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: header("n2"), Term: r.Term, Success: ok}, nil)
}

func noAnswer(raft.RPC) {}

func entries(from, to int, size int) []*raft.Log {
	var out []*raft.Log
	for i := from; i <= to; i++ {
		out = append(out, &raft.Log{Index: uint64(i), Term: 2, Data: bytes.Repeat([]byte{byte('a' + i%26)}, size)})
	}
	return out
}

func TestAPipelineDeliversInOrderAndInRequestsWithinTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := peernettest.New()
		var there appendAll
		a := join(t, w, "n1", noAnswer)
		join(t, w, "n2", there.answer)
		w.Delay("n1", "n2", 5*time.Millisecond)
		p, err := a.peers.AppendEntriesPipeline("n2", "")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 4 {
				f := <-p.Consumer()
				if err := f.Error(); err != nil || !f.Response().Success {
					t.Errorf("%v, %+v", err, f.Response())
				}
			}
		})
		for next := 1; next <= 200; next += 50 {
			req := &raft.AppendEntriesRequest{RPCHeader: header("n1"), Term: 2, PrevLogEntry: uint64(next - 1), PrevLogTerm: 2, Entries: entries(next, next+49, 200<<10)}
			if _, err := p.AppendEntries(req, new(raft.AppendEntriesResponse)); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		want := entries(1, 200, 200<<10)
		if len(there.got) != len(want) || there.sent != 20 {
			t.Fatalf("%d entries in %d requests arrived, want 200 in 20", len(there.got), there.sent)
		}
		for i, e := range want {
			if there.got[i] != string(e.Data) {
				t.Fatalf("entry %d is another", i+1)
			}
		}
		if got := a.peers.PeerProgress("n2"); got.Match != 200 || got.Term != 2 || got.LastContact.IsZero() {
			t.Errorf("the member is at %+v", got)
		}
	})
}

func TestAConnectionThatDiedWhileItWaitedCostsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := peernettest.New()
		grant := func(rpc raft.RPC) {
			rpc.Respond(&raft.RequestVoteResponse{RPCHeader: header("n2"), Term: 5, Granted: true}, nil)
		}
		a := join(t, w, "n1", noAnswer)
		b := join(t, w, "n2", grant)
		vote := func() error {
			var resp raft.RequestVoteResponse
			err := a.peers.RequestVote("n2", "", &raft.RequestVoteRequest{RPCHeader: header("n1"), Term: 5}, &resp)
			if err == nil && (!resp.Granted || resp.Term != 5) {
				t.Errorf("got %+v", resp)
			}
			return err
		}
		if err := vote(); err != nil {
			t.Fatal(err)
		}
		b.close(t)
		if err := vote(); err == nil {
			t.Error("nobody voted")
		}
		join(t, w, "n2", grant)
		if err := vote(); err != nil {
			t.Fatal(err)
		}
		w.Reset("n1", "n2")
		if err := vote(); err != nil {
			t.Errorf("after a reset: %v", err)
		}
	})
}

func TestCallsEndWhenTheOtherSideIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := peernettest.New()
		a := join(t, w, "n1", noAnswer)
		join(t, w, "n2", noAnswer)
		for _, partitioned := range []bool{false, true} {
			if partitioned {
				w.Partition("n1", "n2")
			}
			start := time.Now()
			err := a.peers.RequestPreVote("n2", "", &raft.RequestPreVoteRequest{RPCHeader: header("n1")}, &raft.RequestPreVoteResponse{})
			if err == nil || time.Since(start) != 3*time.Second {
				t.Errorf("partitioned %v: %v after %v", partitioned, err, time.Since(start))
			}
		}
		w.Heal()
		// Close ends one that is under way.
		start, ended := time.Now(), make(chan error)
		go func() {
			ended <- a.peers.TimeoutNow("n2", "", &raft.TimeoutNowRequest{RPCHeader: header("n1")}, &raft.TimeoutNowResponse{})
		}()
		synctest.Wait()
		if err := a.peers.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestNobodySpeaksForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := peernettest.New()
		a := join(t, w, "n1", noAnswer)
		join(t, w, "n2", func(rpc raft.RPC) { t.Errorf("heard %+v", rpc.Command) })
		if err := a.peers.RequestVote("n2", "", &raft.RequestVoteRequest{RPCHeader: header("n3"), Term: 5}, &raft.RequestVoteResponse{}); err == nil {
			t.Error("n1 asked for n3's vote")
		}
	})
}

// installing receives a snapshot, slowly.
type installing struct {
	got  []byte
	err  error
	work time.Duration
}

func (i *installing) answer(rpc raft.RPC) {
	i.got, i.err = io.ReadAll(rpc.Reader)
	<-time.After(i.work)
	rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: header("n2"), Term: 2, Success: i.err == nil}, nil)
}

func TestASnapshotArrivesWholeHoweverLongItIsWorkedOn(t *testing.T) {
	for _, size := range []int{0, 1, 64 << 10, 3<<20 + 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := peernettest.New()
				there := installing{work: 3 * time.Minute}
				a := join(t, w, "n1", noAnswer)
				join(t, w, "n2", there.answer)
				want := make([]byte, size)
				_, _ = rand.Read(want)
				req := &raft.InstallSnapshotRequest{RPCHeader: header("n1"), Term: 2, LastLogIndex: 77, Size: int64(size)}
				var resp raft.InstallSnapshotResponse
				if err := a.peers.InstallSnapshot("n2", "", req, &resp, bytes.NewReader(want)); err != nil || !resp.Success {
					t.Fatalf("%v, %+v", err, resp)
				}
				if there.err != nil || !bytes.Equal(there.got, want) {
					t.Errorf("%d bytes arrived of %d, %v", len(there.got), size, there.err)
				}
				if got := a.peers.PeerProgress("n2"); got.Match != 77 {
					t.Errorf("the member is at %+v", got)
				}
			})
		})
	}
}

// halfReader ends with an error in the middle.
type halfReader struct{ left int }

var errDisk = errors.New("disk")

func (r *halfReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errDisk
	}
	n := min(len(p), r.left)
	r.left -= n
	return n, nil
}

func TestASnapshotThatEndsTooEarlyIsNotTakenForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := peernettest.New()
		var there installing
		a := join(t, w, "n1", noAnswer)
		b := join(t, w, "n2", there.answer)
		req := &raft.InstallSnapshotRequest{RPCHeader: header("n1"), Size: 1 << 20}
		err := a.peers.InstallSnapshot("n2", "", req, &raft.InstallSnapshotResponse{}, &halfReader{left: 500 << 10})
		if !errors.Is(err, errDisk) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if !errors.Is(there.err, io.ErrUnexpectedEOF) {
			t.Errorf("the receiver sees %v", there.err)
		}
		// The link is cut in the middle.
		w.Cut("n1", "n2")
		err = a.peers.InstallSnapshot("n2", "", req, &raft.InstallSnapshotResponse{}, &halfReader{left: 1 << 20})
		if err == nil {
			t.Error("no error")
		}
		w.Heal()
		b.close(t)
	})
}
