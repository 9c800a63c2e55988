package plan

import "github.com/weirdb/weir/dataflow/sql"

// frontFilters splits the WHERE of a SELECT whose FROM has functions that make rows of each row. The conditions that stand at
// its front and name no column of the functions decide before these are called: about rows that the functions could not take,
// such as JSON that is no array. base is the scope without the functions' columns, all the one with them. It returns the
// SELECT with what is left of its WHERE.
//
// Conditions further back stay, even where they could go first: AND does not evaluate what the conditions to the left have
// decided.
func frontFilters(s *sql.Select, src *sql.Source, base, all *scope, r rules) (*sql.Select, []*Filter) {
	bind := &binder{src: src, scope: base, noNow: r.noNow, noAggregate: "not here"}
	conds := conjuncts(s.Where)
	var filters []*Filter
	for _, c := range conds {
		if firstSubquery(c) != nil || !sameNames(c, base, all) {
			break
		}
		x, err := bind.bindBool(c, "WHERE")
		if err != nil {
			break // what is left tells it
		}
		filters = append(filters, &Filter{Cond: x, At: place(src, c.Span())})
	}
	if len(filters) == 0 {
		return s, nil
	}
	rest := *s
	rest.Where = nil
	for _, c := range conds[len(filters):] {
		rest.Where = both(rest.Where, c)
	}
	return &rest, filters
}

// sameNames reports whether all names of an expression mean in one scope what they mean in another.
func sameNames(e sql.Expr, a, b *scope) bool {
	same := true
	sql.Walk(e, func(e sql.Expr) bool {
		if n, ok := e.(*sql.Name); ok {
			at := a.position(n)
			same = same && at >= 0 && at == b.position(n)
		}
		return same
	})
	return same
}
