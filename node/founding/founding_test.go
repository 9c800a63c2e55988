package founding_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/founding"
)

// TestScenarios runs the transcripts in testdata. Each case describes nodes, one per line, the first being the one that
// decides:
//
//	NAME data=D [expect=N] [join=a,b,c] [shards=N] [founding=n1:d1,n2:d2] [group=G in=n1:d1,n4:d4]
//
// and, after the word missing, addresses that do not answer.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var reports []founding.Report
			var missing []string
			for line := range strings.Lines(d.Input) {
				fields := strings.Fields(line)
				if fields[0] == "missing" {
					missing = fields[1:]
					continue
				}
				reports = append(reports, report(t, fields))
			}
			got, err := founding.Decide(reports[0], reports[1:], missing)
			if err != nil {
				return fmt.Sprintf("%s: %v\n", dataflow.ReasonOf(err), err)
			}
			switch got.Kind {
			case founding.Found, founding.Adopt:
				word := "found"
				if got.Kind == founding.Adopt {
					word = "adopt " + got.Founding.Group
				}
				for _, m := range got.Founding.Members {
					word += " " + m.Node + ":" + m.Data
				}
				return fmt.Sprintf("%s, %d shards\n", word, got.Founding.Shards)
			case founding.Join:
				return fmt.Sprintf("join %s, %d shards\n", got.Group, got.Shards)
			}
			return "wait: " + got.Why + "\n"
		})
	})
}

func report(t *testing.T, fields []string) founding.Report {
	r := founding.Report{Member: founding.Member{Node: fields[0], PeerAddr: fields[0] + ":7712"}, Join: []string{"n1:7712", "n2:7712", "n3:7712"}}
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(f, "=")
		num := func() int {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		switch k {
		case "data":
			r.Data = v
		case "expect":
			r.Expect = num()
		case "shards":
			r.Shards = num()
		case "join":
			r.Join = strings.Split(v, ",")
			slices.Sort(r.Join)
		case "founding":
			r.Founding = &founding.Founding{Group: "g", Shards: 8, Members: members(v)}
		case "group":
			r.Group, r.GroupShards = v, 8
		case "in":
			r.In = members(v)
		default:
			t.Fatalf("what is %q?", f)
		}
	}
	return r
}

func members(s string) []founding.Member {
	var out []founding.Member
	for m := range strings.SplitSeq(s, ",") {
		node, data, _ := strings.Cut(m, ":")
		out = append(out, founding.Member{Node: node, Data: data})
	}
	return out
}
