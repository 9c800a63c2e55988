package plan_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestAMistakeIsToldWithItsPlaceAndItsMending prints what a user is told for the commonest mistakes. "deploy" is a deploy
// file, "query" a query, which is also run: some mistakes are seen at a row only.
func TestAMistakeIsToldWithItsPlaceAndItsMending(t *testing.T) {
	ts := tables{}
	datadriven.RunTest(t, "testdata/mistakes.txt", func(t *testing.T, d *datadriven.TestData) string {
		var err error
		switch d.Cmd {
		case "table":
			ts[d.CmdArgs[0].Key] = parseTable(t, d)
			return ""
		case "deploy":
			_, err = build(d.Input)
		case "query":
			q, bad := bind(ts, d.Input)
			if err = bad; err == nil {
				_, _, err = run(q, ts, 1000, false)
			}
		default:
			t.Fatalf("unknown command %s", d.Cmd)
		}
		if err == nil {
			t.Fatalf("%s: accepted:\n%s", d.Pos, d.Input)
		}
		told := printError(err)
		if !strings.Contains(told, ": line ") || !strings.Contains(told, "    | ") {
			t.Errorf("%s: it does not say where:\n%s", d.Pos, told)
		}
		return told
	})
}
