package link

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
)

// TestFence runs the scenarios of testdata/fence. A line is start, end or hello with a pipeline and an incarnation.
func TestFence(t *testing.T) {
	datadriven.Walk(t, "testdata/fence", func(t *testing.T, path string) {
		f := fence{pipelines: make(map[dataflow.PipelineUID]*history)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				var verb string
				var uid dataflow.PipelineUID
				var inc dataflow.Incarnation
				if _, err := fmt.Sscan(line, &verb, &uid, &inc); err != nil {
					d.Fatalf(t, "%q: %v", line, err)
				}
				fmt.Fprintf(&out, "%s: ", strings.TrimSpace(line))
				overtaken := dataflow.Incarnation(0)
				switch verb {
				case "start":
					var ok bool
					if ok, overtaken = f.start(uid, inc); ok {
						out.WriteString("runs")
					} else {
						out.WriteString("refused")
					}
				case "end":
					f.end(uid, inc)
					out.WriteString("ended")
				case "hello":
					var v verdict
					v, overtaken = f.hello(uid, inc)
					out.WriteString(v.String())
				default:
					d.Fatalf(t, "what is %q?", verb)
				}
				if overtaken != 0 {
					fmt.Fprintf(&out, ", ends %d", overtaken)
				}
				fmt.Fprintf(&out, " (%s)\n", f.of(uid))
			}
			return out.String()
		})
	})
}
