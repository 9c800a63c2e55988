package resp

import "context"

// progress is how far a connection has come.
type progress int

const (
	answered progress = iota // all that has come
	behind                   // there is more to do, which may wait for something: catchUp does it
	ended
)

// quickArgs bounds the words of a command that others wait for.
const quickArgs = 64

// hurry reads once, and answers and sends what needs no waiting (R6). impatient has ended, so that nothing waits with it.
func (c *conn) hurry(impatient context.Context) progress {
	if !c.fill() {
		return ended
	}
	c.hurried = true
	alive := c.answer(impatient)
	c.hurried = false
	if !alive {
		return ended
	}
	if c.left {
		return behind
	}
	if len(c.out.b) > 0 {
		n, err := c.sock.writeNow(c.out.b)
		switch {
		case err != nil:
			return ended
		case n < len(c.out.b):
			c.out.b = c.out.b[:copy(c.out.b, c.out.b[n:])]
			return behind
		}
		c.sent()
	}
	if c.quit {
		return ended
	}
	return answered
}

// catchUp does what hurry has left. It returns false when the connection is to end.
func (c *conn) catchUp(ctx context.Context) bool {
	return c.answer(ctx) && c.flush() && !c.quit
}

// runNow answers a command if that takes no waiting and comes out well; else it leaves it to catchUp, which does it again
// from the same cut.
func (c *conn) runNow(ctx context.Context, args [][]byte) bool {
	if len(args) > quickArgs {
		return false
	}
	h := c.lookUpCommand(args[0])
	if h == nil || !h.quick || h.arity >= 0 && len(args) != h.arity || len(args) < -h.arity {
		return false
	}
	from := len(c.out.b)
	c.out.refused = false
	h.run(c, ctx, args)
	if c.out.refused {
		c.out.b = c.out.b[:from]
		return false
	}
	return true
}
