package plan

import (
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/sql"
)

// union gives the rows of its inputs, one after the other.
type union struct{ inputs []operator }

func (u *union) next(most int64) (*batch.Batch, error) {
	for len(u.inputs) > 0 {
		b, err := u.inputs[0].next(most)
		if err != nil || b != nil {
			return b, err
		}
		u.inputs = u.inputs[1:]
	}
	return nil, nil
}

// start returns the operator of UNION and its relatives. Without ALL, each row is given once.
func (n *setNode) start(r *run) operator {
	inputs := make([]operator, len(n.inputs))
	for i, in := range n.inputs {
		inputs[i] = in.start(r)
	}
	var op operator = &union{inputs: inputs}
	if n.kind != sql.SetUnion {
		op = &counted{r: r, node: n, left: inputs[0], right: inputs[1], counts: make(map[string]int64)}
	}
	if n.all {
		return op
	}
	out := &queue{mem: r.mem}
	return &pulled{r: r, out: out, chain: &chained{input: op, first: newDistinct(out, r.mem, n.schema())}}
}

// counted gives the rows of INTERSECT and EXCEPT: it counts the rows of the right side, then takes rows of the left one for
// which there is still one on the right, or is none.
type counted struct {
	r           *run
	node        *setNode
	left, right operator
	counts      map[string]int64
	counting    bool // the right side has been read
	buf         []byte
}

func (c *counted) next(most int64) (*batch.Batch, error) {
	if !c.counting {
		c.counting = true
		if err := c.count(); err != nil {
			return nil, err
		}
	}
	if len(c.counts) == 0 && c.node.kind == sql.SetIntersect {
		return nil, nil
	}
	b, err := c.left.next(most)
	if err != nil || b == nil {
		return nil, err
	}
	if err := c.r.tables.Check(); err != nil {
		return nil, err
	}
	sel := make([]int32, 0, b.N)
	for i := range b.N {
		c.encode(b, i)
		n, found := c.counts[string(c.buf)]
		if c.node.all && n > 0 {
			c.counts[string(c.buf)] = n - 1
		}
		if (c.node.kind == sql.SetIntersect) == (found && (!c.node.all || n > 0)) {
			sel = append(sel, int32(i))
		}
	}
	return b.Select(sel), nil
}

func (c *counted) count() error {
	for {
		b, err := c.right.next(noLimit)
		if err != nil || b == nil {
			return err
		}
		if err := c.r.tables.Check(); err != nil {
			return err
		}
		for i := range b.N {
			c.encode(b, i)
			n, have := c.counts[string(c.buf)]
			if !have {
				if err := c.r.mem.take(int64(len(c.buf)) + groupOverhead); err != nil {
					return err
				}
			}
			c.counts[string(c.buf)] = n + 1
		}
	}
}

func (c *counted) encode(b *batch.Batch, i int) {
	c.buf = c.buf[:0]
	for _, v := range b.Cols {
		c.buf = key.AppendVector(c.buf, v, i)
	}
}
