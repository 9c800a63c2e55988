// Package gateway serves weir.v1 over HTTP, with health, metrics and the API's description.
//
// Every request becomes a gRPC call over an in-process connection to the same server that gRPC clients use, so whatever
// its interceptors do, they do for HTTP. Most routes are grpc-gateway's, generated from the protos. Written by hand are
// those whose plain shape protobuf's JSON cannot have: rows and keys (rows.go, query.go), appends (append.go) and the
// rows of a stream (readstream.go).
//
// # Rules
//
//   - Answers are plain JSON (wire.AppendJSON): numbers are numbers, rows are objects, names are as in the protos.
//   - Bodies are JSON under application/json, curl -d's default type or none; rows are also NDJSON. Anything else is
//     415, too much is 413, and unknown fields, parameters and enum values are 400.
//   - An answer with a cut repeats it in headers; ETag is its checkpoint's id.
//   - Errors are google.rpc.Status as JSON; an absent row's has its cut in a member "cut".
package gateway
