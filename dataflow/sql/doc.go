// Package sql reads Weir's SQL: it turns the text of a deploy file or of a query into a syntax tree, or into an error
// that shows the place, what stands there, what was expected and what to write instead.
//
// The dialect is a part of PostgreSQL's: its lexical rules, its operator precedences, its names for types. Everything
// else of PostgreSQL that people try is recognised and refused by name (SQL_UNSUPPORTED, refuse.go), never with a bare
// "unexpected token".
//
// The parser is written by hand: recursive descent for statements, precedence climbing for expressions. A generated
// parser would be shorter, but the errors are the point of this package.
//
// Rules:
//
//  1. Parsing is pure and total: any input gives a tree or a *dataflow.Error, in time linear in its size. Recursion is
//     bounded by dataflow.MaxSQLDepth, text by dataflow.MaxSQLBytes, the operators of one statement by maxOperators
//     (a chain a+a+… makes a deep tree without nesting in the text).
//  2. The first error wins. After it the parser sees only the end of the text, so that every loop ends.
//  3. The tree keeps the place of everything in the text. Package plan finds the errors of names and types and reports
//     them through Source, in the same form.
//  4. The parser knows grammar only: no names of functions, columns or options.
package sql
