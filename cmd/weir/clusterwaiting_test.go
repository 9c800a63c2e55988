package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
)

// TestTheStatusOfANodeThatWaitsIsWhatItKnows asks one that answers as a node does while it waits for its group.
func TestTheStatusOfANodeThatWaitsIsWhatItKnows(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := api.NewRefuser(func() error {
		return dataflow.Errorf(dataflow.ReasonNodeNotReady, "node n1 does not serve yet: all at once").WithHint("start the others").
			WithMeta("node", "n1").WithMeta("doing", "it waits for its group").WithMeta("log-shard-0", "has no leader").WithMeta("log-meta", "has no leader").
			WithMeta("node-1", "node n2 answers").WithMeta("node-2", "node n3 does not answer: connection refused")
	})
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()
	for format, want := range map[string]string{
		"table": `node n1 does not serve yet: it waits for its group
  meta: has no leader
  shard-0: has no leader
  node n2 answers
  node n3 does not answer: connection refused
start the others
`,
		"json": `{"node":"n1","ready":false,"doing":"it waits for its group","logs":{"meta":"has no leader","shard-0":"has no leader"},` +
			`"nodes":["node n2 answers","node n3 does not answer: connection refused"],"hint":"start the others"}` + "\n",
	} {
		e, stdout, stderr, _ := testEnvironment(strings.NewReader(""))
		code := run(context.Background(), e, []string{"cluster", "status", "--addr", fmt.Sprint(l.Addr()), "-o", format})
		if stdout.String() != want || stderr.String() != "" || code != exitTryAgain {
			t.Errorf("%s: exit code %d\n%s\n%s", format, code, stdout, stderr)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Stop(ctx)
	if err := <-served; err != nil {
		t.Error(err)
	}
}
