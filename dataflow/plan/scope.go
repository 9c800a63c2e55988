package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// column is one column that a name can mean.
type column struct {
	table  string // the table's name or alias
	name   string
	typ    dataflow.Type
	hidden bool // not in *: the pseudo columns of a stream
	// merged: USING has made one column of this one and another, which unqualified names mean.
	merged    bool
	qualified string // pipeline.table of a query's table that has no alias
	// full holds the columns that expr coalesces, where USING of a full join has merged them.
	full []expr.Expr
	// expr is what the column stands for: a column of the input batch, or an expression of a query that was merged.
	expr expr.Expr
}

// scope is what names can mean in one SELECT.
type scope struct {
	columns []column
	// star lists the columns that * means, when it is not all that are not hidden, in order: USING has moved some.
	star []int
	// aliases are the names of the SELECT list, to explain why one cannot be used.
	aliases []string
	// pseudo is set when a hidden column is used. dropped says that there are hidden columns which this build leaves out.
	pseudo  *bool
	dropped bool
}

// resolve finds the column that a name means.
func (s *scope) resolve(src *sql.Source, n *sql.Name) (column, error) {
	table, name := "", n.Parts[len(n.Parts)-1].Name
	if len(n.Parts) > 1 {
		table = n.Parts[len(n.Parts)-2].Name
		if err := s.checkTable(src, n, table); err != nil {
			return column{}, err
		}
	}
	var found []column
	for _, c := range s.columns {
		if c.means(table, name) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return column{}, s.unknownColumn(src, n, table, name)
	case 1:
		if found[0].hidden && s.pseudo != nil {
			*s.pseudo = true
		}
		return found[0], nil
	}
	qualified := make([]string, len(found))
	for i, c := range found {
		qualified[i] = c.table + "." + c.name
	}
	return column{}, src.Errorf(dataflow.ReasonSQLType, n.At, "column %q is ambiguous: write %s", name, strings.Join(qualified, " or "))
}

// means reports whether the column is what a name, of a table unless table is "", means.
func (c *column) means(table, name string) bool {
	if table == "" {
		return c.name == name && !c.merged
	}
	return c.name == name && c.table == table
}

// knows reports whether a name means a column, or one of several.
func (s *scope) knows(n *sql.Name) bool {
	table, name := "", n.Parts[len(n.Parts)-1].Name
	if len(n.Parts) > 1 {
		table = n.Parts[len(n.Parts)-2].Name
	}
	for i := range s.columns {
		if s.columns[i].means(table, name) {
			return true
		}
	}
	return false
}

// checkTable fails when a name's table is not in FROM.
func (s *scope) checkTable(src *sql.Source, n *sql.Name, table string) error {
	if len(n.Parts) == 3 {
		have := n.Parts[0].Name + "." + table
		var tables []string
		for _, c := range s.columns {
			if c.qualified == have {
				return nil
			}
			if c.qualified != "" {
				tables = append(tables, c.qualified)
			}
		}
		return src.Errorf(dataflow.ReasonSQLType, n.At, "%s is not in FROM%s", have, dataflow.DidYouMean(have, tables))
	}
	var tables []string
	for _, c := range s.columns {
		if c.table == table {
			return nil
		}
		if len(tables) == 0 || tables[len(tables)-1] != c.table {
			tables = append(tables, c.table)
		}
	}
	return src.Errorf(dataflow.ReasonSQLType, n.Parts[0].At, "there is no table %q in FROM%s", table, amongTables(table, tables))
}

// amongTables says which table of FROM was meant, or what the tables are called.
func amongTables(table string, tables []string) string {
	if near := dataflow.DidYouMean(table, tables); near != "" {
		return near
	}
	tables = slices.DeleteFunc(slices.Clone(tables), func(t string) bool { return t == "" })
	tables = slices.Compact(tables)
	if len(tables) == 0 || len(tables) > 5 {
		return ""
	}
	return ", which has " + strings.Join(tables, ", ")
}

func (s *scope) unknownColumn(src *sql.Source, n *sql.Name, table, name string) error {
	var near, all []string
	for _, c := range s.columns {
		if c.table == name && table == "" {
			return src.Errorf(dataflow.ReasonSQLType, n.At, "%s is a table: write %s.* or the names of columns", name, name)
		}
		if table == "" || c.table == table {
			near = append(near, c.name)
			if !c.hidden {
				all = append(all, c.name)
			}
		}
	}
	at := n.Parts[len(n.Parts)-1].At
	for _, a := range s.aliases {
		if a == name && table == "" {
			return src.Errorf(dataflow.ReasonSQLType, at, "%q is a name of the SELECT list, which cannot be used here: repeat the expression, or name it in a subquery or WITH", name)
		}
	}
	hint := dataflow.DidYouMean(name, near)
	if strings.HasPrefix(src.Text(at), `"`) {
		hint += fmt.Sprintf("; text is written in single quotes: '%s'", name)
	}
	if hint == "" && len(all) > 0 && len(all) <= 12 {
		hint = "; the columns are " + strings.Join(all, ", ")
	}
	return src.Errorf(dataflow.ReasonSQLType, at, "there is no column %q%s", name, hint)
}

// place turns a span of the text into a Place.
func place(src *sql.Source, at sql.Span) Place {
	line, col := src.Position(at.From)
	return Place{line, col}
}
