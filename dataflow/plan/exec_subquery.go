package plan

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/sql"
)

// runSubquery runs a subquery and keeps what expressions look up in it.
func (r *run) runSubquery(s *subquery) error {
	l := &lookup{kind: s.kind, keys: s.keys, rows: make(map[string]int32), src: r.q.src, at: s.at}
	in := s.node.start(r)
	schema := s.node.schema()
	if s.kind == subqueryMember && s.keys > 1 {
		l.groups = make(map[string]bool)
	}
	if s.kind == subqueryScalar {
		l.values = batch.NewVector(schema[s.keys].Type, 0)
	}
	var buf []byte
	for {
		most := int64(noLimit)
		switch {
		case s.kind == subqueryExists && s.keys == 0:
			most = 1
		case s.kind == subqueryScalar && s.keys == 0:
			most = 2 // of which one is too many
		}
		b, err := in.next(most)
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		if err := r.tables.Check(); err != nil {
			return err
		}
		for i := range b.N {
			var null bool
			if l.groups != nil {
				if buf, null = appendKeys(buf[:0], b.Cols[:s.keys-1], i); null {
					continue
				}
				if err := l.addGroup(r.mem, buf, b.Cols[s.keys-1].IsNull(i)); err != nil {
					return err
				}
			}
			buf, null = appendKeys(buf[:0], b.Cols[:s.keys], i)
			if null {
				l.hasNull = true
				continue
			}
			if err := l.add(r.mem, buf, b, i); err != nil {
				return err
			}
		}
		if l.enough() {
			break
		}
	}
	if s.absent != nil {
		b, err := r.first(s.absent)
		if err != nil {
			return err
		}
		l.absent = b.Cols[0]
	}
	r.lookups[s.index] = l
	return nil
}

// first returns the first row of a node that has one.
func (r *run) first(n node) (*batch.Batch, error) {
	in := n.start(r)
	for {
		b, err := in.next(1)
		if err != nil || b == nil || b.N > 0 {
			return b, err
		}
	}
}

// appendKeys appends the encodings of row i of columns, unless one of them is NULL.
func appendKeys(dst []byte, cols []*batch.Vector, i int) (_ []byte, null bool) {
	for _, v := range cols {
		if v.IsNull(i) {
			return dst, true
		}
		dst = key.AppendVector(dst, v, i)
	}
	return dst, false
}

// several marks, in lookup.rows, a key that more than one row has.
const several = -1

// lookup holds the rows of a subquery by their first columns.
type lookup struct {
	kind    subqueryKind
	keys    int
	rows    map[string]int32 // the place of the row's value in values; 0 without values
	values  *batch.Vector    // of a scalar subquery
	hasNull bool             // a row has a NULL in its keys
	groups  map[string]bool  // of a correlated IN: the keys but the last that rows have, and whether one has NULL as its last
	absent  *batch.Vector    // of one row: what a key gives that has no row; nil: NULL
	buf     []byte
	src     *sql.Source
	at      Place
}

var _ expr.Lookup = (*lookup)(nil)

func (l *lookup) add(mem *budget, k []byte, b *batch.Batch, i int) error {
	if _, have := l.rows[string(k)]; have {
		if l.kind == subqueryScalar {
			l.rows[string(k)] = several
		}
		return nil
	}
	size := int64(len(k)) + groupOverhead
	if l.values != nil {
		size += int64(b.Cols[l.keys].RowBytes(i)) + resultRowOverhead
	}
	if err := mem.take(size); err != nil {
		return err
	}
	at := int32(0)
	if l.values != nil {
		at = int32(l.values.Len())
		l.values.AppendFrom(b.Cols[l.keys], i)
	}
	l.rows[string(k)] = at
	return nil
}

// addGroup notes that a row has these keys, and NULL or not as its last.
func (l *lookup) addGroup(mem *budget, k []byte, null bool) error {
	had, have := l.groups[string(k)]
	if have && (had || !null) {
		return nil
	}
	if !have {
		if err := mem.take(int64(len(k)) + groupOverhead); err != nil {
			return err
		}
	}
	l.groups[string(k)] = had || null
	return nil
}

// access returns the look-up of the keys that the subquery gave; otherwise where they are too many.
func (l *lookup) access(otherwise Access) Access {
	if len(l.rows) > lookupRows {
		return otherwise
	}
	a := Access{Points: true}
	if l.kind == subqueryScalar {
		if at, have := l.rows[""]; have && at != several && !l.values.IsNull(int(at)) {
			a.Keys = [][]byte{key.AppendVector(nil, l.values, int(at))}
		} else if have && at == several {
			return otherwise // the filter fails
		}
	} else {
		for k := range l.rows {
			a.Keys = append(a.Keys, []byte(k))
		}
		slices.SortFunc(a.Keys, bytes.Compare)
	}
	a.Text = fmt.Sprintf("look up %d keys", len(a.Keys))
	return a
}

// enough reports whether more rows cannot change what is looked up.
func (l *lookup) enough() bool {
	if l.keys > 0 {
		return false
	}
	at, have := l.rows[""]
	return have && (l.kind == subqueryExists || at == several)
}

// Append implements expr.Lookup.
func (l *lookup) Append(out *batch.Vector, args []*batch.Vector, i int) *dataflow.Error {
	var null bool
	l.buf, null = appendKeys(l.buf[:0], args, i)
	at, found := int32(0), false
	if !null {
		at, found = l.rows[string(l.buf)]
	}
	switch {
	case l.kind == subqueryExists:
		out.AppendInt(boolInt(found))
	case l.kind == subqueryMember && found:
		out.AppendInt(1)
	case l.groups != nil: // the same among the rows of its group
		last := len(args) - 1
		var outerNull bool
		l.buf, outerNull = appendKeys(l.buf[:0], args[:last], i)
		hasNull, have := l.groups[string(l.buf)]
		if have && !outerNull && (null || hasNull) {
			out.AppendNull()
			return nil
		}
		out.AppendInt(0)
	case l.kind == subqueryMember:
		// NULL IN (nothing) is false; otherwise a NULL on either side leaves it open.
		if (null && (len(l.rows) > 0 || l.hasNull)) || l.hasNull {
			out.AppendNull()
			return nil
		}
		out.AppendInt(0)
	case found && at == several:
		return l.src.Errorf(dataflow.ReasonExpressionFailed, l.src.Span(l.at.Line, l.at.Column), "a subquery inside an expression gave more than one row: write min, max or another aggregate, or LIMIT 1")
	case found:
		out.AppendFrom(l.values, int(at))
	case l.absent != nil:
		out.AppendFrom(l.absent, 0)
	default:
		out.AppendNull()
	}
	return nil
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
