package resp

import (
	"context"
	"strconv"
	"time"
)

func weirCommands() []handler {
	return []handler{
		{"weir.cut", 2, 1, 1, 1, "The cut, as JSON, that a read of the key or the table in this batch comes from", (*conn).cut},
		{"weir.wait", -3, 0, 0, 0, "WEIR.WAIT COMMITTED|PROCESSED token [timeout-ms [pipeline…]]: waits until the tables cover an append", (*conn).wait},
	}
}

// cut is WEIR.CUT key: what stands after the table's name does not matter.
func (c *conn) cut(ctx context.Context, args [][]byte) {
	isolation, name, _, err := splitKey(append(args[1][:len(args[1]):len(args[1])], ':'), c.database)
	if err != nil {
		c.out.fail(err)
		return
	}
	t, err := c.reader.Table(name)
	if err != nil {
		c.out.fail(err)
		return
	}
	cut, err := t.Cut(ctx, isolation)
	if err != nil {
		c.out.fail(err)
		return
	}
	c.text = c.s.cfg.Backend.AppendCut(c.text[:0], &cut)
	c.bulkText()
}

const (
	defaultWait = 10 * time.Second
	maxWait     = 10 * time.Minute
)

// wait is WEIR.WAIT. Nothing that the batch has read before is kept meanwhile (R2).
func (c *conn) wait(ctx context.Context, args [][]byte) {
	what := word(args[1])
	if what != "committed" && what != "processed" {
		c.out.refuse("ERR", "syntax error: WEIR.WAIT COMMITTED|PROCESSED token [timeout-ms [pipeline…]]")
		return
	}
	timeout := defaultWait
	if len(args) > 3 {
		ms, err := strconv.ParseUint(string(args[3]), 10, 32)
		if err != nil {
			c.out.refuse("ERR", "timeout is not an integer or out of range")
			return
		}
		timeout = min(time.Duration(ms)*time.Millisecond, maxWait)
	}
	var pipelines []string
	for _, p := range args[min(len(args), 4):] {
		pipelines = append(pipelines, string(p))
	}
	c.reader.End()
	defer c.reader.Begin()
	if !c.flush() { // the answers before it do not wait with it
		c.quit = true
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cuts, err := c.s.cfg.Backend.Wait(ctx, string(args[2]), pipelines, what == "processed")
	if err != nil {
		c.out.fail(err)
		return
	}
	c.out.array(len(cuts))
	for i := range cuts {
		c.text = c.s.cfg.Backend.AppendCut(c.text[:0], &cuts[i])
		c.bulkText()
	}
}
