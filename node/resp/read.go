package resp

import (
	"context"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func readCommands() []handler {
	return []handler{
		{"get", 2, 1, 1, 1, "The value of a table with one column beside its key, the row as JSON of others", (*conn).get},
		{"mget", -2, 1, -1, 1, "The values of several keys, of one pipeline from one cut", (*conn).mget},
		{"strlen", 2, 1, 1, 1, "The length of what GET answers", (*conn).strlen},
		{"exists", -2, 1, -1, 1, "How many of the keys have a row", (*conn).exists},
		{"touch", -2, 1, -1, 1, "How many of the keys have a row", (*conn).exists},
		{"type", 2, 1, 1, 1, "string for a table with one column beside its key, hash for others, none for no row", (*conn).typeOf},
		{"ttl", 2, 1, 1, 1, "-1: rows do not expire; -2 for no row", (*conn).ttl},
		{"pttl", 2, 1, 1, 1, "-1: rows do not expire; -2 for no row", (*conn).ttl},
		{"expiretime", 2, 1, 1, 1, "-1: rows do not expire; -2 for no row", (*conn).ttl},
		{"pexpiretime", 2, 1, 1, 1, "-1: rows do not expire; -2 for no row", (*conn).ttl},
	}
}

// lookUp returns the table and the row, nil for none, that a key names.
func (c *conn) lookUp(ctx context.Context, key []byte) (Table, *batch.Batch, error) {
	t, isolation, err := c.parse(key)
	if err != nil {
		return nil, nil, err
	}
	row, err := t.Get(ctx, c.key, isolation)
	return t, row, err
}

// parse returns what a key names, its values in c.key.
func (c *conn) parse(key []byte) (Table, dataflow.Isolation, error) {
	isolation, name, parts, err := splitKey(key, c.database)
	if err != nil {
		return nil, isolation, err
	}
	t, err := c.reader.Table(name)
	if err != nil {
		return nil, isolation, err
	}
	c.key, err = appendParts(c.key[:0], parts, len(t.KeyCols()))
	return t, isolation, err
}

// value writes what GET answers for a row.
func (c *conn) value(t Table, row *batch.Batch) {
	if row == nil {
		c.out.null()
		return
	}
	values := t.ValueCols()
	switch {
	case len(values) != 1:
		c.text = wire.AppendRowJSON(c.text[:0], row, 0, weirv1.Numbers_NUMBERS_JSON)
	case row.Cols[values[0]].IsNull(0):
		c.out.null()
		return
	default:
		c.text = expr.AppendCellText(c.text[:0], row.Cols[values[0]], 0)
	}
	c.bulkText()
}

// bulkText writes c.text.
func (c *conn) bulkText() {
	c.out.bulk(c.text)
	if cap(c.text) > flushBytes {
		c.text = nil
	}
}

// cell writes one value of a row.
func (c *conn) cell(v *batch.Vector) {
	if v.IsNull(0) {
		c.out.null()
		return
	}
	c.text = expr.AppendCellText(c.text[:0], v, 0)
	c.bulkText()
}

// refuseFrom takes the answer under way back to where it began, and answers with an error.
func (c *conn) refuseFrom(from int, err error) {
	c.out.b = c.out.b[:from]
	c.out.fail(err)
}

func (c *conn) get(ctx context.Context, args [][]byte) {
	from := len(c.out.b)
	t, row, err := c.lookUp(ctx, args[1])
	if err == nil {
		c.value(t, row)
		err = c.room(from)
	}
	if err != nil {
		c.refuseFrom(from, err)
	}
}

func (c *conn) mget(ctx context.Context, args [][]byte) {
	from := len(c.out.b)
	c.out.array(len(args) - 1)
	for _, key := range args[1:] {
		t, row, err := c.lookUp(ctx, key)
		if err == nil {
			c.value(t, row)
			err = c.room(from)
		}
		if err != nil {
			c.refuseFrom(from, err)
			return
		}
	}
}

func (c *conn) strlen(ctx context.Context, args [][]byte) {
	t, row, err := c.lookUp(ctx, args[1])
	if err != nil {
		c.out.fail(err)
		return
	}
	values := t.ValueCols()
	switch {
	case row == nil:
		c.text = c.text[:0]
	case len(values) == 1:
		c.text = expr.AppendCellText(c.text[:0], row.Cols[values[0]], 0)
	default:
		c.text = wire.AppendRowJSON(c.text[:0], row, 0, weirv1.Numbers_NUMBERS_JSON)
	}
	c.out.int(int64(len(c.text)))
}

func (c *conn) exists(ctx context.Context, args [][]byte) {
	n := int64(0)
	for _, key := range args[1:] {
		_, row, err := c.lookUp(ctx, key)
		if err != nil {
			c.out.fail(err)
			return
		}
		if row != nil {
			n++
		}
	}
	c.out.int(n)
}

func (c *conn) typeOf(ctx context.Context, args [][]byte) {
	t, row, err := c.lookUp(ctx, args[1])
	switch {
	case err != nil:
		c.out.fail(err)
	case row == nil:
		c.out.simple("none")
	case len(t.ValueCols()) == 1:
		c.out.simple("string")
	default:
		c.out.simple("hash")
	}
}

func (c *conn) ttl(ctx context.Context, args [][]byte) {
	_, row, err := c.lookUp(ctx, args[1])
	switch {
	case err != nil:
		c.out.fail(err)
	case row == nil:
		c.out.int(-2)
	default:
		c.out.int(-1)
	}
}
