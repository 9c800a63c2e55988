package plan

import (
	"slices"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// isOrder reports whether an operator compares, and is not equality.
func isOrder(op string) bool { return slices.Contains([]string{"<", "<=", ">", ">=", "<>"}, op) }

// extremes turns an EXISTS with a comparison, beside its equalities, into one with the least or the greatest value of a key:
//
//	EXISTS (SELECT … FROM t WHERE t.k = o.k AND t.x < o.y)  is  coalesce((SELECT min(t.x) FROM t WHERE t.k = o.k) < o.y, false)
//
// so that a row of the query around costs a look-up, however many rows its key has in t. The comparison is the given one of the
// conditions of WHERE; all those before it are equalities, or have nothing to do with the query around.
func (d *decorrelator) extremes(s *sql.Select, at int) (sql.Expr, error) {
	conds := conjuncts(s.Where)
	cmp := conds[at].(*sql.Binary)
	mine, theirs, ok := d.sides(cmp)
	if !ok || firstSubquery(mine) != nil {
		return nil, d.refuse(d.outerName(cmp), ", alone on its side")
	}
	inner := *s
	inner.Where, inner.OrderBy, inner.Distinct = nil, nil, false
	for i, cond := range conds {
		if i == at {
			continue
		}
		if b, ok := cond.(*sql.Binary); i > at && ok && isOrder(b.Op) && d.outerName(b) != nil {
			return nil, d.refuse(d.outerName(b), ", and in EXISTS once in another comparison, not twice")
		}
		inner.Where = both(inner.Where, cond)
	}
	if n := d.elsewhere(s); n != nil {
		return nil, d.refuse(n, "")
	}
	items, err := expandStars(s, d.ql.b.src, d.inner)
	if err != nil {
		return nil, err
	}
	if groups(s, items) || s.Having != nil || s.Limit != nil || s.Offset != nil {
		return nil, d.refuse(d.outerName(cmp), ", and in EXISTS without groups, LIMIT and OFFSET once in another comparison")
	}
	if err := d.comparable(mine, theirs, cmp); err != nil {
		return nil, err
	}
	compare := func(fn string) sql.Expr {
		sub := inner
		sub.Items = []sql.Item{{Expr: &sql.Call{Func: sql.Ident{Name: fn, At: mine.Span()}, Args: []sql.Expr{mine}, At: mine.Span()}, At: mine.Span()}}
		l, r := sql.Expr(&sql.Subquery{Query: &sub, At: s.At}), theirs
		if mine == cmp.R {
			l, r = r, l
		}
		return &sql.Binary{Op: cmp.Op, OpAt: cmp.OpAt, L: l, R: r, At: cmp.At}
	}
	var is sql.Expr
	switch less := cmp.Op[0] == '<'; {
	case cmp.Op == "<>": // one of the two differs, if there is any that does
		is = &sql.Binary{Op: "OR", OpAt: cmp.OpAt, L: compare("min"), R: compare("max"), At: cmp.At}
	case less == (mine == cmp.L):
		is = compare("min")
	default:
		is = compare("max")
	}
	no := &sql.Literal{Kind: sql.LiteralFalse, At: cmp.At}
	return &sql.Call{Func: sql.Ident{Name: "coalesce", At: cmp.At}, Args: []sql.Expr{is, no}, At: cmp.At}, nil
}

// comparable refuses sides that cannot be compared, or of which there is no least and greatest value.
func (d *decorrelator) comparable(mine, theirs sql.Expr, cmp *sql.Binary) error {
	outer, err := d.around.bind(theirs)
	if err != nil {
		return err
	}
	bind := &binder{src: d.around.src, scope: d.inner, noAggregate: "WHERE sees rows, not groups"}
	own, err := bind.bind(mine)
	if err != nil {
		return err
	}
	if _, err := expr.NewCall(cmp.Op, own, outer); err != nil {
		return d.around.at(err, cmp.OpAt)
	}
	switch own.Type() {
	case dataflow.TypeBigInt, dataflow.TypeDouble, dataflow.TypeNumeric, dataflow.TypeText, dataflow.TypeTimestamp, dataflow.TypeDate:
		return nil
	}
	return d.refuse(d.outerName(cmp), ", not in another comparison of "+own.Type().String())
}
