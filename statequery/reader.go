package statequery

import (
	"context"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Reader reads single rows for a caller that comes again and again, such as a connection: it keeps its memory, and what
// names mean, from request to request. One goroutine uses it.
//
// A request is what happens between Begin and End. All that it reads of one pipeline at one isolation comes from one cut
// (Q1). Between requests a Reader holds no view.
type Reader struct {
	e *Engine
	// changed tells whether tables are still what the catalog says: as long as it is the catalog's channel.
	changed <-chan struct{}
	tables  map[string]*ReaderTable // by pipeline.table
	last    *ReaderTable            // that Table has returned: most requests read one table
	open    []*reading              // of the request under way
	key     []byte
}

// ReaderTable is a table as a Reader knows it. It is good until the Reader's next Begin.
type ReaderTable struct {
	rd       *Reader
	name     string // pipeline.table
	pipeline *Pipeline
	table    *Table
	mem      rowMemory
}

// NewReader returns a reader.
func (e *Engine) NewReader() *Reader {
	return &Reader{e: e, tables: make(map[string]*ReaderTable)}
}

// Begin begins a request. End must follow.
func (rd *Reader) Begin() {
	if now := rd.e.cfg.Catalog.Changed(); now != rd.changed {
		rd.changed = now
		clear(rd.tables)
		rd.last = nil
	}
}

// End ends a request: it lets go of its cuts.
func (rd *Reader) End() {
	for i, r := range rd.open {
		r.close()
		rd.open[i] = nil
	}
	rd.open = rd.open[:0]
}

// Table finds a table by its whole name, pipeline.table. name may be reused when it returns.
func (rd *Reader) Table(name []byte) (*ReaderTable, error) {
	if rd.last != nil && rd.last.name == string(name) {
		return rd.last, nil
	}
	if t := rd.tables[string(name)]; t != nil {
		rd.last = t
		return t, nil
	}
	pipeline, table, ok := strings.Cut(string(name), ".")
	if !ok {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "%q does not name a table", name).WithHint("write pipeline.table")
	}
	p, t, err := rd.e.table(pipeline, table)
	if err != nil {
		return nil, err
	}
	rd.last = &ReaderTable{rd: rd, name: string(name), pipeline: p, table: t}
	rd.tables[rd.last.name] = rd.last
	return rd.last, nil
}

// Schema returns the table's visible columns.
func (t *ReaderTable) Schema() dataflow.Schema { return t.table.stage.Schema }

// KeyCols says where each key column stands in the schema, in the order of the key.
func (t *ReaderTable) KeyCols() []int { return t.table.stage.KeyCols }

// ValueCols lists the columns that do not belong to the key.
func (t *ReaderTable) ValueCols() []int { return t.table.values }

// Get returns the row with the key as a batch of one, or nil when there is none. It is valid until the next Get of the
// table. A key value of TypeUnknown is text, to be parsed as the key column's type.
func (t *ReaderTable) Get(ctx context.Context, k dataflow.Row, isolation dataflow.Isolation) (*batch.Batch, error) {
	rd := t.rd
	var err error
	if rd.key, err = appendKey(rd.key[:0], t.table.stage, k); err != nil {
		return nil, err
	}
	r, err := rd.reading(ctx, t.pipeline, isolation)
	if err != nil {
		return nil, err
	}
	return r.row(ctx, t.table, rd.key, &t.mem)
}

// Cut returns the cut that the request reads of the table's pipeline.
func (t *ReaderTable) Cut(ctx context.Context, isolation dataflow.Isolation) (dataflow.Cut, error) {
	r, err := t.rd.reading(ctx, t.pipeline, isolation)
	if err != nil {
		return dataflow.Cut{}, err
	}
	return r.describe(), nil
}

// reading returns what the request reads of a pipeline.
func (rd *Reader) reading(ctx context.Context, p *Pipeline, isolation dataflow.Isolation) (*reading, error) {
	for _, r := range rd.open {
		if r.pipeline.UID == p.UID && r.isolation == isolation {
			return r, nil
		}
	}
	r, err := rd.e.open(ctx, p, dataflow.ReadOptions{Isolation: isolation})
	if err != nil {
		return nil, err
	}
	r.isolation = isolation
	rd.open = append(rd.open, r)
	return r, nil
}
