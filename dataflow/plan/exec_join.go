package plan

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
)

// joiner joins by hash: it holds the rows of one side by their keys and lets the rows of the other side pass by. The side that
// it holds is the one that ends first when both are read in turn, so that the smaller one is held, whichever that is.
//
// When a side's keys are the whole key of its table, the other side is read first: if that has few rows, the table is not
// scanned, but looked up.
type joiner struct {
	r     *run
	node  *joinNode
	sides [2]*joinSide
	cols  int // columns of the joined rows

	held   *joinTable // the side that is held; nil before the first row
	probed *joinSide  // the other one
	flip   bool       // the held side is the left one

	// What is being joined: a batch of the probed side and how far it has got.
	batch   *batch.Batch
	row     int     // the row of batch that is being joined
	matches []int32 // rows of held that have its key
	at      int     // how many of matches have been taken
	matched []bool  // of the rows of batch: it has a partner
	rest    int     // of the held rows: how many have been seen to that have no partner; -1 before the end

	filter step // applies the further conditions; nil: there are none
	kept   *queue
	taken  int64 // bytes of the rows that were given last
}

// joinSide is one input of a join, with the values of the join's keys behind its own columns.
type joinSide struct {
	rows  operator
	width int // its own columns
	early []*batch.Batch
	bytes int64 // of early
	ended bool
}

const (
	// lookupRows is how many rows of one side look the other side's table up: as many keys as a request may look up.
	lookupRows = dataflow.MaxBatchGetKeys
	// joinRowOverhead is about what the table of a join needs per row besides key and values.
	joinRowOverhead = 48
)

func (n *joinNode) start(r *run) operator {
	j := &joiner{r: r, node: n, cols: len(n.schema()), rest: -1}
	for i, in := range []node{n.left, n.right} {
		s := in.schema()
		p := &Project{}
		for c, col := range s {
			p.Exprs = append(p.Exprs, expr.NewColumn(c, col.Name, col.Type))
			p.Schema, p.At = append(p.Schema, col), append(p.At, Place{1, 1})
		}
		for _, k := range n.keys {
			x, at := k.left, k.leftAt
			if i == 1 {
				x, at = k.right, k.rightAt
			}
			p.Exprs, p.At = append(p.Exprs, x), append(p.At, at)
			p.Schema = append(p.Schema, dataflow.Column{Name: "key", Type: x.Type()})
		}
		out := &queue{mem: r.mem}
		first := step(&projector{evaluator: newEvaluator(r, out), project: p})
		j.sides[i] = &joinSide{rows: &pulled{r: r, out: out, chain: &chained{input: in.start(r), first: first}}, width: len(s)}
	}
	if len(n.rest) > 0 {
		j.kept = &queue{mem: r.mem, most: noLimit}
		j.filter = j.kept
		for _, f := range slices.Backward(n.rest) {
			j.filter = &filterer{evaluator: newEvaluator(r, j.filter), filter: f}
		}
	}
	return j
}

// read reads the next rows of a side into early.
func (j *joiner) read(s *joinSide) error {
	if err := j.r.tables.Check(); err != nil {
		return err
	}
	b, err := s.rows.next(noLimit)
	if err != nil {
		return err
	}
	if b == nil {
		s.ended = true
		return nil
	}
	n := bytesOf(b)
	if err := j.r.mem.take(n); err != nil {
		return err
	}
	s.early, s.bytes = append(s.early, b), s.bytes+n
	return nil
}

func (s *joinSide) count() int {
	n := 0
	for _, b := range s.early {
		n += b.N
	}
	return n
}

// begin reads as much as it takes to know which side is held, and builds its table.
func (j *joiner) begin() error {
	for _, side := range j.lookupOrder() {
		other := j.sides[1-side]
		for !other.ended && other.count() <= lookupRows {
			if err := j.read(other); err != nil {
				return err
			}
		}
		if other.ended && other.count() <= lookupRows {
			j.lookUp(side)
			return j.hold(1 - side)
		}
	}
	l, r := j.sides[0], j.sides[1]
	for !l.ended && !r.ended {
		smaller := l
		if r.bytes < l.bytes {
			smaller = r
		}
		if err := j.read(smaller); err != nil {
			return err
		}
	}
	if r.ended {
		return j.hold(1)
	}
	return j.hold(0)
}

// lookupOrder returns the sides whose table can be looked up, the one first whose partner promises fewer rows.
func (j *joiner) lookupOrder() []int {
	var order []int
	for side := range 2 {
		if j.node.lookups[side] != nil {
			order = append(order, side)
		}
	}
	if len(order) == 2 && promise(j.node.left) <= promise(j.node.right) {
		order[0], order[1] = 1, 0 // the left side is read first
	}
	return order[:min(len(order), 1)]
}

// promise ranks how few rows a node may give: fewer for a lower rank.
func promise(n node) int {
	rank := 2
	if f, ok := n.(*filterNode); ok {
		n, rank = f.input, 1
	}
	switch n := n.(type) {
	case *valuesNode:
		return 0
	case *scanNode:
		if n.Access.Points {
			return 0
		}
		if !n.Access.whole() {
			return 1
		}
		return rank
	}
	return 1
}

// lookUp makes the table of a side be looked up by the keys that the other side has.
func (j *joiner) lookUp(side int) {
	l, other := j.node.lookups[side], j.sides[1-side]
	s := j.r.scans[l.scan]
	if s.opened {
		return
	}
	var keys [][]byte
	for _, b := range other.early {
		vals := b.Cols[other.width:]
		cols := make([]*batch.Vector, len(l.parts))
		for i, p := range l.parts {
			cols[i] = vals[p]
		}
		for i := range b.N {
			if k, null := appendKeys(nil, cols, i); !null {
				keys = append(keys, k)
			}
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	s.access = Access{Points: true, Keys: keys, Text: fmt.Sprintf("look up %d keys", len(keys))}
}

// hold builds the table of a side, of which nothing is left to read.
func (j *joiner) hold(side int) error {
	s := j.sides[side]
	j.probed, j.flip = j.sides[1-side], side == 0
	j.held = &joinTable{batches: s.early, width: s.width, rows: make(map[string][]int32), all: len(j.node.keys) == 0}
	s.early = nil
	var buf []byte
	for bi, b := range j.held.batches {
		if err := j.r.tables.Check(); err != nil {
			return err
		}
		for i := range b.N {
			at := int32(len(j.held.places))
			j.held.places = append(j.held.places, joinPlace{int32(bi), int32(i)})
			if err := j.r.mem.take(joinRowOverhead); err != nil {
				return err
			}
			if j.held.all {
				j.held.every = append(j.held.every, at)
				continue
			}
			var null bool
			if buf, null = appendKeys(buf[:0], b.Cols[s.width:], i); null {
				continue
			}
			if _, have := j.held.rows[string(buf)]; !have {
				if err := j.r.mem.take(int64(len(buf)) + groupOverhead); err != nil {
					return err
				}
			}
			j.held.rows[string(buf)] = append(j.held.rows[string(buf)], at)
		}
	}
	if j.node.keeps(side) {
		j.held.matched = batch.NewBitmap(len(j.held.places))
	}
	return nil
}

// joinTable holds the rows of one side.
type joinTable struct {
	batches []*batch.Batch
	width   int // columns without the keys
	places  []joinPlace
	rows    map[string][]int32 // by key; rows that have a NULL in it are not there
	all     bool               // there are no keys: every row belongs to every other
	every   []int32
	matched batch.Bitmap // which rows have a partner; nil when it does not matter
}

type joinPlace struct{ batch, row int32 }

func (t *joinTable) appendRow(cols []*batch.Vector, at int32) {
	p := t.places[at]
	for c, v := range cols {
		v.AppendFrom(t.batches[p.batch].Cols[c], int(p.row))
	}
}

func (t *joinTable) rowBytes(at int32) int {
	p := t.places[at]
	return t.batches[p.batch].RowBytes(int(p.row))
}

// next gives joined rows.
func (j *joiner) next(most int64) (*batch.Batch, error) {
	j.r.mem.give(j.taken)
	j.taken = 0
	if j.held == nil {
		if err := j.begin(); err != nil {
			return nil, err
		}
	}
	for {
		if err := j.r.tables.Check(); err != nil {
			return nil, err
		}
		out, err := j.some(most)
		if err != nil || out == nil {
			return nil, err
		}
		if out.N > 0 {
			j.taken = bytesOf(out)
			return out, j.r.mem.take(j.taken)
		}
	}
}

// some gives some joined rows, perhaps none; nil at the end.
func (j *joiner) some(most int64) (*batch.Batch, error) {
	if j.rest >= 0 {
		return j.unmatchedHeld(), nil
	}
	if j.batch == nil {
		if err := j.advance(); err != nil {
			return nil, err
		}
		if j.batch == nil {
			if j.held.matched == nil {
				return nil, nil
			}
			j.rest = 0
			return j.unmatchedHeld(), nil
		}
	}
	pairs, full := j.pairs(most)
	out, err := j.apply(pairs)
	if err != nil {
		return nil, err
	}
	if !full { // the batch has been joined
		j.unmatchedProbed(out)
		j.batch = nil
	}
	return out, nil
}

// advance takes the next batch of the probed side.
func (j *joiner) advance() error {
	s := j.probed
	if len(j.held.places) == 0 && !j.node.keeps(j.probedSide()) {
		return nil // nothing can have a partner
	}
	for {
		switch {
		case len(s.early) > 0:
			j.batch = s.early[0]
			s.early[0] = nil
			s.early = s.early[1:]
			j.r.mem.give(bytesOf(j.batch))
		case s.ended:
			return nil
		default:
			b, err := s.rows.next(noLimit)
			if err != nil {
				return err
			}
			if s.ended = b == nil; s.ended {
				return nil
			}
			j.batch = b
		}
		if j.batch.N > 0 {
			break
		}
	}
	j.row, j.at, j.matched = 0, 0, make([]bool, j.batch.N)
	j.find()
	return nil
}

func (j *joiner) probedSide() int {
	if j.flip {
		return 1
	}
	return 0
}

// find looks the partners of the current row up.
func (j *joiner) find() {
	j.at = 0
	if j.held.all {
		j.matches = j.held.every
		return
	}
	k, null := appendKeys(nil, j.batch.Cols[j.probed.width:], j.row)
	j.matches = nil
	if !null {
		j.matches = j.held.rows[string(k)]
	}
}

// pair is a row of the probed batch and a held row.
type pair struct{ probed, held int32 }

// pairs returns pairs that have the same key, and whether there may be more of the batch.
func (j *joiner) pairs(most int64) (list []pair, more bool) {
	limit := batch.TargetRows
	if most != noLimit && most < int64(limit) && j.filter == nil {
		limit = int(most)
	}
	for size := 0; j.row < j.batch.N; {
		for j.at < len(j.matches) {
			if len(list) == limit || size >= partBytes {
				return list, true
			}
			m := j.matches[j.at]
			list = append(list, pair{int32(j.row), m})
			size += j.batch.RowBytes(j.row) + j.held.rowBytes(m)
			j.at++
		}
		if j.row++; j.row < j.batch.N {
			j.find()
		}
	}
	return list, false
}

// apply makes rows of pairs, keeps those that meet the further conditions, and notes which rows have found a partner.
func (j *joiner) apply(pairs []pair) (*batch.Batch, error) {
	out := j.newBatch()
	probed, held := j.columns(out)
	sel := make([]int32, len(pairs))
	for i, p := range pairs {
		sel[i] = p.probed
		j.held.appendRow(held, p.held)
	}
	for c := range probed {
		probed[c] = j.batch.Cols[c].Gather(sel)
	}
	out.N = len(pairs)
	if j.filter == nil || out.N == 0 {
		for _, p := range pairs {
			j.note(p)
		}
		return out, nil
	}
	// A last column numbers the pairs, to know those that are kept.
	number := batch.NewVectorLen(dataflow.TypeBigInt, out.N)
	for i := range number.Ints {
		number.Ints[i] = int64(i)
	}
	schema := append(out.Schema[:j.cols:j.cols], dataflow.Column{Name: "pair", Type: dataflow.TypeBigInt})
	if err := j.filter.push(out.WithCols(schema, append(out.Cols, number))); err != nil {
		return nil, err
	}
	kept := j.newBatch()
	for b := j.kept.pop(); b != nil; b = j.kept.pop() {
		for i := range b.N {
			j.note(pairs[b.Cols[j.cols].Ints[i]])
			for c, v := range kept.Cols {
				v.AppendFrom(b.Cols[c], i)
			}
		}
		kept.N += b.N
	}
	return kept, nil
}

func (j *joiner) note(p pair) {
	j.matched[p.probed] = true
	if j.held.matched != nil {
		j.held.matched.Set(int(p.held))
	}
}

func (j *joiner) newBatch() *batch.Batch { return batch.NewBatch(j.node.schema()) }

// columns returns the columns of joined rows that are of the probed and of the held side.
func (j *joiner) columns(out *batch.Batch) (probed, held []*batch.Vector) {
	left := j.sides[0].width
	if j.flip {
		return out.Cols[left:], out.Cols[:left]
	}
	return out.Cols[:left], out.Cols[left:]
}

// unmatchedProbed appends the rows of the batch that have no partner, if the join keeps them.
func (j *joiner) unmatchedProbed(out *batch.Batch) {
	if !j.node.keeps(j.probedSide()) {
		return
	}
	probed, held := j.columns(out)
	for i, ok := range j.matched {
		if ok {
			continue
		}
		for c, v := range probed {
			v.AppendFrom(j.batch.Cols[c], i)
		}
		appendNulls(held)
		out.N++
	}
}

// unmatchedHeld gives the next held rows that have no partner; nil at the end.
func (j *joiner) unmatchedHeld() *batch.Batch {
	if j.rest == len(j.held.places) {
		return nil
	}
	out := j.newBatch()
	probed, held := j.columns(out)
	for size := 0; j.rest < len(j.held.places) && out.N < batch.TargetRows && size < partBytes; j.rest++ {
		if j.held.matched.Get(j.rest) {
			continue
		}
		appendNulls(probed)
		j.held.appendRow(held, int32(j.rest))
		size += j.held.rowBytes(int32(j.rest))
		out.N++
	}
	return out
}

func appendNulls(cols []*batch.Vector) {
	for _, v := range cols {
		v.AppendNull()
	}
}
