package resp

import (
	"context"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

func hashCommands() []handler {
	return []handler{
		{"hgetall", 2, 1, 1, 1, "The columns of a row that are not NULL, with their values as text", (*conn).hgetall},
		{"hget", 3, 1, 1, 1, "The value of a column as text", (*conn).hget},
		{"hmget", -3, 1, 1, 1, "The values of columns as text", (*conn).hmget},
		{"hkeys", 2, 1, 1, 1, "The names of the columns of a row that are not NULL", (*conn).hkeys},
		{"hvals", 2, 1, 1, 1, "The values of the columns of a row that are not NULL", (*conn).hvals},
		{"hlen", 2, 1, 1, 1, "How many columns of a row are not NULL", (*conn).hlen},
		{"hexists", 3, 1, 1, 1, "Whether a row has a column that is not NULL", (*conn).hexists},
		{"hstrlen", 3, 1, 1, 1, "The length of a column's value as text", (*conn).hstrlen},
		{"hscan", -3, 1, 1, 1, "The columns of a row that are not NULL, in one answer", (*conn).hscan},
	}
}

// fields lists the columns of a row that are not NULL (R5); none for no row.
func fields(row *batch.Batch) []int {
	if row == nil {
		return nil
	}
	at := make([]int, 0, len(row.Cols))
	for i, v := range row.Cols {
		if !v.IsNull(0) {
			at = append(at, i)
		}
	}
	return at
}

// column finds a column by name; nil when the table has none.
func column(schema dataflow.Schema, row *batch.Batch, name []byte) *batch.Vector {
	for i := range schema {
		if schema[i].Name == string(name) {
			return row.Cols[i]
		}
	}
	return nil
}

// hash looks a row up and calls write for it, nil for none.
func (c *conn) hash(ctx context.Context, key []byte, write func(schema dataflow.Schema, row *batch.Batch)) {
	from := len(c.out.b)
	t, row, err := c.lookUp(ctx, key)
	if err == nil {
		write(t.Schema(), row)
		err = c.room(from)
	}
	if err != nil {
		c.refuseFrom(from, err)
	}
}

func (c *conn) hgetall(ctx context.Context, args [][]byte) {
	c.hash(ctx, args[1], func(schema dataflow.Schema, row *batch.Batch) {
		at := fields(row)
		c.out.pairs(len(at))
		for _, i := range at {
			c.out.bulkString(schema[i].Name)
			c.cell(row.Cols[i])
		}
	})
}

// field writes the value of a column, nil for none.
func (c *conn) field(schema dataflow.Schema, row *batch.Batch, name []byte) {
	if row == nil {
		c.out.null()
		return
	}
	v := column(schema, row, name)
	if v == nil {
		c.out.null()
		return
	}
	c.cell(v)
}

func (c *conn) hget(ctx context.Context, args [][]byte) {
	c.hash(ctx, args[1], func(schema dataflow.Schema, row *batch.Batch) { c.field(schema, row, args[2]) })
}

func (c *conn) hmget(ctx context.Context, args [][]byte) {
	from := len(c.out.b)
	t, row, err := c.lookUp(ctx, args[1])
	if err != nil {
		c.out.fail(err)
		return
	}
	c.out.array(len(args) - 2)
	for _, name := range args[2:] {
		c.field(t.Schema(), row, name)
		if err := c.room(from); err != nil {
			c.refuseFrom(from, err)
			return
		}
	}
}

func (c *conn) hkeys(ctx context.Context, args [][]byte) {
	c.hash(ctx, args[1], func(schema dataflow.Schema, row *batch.Batch) {
		at := fields(row)
		c.out.array(len(at))
		for _, i := range at {
			c.out.bulkString(schema[i].Name)
		}
	})
}

func (c *conn) hvals(ctx context.Context, args [][]byte) {
	c.hash(ctx, args[1], func(_ dataflow.Schema, row *batch.Batch) {
		at := fields(row)
		c.out.array(len(at))
		for _, i := range at {
			c.cell(row.Cols[i])
		}
	})
}

func (c *conn) hlen(ctx context.Context, args [][]byte) {
	c.hash(ctx, args[1], func(_ dataflow.Schema, row *batch.Batch) { c.out.int(int64(len(fields(row)))) })
}

// present returns a column of a row when it is not NULL, or nil.
func present(schema dataflow.Schema, row *batch.Batch, name []byte) *batch.Vector {
	if row == nil {
		return nil
	}
	if v := column(schema, row, name); v != nil && !v.IsNull(0) {
		return v
	}
	return nil
}

func (c *conn) hexists(ctx context.Context, args [][]byte) {
	c.hash(ctx, args[1], func(schema dataflow.Schema, row *batch.Batch) {
		if present(schema, row, args[2]) != nil {
			c.out.int(1)
			return
		}
		c.out.int(0)
	})
}

func (c *conn) hstrlen(ctx context.Context, args [][]byte) {
	c.hash(ctx, args[1], func(schema dataflow.Schema, row *batch.Batch) {
		c.text = c.text[:0]
		if v := present(schema, row, args[2]); v != nil {
			c.text = expr.AppendCellText(c.text, v, 0)
		}
		c.out.int(int64(len(c.text)))
	})
}

// hscan answers all columns at once: cursor 0 says that nothing is left.
func (c *conn) hscan(ctx context.Context, args [][]byte) {
	o, err := parseScan(args[3:])
	if err != nil {
		c.out.refuse("ERR", err.Error())
		return
	}
	c.hash(ctx, args[1], func(schema dataflow.Schema, row *batch.Batch) {
		at := fields(row)
		if o.match != "" {
			kept := at[:0]
			for _, i := range at {
				if globMatch(o.match, schema[i].Name) {
					kept = append(kept, i)
				}
			}
			at = kept
		}
		c.out.array(2)
		c.out.bulkString("0")
		c.out.array(2 * len(at))
		for _, i := range at {
			c.out.bulkString(schema[i].Name)
			c.cell(row.Cols[i])
		}
	})
}
