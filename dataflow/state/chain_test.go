package state

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
)

// TestChainScenarios runs the texts in testdata/chain against the state machine of one pipeline. Commands, one per line
// of the input, answer with an error or nothing; the state follows.
//
//	delta 1.2           a complete delta, with the digest 102 + 1000 × incarnation of its number
//	chunk 1.2           the first chunk of a delta that does not end
//	begin 2 from 1.1    an incarnation
//	publish 5 = 1.2     a cut, with that delta's digest; "digest 7" sets another
//	retain 3 5          the retained cuts
//	merge 5             the store takes the state at the cut
//	fold                merges layers until there is nothing to merge
func TestChainScenarios(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/chain", func(t *testing.T, path string) {
		c := newChain(Base{}, false)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "restart" {
				c = newChain(c.base, c.based)
			}
			var out strings.Builder
			for _, line := range strings.Split(d.Input, "\n") {
				if f := strings.Fields(line); len(f) > 0 {
					if err := chainCommand(t, c, f); err != nil {
						fmt.Fprintf(&out, "%s: %v\n", line, err)
					}
				}
			}
			c.refresh()
			return out.String() + describe(c)
		})
	})
}

func chainCommand(t *testing.T, c *chain, f []string) error {
	switch f[0] {
	case "delta":
		r := parseRef(t, f[1])
		if c.wants(r) {
			c.staging[r] = &staging{digest: dataflow.DeltaDigest(testDigest(r))}
		}
		return endDelta(c, r, 0, testDigest(r))
	case "chunk":
		chunks, _ := encodeDelta(t, []change{{0, "k", []byte("v")}})
		return addChunk(c, parseRef(t, f[1]), 0, chunks[0])
	case "begin":
		return c.begin(dataflow.Incarnation(number(t, f[1])), parseRef(t, f[3]))
	case "publish":
		k := &cut{id: dataflow.CheckpointID(number(t, f[1])), named: parseRef(t, f[3])}
		if k.named.Seq != 0 {
			k.digest = testDigest(k.named)
		}
		if len(f) > 4 {
			k.digest = number(t, f[5])
		}
		c.publish(k)
	case "retain":
		var keep []dataflow.CheckpointID
		for _, s := range f[1:] {
			keep = append(keep, dataflow.CheckpointID(number(t, s)))
		}
		c.retain(keep)
	case "merge":
		k := c.lookup(dataflow.CheckpointID(number(t, f[1])))
		if k == nil || k.status != cutReady {
			return fmt.Errorf("not readable")
		}
		base := Base{Checkpoint: k.id, Ref: k.at, Digest: c.base.Digest}
		if d := c.find(k.at); d != nil {
			base.Digest = d.digest
		}
		c.expireBelow(k.id)
		c.merged(base)
	case "fold":
		for some := slices.Clone(c.pickFold()); some != nil; some = slices.Clone(c.pickFold()) {
			c.replace(some, fold(some))
		}
	default:
		t.Fatalf("unknown command %q", f[0])
	}
	c.refresh()
	return nil
}

// addChunk and endDelta do what the replica does, in one step.
func addChunk(c *chain, r dataflow.DeltaRef, chunk int, data []byte) error {
	s, err := c.stage(r, chunk)
	if err != nil || s == nil {
		return err
	}
	return s.add(data)
}

func endDelta(c *chain, r dataflow.DeltaRef, chunks int, digest uint64) error {
	s, err := c.endStaging(r, chunks, digest)
	if err != nil || s == nil {
		return err
	}
	l, err := s.layer.finish(r, r)
	if err != nil {
		return err
	}
	c.endDelta(r, digest, l)
	return nil
}

func testDigest(r dataflow.DeltaRef) uint64 { return uint64(r.Seq) + 100 + 1000*uint64(r.Incarnation) }

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseRef(t *testing.T, s string) dataflow.DeltaRef {
	t.Helper()
	i, seq, ok := strings.Cut(s, ".")
	if !ok {
		t.Fatalf("%q is not incarnation.seq", s)
	}
	return ref(dataflow.Incarnation(number(t, i)), dataflow.DeltaSeq(number(t, seq)))
}

func describe(c *chain) string {
	var b strings.Builder
	fmt.Fprintf(&b, "incarnation %d, base %s, layers", c.min, c.base)
	for _, l := range c.layers {
		if l.first == l.last {
			fmt.Fprintf(&b, " %s", l.first)
		} else {
			fmt.Fprintf(&b, " %s–%s", l.first, l.last)
		}
	}
	if len(c.staging) > 0 {
		fmt.Fprintf(&b, ", %d arriving", len(c.staging))
	}
	for _, k := range c.cuts {
		fmt.Fprintf(&b, "\ncut %d %s", k.id, [...]string{"waits", "ready", "corrupt", "expired"}[k.status])
		if k.status == cutReady {
			fmt.Fprintf(&b, " at %s", k.at)
		}
	}
	return b.String() + "\n"
}
