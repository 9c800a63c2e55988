package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/raftlog/meta"
)

// TestPresence runs the transcripts in testdata/presence. Each line is a second: a letter per node n1, n2, … that is heard in it,
// a dot for one that is not; with * and a number it is so many seconds. Behind it stand the nodes' states, if they are not active.
// After each line it says what the nodes are good for, with ? for those that are away.
func TestPresence(t *testing.T) {
	datadriven.RunTest(t, "testdata/presence/presence.txt", func(t *testing.T, d *datadriven.TestData) string {
		var after int
		d.ScanArgs(t, "after", &after)
		p := newPresence(time.Duration(after) * time.Second)
		now := time.Unix(1000, 0)
		last := make(map[string]time.Time)
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			fields := strings.Fields(line)
			states := make(map[string]meta.MemberState)
			times := 1
			for _, f := range fields[1:] {
				if n, ok := strings.CutPrefix(f, "*"); ok {
					if _, err := fmt.Sscan(n, &times); err != nil {
						d.Fatalf(t, "%v", err)
					}
					continue
				}
				id, state, _ := strings.Cut(f, ":")
				for s := meta.MemberJoining; s <= meta.MemberGone; s++ {
					if s.String() == state {
						states[id] = s
					}
				}
			}
			var fits []string
			for range times {
				now = now.Add(time.Second)
				fits = fits[:0]
				for i, heard := range fields[0] {
					m := meta.Member{ID: fmt.Sprintf("n%d", i+1), State: meta.MemberActive}
					if s := states[m.ID]; s != 0 {
						m.State = s
					}
					if heard != '.' {
						last[m.ID] = now
					}
					p.look(now, m.ID, last[m.ID])
					fit := p.fit(now, &m).String()
					if p.isAway(now, m.ID) {
						fit += "?"
					}
					fits = append(fits, fit)
				}
			}
			fmt.Fprintf(&out, "%ds: %s\n", now.Unix()-1000, strings.Join(fits, ", "))
		}
		return out.String()
	})
}
