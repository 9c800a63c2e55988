// Package expr holds Weir's expressions: typed trees that are built once, by the binder of a plan, and evaluated over
// whole columns. Their answers are PostgreSQL's; docs/sql.md lists the functions and names every difference.
//
// # Use
//
// NewConst, NewColumn, NewCall, NewCase and NewCast build a tree and check its types. Operators are calls too:
// NewCall("+", a, b). An Expr is immutable afterwards and may be evaluated by many goroutines at once, each with its own
// Env:
//
//	env := expr.Env{Fail: func(row int, err *dataflow.Error) { failed.Set(row) }}
//	v := e.Eval(&env, b, nil) // one value per row of b
//
// # Rules
//
// A row that an expression fails for (an overflow, a CAST) is reported to Env.Fail and has a NULL result; the other rows
// are not affected. A row that is not in the selection is never looked at, so it cannot fail: CASE, COALESCE, AND and OR
// evaluate their later arguments only over the rows that need them, as PostgreSQL does, and a guarded error never fires.
//
// Expressions are deterministic (P10). now() is the row's append time in a view and the request's time in a query;
// functions that differ from call to call, such as random(), are known by name and refused.
//
// The session time zone is UTC, text compares and is cased by code point (as with PostgreSQL's C.UTF-8), and regular
// expressions are RE2's.
//
// # Adding a function
//
// One entry in the table of its topic file (text.go, number.go, time.go, regexp.go …): name, argument types, result
// type, documentation and the code. One case in testdata, recorded from PostgreSQL with go test -run TestPostgres
// -record. The documentation table follows by go test -run TestDocs -rewrite.
package expr
