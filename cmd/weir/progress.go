package main

import "fmt"

// progress shows one changing line on a terminal; elsewhere it shows nothing.
type progress struct {
	c     *cli
	shown bool
}

func (c *cli) progress() *progress { return &progress{c: c} }

// set replaces the line.
func (p *progress) set(format string, args ...any) {
	if !p.c.stderrTerminal() {
		return
	}
	p.shown = true
	fmt.Fprintf(p.c.stderr, "\r\x1b[K"+format, args...)
}

// done removes the line.
func (p *progress) done() {
	if p.shown {
		p.shown = false
		fmt.Fprint(p.c.stderr, "\r\x1b[K")
	}
}
