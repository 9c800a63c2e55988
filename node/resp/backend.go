package resp

import (
	"context"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Backend is what connections read. It is safe for concurrent use. Errors are *dataflow.Error where a user can do
// something about them.
type Backend interface {
	// NewReader returns a reader for one connection.
	NewReader() Reader
	// Scan returns a page of rows in key order, and the token of the next page, "" at the end. All pages of a committed scan
	// come from one cut.
	Scan(ctx context.Context, pipeline, table string, r dataflow.ScanRange, p dataflow.Page, o dataflow.ReadOptions) (rows *batch.Batch, next string, cut dataflow.Cut, err error)
	// Tables lists all tables, by pipeline.
	Tables(ctx context.Context) ([]TableInfo, error)
	// Cuts returns the newest committed cut of every pipeline.
	Cuts(ctx context.Context) ([]dataflow.Cut, error)
	// Wait waits until the pipelines, or all that read its streams when none is named, cover an append's token. When ctx ends
	// first: TOKEN_NOT_REACHED.
	Wait(ctx context.Context, token string, pipelines []string, processed bool) ([]dataflow.Cut, error)
	// AppendCut appends a cut as the JSON that HTTP answers have.
	AppendCut(dst []byte, c *dataflow.Cut) []byte
}

// TableInfo describes a table.
type TableInfo struct {
	Pipeline, Name string
	Rows           uint64 // of the live table, about
}

// Reader reads rows for one connection. One goroutine uses it. What is read between Begin and End of one pipeline at one
// isolation comes from one cut.
type Reader interface {
	Begin()
	End()
	// Table finds a table by its whole name, pipeline.table. It is good until the next Begin. name may be reused.
	Table(name []byte) (Table, error)
}

// Table is a table as a Reader knows it.
type Table interface {
	// Schema returns the visible columns; KeyCols says where the key's columns stand in it, ValueCols where the others do.
	Schema() dataflow.Schema
	KeyCols() []int
	ValueCols() []int
	// Get returns the row with the key as a batch of one, or nil. It is valid until the next Get of the table. A key value of
	// TypeUnknown is text, to be parsed as the key column's type; NULL comes as TypeUnknown too.
	Get(ctx context.Context, key dataflow.Row, isolation dataflow.Isolation) (*batch.Batch, error)
	// Cut returns the cut that the request reads.
	Cut(ctx context.Context, isolation dataflow.Isolation) (dataflow.Cut, error)
}
