// Package api serves weir.v1 over gRPC: it checks requests completely, turns them into Weir's own types, calls the node
// and turns answers and errors back. One RPC group per file; what it needs of the node is declared in backend.go, and
// nothing there mentions a message.
//
// # Rules
//
//   - A request is checked before the node sees it. What the node is handed fits its schema and its limits (G8).
//   - Every error leaves as google.rpc.Status with one ErrorInfo; errors.go is the only place where errors become
//     statuses. An error that is not a *dataflow.Error is a defect: it is logged whole and leaves as INTERNAL.
//   - A handler that panics costs its request alone.
//   - What a request may hold is bounded: its size, its time, and, over all requests, the bytes of rows in flight.
//
// HTTP (package gateway) goes through the same server, so that nothing here can be passed by.
package api
