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
		if n.Query != nil {
			list(not(n.Not)+"in", n.X, n.Query)
			return
		}
		list(not(n.Not)+"in", append([]any{n.X}, exprs(n.List)...)...)
	case *sql.Subquery:
		if n.Exists {
			list("exists", n.Query)
			return
		}
		list("value of", n.Query)
	case *sql.Select:
		var out strings.Builder
		dumpSelect(&out, n, "")
		b.WriteString("{" + strings.Join(strings.Fields(out.String()), " ") + "}")
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
		for i, o := range n.OrderBy {
			word := "order by"
			if n.Within {
				word = "within group"
			}
			if i > 0 {
				word = "then"
			}
			parts = append(parts, word, o.Expr)
			if o.Desc {
				parts = append(parts, "desc")
			}
			if o.NullsFirst != o.Desc {
				parts = append(parts, fmt.Sprintf("nullsfirst=%v", o.NullsFirst))
			}
		}
		if n.Filter != nil {
			parts = append(parts, "filter", n.Filter)
		}
		if n.Over != nil {
			parts = append(parts, "over")
			if n.Over.PartitionBy != nil {
				parts = append(append(parts, "partition"), exprs(n.Over.PartitionBy)...)
			}
			for _, o := range n.Over.OrderBy {
				parts = append(parts, "order", o.Expr, fmt.Sprintf("desc=%v nullsfirst=%v", o.Desc, o.NullsFirst))
			}
			if f := n.Over.Frame; f != nil {
				parts = append(parts, strings.ToLower(f.Mode.String()))
				for _, b := range []sql.Bound{f.Start, f.End} {
					parts = append(parts, [...]string{"unbounded-preceding", "preceding", "current-row", "following", "unbounded-following"}[b.Kind])
					if b.N != nil {
						parts = append(parts, b.N)
					}
				}
			}
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
	switch {
	case s.Set != nil:
		line("%s all=%v", s.Set.Kind, s.Set.All)
		dumpSelect(b, s.Set.L, indent+"  ")
		dumpSelect(b, s.Set.R, indent+"  ")
		head = "result"
	case s.Values != nil:
		for _, row := range s.Values {
			var out strings.Builder
			for _, e := range row {
				out.WriteString(" " + dumpExpr(e))
			}
			line("values%s", out.String())
		}
		head = "result"
	}
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
	if s.From != nil {
		dumpFrom(b, s.From, indent+"from ", indent)
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

// dumpFrom prints an item of FROM behind head; what belongs to it is indented.
func dumpFrom(b *strings.Builder, f *sql.From, head, indent string) {
	switch {
	case f.Join != nil:
		j := f.Join
		natural := map[bool]string{true: "natural "}[j.Natural]
		fmt.Fprintf(b, "%s%s%s join%s\n", head, natural, j.Kind, names(j.Using))
		dumpFrom(b, j.L, indent+"  ", indent+"  ")
		dumpFrom(b, j.R, indent+"  ", indent+"  ")
		if j.On != nil {
			fmt.Fprintf(b, "%s  on %s\n", indent, dumpExpr(j.On))
		}
	case f.Subquery != nil:
		fmt.Fprintf(b, "%ssubquery%s\n", head, alias(f.Alias, f.Columns))
		dumpSelect(b, f.Subquery, indent+"  ")
	case f.Call != nil:
		fmt.Fprintf(b, "%s%s%s\n", head, dumpExpr(f.Call), alias(f.Alias, f.Columns))
	default:
		fmt.Fprintf(b, "%s%s%s\n", head, f.Name, alias(f.Alias, f.Columns))
	}
	for _, u := range f.Unnests {
		fmt.Fprintf(b, "%s  unnest %s%s\n", indent, dumpExpr(u.Call), alias(u.Alias, u.Columns))
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
