package plan

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/sql"
)

// Query is a pull query over one table. It is immutable: each run has an Exec of its own.
//
// The caller reads the rows that Access names, in any order, at one cut, and pushes them into an Exec. Rows outside
// Access may be pushed too: the whole WHERE is evaluated again.
type Query struct {
	Table  Table
	Access Access
	// Schema holds the result's columns. Their names are distinct.
	Schema dataflow.Schema

	src    *sql.Source
	now    int64
	levels []*level // innermost first
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
