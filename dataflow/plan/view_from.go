package plan

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// from builds the rows of the first table of FROM, and returns the name that qualifies their columns.
func (b *builder) from(f *sql.From, ctes *cte) (*rows, string, error) {
	switch {
	case f.Join != nil:
		return nil, "", b.src.Errorf(dataflow.ReasonSQLUnsupported, f.Join.At, "%s", joinNotYet)
	case f.Call != nil:
		return nil, "", b.src.Errorf(dataflow.ReasonSQLUnsupported, f.Call.At, "%s in a view is not there yet: a view reads a stream or view", f.Call.Func.Name)
	}
	var r *rows
	var err error
	table := ""
	of := sql.Ident{Name: "the subquery", At: f.At}
	if f.Subquery != nil {
		r, err = b.selectRows(f.Subquery, ctes)
	} else {
		of = f.Name.Parts[len(f.Name.Parts)-1]
		table = of.Name
		r, err = b.named(f.Name, ctes)
	}
	if err != nil {
		return nil, "", err
	}
	if f.Alias != nil {
		table, of = f.Alias.Name, *f.Alias
	}
	return r, table, r.rename(b.src, f.Columns, of)
}

// joinNotYet says why a view cannot join: it would have to keep the rows of both sides as state of its own.
const joinNotYet = "joins in a view are not there yet: a view reads one stream or table, because it keeps no rows of streams to join later ones with; make a view of each side, and join their tables in a query"

// named builds the rows of what a name means: a query of WITH, a view or table of the file, or a stream.
func (b *builder) named(n *sql.Name, ctes *cte) (*rows, error) {
	if len(n.Parts) > 1 {
		return nil, b.src.Errorf(dataflow.ReasonSQLUnsupported, n.At, "a view reads streams and the views of its own file; reading another pipeline's table is not there yet")
	}
	name := n.Parts[0].Name
	for c := ctes; c != nil; c = c.outer {
		if c.name == name {
			return b.cteRows(c)
		}
	}
	if v, ok := b.views[name]; ok {
		r, err := b.selectRows(v.Query, nil)
		if err != nil {
			return nil, err
		}
		return r, r.rename(b.src, v.Columns, v.Name)
	}
	if s, ok := b.tables[name]; ok {
		return stageRows(s), nil
	}
	if s, ok := b.stream(name); ok && name != b.view && (!b.later[name]) {
		return b.streamRows(s), nil
	}
	return nil, b.unknownTable(n, ctes)
}

// checkCTE finds the errors of a query of WITH, once, whether or not anything reads it.
func (b *builder) checkCTE(c *cte) error {
	if b.checked[c.def.Query] {
		return nil
	}
	b.checked[c.def.Query] = true
	stages := len(b.stages)
	_, err := b.cteRows(c)
	b.stages = b.stages[:stages]
	return err
}

// cteRows builds the rows of a query of WITH.
func (b *builder) cteRows(c *cte) (*rows, error) {
	r, err := b.selectRows(c.def.Query, c.outer)
	if err != nil {
		return nil, err
	}
	return r, r.rename(b.src, c.def.Columns, c.def.Name)
}

// streamRows returns the rows of a stream. Its pseudo columns are always there to be named; they are delivered once one
// has been.
func (b *builder) streamRows(s Stream) *rows {
	r := &rows{stream: s.Name, lostKey: "a stream has no key"}
	for _, c := range s.Schema {
		r.cols = append(r.cols, rowColumn{name: c.Name, typ: c.Type})
	}
	for _, c := range pseudoColumns() {
		r.cols = append(r.cols, rowColumn{name: c.Name, typ: c.Type, hidden: true})
	}
	return r
}

// stageRows returns the changes of a stage's table.
func stageRows(s *Stage) *rows {
	r := &rows{stage: s, key: append([]int{}, s.KeyCols...)}
	for _, c := range s.Schema {
		r.cols = append(r.cols, rowColumn{name: c.Name, typ: c.Type})
	}
	return r
}

// unnests appends the set-returning functions of FROM to the rows, and their columns to the scope.
func (b *builder) unnests(f *sql.From, in *rows, sc *scope) error {
	if len(f.Unnests) > 0 && !b.pseudo && in.stage == nil {
		in.dropHidden(sc)
	}
	for _, u := range f.Unnests {
		if u.Outer {
			return b.src.Errorf(dataflow.ReasonSQLUnsupported, u.At, "LEFT JOIN of a function that makes rows in a view is not there yet: write CROSS JOIN, which leaves rows without elements out")
		}
		array, err := unnestArray(b.src, u, sc, b.rulesFor(in))
		if err != nil {
			return err
		}
		table, name := u.Call.Func.Name, u.Call.Func.Name
		if u.Alias != nil {
			table, name = u.Alias.Name, u.Alias.Name
		}
		each := u.Call.Func.Name == "jsonb_each" || u.Call.Func.Name == "jsonb_each_text"
		if each {
			name = "key"
		}
		if len(u.Columns) > 2 || len(u.Columns) == 2 && !each {
			return b.src.Errorf(dataflow.ReasonSQLType, u.Columns[1].At, "%s gives %s, and here are %d names", u.Call.Func.Name, columns(map[bool]int{true: 2, false: 1}[each]), len(u.Columns))
		}
		if len(u.Columns) > 0 {
			name = u.Columns[0].Name
		}
		for _, c := range sc.columns {
			if c.table == table {
				return b.src.Errorf(dataflow.ReasonSQLType, u.At, "FROM has two tables called %q: write AS and another name", table)
			}
		}
		elem := array.Type().Elem()
		op := &Unnest{Array: array, Column: dataflow.Column{Name: name, Type: elem}, At: place(b.src, u.Call.At)}
		in.chain = append(in.chain, op)
		text := name
		if sc.has(name) {
			text = table + "." + name
		}
		sc.columns = append(sc.columns, column{table: table, name: name, typ: elem, expr: expr.NewColumn(len(in.cols), text, elem)})
		in.cols = append(in.cols, rowColumn{name: name, typ: elem})
		if each {
			if err := b.memberValue(u, array, table, in, sc); err != nil {
				return err
			}
		}
		if in.stage != nil {
			in.key, in.lostKey = nil, u.Call.Func.Name+" repeats its rows"
		}
	}
	return nil
}

// memberValue appends the value of the member whose key has just been appended: the second column of jsonb_each. keys is what
// the keys were taken from, jsonb_object_keys of the object.
func (b *builder) memberValue(u sql.Unnest, keys expr.Expr, table string, in *rows, sc *scope) error {
	op, name := "->", "value"
	if u.Call.Func.Name == "jsonb_each_text" {
		op = "->>"
	}
	if len(u.Columns) == 2 {
		name = u.Columns[1].Name
	}
	call, ok := keys.(*expr.Call)
	if !ok {
		return b.src.Errorf(dataflow.ReasonSQLUnsupported, u.Call.At, "%s of a constant is not there: it takes a column, or a part of one", u.Call.Func.Name)
	}
	p := &Project{}
	add := func(x expr.Expr, name string, at Place) {
		p.Exprs, p.At = append(p.Exprs, x), append(p.At, at)
		p.Schema = append(p.Schema, dataflow.Column{Name: name, Type: x.Type()})
	}
	for i, text := range columnTexts(in.cols) {
		add(expr.NewColumn(i, text, in.cols[i].typ), in.cols[i].name, Place{})
	}
	value, err := expr.NewCall(op, call.Args()[0], p.Exprs[len(p.Exprs)-1])
	if err != nil {
		return b.src.At(err, u.Call.At)
	}
	add(value, name, place(b.src, u.Call.At))
	in.chain = append(in.chain, p)
	text := name
	if sc.has(name) {
		text = table + "." + name
	}
	sc.columns = append(sc.columns, column{table: table, name: name, typ: value.Type(), expr: expr.NewColumn(len(in.cols), text, value.Type())})
	in.cols = append(in.cols, rowColumn{name: name, typ: value.Type()})
	return nil
}

// dropHidden forgets the pseudo columns' positions, which the source does not deliver, so that later columns get theirs.
// The names stay in the scope: using one makes the view be built again, with them.
func (r *rows) dropHidden(sc *scope) {
	n := len(r.cols)
	for n > 0 && r.cols[n-1].hidden {
		n--
	}
	r.cols, r.dropped = r.cols[:n:n], true
}

// isRowFunction reports whether a function of FROM makes its rows of an array that the function of the same name gives.
func isRowFunction(name string) bool {
	switch name {
	case "jsonb_array_elements", "jsonb_array_elements_text", "jsonb_object_keys", "generate_subscripts":
		return true
	}
	return false
}

// unnestArray binds the argument of a set-returning function as the array that it takes apart.
func unnestArray(src *sql.Source, u sql.Unnest, sc *scope, r rules) (expr.Expr, error) {
	bind := &binder{src: src, scope: sc, noNow: r.noNow, noAggregate: "FROM sees rows, not groups"}
	name := u.Call.Func.Name
	args, err := bind.all(u.Call.Args)
	if err != nil {
		return nil, err
	}
	switch name {
	case "regexp_split_to_table":
		return bind.newCall(u.Call.At, "regexp_split_to_array", args...)
	case "string_to_table":
		return bind.newCall(u.Call.At, "string_to_array", args...)
	}
	if name == "jsonb_each" || name == "jsonb_each_text" {
		return bind.newCall(u.Call.At, "jsonb_object_keys", args...)
	}
	if isRowFunction(name) {
		return bind.newCall(u.Call.At, name, args...)
	}
	if len(args) != 1 {
		return nil, bind.refuse(u.Call.At, "UNNEST takes one array, here are %d", len(args))
	}
	if args[0].Type().Form() == dataflow.FormList {
		return args[0], nil
	}
	array, err := expr.Coerce(args[0], dataflow.TypeTextArray)
	if err != nil {
		return nil, bind.errorf(u.Call.Args[0].Span(), "UNNEST takes an array, for example regexp_split_to_array(line, '\\s+'); this is %s", args[0].Type())
	}
	return array, nil
}
