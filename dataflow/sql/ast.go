package sql

// File is a parsed deploy file.
type File struct {
	Source     *Source
	Statements []Statement
}

// Statement is *Set, *CreateStream or *CreateView.
type Statement interface {
	Span() Span
	statement()
}

// Ident is a name as written. Unquoted names are folded to lower case.
type Ident struct {
	Name string
	At   Span
}

// Set is SET name = value.
type Set struct {
	At     Span
	Option Option
}

// Option is one name = value of SET or WITH. The value is as written, without its quotes.
type Option struct {
	Name    string // dotted
	Value   string
	At      Span // name and value
	ValueAt Span
}

// Explain is EXPLAIN query, EXPLAIN CREATE MATERIALIZED VIEW … or EXPLAIN pipeline.table: one of the fields is set.
type Explain struct {
	Source *Source
	Query  *Select
	File   *File // the statements that are explained as a deploy file
	Table  *Name
}

// CreateStream is CREATE STREAM.
type CreateStream struct {
	At          Span
	Name        Ident
	Columns     []ColumnDef
	PartitionBy []Ident
	Options     []Option
}

// ColumnDef is one column of CREATE STREAM.
type ColumnDef struct {
	Name    Ident
	Type    TypeName
	NotNull bool
}

// CreateView is CREATE VIEW or CREATE MATERIALIZED VIEW.
type CreateView struct {
	At           Span // the words CREATE … VIEW
	Name         Ident
	Materialized bool
	Columns      []Ident // nil: the query's own names
	Query        *Select
}

func (s *Set) Span() Span          { return s.At }
func (s *CreateStream) Span() Span { return s.At }
func (s *CreateView) Span() Span   { return s.At }

func (*Set) statement()          {}
func (*CreateStream) statement() {}
func (*CreateView) statement()   {}

// Select is one query: a SELECT, VALUES, or two queries that UNION and its relatives connect, with its WITH before and its
// ORDER BY and LIMIT behind it.
type Select struct {
	Source *Source
	At     Span // the word SELECT, VALUES, UNION, …
	// Set is what connects two queries, Values the rows of VALUES. Where one of them is set, the parts of a SELECT from
	// Distinct to Having are not.
	Set    *SetOp
	Values [][]Expr

	With     []CTE
	Distinct bool
	Items    []Item
	From     *From // nil when there is none
	Where    Expr  // nil when there is none, like the others below
	GroupBy  []Expr
	Having   Expr
	OrderBy  []Order
	Limit    Expr
	Offset   Expr

	DistinctAt, HavingAt, OrderAt, LimitAt, OffsetAt Span

	windows map[string]*Window // of WINDOW, while it is parsed
}

// SetKind is how two queries are connected.
type SetKind uint8

const (
	SetUnion SetKind = iota
	SetIntersect
	SetExcept
)

// String returns the keyword.
func (k SetKind) String() string { return [...]string{"UNION", "INTERSECT", "EXCEPT"}[k] }

// SetOp is L UNION|INTERSECT|EXCEPT [ALL] R.
type SetOp struct {
	Kind SetKind
	All  bool
	L, R *Select
	At   Span // the keyword
}

// CTE is one query of WITH.
type CTE struct {
	Name    Ident
	Columns []Ident
	Query   *Select
}

// Item is one expression of a SELECT list.
type Item struct {
	Star      bool
	Qualifier string // of t.*
	Expr      Expr   // nil for *
	Alias     *Ident // nil when there is none
	At        Span
}

// From is what a SELECT reads: a table, a subquery, a function's rows or a join of two of these, and set-returning functions
// over its rows. One of Name, Subquery, Call and Join is set.
type From struct {
	Name     *Name // a stream, view or table
	Subquery *Select
	Call     *Call // generate_series(…)
	Join     *Join
	Lateral  bool // the subquery may name what stands before it
	Alias    *Ident
	Columns  []Ident // of AS t(a, b)
	At       Span
	Unnests  []Unnest
}

// JoinKind says which rows of a join's sides are kept without a partner.
type JoinKind uint8

const (
	JoinInner JoinKind = iota
	JoinLeft
	JoinRight
	JoinFull
	JoinCross
)

// String returns the keyword.
func (k JoinKind) String() string { return [...]string{"INNER", "LEFT", "RIGHT", "FULL", "CROSS"}[k] }

// Join is L kind JOIN R with its condition. A comma in FROM is a CROSS join.
type Join struct {
	Kind    JoinKind
	L, R    *From
	On      Expr    // nil when there is none
	Using   []Ident // nil when there is none
	Natural bool
	At      Span // the words before R, or the comma
}

// Unnest is a set-returning function in FROM: UNNEST(e) or regexp_split_to_table(s, pattern).
type Unnest struct {
	Outer   bool // LEFT JOIN: a row without elements is kept, with NULL
	Call    *Call
	Alias   *Ident
	Columns []Ident
	At      Span
}

// Order is one expression of ORDER BY.
type Order struct {
	Expr       Expr
	Desc       bool
	NullsFirst bool // as written, or PostgreSQL's default: last for ASC, first for DESC
}

// Name is a name of up to three parts: column, t.column.
type Name struct {
	Parts []Ident
	At    Span
}

// TypeName is the name of a type.
type TypeName struct {
	Name  string // the canonical spelling: BIGINT, DOUBLE PRECISION, …
	Array bool
	// Precision and Scale are those of NUMERIC(precision, scale); a precision of 0 means that there are none.
	Precision, Scale int
	At               Span
}

// Expr is an expression.
type Expr interface {
	Span() Span
	expr()
}

// LiteralKind classes literals.
type LiteralKind uint8

const (
	LiteralNull LiteralKind = iota
	LiteralTrue
	LiteralFalse
	LiteralInteger
	LiteralDecimal
	LiteralString
)

// Literal is a constant. Text is the digits of a number or the value of a string.
type Literal struct {
	Kind LiteralKind
	Text string
	At   Span
}

// Unary is op X; the operator is -, +, NOT or another prefix operator.
type Unary struct {
	Op string
	X  Expr
	At Span
}

// Binary is L op R; AND and OR are upper case, != is <>.
type Binary struct {
	Op   string
	OpAt Span
	L, R Expr
	At   Span
}

// Between is X [NOT] BETWEEN [SYMMETRIC] Lo AND Hi.
type Between struct {
	X, Lo, Hi      Expr
	Not, Symmetric bool
	OpAt           Span
	At             Span
}

// In is X [NOT] IN (List) or X [NOT] IN (Query).
type In struct {
	X     Expr
	List  []Expr
	Query *Select // nil for a list
	Not   bool
	OpAt  Span
	At    Span
}

// Like is X [NOT] LIKE|ILIKE Pattern [ESCAPE Escape].
type Like struct {
	X, Pattern, Escape Expr // Escape may be nil
	Not, Insensitive   bool
	OpAt               Span
	At                 Span
}

// IsKind is what IS tests for.
type IsKind uint8

const (
	IsNull IsKind = iota
	IsTrue
	IsFalse
	IsUnknown
)

// Is is X IS [NOT] NULL|TRUE|FALSE|UNKNOWN.
type Is struct {
	X    Expr
	Kind IsKind
	Not  bool
	At   Span
}

// Distinct is L IS [NOT] DISTINCT FROM R.
type Distinct struct {
	L, R Expr
	Not  bool
	OpAt Span
	At   Span
}

// Case is CASE [Operand] WHEN … THEN … [ELSE Else] END.
type Case struct {
	Operand Expr // nil in the searched form
	Whens   []When
	Else    Expr // nil when there is none
	At      Span
}

// When is one branch of a CASE.
type When struct{ Cond, Result Expr }

// Cast is CAST(X AS Type), X::Type or Type 'literal'.
type Cast struct {
	X    Expr
	Type TypeName
	At   Span
}

// Call is a call of a function. SQL's special forms are calls too: extract(f FROM x) is extract('f', x), substring(x
// FROM a FOR b) is substring(x, a, b), position(a IN b) is position(a, b), trim(LEADING a FROM b) is ltrim(b, a),
// CURRENT_TIMESTAMP is now(), a[m:n] is SliceFunction of a, m and n, x AT TIME ZONE z is timezone(z, x).
type Call struct {
	Func     Ident
	Star     bool // count(*)
	Distinct bool
	Args     []Expr
	OrderBy  []Order // behind the arguments, or of WITHIN GROUP
	Within   bool    // OrderBy is of WITHIN GROUP (ORDER BY …)
	Filter   Expr    // nil when there is none
	Over     *Window
	At       Span
}

// SliceFunction is the function of array[from:to].
const SliceFunction = "[:]"

// Window is OVER (PARTITION BY … ORDER BY … frame), or the window that WINDOW names.
type Window struct {
	PartitionBy []Expr
	OrderBy     []Order
	Frame       *Frame // nil: RANGE UNBOUNDED PRECEDING
	At          Span
}

// FrameMode is what the bounds of a frame count.
type FrameMode uint8

const (
	FrameRange  FrameMode = iota // rows that ORDER BY does not tell apart are in it together
	FrameRows                    // rows
	FrameGroups                  // groups of rows that ORDER BY does not tell apart
)

// String returns the keyword.
func (m FrameMode) String() string { return [...]string{"RANGE", "ROWS", "GROUPS"}[m] }

// BoundKind is where a frame begins or ends, in the order of the partition.
type BoundKind uint8

const (
	UnboundedPreceding BoundKind = iota
	Preceding
	CurrentRow
	Following
	UnboundedFollowing
)

// Bound is one end of a frame.
type Bound struct {
	Kind BoundKind
	N    Expr // of Preceding and Following
	At   Span
}

// Frame is ROWS|RANGE|GROUPS BETWEEN Start AND End.
type Frame struct {
	Mode       FrameMode
	Start, End Bound
	At         Span
}

// Subquery is (SELECT …), or EXISTS (SELECT …).
type Subquery struct {
	Query  *Select
	Exists bool
	At     Span
}

func (e *Name) Span() Span     { return e.At }
func (e *Literal) Span() Span  { return e.At }
func (e *Unary) Span() Span    { return e.At }
func (e *Binary) Span() Span   { return e.At }
func (e *Between) Span() Span  { return e.At }
func (e *In) Span() Span       { return e.At }
func (e *Is) Span() Span       { return e.At }
func (e *Distinct) Span() Span { return e.At }
func (e *Case) Span() Span     { return e.At }
func (e *Cast) Span() Span     { return e.At }
func (e *Call) Span() Span     { return e.At }
func (e *Like) Span() Span     { return e.At }
func (e *Subquery) Span() Span { return e.At }

func (*Name) expr()     {}
func (*Literal) expr()  {}
func (*Unary) expr()    {}
func (*Binary) expr()   {}
func (*Between) expr()  {}
func (*In) expr()       {}
func (*Like) expr()     {}
func (*Is) expr()       {}
func (*Distinct) expr() {}
func (*Case) expr()     {}
func (*Cast) expr()     {}
func (*Call) expr()     {}
func (*Subquery) expr() {}
