package expr

import (
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Lookup is what a subquery gave in one run of a query, as expressions read it. One goroutine uses it.
type Lookup interface {
	// Append appends one value to out: what the subquery gives for the values that row i of args has. On an error it has
	// appended nothing.
	Append(out *batch.Vector, args []*batch.Vector, i int) *dataflow.Error
}

// Subquery stands for a query inside of an expression. The query runs before the expression is evaluated; its result is
// in Env.Lookups.
type Subquery struct {
	index int
	args  []Expr
	typ   dataflow.Type
	text  string
}

// NewSubquery returns an expression for Env.Lookups[index], looked up by args, of type t. The text stands for it in String,
// followed by args; it must differ between subqueries.
func NewSubquery(index int, text string, t dataflow.Type, args ...Expr) *Subquery {
	return &Subquery{index: index, args: args, typ: t, text: text}
}

// Type implements Expr.
func (s *Subquery) Type() dataflow.Type { return s.typ }

// String implements Expr.
func (s *Subquery) String() string {
	if len(s.args) == 0 {
		return s.text
	}
	parts := make([]string, len(s.args))
	for i, a := range s.args {
		parts[i] = a.String()
	}
	return s.text + " for (" + strings.Join(parts, ", ") + ")"
}

// Eval implements Expr.
func (s *Subquery) Eval(env *Env, b *batch.Batch, sel Sel) *batch.Vector {
	args := make([]*batch.Vector, len(s.args))
	for i, a := range s.args {
		args[i] = a.Eval(env, b, sel)
	}
	if !env.Take(int64(b.N) * width(s.typ)) {
		return env.nothing(s.typ, b.N)
	}
	lookup := env.Lookups[s.index]
	out := batch.NewVector(s.typ, b.N)
	for i := range b.N {
		if sel != nil {
			if len(sel) == 0 || int(sel[0]) != i {
				out.AppendNull()
				continue
			}
			sel = sel[1:] // empty in the end, never nil
		}
		if err := lookup.Append(out, args, i); err != nil {
			env.fail(i, err)
			out.AppendNull()
			continue
		}
		if !env.Take(RowMemory(out, i)) {
			return env.nothing(s.typ, b.N)
		}
	}
	return out
}

var _ Expr = (*Subquery)(nil)
