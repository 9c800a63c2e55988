package gateway

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
)

var rewrite = flag.Bool("rewrite", false, "write docs/errors.md instead of comparing it")

const errorsDoc = "../../docs/errors.md"

// renderErrors writes the documentation of all reasons from the one table that they have.
func renderErrors() string {
	var b strings.Builder
	b.WriteString(`# Errors

Every error is a ` + "`google.rpc.Status`" + ` whose details hold one ` + "`ErrorInfo`" + ` with domain ` + "`weir`" + ` and a reason. Programs branch on the
reason; messages are for people and change. Where it helps there are also ` + "`BadRequest`" + ` (which fields, rows and columns), ` + "`RetryInfo`" + `
(when to try again; over HTTP also ` + "`Retry-After`" + `) and ` + "`ResourceInfo`" + `. An answer that a row is absent carries its cut: over gRPC as a
detail, over HTTP as the member ` + "`cut`" + `.

The command line exits with 1 when a request was refused, 2 for wrong usage, 3 when something was not found, 4 when trying again may
help.

Over HTTP a wrong content type is 415, an unknown path 404 and a wrong method 405, all with reason REQUEST_INVALID.

This page is generated from ` + "`dataflow/errors.go`" + `: ` + "`go test ./node/gateway -run TestErrorsDoc -rewrite`" + `.

| reason | gRPC | HTTP | what happened | what to do |
|---|---|---|---|---|
`)
	for _, r := range dataflow.Reasons() {
		c := wire.CodeOf(r.Kind)
		h := httpStatus(c)
		if r.Reason == dataflow.ReasonTooLarge {
			h = 413
		}
		_, _ = fmt.Fprintf(&b, "| `%s` | %s | %d | %s | %s |\n", r.Reason, c, h, r.Meaning, r.Remedy)
	}
	return b.String()
}

func TestErrorsDocIsCurrent(t *testing.T) {
	want := renderErrors()
	if *rewrite {
		if err := os.WriteFile(errorsDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(errorsDoc)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Fatal("docs/errors.md is not what dataflow/errors.go says: run go test ./node/gateway -run TestErrorsDoc -rewrite")
	}
}
