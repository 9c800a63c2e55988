package sql_test

import (
	"fmt"
	"strings"

	"github.com/weirdb/weir/dataflow/sql"
)

// dump prints a tree as nested parentheses.
func dump(b *strings.Builder, node any) {
	list := func(head string, parts ...any) {
		b.WriteString("(" + head)
		for _, p := range parts {
			b.WriteByte(' ')
			dump(b, p)
		}
		b.WriteByte(')')
	}
	switch n := node.(type) {
	case nil:
		b.WriteByte('_')
	case string:
		b.WriteString(n)
	case sql.Ident:
		b.WriteString(n.Name)
	case *sql.Name:
		b.WriteString(n.String())
	case *sql.Literal:
		switch n.Kind {
		case sql.LiteralString:
			fmt.Fprintf(b, "'%s'", n.Text)
		case sql.LiteralInteger, sql.LiteralDecimal:
			b.WriteString(n.Text)
		default:
			b.WriteString([]string{"NULL", "TRUE", "FALSE"}[n.Kind])
		}
	case *sql.Unary:
		list(n.Op, n.X)
	case *sql.Binary:
		list(n.Op, n.L, n.R)
	case *sql.Between:
		list(not(n.Not)+"between", n.X, n.Lo, n.Hi)
	case *sql.In:
		list(not(n.Not)+"in", append([]any{n.X}, exprs(n.List)...)...)
	case *sql.Like:
		op := not(n.Not) + "like"
		if n.Insensitive {
			op = not(n.Not) + "ilike"
		}
		if n.Escape != nil {
			list(op, n.X, n.Pattern, n.Escape)
			return
		}
		list(op, n.X, n.Pattern)
	case *sql.Is:
		list("is "+not(n.Not)+[]string{"null", "true", "false", "unknown"}[n.Kind], n.X)
	case *sql.Distinct:
		list(not(n.Not)+"distinct", n.L, n.R)
	case *sql.Case:
		var parts []any
		if n.Operand != nil {
			parts = append(parts, n.Operand)
		}
		for _, w := range n.Whens {
			parts = append(parts, "when", w.Cond, w.Result)
		}
		if n.Else != nil {
			parts = append(parts, "else", n.Else)
		}
		list("case", parts...)
	case *sql.Cast:
		list("::"+typeText(n.Type), n.X)
	case *sql.Call:
		parts := exprs(n.Args)
		if n.Star {
			parts = append(parts, "*")
		}
		if n.Distinct {
			parts = append([]any{"distinct"}, parts...)
		}
		if n.Filter != nil {
			parts = append(parts, "filter", n.Filter)
		}
		list(n.Func.Name, parts...)
	default:
		fmt.Fprintf(b, "%T", n)
	}
}

func not(n bool) string {
	if n {
		return "not "
	}
	return ""
}

func exprs(list []sql.Expr) []any {
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = e
	}
	return out
}

func typeText(t sql.TypeName) string {
	if t.Array {
		return t.Name + "[]"
	}
	return t.Name
}

func dumpExpr(e sql.Expr) string {
	var b strings.Builder
	dump(&b, e)
	return b.String()
}

// dumpSelect prints a query, a clause per line.
func dumpSelect(b *strings.Builder, s *sql.Select, indent string) {
	line := func(format string, args ...any) { fmt.Fprintf(b, indent+format+"\n", args...) }
	for _, c := range s.With {
		line("with %s%s", c.Name.Name, names(c.Columns))
		dumpSelect(b, c.Query, indent+"  ")
	}
	head := "select"
	if s.Distinct {
		head = "select distinct"
	}
	line("%s", head)
	for _, it := range s.Items {
		text := "*"
		if it.Qualifier != "" {
			text = it.Qualifier + ".*"
		}
		if it.Expr != nil {
			text = dumpExpr(it.Expr)
		}
		line("  %s%s", text, alias(it.Alias, nil))
	}
	if f := s.From; f != nil {
		if f.Subquery != nil {
			line("from subquery%s", alias(f.Alias, f.Columns))
			dumpSelect(b, f.Subquery, indent+"  ")
		} else {
			line("from %s%s", f.Name, alias(f.Alias, f.Columns))
		}
		for _, u := range f.Unnests {
			line("  unnest %s%s", dumpExpr(u.Call), alias(u.Alias, u.Columns))
		}
	}
	for _, c := range []struct {
		name string
		e    sql.Expr
	}{{"where", s.Where}, {"having", s.Having}, {"limit", s.Limit}, {"offset", s.Offset}} {
		if c.e != nil {
			line("%s %s", c.name, dumpExpr(c.e))
		}
	}
	for _, g := range s.GroupBy {
		line("group by %s", dumpExpr(g))
	}
	for _, o := range s.OrderBy {
		line("order by %s desc=%v nullsfirst=%v", dumpExpr(o.Expr), o.Desc, o.NullsFirst)
	}
}

func alias(id *sql.Ident, columns []sql.Ident) string {
	if id == nil {
		return ""
	}
	return " as " + id.Name + names(columns)
}

func names(ids []sql.Ident) string {
	if len(ids) == 0 {
		return ""
	}
	var list []string
	for _, id := range ids {
		list = append(list, id.Name)
	}
	return "(" + strings.Join(list, ", ") + ")"
}

func options(list []sql.Option) string {
	var b strings.Builder
	for _, o := range list {
		fmt.Fprintf(&b, " %s=%q", o.Name, o.Value)
	}
	return b.String()
}

func dumpFile(f *sql.File) string {
	var b strings.Builder
	for _, s := range f.Statements {
		switch s := s.(type) {
		case *sql.Set:
			fmt.Fprintf(&b, "set%s\n", options([]sql.Option{s.Option}))
		case *sql.CreateStream:
			fmt.Fprintf(&b, "stream %s%s\n", s.Name.Name, options(s.Options))
			for _, c := range s.Columns {
				fmt.Fprintf(&b, "  %s %s%s\n", c.Name.Name, typeText(c.Type), map[bool]string{true: " not null"}[c.NotNull])
			}
			if s.PartitionBy != nil {
				fmt.Fprintf(&b, "  partition by %s\n", names(s.PartitionBy))
			}
		case *sql.CreateView:
			fmt.Fprintf(&b, "view %s%s materialized=%v\n", s.Name.Name, names(s.Columns), s.Materialized)
			dumpSelect(&b, s.Query, "  ")
		}
	}
	return b.String()
}
