package plan_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
)

func seeds(f *testing.F, name string) {
	data, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	for block := range strings.SplitSeq(string(data), "\n\n") {
		if _, rest, ok := strings.Cut(block, "\n"); ok {
			text, _, _ := strings.Cut(rest, "----")
			f.Add(text)
		}
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		f.Add(line)
	}
}

func requireTyped(t *testing.T, err error) {
	var e *dataflow.Error
	if !errors.As(err, &e) || e.Reason == dataflow.ReasonInternal {
		t.Fatalf("not an error for users: %v", err)
	}
	if e.Metadata["line"] == "" {
		t.Fatalf("no place: %v", err)
	}
}

// FuzzBuild requires a well-formed plan or a typed error with a place for any file that parses.
func FuzzBuild(f *testing.F) {
	seeds(f, "testdata/views/plans")
	seeds(f, "testdata/views/refused")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := sql.Parse(text)
		if err != nil {
			return
		}
		p, err := plan.Build(file, existing)
		if err != nil {
			requireTyped(t, err)
			return
		}
		checkPlan(t, p)
		again, err := plan.Build(file, existing)
		if err != nil || plan.Fingerprint(p) != plan.Fingerprint(again) || len(plan.Diff(p, again)) > 0 {
			t.Fatalf("planning the same file again differs: %v", err)
		}
	})
}

// FuzzQuery requires the same of queries, and that rows outside the access do not matter.
func FuzzQuery(f *testing.F) {
	data, err := os.ReadFile("testdata/queries/queries")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		f.Add(strings.NewReplacer("wc.counts", "p.t", "sales.by_day", "p.t", "word", "k1", "country", "k1", "day", "k2", "paid", "k3", "total", "v").Replace(line))
	}
	joins, err := os.ReadFile("testdata/queries/joins")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.SplitSeq(string(joins), "\n") {
		f.Add(strings.NewReplacer("shop.orders", "p.t", "shop.customers", "p.t", "shop.cities", "p.t", "customer", "k1", "city", "k1", "country", "k1", "id", "k2", "amount", "v").Replace(line))
	}
	tb := randomTable(rand.New(rand.NewPCG(1, 2)), 50)
	ts := tables{"p.t": tb}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := bind(ts, text)
		if err != nil {
			requireTyped(t, err)
			return
		}
		for _, sc := range q.Scans {
			checkAccess(t, sc.Access)
		}
		all, _, err := run(q, ts, 7, true)
		if err != nil {
			var e *dataflow.Error
			if !errors.As(err, &e) || e.Reason == dataflow.ReasonInternal {
				t.Fatalf("not an error for users: %v", err)
			}
			return
		}
		if len(q.Scans) > 1 {
			return // the order of joined rows is nobody's promise, so that a LIMIT may give others
		}
		some, _, err := run(q, ts, 7, false)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := printRows(all), printRows(some); a != b {
			t.Fatalf("over all rows:\n%s\nover the rows of the access (%s):\n%s", a, q.Scans[0].Access.Text, b)
		}
	})
}
