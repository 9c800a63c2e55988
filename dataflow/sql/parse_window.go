package sql

import "github.com/weirdb/weir/dataflow"

// namedWindow is OVER name, which the WINDOW clause of its SELECT has yet to define.
type namedWindow struct {
	name   Ident
	window *Window
}

// window parses OVER (PARTITION BY … ORDER BY … frame) and OVER name.
func (p *parser) window() *Window {
	start := p.next().at
	if t := p.peek(); t.kind == kindWord && !isReserved(t) || t.kind == kindQuoted {
		p.next()
		w := &Window{At: p.since(start)}
		p.windows = append(p.windows, namedWindow{Ident{t.text, t.at}, w})
		return w
	}
	if !p.isPunct("(") {
		p.expected("( after OVER: OVER (PARTITION BY … ORDER BY …)")
		return &Window{At: start}
	}
	w := p.windowBody()
	w.At = p.since(start)
	return w
}

// windowBody parses (PARTITION BY … ORDER BY … frame).
func (p *parser) windowBody() *Window {
	w := &Window{}
	open := p.next().at
	if t := p.peek(); (t.kind == kindWord || t.kind == kindQuoted) && !isReserved(t) && t.text != "partition" && t.text != "rows" && t.text != "range" && t.text != "groups" {
		p.unsupported(t.at, "a window that adds to another, (%s …), is not there yet: write PARTITION BY and ORDER BY again", t.text)
	}
	if p.accept("partition") {
		if p.expect("by") {
			w.PartitionBy = p.expressionList()
		}
	}
	if p.accept("order") {
		if p.expect("by") {
			w.OrderBy = p.orderList()
		}
	}
	if t := p.peek(); t.word("rows") || t.word("range") || t.word("groups") {
		w.Frame = p.frame(w)
	}
	p.closeParen(open, "")
	return w
}

// frame parses ROWS|RANGE|GROUPS start, and … BETWEEN start AND end.
func (p *parser) frame(w *Window) *Frame {
	t := p.next()
	f := &Frame{Mode: map[string]FrameMode{"rows": FrameRows, "range": FrameRange, "groups": FrameGroups}[t.text]}
	f.End = Bound{Kind: CurrentRow, At: t.at}
	if p.accept("between") {
		f.Start = p.bound()
		p.expect("and")
		f.End = p.bound()
	} else {
		f.Start = p.bound()
	}
	f.At = p.since(t.at)
	if e := p.peek(); e.word("exclude") {
		p.unsupported(e.at, "EXCLUDE is not there yet: subtract what is not wanted, as in sum(x) OVER (…) - x")
	}
	offset := func(b Bound) bool { return b.Kind == Preceding || b.Kind == Following }
	switch {
	case p.err != nil:
	case f.Start.Kind == UnboundedFollowing:
		p.failf(f.Start.At, "a frame cannot start at UNBOUNDED FOLLOWING")
	case f.End.Kind == UnboundedPreceding:
		p.failf(f.End.At, "a frame cannot end at UNBOUNDED PRECEDING")
	case f.Start.Kind > f.End.Kind:
		p.failf(f.At, "the frame ends before it starts: turn its bounds around")
	case f.Mode == FrameGroups && len(w.OrderBy) == 0:
		p.failf(f.At, "GROUPS counts groups of rows that are equal in ORDER BY, and there is no ORDER BY: write one, or ROWS")
	case f.Mode == FrameRange && (offset(f.Start) || offset(f.End)) && len(w.OrderBy) != 1:
		p.failf(f.At, "RANGE with a distance measures from the value of the one column of ORDER BY, here are %d: order by one number or time, or write ROWS or GROUPS", len(w.OrderBy))
	}
	return f
}

// bound parses one end of a frame.
func (p *parser) bound() Bound {
	start := p.peek().at
	direction := func(preceding, following BoundKind) BoundKind {
		switch {
		case p.accept("preceding"):
			return preceding
		case p.accept("following"):
			return following
		}
		p.expected("PRECEDING or FOLLOWING", "PRECEDING", "FOLLOWING")
		return preceding
	}
	b := Bound{}
	switch {
	case p.accept("unbounded"):
		b.Kind = direction(UnboundedPreceding, UnboundedFollowing)
	case p.is("current"):
		p.next()
		p.expect("row")
		b.Kind = CurrentRow
	default:
		b.N = p.operand(precOther)
		b.Kind = direction(Preceding, Following)
	}
	b.At = p.since(start)
	return b
}

// windowClause parses WINDOW name AS (…), … .
func (p *parser) windowClause(s *Select) {
	if !p.is("window") {
		return
	}
	p.next()
	for {
		id := p.name("a name for the window")
		if _, twice := s.windows[id.Name]; twice {
			p.failf(id.At, "WINDOW names %q twice", id.Name)
		}
		p.expect("as")
		if !p.isPunct("(") {
			p.expected("( and the window: WINDOW "+id.Name+" AS (PARTITION BY … ORDER BY …)", "(")
			return
		}
		if s.windows == nil {
			s.windows = make(map[string]*Window)
		}
		s.windows[id.Name] = p.windowBody()
		if !p.acceptPunct(",") {
			return
		}
	}
}

// settleWindows gives the calls with OVER name, of those from the given one on, what WINDOW has defined.
func (p *parser) settleWindows(s *Select, from int) {
	if s == nil {
		s = &Select{}
	}
	for _, n := range p.windows[from:] {
		w := s.windows[n.name.Name]
		if w == nil {
			if p.err == nil {
				var names []string
				for name := range s.windows {
					names = append(names, name)
				}
				p.failf(n.name.At, "there is no window %q: write OVER (PARTITION BY … ORDER BY …), or WINDOW %s AS (…) behind HAVING%s", n.name.Name, n.name.Name, dataflow.DidYouMean(n.name.Name, names))
			}
			continue
		}
		at := n.window.At
		*n.window = *w
		n.window.At = at
	}
	p.windows = p.windows[:from]
}
