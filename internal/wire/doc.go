// Package wire turns messages of weir.v1 into Weir's own types and back: rows in columns, rows as JSON, keys, cuts and
// errors. The server (node/api, node/gateway) and the Go client share it, so both sides agree by construction.
//
// It is pure: bytes in, values out. Everything that comes from outside is checked here, completely, before anything is
// handed on: a decoded batch fits its schema. Decoders never panic and bound what they allocate by what they were given.
package wire
