package plan

import (
	"bytes"
	"slices"
	"strings"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/key"
	"github.com/weirdb/weir/dataflow/sql"
)

// accessOf derives from the conditions of a WHERE that AND connects which keys of a table can matter. It uses those of the
// forms
//
//	k = constant, k IN (constants), k IS NULL, k IS [NOT] DISTINCT FROM constant, k, NOT k, and ORs of these over one k
//	k < constant (and <=, >, >=), k BETWEEN constants, k LIKE 'abc%'
//
// and takes values for the leading key columns, then a range on the next one. What it cannot use it leaves to the filter:
// the result may hold more keys than match, never fewer.
func accessOf(src *sql.Source, t Table, sc *scope, conditions []sql.Expr, now int64) Access {
	a := &accessBinder{table: t, scope: sc, now: now, bind: &binder{src: src, scope: &scope{}, noAggregate: "not here"}}
	a.parts = make([]keyPart, len(t.KeyCols))
	for _, c := range conditions {
		a.add(c)
	}
	return a.access()
}

// conjuncts returns the conditions that AND connects.
func conjuncts(e sql.Expr) []sql.Expr {
	if e == nil {
		return nil
	}
	and, ok := e.(*sql.Binary)
	if !ok || and.Op != "AND" {
		return []sql.Expr{e}
	}
	var list []sql.Expr
	for _, part := range flatten(and, "AND") {
		list = append(list, conjuncts(part)...)
	}
	return list
}

// accessBinder collects what is known of each key column.
type accessBinder struct {
	table Table
	scope *scope
	now   int64
	bind  *binder // binds constants
	parts []keyPart
}

// keyPart is what WHERE says about one key column.
type keyPart struct {
	equal  []dataflow.Value // one of these, when known
	known  bool
	lo, hi []byte // bounds of the part's encoding, lo inclusive, hi exclusive; nil: none
	texts  []string
}

// add takes one condition into account.
func (a *accessBinder) add(c sql.Expr) {
	if i, values, ok := a.equality(c); ok {
		p := &a.parts[i]
		if p.known { // both must hold
			values = intersect(values, p.equal)
		}
		p.equal, p.known = values, true
		return
	}
	switch c := c.(type) {
	case *sql.Binary:
		i, constant, op := a.comparison(c)
		if i >= 0 {
			a.bound(i, op, constant)
		}
	case *sql.Between:
		if i := a.keyColumn(c.X); i >= 0 && !c.Not && !c.Symmetric {
			a.bound(i, ">=", c.Lo)
			a.bound(i, "<=", c.Hi)
		}
	case *sql.Like:
		if i := a.keyColumn(c.X); i >= 0 && !c.Not && !c.Insensitive && c.Escape == nil {
			a.like(i, c.Pattern)
		}
	case *sql.Call:
		if c.Func.Name == "starts_with" && len(c.Args) == 2 {
			if i := a.keyColumn(c.Args[0]); i >= 0 && a.typeOf(i) == dataflow.TypeText {
				if v, ok := a.constant(c.Args[1], dataflow.TypeText); ok && !v.Null {
					a.prefix(i, v.Str)
				}
			}
		}
	}
}

// keyColumn returns which key column e is, or -1.
func (a *accessBinder) keyColumn(e sql.Expr) int {
	n, ok := e.(*sql.Name)
	if !ok {
		return -1
	}
	at := a.scope.position(n)
	if at < 0 {
		return -1
	}
	return slices.Index(a.table.KeyCols, isColumn(a.scope.columns[at].expr))
}

func (a *accessBinder) typeOf(i int) dataflow.Type { return a.table.Schema[a.table.KeyCols[i]].Type }

// equality returns the values that a condition allows for one key column, when it lists them.
func (a *accessBinder) equality(c sql.Expr) (part int, values []dataflow.Value, ok bool) {
	switch c := c.(type) {
	case *sql.Binary:
		if c.Op == "OR" {
			return a.alternatives(c)
		}
		if i, constant, op := a.comparison(c); i >= 0 && op == "=" {
			return a.values(i, true, constant)
		}
	case *sql.In:
		if i := a.keyColumn(c.X); i >= 0 && !c.Not && c.Query == nil {
			return a.values(i, true, c.List...)
		}
	case *sql.Distinct:
		if !c.Not { // IS NOT DISTINCT FROM is the equality
			break
		}
		if i := a.keyColumn(c.L); i >= 0 {
			return a.values(i, false, c.R)
		}
		if i := a.keyColumn(c.R); i >= 0 {
			return a.values(i, false, c.L)
		}
	case *sql.Is:
		return a.isTest(c)
	case *sql.Unary:
		if i := a.keyColumn(c.X); i >= 0 && c.Op == "NOT" && a.typeOf(i) == dataflow.TypeBool {
			return i, []dataflow.Value{dataflow.Bool(false)}, true
		}
	case *sql.Name:
		if i := a.keyColumn(c); i >= 0 && a.typeOf(i) == dataflow.TypeBool {
			return i, []dataflow.Value{dataflow.Bool(true)}, true
		}
	}
	return 0, nil, false
}

func (a *accessBinder) isTest(c *sql.Is) (int, []dataflow.Value, bool) {
	i := a.keyColumn(c.X)
	if i < 0 || c.Not {
		return 0, nil, false
	}
	switch {
	case c.Kind == sql.IsNull:
		return i, []dataflow.Value{dataflow.NullValue(a.typeOf(i))}, true
	case a.typeOf(i) != dataflow.TypeBool:
		return 0, nil, false
	case c.Kind == sql.IsUnknown:
		return i, []dataflow.Value{dataflow.NullValue(dataflow.TypeBool)}, true
	}
	return i, []dataflow.Value{dataflow.Bool(c.Kind == sql.IsTrue)}, true
}

// alternatives returns the values of an OR whose parts all list values of one key column.
func (a *accessBinder) alternatives(or *sql.Binary) (part int, values []dataflow.Value, ok bool) {
	part = -1
	for _, c := range flatten(or, "OR") {
		i, vs, ok := a.equality(c)
		if !ok || part >= 0 && i != part {
			return 0, nil, false
		}
		part = i
		values = append(values, vs...)
	}
	return part, values, part >= 0
}

// values evaluates constants that are compared with a key column by =, or by IS NOT DISTINCT FROM when null is false.
func (a *accessBinder) values(i int, dropNull bool, list ...sql.Expr) (int, []dataflow.Value, bool) {
	values := []dataflow.Value{}
	for _, e := range list {
		v, ok := a.constant(e, a.typeOf(i))
		if !ok {
			return 0, nil, false
		}
		if !v.Null || !dropNull {
			values = append(values, v)
		}
	}
	return i, values, true
}

// comparison takes a comparison of a key column with something apart; the operator is turned around when the column stands
// on the right. The part is -1 for anything else.
func (a *accessBinder) comparison(c *sql.Binary) (part int, other sql.Expr, op string) {
	turned, ok := map[string]string{"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}[c.Op]
	if !ok {
		return -1, nil, ""
	}
	if i := a.keyColumn(c.L); i >= 0 {
		return i, c.R, c.Op
	}
	return a.keyColumn(c.R), c.L, turned
}

// constant evaluates e when it names no column, as a value that compares with a key column of type t as the comparison in
// SQL would.
func (a *accessBinder) constant(e sql.Expr, t dataflow.Type) (dataflow.Value, bool) {
	x, err := a.bind.bind(e)
	if err != nil {
		return dataflow.Value{}, false
	}
	if y, err := expr.Coerce(x, t); err == nil {
		v, err := expr.EvalRow(y, nil, nil, a.now)
		return v, err == nil
	}
	if x.Type() != dataflow.TypeNumeric || t != dataflow.TypeBigInt {
		return dataflow.Value{}, false
	}
	v, err := expr.EvalRow(x, nil, nil, a.now) // BIGINT compared with NUMERIC
	if err != nil {
		return dataflow.Value{}, false
	}
	if v.Null {
		return dataflow.NullValue(t), true
	}
	var whole apd.Decimal
	whole.Reduce(v.Dec)
	i, err := whole.Int64()
	return dataflow.BigInt(i), err == nil
}

// bound narrows the range of a key column.
func (a *accessBinder) bound(i int, op string, e sql.Expr) {
	t := a.typeOf(i)
	v, ok := a.constant(e, t)
	if !ok {
		return
	}
	p := &a.parts[i]
	if v.Null { // a comparison with NULL is never true
		p.equal, p.known = nil, true
		return
	}
	at := key.AppendValue(nil, v)
	switch op {
	case "<":
		p.narrow(nil, at)
	case "<=":
		p.narrow(nil, key.PrefixEnd(at))
	case ">":
		p.narrow(key.PrefixEnd(at), key.AppendValue(nil, dataflow.NullValue(t)))
	case ">=":
		p.narrow(at, key.AppendValue(nil, dataflow.NullValue(t)))
	}
	p.texts = append(p.texts, a.name(i)+" "+op+" "+show(v))
}

// narrow intersects the range of the part with [lo, hi).
func (p *keyPart) narrow(lo, hi []byte) {
	if lo != nil && bytes.Compare(lo, p.lo) > 0 {
		p.lo = lo
	}
	if hi != nil && (p.hi == nil || bytes.Compare(hi, p.hi) < 0) {
		p.hi = hi
	}
}

// like takes the fixed start of a pattern into account. A pattern without wildcards is an equality.
func (a *accessBinder) like(i int, pattern sql.Expr) {
	if a.typeOf(i) != dataflow.TypeText {
		return
	}
	v, ok := a.constant(pattern, dataflow.TypeText)
	if !ok {
		return
	}
	p := &a.parts[i]
	if v.Null {
		p.equal, p.known = nil, true
		return
	}
	var start strings.Builder
	for j := 0; j < len(v.Str); j++ {
		switch v.Str[j] {
		case '%', '_':
			a.prefix(i, start.String())
			return
		case '\\':
			if j++; j == len(v.Str) {
				return
			}
		}
		start.WriteByte(v.Str[j])
	}
	if !p.known {
		p.equal, p.known = []dataflow.Value{dataflow.Text(start.String())}, true
	}
}

// prefix narrows a TEXT key column to what starts with a text.
func (a *accessBinder) prefix(i int, text string) {
	lo := key.AppendTextPrefix(nil, text)
	a.parts[i].narrow(lo, key.PrefixEnd(lo))
	a.parts[i].texts = append(a.parts[i].texts, a.name(i)+" starts with "+show(dataflow.Text(text)))
}

func (a *accessBinder) name(i int) string { return a.table.Schema[a.table.KeyCols[i]].Name }

// show prints a value as a SQL literal, cut when it is long.
func show(v dataflow.Value) string {
	const most = 40
	if r := []rune(v.Str); len(r) > most {
		v.Str = string(r[:most]) + "…"
	}
	return expr.NewConst(v).String()
}

// intersect returns the values of a that are in b too.
func intersect(a, b []dataflow.Value) []dataflow.Value {
	in := make(map[string]bool, len(b))
	for _, v := range b {
		in[string(key.AppendValue(nil, v))] = true
	}
	return slices.DeleteFunc(a, func(v dataflow.Value) bool { return !in[string(key.AppendValue(nil, v))] })
}

// access turns what is known of the key columns into keys or ranges.
func (a *accessBinder) access() Access {
	prefixes := [][]byte{nil}
	var texts []string
	for i := range a.parts {
		p := &a.parts[i]
		if !p.known || len(prefixes)*len(p.equal) > dataflow.MaxBatchGetKeys {
			return a.ranges(prefixes, p, texts)
		}
		var longer [][]byte
		for _, prefix := range prefixes {
			for _, v := range p.equal {
				longer = append(longer, key.AppendValue(prefix[:len(prefix):len(prefix)], v))
			}
		}
		slices.SortFunc(longer, bytes.Compare)
		prefixes = slices.CompactFunc(longer, bytes.Equal)
		texts = append(texts, a.equalText(i))
	}
	text := strings.Join(texts, ", ")
	if text == "" {
		text = "the only row"
	}
	return Access{Points: true, Keys: prefixes, Text: "look up " + text}
}

func (a *accessBinder) equalText(i int) string {
	p := a.parts[i]
	switch len(p.equal) {
	case 0:
		return a.name(i) + " = nothing"
	case 1:
		return a.name(i) + " = " + show(p.equal[0])
	}
	list := make([]string, 0, 4)
	for j, v := range p.equal {
		if j == 3 && len(p.equal) > 4 {
			list = append(list, "…")
			break
		}
		list = append(list, show(v))
	}
	return a.name(i) + " in (" + strings.Join(list, ", ") + ")"
}

// ranges returns the keys that begin with one of the prefixes, the next part within p's bounds.
func (a *accessBinder) ranges(prefixes [][]byte, p *keyPart, texts []string) Access {
	acc := Access{}
	for _, prefix := range prefixes {
		r := Range{Lo: prefix, Hi: key.PrefixEnd(prefix)}
		if len(prefix) == 0 {
			r = Range{}
		}
		if p.lo != nil {
			r.Lo = append(prefix[:len(prefix):len(prefix)], p.lo...)
		}
		if p.hi != nil {
			r.Hi = append(prefix[:len(prefix):len(prefix)], p.hi...)
		}
		if r.Hi == nil || bytes.Compare(r.Lo, r.Hi) < 0 {
			acc.Ranges = append(acc.Ranges, r)
		}
	}
	texts = append(texts, p.texts...)
	acc.Text = "scan all"
	if len(texts) > 0 {
		acc.Text = "scan " + strings.Join(texts, ", ")
	}
	return acc
}
