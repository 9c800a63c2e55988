package plan

import "github.com/weirdb/weir/dataflow"

// Catalog is what Build needs to know of the node group: the streams that exist.
type Catalog interface {
	// Stream returns the stream called name.
	Stream(name string) (Stream, bool)
	// StreamNames returns the names of all streams, for near misses.
	StreamNames() []string
}

// TableCatalog is what BindQuery needs to know: the tables that exist.
type TableCatalog interface {
	// Table returns the table of a pipeline. The error is PIPELINE_NOT_FOUND or TABLE_NOT_FOUND; BindQuery adds the place.
	Table(pipeline, table string) (Table, error)
	// TableNames returns the names of all tables, pipeline.table, for near misses.
	TableNames() []string
}

// Table describes a table as a query sees it.
type Table struct {
	Pipeline, Name string
	Schema         dataflow.Schema // visible columns: what batches of rows have
	KeyCols        []int           // where the key columns stand in Schema, in key order
}

// TableOf describes the table of a stage.
func TableOf(pipeline string, s *Stage) Table {
	return Table{Pipeline: pipeline, Name: s.Name, Schema: s.Schema, KeyCols: s.KeyCols}
}

// Streams is a Catalog over a fixed set of streams.
type Streams []Stream

// Stream implements Catalog.
func (s Streams) Stream(name string) (Stream, bool) {
	for _, t := range s {
		if t.Name == name {
			return t, true
		}
	}
	return Stream{}, false
}

// StreamNames implements Catalog.
func (s Streams) StreamNames() []string {
	names := make([]string, len(s))
	for i, t := range s {
		names[i] = t.Name
	}
	return names
}

var _ Catalog = Streams(nil)
