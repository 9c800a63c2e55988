package sql

// Walk calls fn for e and its descendants, parents first. Where fn returns false the descendants are skipped. It does not
// go into subqueries: what stands in them is theirs.
func Walk(e Expr, fn func(Expr) bool) {
	if e == nil || !fn(e) {
		return
	}
	switch e := e.(type) {
	case *Unary:
		Walk(e.X, fn)
	case *Binary:
		Walk(e.L, fn)
		Walk(e.R, fn)
	case *Between:
		walkAll([]Expr{e.X, e.Lo, e.Hi}, fn)
	case *In:
		Walk(e.X, fn)
		walkAll(e.List, fn)
	case *Like:
		walkAll([]Expr{e.X, e.Pattern, e.Escape}, fn)
	case *Is:
		Walk(e.X, fn)
	case *Distinct:
		Walk(e.L, fn)
		Walk(e.R, fn)
	case *Case:
		Walk(e.Operand, fn)
		for _, w := range e.Whens {
			Walk(w.Cond, fn)
			Walk(w.Result, fn)
		}
		Walk(e.Else, fn)
	case *Cast:
		Walk(e.X, fn)
	case *Call:
		walkAll(e.Args, fn)
		for _, o := range e.OrderBy {
			Walk(o.Expr, fn)
		}
		Walk(e.Filter, fn)
		if e.Over != nil {
			walkAll(e.Over.PartitionBy, fn)
			for _, o := range e.Over.OrderBy {
				Walk(o.Expr, fn)
			}
		}
	}
}

func walkAll(list []Expr, fn func(Expr) bool) {
	for _, e := range list {
		Walk(e, fn)
	}
}
