// Package rowfile reads files of rows for weir ingest: lines of text, NDJSON, CSV. Rows come out in batches that fit the
// stream's schema; a row that does not fit is an error that names its line.
//
// Readers hold one batch at a time, whatever the size of the file.
package rowfile
