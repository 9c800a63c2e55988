package expr

import (
	"errors"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// When is one branch of a CASE.
type When struct{ Cond, Then Expr }

// Case is CASE WHEN … THEN … ELSE … END.
type Case struct {
	whens []When
	els   Expr
	typ   dataflow.Type
}

// NewCase returns CASE WHEN … THEN … ELSE … END; els may be nil, for ELSE NULL. The conditions must be BOOLEAN and the
// results have a common type. CASE x WHEN y is written CASE WHEN x = y.
func NewCase(whens []When, els Expr) (Expr, error) {
	if els == nil {
		els = NewConst(dataflow.NullValue(dataflow.TypeUnknown))
	}
	c := &Case{whens: make([]When, len(whens))}
	results := []Expr{els}
	for _, w := range whens {
		results = append(results, w.Then)
	}
	t, a, b, ok := commonType(results)
	if !ok {
		return nil, dataflow.Errorf(dataflow.ReasonSQLType, "CASE types %s and %s cannot be matched", typeName(a), typeName(b)).
			WithHint("cast one of them, for example x::text")
	}
	c.typ = t
	var err error
	for i, w := range whens {
		if !isLiteral(w.Cond) && w.Cond.Type() != dataflow.TypeBool {
			return nil, dataflow.Errorf(dataflow.ReasonSQLType, "argument of CASE/WHEN must be type boolean, not type %s", typeName(w.Cond.Type()))
		}
		if c.whens[i].Cond, err = Coerce(w.Cond, dataflow.TypeBool); err != nil {
			return nil, err
		}
		if c.whens[i].Then, err = Coerce(w.Then, t); err != nil {
			return nil, &argumentError{i, otherResult(err, t)}
		}
	}
	if c.els, err = Coerce(els, t); err != nil {
		return nil, &argumentError{len(whens), otherResult(err, t)}
	}
	return fold(c), nil
}

// otherResult says how a text can stand among results of another type.
func otherResult(err error, t dataflow.Type) error {
	var e *dataflow.Error
	if !errors.As(err, &e) || e.Hint != "" {
		return err
	}
	c := *e
	return c.WithHint("the other results are of type %s: cast them, for example x::text", typeName(t))
}

// Type implements Expr.
func (c *Case) Type() dataflow.Type { return c.typ }

// String implements Expr.
func (c *Case) String() string {
	var b strings.Builder
	b.WriteString("CASE")
	for _, w := range c.whens {
		b.WriteString(" WHEN " + w.Cond.String() + " THEN " + w.Then.String())
	}
	b.WriteString(" ELSE " + c.els.String() + " END")
	return b.String()
}

// Eval implements Expr. A condition sees only the rows that no earlier one took, a result only the rows that it is for.
func (c *Case) Eval(env *Env, b *batch.Batch, sel Sel) *batch.Vector {
	m := newMerge(env, c.typ, b.N)
	rest := allRows(sel, b.N)
	for k, w := range c.whens {
		if len(rest) == 0 {
			break
		}
		if k > 0 {
			sel = rest
		}
		var taken Sel
		taken, rest = splitTrue(w.Cond.Eval(env, b, sel), rest)
		if len(taken) > 0 {
			m.add(evalOperand(w.Then, env, b, taken), taken)
		}
	}
	if len(rest) > 0 {
		m.add(evalOperand(c.els, env, b, rest), rest)
	}
	return m.vector()
}

// allRows returns sel, or the list of all rows if sel is nil.
func allRows(sel Sel, n int) Sel {
	if sel != nil {
		return sel
	}
	sel = make(Sel, n)
	for i := range sel {
		sel[i] = int32(i)
	}
	return sel
}

// splitTrue divides sel into the rows for which cond is true and the others.
func splitTrue(cond *batch.Vector, sel Sel) (yes, no Sel) {
	yes, no = make(Sel, 0, len(sel)), make(Sel, 0, len(sel))
	for _, i := range sel {
		if cond.Ints[i] != 0 && !cond.IsNull(int(i)) {
			yes = append(yes, i)
		} else {
			no = append(no, i)
		}
	}
	return yes, no
}

// merge puts a vector together from parts that each hold some of its rows.
type merge struct {
	env   *Env
	typ   dataflow.Type
	n     int
	parts []operand
	from  []uint16 // row → 1 + number of its part; 0 = none
}

func newMerge(env *Env, t dataflow.Type, n int) *merge {
	return &merge{env: env, typ: t, n: n, from: make([]uint16, n)}
}

// add gives the rows of sel to part.
func (m *merge) add(part operand, sel Sel) {
	m.parts = append(m.parts, part)
	for _, i := range sel {
		m.from[i] = uint16(len(m.parts))
	}
}

// size is what the result takes.
func (m *merge) size() int64 {
	size := int64(m.n) * width(m.typ)
	if m.env.Over() || !grows(m.typ) {
		return size
	}
	for i, p := range m.from {
		if p != 0 && !m.parts[p-1].null(i) {
			part := &m.parts[p-1]
			size += RowMemory(part.v, i&part.mask) - width(m.typ)
		}
	}
	return size
}

// vector returns the result; rows that no part has are NULL.
func (m *merge) vector() *batch.Vector {
	if !m.env.Take(m.size()) {
		return m.env.nothing(m.typ, m.n)
	}
	out := newVector(m.typ, m.n)
	for i, p := range m.from {
		if p == 0 || m.parts[p-1].null(i) {
			setNull(out, i, m.n)
			continue
		}
		part := &m.parts[p-1]
		copyRow(out, i, part.v, i&part.mask)
	}
	fillTo(out, m.n)
	return out
}
