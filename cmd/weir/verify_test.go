package main

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// verifyOutcome runs weir cluster verify against a node.
func verifyOutcome(t *testing.T, n *nodetest.Node, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	e, out, errs, _ := testEnvironment(strings.NewReader(""))
	code = run(context.Background(), e, append([]string{"cluster", "verify", "--discover=false", "--addr", n.GRPCAddr()}, args...))
	return code, out.String(), errs.String()
}

// With a node down, the copies of the others were said to differ.
func TestVerifyTellsCopiesThatDifferFromNodesThatDoNotAnswer(t *testing.T) {
	g := nodetest.OpenGroup(t, 3, nodetest.Options{})
	n := g.Node(1)
	n.Deploy("wc", "SET checkpoint.interval = 'off';\nCREATE STREAM words (word TEXT);\nCREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n FROM words GROUP BY word;")
	n.Append("words", `{"word":"a"}`, `{"word":"b"}`, `{"word":"c"}`)
	n.Checkpoint("wc")

	code, stdout, stderr := verifyOutcome(t, n)
	if code != exitOK || stderr != "" || len(regexp.MustCompile(`(?m)^wc +\d+ +\d+ +true +n\d +\d+ +[0-9a-f]{16}$`).FindAllString(stdout, -1)) != 6 {
		t.Errorf("all are there: exit code %d: %s\n%s", code, stderr, stdout)
	}

	g.Stop(3)
	code, stdout, stderr = verifyOutcome(t, n)
	if code != exitTryAgain || !regexp.MustCompile(`^error: NODE_UNREACHABLE: the copies that answered are equal; not compared: node n3: it does not answer: `).MatchString(stderr) {
		t.Errorf("n3 is down: exit code %d: %s", code, stderr)
	}
	for line, want := range map[string]int{`n[12] +\d+ +[0-9a-f]{16}`: 4, `n3 +NODE_UNREACHABLE`: 2} {
		if got := len(regexp.MustCompile(`(?m)^wc +\d+ +\d+ +true, 2 of 3 +`+line+`$`).FindAllString(stdout, -1)); got != want {
			t.Errorf("n3 is down: %d lines of %d match %s:\n%s", got, want, line, stdout)
		}
	}

	code, stdout, _ = verifyOutcome(t, n, "-o", "json")
	var all struct {
		Verified []struct {
			Equal, Complete bool
			Replicas        []struct{ Node, Reason, Problem string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &all); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if code != exitTryAgain || len(all.Verified) != 2 {
		t.Errorf("n3 is down: exit code %d: %s", code, stdout)
	}
	for _, v := range all.Verified {
		if !v.Equal || v.Complete || len(v.Replicas) != 3 {
			t.Errorf("n3 is down: %+v", v)
		}
		for _, r := range v.Replicas {
			if (r.Node == "n3") != (r.Reason == "NODE_UNREACHABLE") || (r.Reason == "") != (r.Problem == "") {
				t.Errorf("n3 is down: %+v", r)
			}
		}
	}
}

func TestCopiesThatDifferWeighMoreThanNodesThatDoNotAnswer(t *testing.T) {
	held := &weirv1.Replica{Node: "n1", Digest: 1}
	other := &weirv1.Replica{Node: "n2", Digest: 2}
	down := &weirv1.Replica{Node: "n3", Reason: "NODE_UNREACHABLE", Problem: "it does not answer: refused"}
	damaged := &weirv1.Replica{Node: "n2", Reason: "CORRUPT", Problem: "block 3"}
	for _, c := range []struct {
		equal    bool
		replicas []*weirv1.Replica
		column   string
		code     int
		says     string
	}{
		{true, []*weirv1.Replica{held, held, held}, "true", exitOK, ""},
		{false, []*weirv1.Replica{held, held, other}, "false", exitRefused, "copies differ in 1 of 1 comparisons: p on shard 7"},
		{false, []*weirv1.Replica{held, other, down}, "false, 2 of 3", exitRefused, "copies differ in 1 of 1 comparisons: p on shard 7; not compared: node n3: it does not answer: refused"},
		{true, []*weirv1.Replica{held, held, down}, "true, 2 of 3", exitTryAgain, "the copies that answered are equal; not compared: node n3: it does not answer: refused"},
		{true, []*weirv1.Replica{held, damaged, down}, "true, 1 of 3", exitRefused, "the copies that answered are equal; not compared: node n2: block 3; node n3: it does not answer: refused"},
		{true, []*weirv1.Replica{held}, "one copy", exitOK, ""},
		{false, []*weirv1.Replica{down}, "none of 1 answers", exitTryAgain, "no copy was compared: node n3: it does not answer: refused"},
	} {
		v := &weirv1.Verified{Pipeline: "p", Shard: 7, Equal: c.equal, Replicas: c.replicas}
		err := unverified([]*weirv1.Verified{v})
		message := ""
		var e *dataflow.Error
		if errors.As(err, &e) {
			message = e.Message
		}
		if got := equalText(v); got != c.column || exitCode(err) != c.code || message != c.says {
			t.Errorf("%s, exit code %d, %q; want %s, %d, %q", got, exitCode(err), message, c.column, c.code, c.says)
		}
	}
}
