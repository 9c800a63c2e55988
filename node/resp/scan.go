package resp

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/weirdb/weir/dataflow"
)

func keyspaceCommands() []handler {
	return []handler{
		{"scan", -2, 0, 0, 0, "Keys page by page: SCAN cursor [MATCH pipeline.table:prefix*] [COUNT n] [TYPE string|hash]", (*conn).scan},
		{"keys", 2, 0, 0, 0, "Refused: SCAN does it page by page", func(c *conn, _ context.Context, _ [][]byte) {
			c.out.refuse("ERR", "KEYS would hold every key of the server in one answer: use SCAN 0 MATCH pipeline.table:prefix* COUNT 1000")
		}},
		{"dbsize", 1, 0, 0, 0, "How many rows the live tables hold, about", (*conn).dbsize},
	}
}

// defaultCount is how many rows SCAN looks at when it is not told. Redis has 10, which is far too few where a page is a
// request; what is promised is a hint, there as here.
const defaultCount = 100

// scanOptions are the words after SCAN's cursor.
type scanOptions struct {
	match string // "" = everything
	count int
	kind  string // of the tables, as TYPE says; "" = both
}

func parseScan(args [][]byte) (scanOptions, error) {
	o := scanOptions{count: defaultCount}
	for len(args) > 0 {
		if len(args) == 1 {
			return o, errors.New("syntax error")
		}
		switch value := args[1]; word(args[0]) {
		case "match":
			o.match = string(value)
		case "count":
			n, err := strconv.Atoi(string(value))
			if err != nil {
				return o, errors.New("value is not an integer or out of range")
			}
			if n < 1 {
				return o, errors.New("syntax error")
			}
			o.count = min(n, dataflow.MaxPageRows)
		case "type":
			o.kind = word(value)
		default:
			return o, errors.New("syntax error")
		}
		args = args[2:]
	}
	return o, nil
}

// cursor says where a SCAN goes on. It is immutable.
type cursor struct {
	id uint64
	// tables are still to be scanned, as pipeline.table; token is the page of the first at which to go on, "" = its first.
	tables []string
	token  string
	one    bool // the pattern names one table, which must be there
	rng    dataflow.ScanRange
	prefix string // of the keys: live: when the pattern has it
	iso    dataflow.Isolation
}

// cursorSlots is how many cursors are kept. An older one is forgotten when as many newer ones have been given out.
const cursorSlots = 4096

// cursors keeps the places of scans between their pages. A cursor of Redis is a number, and the place is more than fits in
// one. It is safe for concurrent use.
type cursors struct {
	mu struct {
		sync.Mutex
		last  uint64
		slots []cursor // by id modulo their number
	}
}

// put keeps a cursor and returns its number, which is not 0.
func (s *cursors) put(k cursor) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.slots == nil {
		s.mu.slots = make([]cursor, cursorSlots)
	}
	s.mu.last++
	k.id = s.mu.last
	s.mu.slots[k.id%cursorSlots] = k
	return k.id
}

// get returns a cursor; it stays, so that a page whose answer was lost can be asked for again.
func (s *cursors) get(id uint64) (cursor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.slots == nil {
		return cursor{}, false
	}
	k := s.mu.slots[id%cursorSlots]
	return k, k.id == id && id != 0
}

func (c *conn) scan(ctx context.Context, args [][]byte) {
	id, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil {
		c.out.refuse("ERR", "invalid cursor")
		return
	}
	o, err := parseScan(args[2:])
	if err != nil {
		c.out.refuse("ERR", err.Error())
		return
	}
	var k cursor
	if id == 0 {
		k, err = c.firstCursor(ctx, o.match)
	} else {
		var known bool
		if k, known = c.s.cursors.get(id); !known {
			err = dataflow.Errorf(dataflow.ReasonTokenInvalid, "cursor %d is not known, or no more", id).WithHint("begin again with SCAN 0")
		}
	}
	if err != nil {
		c.out.fail(err)
		return
	}
	from := len(c.out.b)
	if err := c.page(ctx, k, o); err != nil {
		c.refuseFrom(from, err)
	}
}

// page writes one answer of SCAN: where to go on, and keys.
func (c *conn) page(ctx context.Context, k cursor, o scanOptions) error {
	var keys []byte // as bulk strings
	found := 0
	for left := o.count; left > 0 && len(k.tables) > 0; {
		seen, next, err := c.pageOf(ctx, k, o, left, func(key []byte) {
			list := reply{b: keys}
			list.bulk(key)
			keys = list.b
			found++
		})
		switch {
		case err == nil:
		case dataflow.ReasonOf(err).Kind() == dataflow.KindNotFound && !k.one:
			next = "" // it was deleted since the scan began
		default:
			return err
		}
		left -= seen
		if k.token = next; next == "" {
			k.tables = k.tables[1:]
		} else if seen == 0 {
			break // the page ended early, for its time or its bytes
		}
	}
	var id uint64
	if len(k.tables) > 0 {
		id = c.s.cursors.put(k)
	}
	from := len(c.out.b)
	c.out.array(2)
	c.out.bulkString(strconv.FormatUint(id, 10))
	c.out.array(found)
	c.out.b = append(c.out.b, keys...)
	return c.room(from)
}

// pageOf calls found for the keys that fit of one page of the cursor's first table, and returns how many rows it has and
// the token of the next.
func (c *conn) pageOf(ctx context.Context, k cursor, o scanOptions, limit int, found func(key []byte)) (seen int, next string, err error) {
	name := k.tables[0]
	t, err := c.reader.Table([]byte(name))
	if err != nil {
		return 0, "", err
	}
	if kind := "hash"; o.kind != "" {
		if len(t.ValueCols()) == 1 {
			kind = "string"
		}
		if o.kind != kind {
			return 0, "", nil
		}
	}
	pipeline, table, _ := strings.Cut(name, ".")
	rows, next, _, err := c.s.cfg.Backend.Scan(ctx, pipeline, table, k.rng, dataflow.Page{Limit: limit, Token: k.token}, dataflow.ReadOptions{Isolation: k.iso})
	if err != nil {
		return 0, "", err
	}
	begin := k.prefix + name + ":"
	for i := range rows.N {
		c.text = appendKeyOf(append(c.text[:0], begin...), rows, t.KeyCols(), i)
		if o.match == "" || globMatch(o.match, string(c.text)) {
			found(c.text)
		}
	}
	return rows.N, next, nil
}

// firstCursor says what a scan with a pattern looks at: one table, perhaps a part of it, when the pattern begins with one,
// otherwise all whose keys could match.
func (c *conn) firstCursor(ctx context.Context, match string) (cursor, error) {
	k := cursor{iso: c.database}
	begin, whole := globPrefix(match)
	if match == "" {
		begin, whole = "", false
	}
	if rest, live := strings.CutPrefix(begin, livePrefix); live {
		begin, k.prefix, k.iso = rest, livePrefix, dataflow.ReadUncommitted
	}
	name, parts, one := strings.Cut(begin, ":")
	if one {
		t, err := c.reader.Table([]byte(name))
		if err != nil {
			return k, err
		}
		k.tables, k.one = []string{name}, true
		k.rng, err = patternRange(t, []byte(parts), whole)
		return k, err
	}
	tables, err := c.s.cfg.Backend.Tables(ctx)
	if err != nil {
		return k, err
	}
	for _, t := range tables {
		if full := t.Pipeline + "." + t.Name; strings.HasPrefix(full+":", begin) && !whole {
			k.tables = append(k.tables, full)
		}
	}
	return k, nil
}

// patternRange returns the rows of a table whose keys begin with text, or are text: at least these, since every key is
// matched with the pattern.
func patternRange(t Table, text []byte, whole bool) (dataflow.ScanRange, error) {
	var r dataflow.ScanRange
	schema, cols := t.Schema(), t.KeyCols()
	if whole {
		row, err := appendParts(nil, text, len(cols))
		r.Equal = row
		return r, err
	}
	// Whole parts come before the last bar that separates; what follows begins the next part.
	cut := -1
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case escape:
			i++
		case separator:
			cut = i
		}
	}
	if cut >= 0 {
		row, err := appendParts(nil, text[:cut], len(cols))
		if err != nil {
			return r, err
		}
		r.Equal = row
	}
	last := text[cut+1:]
	if n := len(r.Equal); n < len(cols) && schema[cols[n]].Type == dataflow.TypeText && len(last) > 0 {
		if trailing := len(last) - len(bytes.TrimRight(last, `\`)); trailing%2 == 1 {
			last = last[:len(last)-1] // half of an escape: the pattern says how it goes on
		}
		row, err := appendParts(nil, last, 1)
		if err == nil && len(row) == 1 && !row[0].Null {
			r.Prefix = row[0].Str
		}
	}
	return r, nil
}

func (c *conn) dbsize(ctx context.Context, _ [][]byte) {
	tables, err := c.s.cfg.Backend.Tables(ctx)
	if err != nil {
		c.out.fail(err)
		return
	}
	var n uint64
	for _, t := range tables {
		n += t.Rows
	}
	c.out.int(int64(n))
}
