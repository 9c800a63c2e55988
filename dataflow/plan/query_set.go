package plan

import (
	"bytes"
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/sql"
)

// setNode is UNION, INTERSECT or EXCEPT of inputs with the same types. Only UNION ALL has more than two.
type setNode struct {
	kind   sql.SetKind
	all    bool
	inputs []node
}

func (n *setNode) schema() dataflow.Schema { return n.inputs[0].schema() }

// setOperation binds two queries that UNION or one of its relatives connects. The columns are named by the left one.
func (b *queryBinder) setOperation(op *sql.SetOp, ctes *cte) (node, error) {
	l, err := b.query(op.L, ctes)
	if err != nil {
		return nil, err
	}
	r, err := b.query(op.R, ctes)
	if err != nil {
		return nil, err
	}
	ls, rs := l.schema(), r.schema()
	if len(ls) != len(rs) {
		return nil, b.src.Errorf(dataflow.ReasonSQLType, op.At, "both sides of %s have the same number of columns: the left one has %d, the right one has %d", op.Kind, len(ls), len(rs))
	}
	want := make(dataflow.Schema, len(ls))
	for i := range ls {
		lt, rt := bareType(op.L, l, i), bareType(op.R, r, i)
		t, err := common(lt, rt)
		if err != nil {
			return nil, b.src.Errorf(dataflow.ReasonSQLType, op.At, "column %d of the left side of %s is %s and that of the right side is %s: cast one of them", i+1, op.Kind, lt, rt)
		}
		if t == dataflow.TypeUnknown {
			t = dataflow.TypeText
		}
		if op.Kind != sql.SetUnion || !op.All {
			if err := checkKeyType(b.src, op.At, t, op.Kind.String()); err != nil {
				return nil, err
			}
		}
		want[i] = dataflow.Column{Name: ls[i].Name, Type: t}
	}
	if l, err = cast(b.src, l, want, op.L.At); err != nil {
		return nil, err
	}
	if r, err = cast(b.src, r, want, op.R.At); err != nil {
		return nil, err
	}
	if left, ok := l.(*setNode); ok && op.Kind == sql.SetUnion && op.All && left.kind == sql.SetUnion && left.all {
		return &setNode{kind: sql.SetUnion, all: true, inputs: append(left.inputs[:len(left.inputs):len(left.inputs)], r)}, nil
	}
	return &setNode{kind: op.Kind, all: op.All, inputs: []node{l, r}}, nil
}

// bareType returns the type of column i of a query; TypeUnknown for NULL and quoted literals, which take the type of the
// column that they stand under.
func bareType(s *sql.Select, n node, i int) dataflow.Type {
	if s.Set == nil && i < len(s.Items) && !s.Items[0].Star {
		if lit, ok := s.Items[i].Expr.(*sql.Literal); ok && (lit.Kind == sql.LiteralNull || lit.Kind == sql.LiteralString) {
			return dataflow.TypeUnknown
		}
	}
	return n.schema()[i].Type
}

// values binds VALUES: the columns are called column1, column2, ….
func (b *queryBinder) values(s *sql.Select) (node, error) {
	n := &valuesNode{src: b.src}
	bind := &binder{src: b.src, scope: &scope{}, noAggregate: "VALUES holds constants", noWindow: "VALUES holds constants"}
	if len(s.Values[0]) > maxColumns {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, s.At, "VALUES has at most %d columns", maxColumns)
	}
	rows := make([][]expr.Expr, len(s.Values))
	for i, row := range s.Values {
		for _, e := range row {
			if q := firstSubquery(e); q != nil {
				return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, q.At, "a subquery in VALUES is not there yet: write SELECT … UNION ALL SELECT …")
			}
			x, err := bind.bind(e)
			if err != nil {
				return nil, err
			}
			rows[i] = append(rows[i], x)
		}
	}
	for c := range s.Values[0] {
		col := make([]expr.Expr, len(rows))
		for i := range rows {
			col[i] = rows[i][c]
		}
		all, err := expr.NewCall("coalesce", col...)
		if err != nil {
			return nil, b.src.Errorf(dataflow.ReasonSQLType, s.Values[0][c].Span(), "the values of column %d of VALUES have no common type: cast some of them", c+1)
		}
		t := all.Type()
		if t == dataflow.TypeUnknown {
			t = dataflow.TypeText
		}
		n.cols = append(n.cols, dataflow.Column{Name: fmt.Sprintf("column%d", c+1), Type: t})
	}
	for i, row := range rows {
		var r valuesRow
		for c, x := range row {
			at := s.Values[i][c].Span()
			y, err := expr.Coerce(x, n.cols[c].Type)
			if err != nil {
				return nil, bind.at(err, at)
			}
			r.exprs, r.at = append(r.exprs, y), append(r.at, at)
		}
		n.rows = append(n.rows, r)
	}
	return n, nil
}

// series binds generate_series(from, to [, step]) of BIGINT, NUMERIC or TIMESTAMPTZ constants.
func (b *queryBinder) series(f *sql.From) (node, error) {
	c := f.Call
	if name := firstName(c); name != nil {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, name.At, "generate_series takes constants in a query: columns of other tables cannot stand here")
	}
	if q := firstSubquery(c); q != nil {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, q.At, "generate_series takes constants in a query, not subqueries")
	}
	if len(c.Args) != 2 && len(c.Args) != 3 {
		return nil, b.src.Errorf(dataflow.ReasonSQLType, c.At, "generate_series takes 2 or 3 arguments, here are %d", len(c.Args))
	}
	bind := &binder{src: b.src, scope: &scope{}, noAggregate: "FROM sees rows, not groups", noWindow: "FROM sees rows"}
	args, err := bind.all(c.Args)
	if err != nil {
		return nil, err
	}
	t, err := commonOf(args[0].Type(), args[1])
	if isQuoted(args[0]) {
		t, err = commonOf(args[1].Type(), args[0])
	}
	if err != nil {
		return nil, bind.at(err, c.At)
	}
	var step dataflow.Type
	switch t {
	case dataflow.TypeTimestamp, dataflow.TypeDate:
		t = dataflow.TypeTimestamp
		step = dataflow.TypeInterval
		if len(args) == 2 {
			return nil, b.src.Errorf(dataflow.ReasonSQLType, c.At, "generate_series of times takes a step: generate_series(from, to, INTERVAL '1 day')")
		}
	case dataflow.TypeBigInt, dataflow.TypeNumeric:
		if len(args) == 2 {
			args = append(args, expr.NewConst(dataflow.BigInt(1)))
		}
		if t, err = commonOf(t, args[2]); err != nil {
			return nil, bind.at(err, c.At)
		}
		step = t
	default:
		return nil, b.src.Errorf(dataflow.ReasonSQLType, c.At, "generate_series takes BIGINT, NUMERIC or TIMESTAMPTZ, this is %s", t)
	}
	name := c.Func.Name
	if f.Alias != nil {
		name = f.Alias.Name
	}
	n := &seriesNode{column: dataflow.Schema{{Name: name, Type: t}}, at: c.At, src: b.src}
	for i, to := range []struct {
		v *dataflow.Value
		t dataflow.Type
	}{{&n.from, t}, {&n.to, t}, {&n.step, step}} {
		x, err := expr.Coerce(args[i], to.t)
		if err != nil {
			return nil, bind.at(err, c.Args[min(i, len(c.Args)-1)].Span())
		}
		if *to.v, err = expr.EvalRow(x, nil, nil, b.q.now); err != nil {
			return nil, bind.at(err, c.Args[min(i, len(c.Args)-1)].Span())
		}
	}
	if n.plus, err = expr.NewCall("+", expr.NewColumn(0, "value", t), expr.NewConst(n.step)); err != nil {
		return nil, bind.at(err, c.At)
	}
	return n, n.check(bind)
}

// isQuoted reports whether an expression is a quoted literal, which becomes what its place asks for.
func isQuoted(x expr.Expr) bool {
	_, constant := x.(*expr.Const)
	return constant && (x.Type() == dataflow.TypeText || x.Type() == dataflow.TypeUnknown)
}

// commonOf returns the type that t and an argument have in common: a quoted literal takes t.
func commonOf(t dataflow.Type, x expr.Expr) (dataflow.Type, error) {
	if isQuoted(x) {
		return t, nil
	}
	return common(t, x.Type())
}

// check finds which way the series goes; a step of zero would never end.
func (n *seriesNode) check(bind *binder) error {
	if n.empty() {
		return nil
	}
	next, err := n.after(n.from)
	if err != nil {
		return nil // the first value is the last
	}
	if n.way = compareValues(next, n.from); n.way == 0 {
		return bind.errorf(n.at, "the step of generate_series is zero")
	}
	return nil
}

// empty reports whether an argument is NULL: then there are no values.
func (n *seriesNode) empty() bool { return n.from.Null || n.to.Null || n.step.Null }

// after returns the value behind v.
func (n *seriesNode) after(v dataflow.Value) (dataflow.Value, error) {
	return expr.EvalRow(n.plus, n.column, dataflow.Row{v}, 0)
}

// compareValues orders two values of one type as keys are.
func compareValues(a, b dataflow.Value) int {
	return bytes.Compare(key.AppendValue(nil, a), key.AppendValue(nil, b))
}
