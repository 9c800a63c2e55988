package checkpoint_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/checkpoint"
)

// TestAlignerScenarios runs the transcripts in testdata/aligner_*. Commands:
//
//	edges N             a new aligner over N edges
//	message EDGE TEXT   a message comes by an edge
//	barrier EDGE N      a barrier comes by an edge
//	resume              the snapshot is taken and the barrier passed on
func TestAlignerScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/aligner", func(t *testing.T, path string) {
		var a *checkpoint.Aligner[string]
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var acts checkpoint.Actions[string]
			var err error
			var edge int
			switch d.Cmd {
			case "edges":
				var n int
				fmt.Sscan(d.CmdArgs[0].Key, &n)
				a = checkpoint.NewAligner[string](n)
				return "ok\n"
			case "message":
				fmt.Sscan(d.CmdArgs[0].Key, &edge)
				acts = a.Message(edge, d.CmdArgs[1].Key)
			case "barrier":
				var n uint64
				fmt.Sscan(d.CmdArgs[0].Key, &edge)
				fmt.Sscan(d.CmdArgs[1].Key, &n)
				acts, err = a.Barrier(edge, dataflow.CheckpointID(n))
			case "resume":
				acts, err = a.Resume()
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return describe(a, acts, err)
		})
	})
}

func describe(a *checkpoint.Aligner[string], acts checkpoint.Actions[string], err error) string {
	var b strings.Builder
	for _, m := range acts.Deliver {
		fmt.Fprintf(&b, "deliver %s from edge %d\n", m.Msg, m.Edge)
	}
	if acts.Aligned != 0 {
		fmt.Fprintf(&b, "aligned %d: take the snapshot\n", acts.Aligned)
	}
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	if n, missing := a.Aligning(); n != 0 && acts.Aligned == 0 {
		fmt.Fprintf(&b, "aligning %d, waiting for edges %v\n", n, missing)
	}
	if b.Len() == 0 {
		return "held\n"
	}
	return b.String()
}

// TestEverySnapshotHoldsExactlyWhatPrecedesTheBarrier feeds random interleavings and compares with the definition: when
// n is aligned, what has been delivered is, per edge, exactly what was sent before barrier n.
func TestEverySnapshotHoldsExactlyWhatPrecedesTheBarrier(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		edges := 1 + rng.IntN(4)
		a := checkpoint.NewAligner[int](edges)
		sent := make([]int, edges)      // messages sent by edge
		barriers := make([]int, edges)  // barriers sent by edge
		before := make([][]int, edges)  // before[e][n] = messages sent before barrier n+1
		delivered := make([]int, edges) // messages delivered by edge
		const last = 5
		handle := func(acts checkpoint.Actions[int], err error) {
			for {
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				for _, d := range acts.Deliver {
					if d.Msg != delivered[d.Edge] {
						t.Fatalf("seed %d: edge %d delivered %d, want %d", seed, d.Edge, d.Msg, delivered[d.Edge])
					}
					delivered[d.Edge]++
				}
				if acts.Aligned == 0 {
					return
				}
				for e := range edges {
					if want := before[e][acts.Aligned-1]; delivered[e] != want {
						t.Fatalf("seed %d: barrier %d: edge %d has delivered %d, want %d", seed, acts.Aligned, e, delivered[e], want)
					}
				}
				acts, err = a.Resume()
			}
		}
		for {
			e := rng.IntN(edges)
			done := true
			for _, n := range barriers {
				done = done && n == last
			}
			if done {
				break
			}
			if barriers[e] < last && rng.IntN(3) == 0 {
				before[e] = append(before[e], sent[e])
				barriers[e]++
				handle(a.Barrier(e, dataflow.CheckpointID(barriers[e])))
			} else {
				sent[e]++
				handle(a.Message(e, sent[e]-1), nil)
			}
		}
		for e := range edges {
			if delivered[e] != sent[e] {
				t.Fatalf("seed %d: edge %d: %d of %d messages delivered in the end", seed, e, delivered[e], sent[e])
			}
		}
	}
}
