package plan

import (
	"fmt"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// lateral binds JOIN LATERAL (SELECT …): the subquery without what ties it to the rows on its left, joined with them by that.
func (b *queryBinder) lateral(j *sql.Join, left node, ls *scope, ctes *cte) (node, *scope, error) {
	if j.Kind == sql.JoinRight || j.Kind == sql.JoinFull {
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLType, j.At, "the subquery of %s JOIN LATERAL cannot name the rows on its left, which may be missing: write LEFT JOIN LATERAL", j.Kind)
	}
	if len(j.Using) > 0 || j.Natural {
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, j.At, "LATERAL with USING or NATURAL is not there: write the condition into the subquery's WHERE, and ON true")
	}
	f := j.R
	ql := &queryLevel{b: b, ctes: ctes, level: &level{}, bound: make(map[sql.Expr]*subquery)}
	around := &binder{src: b.src, scope: ls, noAggregate: "FROM sees rows, not groups", noWindow: "FROM sees rows"}
	n, c, err := ql.bind(around, f.Subquery, false)
	if err != nil {
		return nil, nil, err
	}
	if c.absent != nil {
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, f.Subquery.At, "an aggregate without GROUP BY in LATERAL is not there yet: write it as (SELECT …) in the SELECT list, or add GROUP BY the column that is compared, and LEFT JOIN LATERAL … ON true")
	}
	keys := len(c.outer)
	table, of := "", sql.Ident{Name: "the subquery", At: f.At}
	if f.Alias != nil {
		table, of = f.Alias.Name, *f.Alias
	}
	schema, err := b.rename(n.schema()[keys:], f.Columns, of)
	if err != nil {
		return nil, nil, err
	}
	join := &joinNode{kind: j.Kind, left: left, right: n}
	for i, x := range c.outer {
		col := n.schema()[i]
		at := place(b.src, f.At)
		join.keys = append(join.keys, joinKey{left: x, right: expr.NewColumn(i, col.Name, col.Type), leftAt: at, rightAt: at, text: fmt.Sprintf("(%s = %s)", x, col.Name)})
	}
	if keys > 0 && join.kind == sql.JoinCross {
		join.kind = sql.JoinInner
	}
	if total := len(join.schema()); total > maxColumns {
		return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, j.At, "a join has at most %d columns, this one has %d", maxColumns, total)
	}
	rs := scopeOfRows(table, schema)
	if err := b.distinctTables(ls, rs, j); err != nil {
		return nil, nil, err
	}
	sc := joinScopes(ls, rs.shifted(-keys), len(left.schema()))
	if j.On != nil {
		err = b.on(join, sc, j.On)
	}
	return join, sc, err
}

// unnestNode repeats each row of its input once per element of an array. Its rows have the columns of the input, then the
// element, and of jsonb_each the member's value.
type unnestNode struct {
	input   node
	array   *Project // the columns of the input, and the array
	outer   bool     // a row without elements is kept, with NULL
	element dataflow.Column
	text    string
}

func (n *unnestNode) schema() dataflow.Schema {
	in := n.input.schema()
	return append(in[:len(in):len(in)], n.element)
}

func (n *unnestNode) start(r *run) operator { return r.pull(n) }

func (n *unnestNode) explain(x *explainer) {
	kind := "unnest"
	if n.outer {
		kind = "left unnest"
	}
	x.line("%s %s as %s", kind, n.text, n.element.Name)
	n.input.explain(x)
}

// unnests binds the functions of FROM that make rows of each row.
func (b *queryBinder) unnests(list []sql.Unnest, n node, sc *scope) (node, *scope, error) {
	for _, u := range list {
		name := u.Call.Func.Name
		array, err := unnestArray(b.src, u, sc, rules{})
		if err != nil {
			return nil, nil, err
		}
		if name == "jsonb_each" || name == "jsonb_each_text" {
			return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, u.At, "%s in a query is not there yet: write jsonb_object_keys(x) AS k, and x -> k", name)
		}
		table, column := name, name
		if u.Alias != nil {
			table, column = u.Alias.Name, u.Alias.Name
		}
		if len(u.Columns) > 1 {
			return nil, nil, b.src.Errorf(dataflow.ReasonSQLType, u.Columns[1].At, "%s gives 1 column, and here are %d names", name, len(u.Columns))
		}
		if len(u.Columns) == 1 {
			column = u.Columns[0].Name
		}
		for _, c := range sc.columns {
			if c.table == table {
				return nil, nil, b.src.Errorf(dataflow.ReasonSQLType, u.At, "FROM has two tables called %q: write AS and another name", table)
			}
		}
		in := n.schema()
		if len(in) == maxColumns {
			return nil, nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, u.At, "FROM has at most %d columns", maxColumns)
		}
		at := place(b.src, u.Call.At)
		un := &unnestNode{input: n, array: &Project{}, outer: u.Outer, element: dataflow.Column{Name: column, Type: array.Type().Elem()}, text: array.String()}
		for i, c := range in {
			un.array.Exprs, un.array.At = append(un.array.Exprs, expr.NewColumn(i, c.Name, c.Type)), append(un.array.At, at)
		}
		un.array.Exprs, un.array.At = append(un.array.Exprs, array), append(un.array.At, at)
		un.array.Schema = append(in[:len(in):len(in)], dataflow.Column{Name: strings.ToLower(name), Type: array.Type()})
		rs := scopeOfRows(table, dataflow.Schema{un.element})
		n, sc = un, joinScopes(sc, rs, len(in))
	}
	return n, sc, nil
}
