package weir

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// page is one page of an answer of many rows.
type page struct {
	columns []*weirv1.Column
	rows    []Row
	cut     *weirv1.Cut
	next    string
}

// Rows is an answer of many rows, fetched page by page, all from one cut. It is for one goroutine.
type Rows struct {
	fetch   func(pageToken string) (*page, error)
	pages   int
	columns []*weirv1.Column
	rows    []Row
	cut     *weirv1.Cut
	next    string
	left    int // rows that may still be returned; negative = no limit
	err     error
}

// open fetches the first page, so that a request's mistake is reported before the first row.
func openRows(limit int, fetch func(string) (*page, error)) (*Rows, error) {
	r := &Rows{fetch: fetch, left: -1}
	if limit > 0 {
		r.left = limit
	}
	return r, r.load()
}

func (r *Rows) load() error {
	p, err := r.fetch(r.next)
	if err != nil {
		return err
	}
	if r.pages == 0 {
		r.columns = p.columns
	}
	r.pages++
	r.rows, r.cut, r.next = p.rows, p.cut, p.next
	return nil
}

// Next returns the next row, and false at the end or after a failure, which Err tells apart.
func (r *Rows) Next() (Row, bool) {
	if r.err != nil || r.left == 0 {
		return nil, false
	}
	for len(r.rows) == 0 {
		if r.next == "" {
			return nil, false
		}
		if r.err = r.load(); r.err != nil {
			return nil, false
		}
	}
	row := r.rows[0]
	r.rows = r.rows[1:]
	if r.left > 0 {
		r.left--
	}
	return row, true
}

// All ranges over the rows that are left. Check Err afterwards.
func (r *Rows) All() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for {
			row, ok := r.Next()
			if !ok || !yield(row) {
				return
			}
		}
	}
}

// Err returns what ended the rows before their end, or nil.
func (r *Rows) Err() error { return r.err }

// Cut returns the cut that all rows are from.
func (r *Rows) Cut() *weirv1.Cut { return r.cut }

// Columns returns the columns of a query's answer; nil for a scan.
func (r *Rows) Columns() []*weirv1.Column { return r.columns }

// ScanRange says which keys a scan covers. The zero value is all.
type ScanRange struct {
	// Equal are leading parts of the key that must be equal; the bounds are on the next part.
	Equal dataflow.Row
	// Prefix, if set, starts the next part, a TEXT.
	Prefix string
	// From and To bound the next part: From <= part < To. Nil is unbounded.
	From, To *dataflow.Value
	// Limit ends the scan after this many rows; 0 = no limit.
	Limit int
	// PageRows is how many rows are fetched at once; 0 = 1000.
	PageRows int
}

// pageRows returns how many rows to ask for: a page, or the limit when that is less.
func pageRows(want, limit int) int32 {
	if want <= 0 {
		want = 1000
	}
	if limit > 0 {
		want = min(want, limit)
	}
	return int32(min(want, dataflow.MaxPageRows))
}

// Scan reads rows of a table ("pipeline.table") in the order of the key.
func (c *Client) Scan(ctx context.Context, table string, s ScanRange, o ReadOptions) (*Rows, error) {
	p, t, err := dataflow.ParsePipelineTable(table)
	if err != nil {
		return nil, err
	}
	session := c.session(p, &o)
	req := &weirv1.ScanRequest{
		Pipeline: p, Table: t, Prefix: s.Prefix, Limit: pageRows(s.PageRows, s.Limit), Isolation: o.isolation(),
		MinToken: o.MinToken, SessionToken: session, MaxWait: c.maxWait(ctx, &o, session), CheckpointId: o.checkpoint(), Numbers: o.numbers(),
		MaxStaleness: o.maxStaleness(),
	}
	if len(s.Equal) > 0 {
		req.Equal = wire.Key(s.Equal)
	}
	if s.From != nil {
		req.From = wire.Value(*s.From)
	}
	if s.To != nil {
		req.To = wire.Value(*s.To)
	}
	left := int64(max(s.Limit, 0))
	return openRows(s.Limit, func(token string) (*page, error) {
		req.PageToken, req.AtMost = token, left
		r, err := call(ctx, c, repeatable, c.query.Scan, req)
		c.finish(p, &o, r.GetCut(), err)
		if err != nil {
			return nil, err
		}
		left = max(left-int64(len(r.GetRows())), 0) // 0 is no limit, or nobody asks for more
		return &page{rows: rawRows(r.GetRows()), cut: r.GetCut(), next: r.GetNextPageToken()}, nil
	})
}

// Query runs one SELECT over tables of one pipeline, or EXPLAIN. The answer to the EXPLAIN of a view that is not deployed has
// no cut.
func (c *Client) Query(ctx context.Context, sql string, o ReadOptions) (*Rows, error) {
	p, req := c.queryRequest(ctx, sql, &o)
	return openRows(0, func(token string) (*page, error) {
		req.PageToken = token
		r, err := call(ctx, c, repeatable, c.query.Query, req)
		c.finish(p, &o, r.GetCut(), err)
		if err != nil {
			return nil, err
		}
		return &page{columns: r.GetColumns(), rows: rawRows(r.GetRows()), cut: r.GetCut(), next: r.GetNextPageToken()}, nil
	})
}

func (c *Client) queryRequest(ctx context.Context, sql string, o *ReadOptions) (pipeline string, req *weirv1.QueryRequest) {
	pipeline = pipelineOf(sql)
	session := c.session(pipeline, o)
	return pipeline, &weirv1.QueryRequest{
		Sql: sql, Limit: pageRows(0, 0), Isolation: o.isolation(), MinToken: o.MinToken, SessionToken: session,
		MaxWait: c.maxWait(ctx, o, session), MaxStaleness: o.maxStaleness(), CheckpointId: o.checkpoint(), Numbers: o.numbers(),
	}
}

// Explained says how a query would be answered: its plan, line by line, and where from. Of a file that is not deployed Cut and
// Where are nil.
type Explained struct {
	Plan  []string
	Cut   *weirv1.Cut
	Where *weirv1.Explanation
}

// Explain explains a SELECT without running it, or what EXPLAIN explains.
func (c *Client) Explain(ctx context.Context, sql string, o ReadOptions) (*Explained, error) {
	p, req := c.queryRequest(ctx, sql, &o)
	req.Explain = true
	r, err := call(ctx, c, repeatable, c.query.Query, req)
	c.finish(p, &o, r.GetCut(), err)
	if err != nil {
		return nil, err
	}
	x := &Explained{Cut: r.GetCut(), Where: r.GetExplanation()}
	for _, row := range r.GetRows() {
		var line struct{ Plan string }
		if err := json.Unmarshal(row, &line); err != nil {
			return nil, dataflow.Errorf(dataflow.ReasonInternal, "a line of the server's explanation is %q: %w", row, err)
		}
		x.Plan = append(x.Plan, line.Plan)
	}
	return x, nil
}

func rawRows(rows [][]byte) []Row {
	out := make([]Row, len(rows))
	for i, r := range rows {
		out[i] = r
	}
	return out
}
