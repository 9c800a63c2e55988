package demo

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// frame is what is shown at a moment.
type frame struct {
	truth                 map[string]uint64
	sent, total           uint64 // of this run; with what was there before
	live, committed       *counts
	liveErr, committedErr error
}

// screen prints frames: redrawn in place for a person, a line each for a log.
type screen struct {
	out    io.Writer
	redraw bool
	lines  int      // of the last frame, above the cursor
	last   string   // the last note
	fresh  []string // notes that have not been printed as lines
	frames int
}

// note says what has happened; it is shown with the next frame.
func (s *screen) note(text string) {
	s.last = text
	if !s.redraw { // a log shows them all, a person the last
		s.fresh = append(s.fresh, text)
	}
}

// onceLineEvery thins the lines of a run that looks at more frames than it prints.
const onceLineEvery = int(lineEvery / frameEvery)

// draw shows a frame.
func (s *screen) draw(f frame, oftener bool) error {
	s.frames++
	if s.redraw {
		return s.redrawFrame(f)
	}
	if oftener && s.frames%onceLineEvery != 0 && len(s.fresh) == 0 {
		return nil
	}
	var b bytes.Buffer
	for _, text := range s.fresh {
		fmt.Fprintf(&b, "  %s\n", text)
	}
	s.fresh = nil
	fmt.Fprintf(&b, "sent %s  live %s  committed %s\n", pad(fmt.Sprint(f.total)), pad(f.liveText("")), f.committedText(""))
	_, err := s.out.Write(b.Bytes())
	return err
}

func pad(s string) string { return fmt.Sprintf("%-9s", s) }

// redrawFrame writes over the frame before.
func (s *screen) redrawFrame(f frame) error {
	var b bytes.Buffer
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}
	s.lines = 0
	line := func(format string, args ...any) {
		fmt.Fprintf(&b, "\r"+format+"\x1b[K\r\n", args...)
		s.lines++
	}
	line("\x1b[1m%-20s %12s %12s %12s\x1b[0m", "page", "sent", "live", "committed")
	for _, p := range pages {
		line("%-20s %12d %12s %12s", p, f.truth[p], f.liveText(p), f.committedText(p))
	}
	line("\x1b[1m%-20s %12d %12s %12s\x1b[0m", "all", f.total, f.liveText(""), f.committedText(""))
	line("")
	line("%s", f.liveLine())
	line("%s", f.committedLine())
	line("%s", s.last)
	line("\x1b[7m c \x1b[0m crash the dataflow   \x1b[7m p \x1b[0m pause   \x1b[7m q \x1b[0m quit")
	_, err := s.out.Write(b.Bytes())
	return err
}

// text is the count of a page, or of all when page is empty.
func (c *counts) text(page string) string {
	if page == "" {
		return fmt.Sprint(c.total)
	}
	return fmt.Sprint(c.byPage[page])
}

func (f frame) liveText(page string) string {
	if f.live == nil {
		return "-"
	}
	return f.live.text(page)
}

func (f frame) committedText(page string) string {
	if f.committed == nil {
		return "-"
	}
	return f.committed.text(page)
}

func (f frame) liveLine() string {
	if f.live == nil {
		return "live:      " + why(f.liveErr)
	}
	return fmt.Sprintf("live:      incarnation %d; speculative: a crash takes back what no cut covers", f.live.cut.GetIncarnation())
}

func (f frame) committedLine() string {
	if f.committed == nil {
		return "committed: " + why(f.committedErr)
	}
	c := f.committed.cut
	return fmt.Sprintf("committed: cut %d, %.1f s old, %d rows behind; it never steps back", c.GetCheckpointId(), float64(c.GetAgeMs())/1000, c.GetBehindRows())
}

// why says in short why a column has no figures.
func why(err error) string {
	if dataflow.ReasonOf(err) == dataflow.ReasonPipelineRecovering {
		return "recovering"
	}
	text, _, _ := strings.Cut(fmt.Sprint(err), "\n")
	return text
}
