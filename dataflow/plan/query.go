package plan

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/sql"
)

// Query is a pull query over tables of one pipeline. It is immutable: Run may be called any number of times.
type Query struct {
	// Pipeline is the pipeline whose tables the query reads.
	Pipeline string
	// Scans says what of which tables it reads. A join may read less of a table: when it has few rows to look up.
	Scans []*Scan
	// Schema holds the result's columns. Their names are distinct.
	Schema dataflow.Schema

	src        *sql.Source
	now        int64
	root       node
	subqueries []*subquery
}

// Scan is one reading of a table. The whole WHERE is evaluated again: a reader may give rows outside Access too.
type Scan struct {
	Table  Table
	Access Access
}

// Access says which keys of the table a query reads, as canonical key bytes (package key).
type Access struct {
	// Points says that Keys lists every key that can matter: point look-ups. Otherwise Ranges are scanned.
	Points bool
	Keys   [][]byte // ascending, each once; may be empty
	Ranges []Range  // ascending, disjoint; one Range{} is the whole table
	// Text describes the access for people: word = 'whale'.
	Text string
}

// Range is the keys from Lo on and below Hi. A nil Lo is the start of the table, a nil Hi its end.
type Range struct{ Lo, Hi []byte }
