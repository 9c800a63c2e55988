package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// windows collects the window functions of a SELECT. Their results stand behind the columns of its rows.
type windows struct {
	width int // columns of the rows
	calls []windowCall
}

// windowCall is one window function.
type windowCall struct {
	text        string // as a key: equal texts are computed once
	fn          string
	spec        *agg.Spec // of an aggregate; nil for a function that only windows have
	args        []expr.Expr
	argAt       []sql.Span
	partition   []expr.Expr
	partitionAt []sql.Span
	order       []expr.Expr
	orderAt     []sql.Span
	by          []orderBy // col is not set yet
	frame       *frame    // nil: the default
	out         dataflow.Type
}

const windowNotYet = "window functions in a view are not there yet, except row_number() in a subquery whose rows are bounded, WHERE n <= 10: group by date_trunc or date_bin of a time for one row per span, or write OVER in the query that reads the table"

// isWindowOnly reports whether a function needs OVER.
func isWindowOnly(name string) bool {
	switch name {
	case "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "first_value", "last_value", "nth_value":
		return true
	}
	return false
}

func hasWindow(items []sql.Item) bool {
	for _, it := range items {
		if windowOf(it.Expr) != nil {
			return true
		}
	}
	return false
}

func windowOf(e sql.Expr) (found *sql.Call) {
	sql.Walk(e, func(e sql.Expr) bool {
		if c, ok := e.(*sql.Call); ok && c.Over != nil {
			found = c
		}
		return found == nil
	})
	return found
}

// bindWindows makes room for the window functions of a SELECT. Over groups, all aggregates are bound first, so that it is
// known where the results of the window functions stand.
func bindWindows(b *binder, blk *block, s *sql.Select, items []sql.Item) error {
	var list []sql.Expr
	for _, it := range items {
		list = append(list, it.Expr)
	}
	for _, o := range s.OrderBy {
		list = append(list, o.Expr)
	}
	any := false
	for _, e := range list {
		any = any || windowOf(e) != nil
	}
	b.noWindow = "a window function cannot stand here"
	if !any {
		return nil
	}
	w := &windows{width: b.queries.width}
	if blk.group != nil {
		if s.Having != nil {
			list = append(list, s.Having)
		}
		for _, e := range list {
			var err error
			sql.Walk(e, func(e sql.Expr) bool {
				c, ok := e.(*sql.Call)
				if ok && c.Over == nil && agg.IsAggregate(c.Func.Name) && err == nil {
					_, err = b.bind(c)
					return false
				}
				return err == nil
			})
			if err != nil {
				return err
			}
		}
		w.width = len(blk.group.keys) + len(blk.group.aggs)
	}
	blk.windows, b.windows = w, w
	return nil
}

// window binds a call with OVER: its result is a column behind those of the rows.
func (b *binder) window(c *sql.Call) (expr.Expr, error) {
	if b.queries == nil && b.noWindow == "" {
		return nil, b.refuse(c.Over.At, "OVER: %s", windowNotYet)
	}
	if b.windows == nil {
		why := b.noWindow
		if why == "" {
			why = "a window function stands in the SELECT list or ORDER BY: name it in a subquery in FROM, and write the condition around it"
		}
		return nil, b.errorf(c.At, "%s(…) OVER: %s", c.Func.Name, why)
	}
	inner := *b
	inner.windows, inner.noWindow = nil, "window functions cannot nest: write the inner one in a subquery"
	w := windowCall{fn: c.Func.Name}
	if err := inner.windowOver(&w, c.Over); err != nil {
		return nil, err
	}
	var err error
	if agg.IsAggregate(c.Func.Name) {
		err = inner.windowAggregate(&w, c)
	} else {
		err = inner.windowFunction(&w, c)
	}
	if err != nil {
		return nil, err
	}
	w.text = w.describe()
	for i, have := range b.windows.calls {
		if have.text == w.text && have.out == w.out {
			return expr.NewColumn(b.windows.width+i, w.text, w.out), nil
		}
	}
	if len(b.windows.calls) == maxWindowCalls {
		return nil, b.refuse(c.At, "a SELECT has at most %d window functions", maxWindowCalls)
	}
	b.windows.calls = append(b.windows.calls, w)
	return expr.NewColumn(b.windows.width+len(b.windows.calls)-1, w.text, w.out), nil
}

// maxWindowCalls bounds the columns that window functions add, each of which is held for all rows.
const maxWindowCalls = 100

// keyed binds an expression that rows are compared by.
func (b *binder) keyed(e sql.Expr, clause string) (expr.Expr, error) {
	x, err := b.bind(e)
	if err != nil {
		return nil, err
	}
	if x, err = settle(x); err != nil {
		return nil, b.at(err, e.Span())
	}
	return x, checkKeyType(b.src, e.Span(), x.Type(), clause)
}

func (b *binder) windowOver(w *windowCall, over *sql.Window) error {
	for _, e := range over.PartitionBy {
		x, err := b.keyed(e, "PARTITION BY")
		if err != nil {
			return err
		}
		w.partition, w.partitionAt = append(w.partition, x), append(w.partitionAt, e.Span())
	}
	for _, o := range over.OrderBy {
		x, err := b.keyed(o.Expr, "ORDER BY")
		if err != nil {
			return err
		}
		w.order, w.orderAt = append(w.order, x), append(w.orderAt, o.Expr.Span())
		w.by = append(w.by, orderBy{desc: o.Desc, nullsFirst: o.NullsFirst})
	}
	var err error
	w.frame, err = b.frame(w, over.Frame)
	return err
}

// windowAggregate binds an aggregate over a window.
func (b *binder) windowAggregate(w *windowCall, c *sql.Call) error {
	name := c.Func.Name
	sig, _ := agg.Lookup(name)
	switch {
	case agg.IsPaired(name):
		return b.refuse(c.At, "%s(…) over a window is not there yet: group by the columns of PARTITION BY in a subquery", name)
	case c.Distinct && sig.Distinct != agg.DistinctSame:
		return b.refuse(c.At, "DISTINCT in a window function is not there: write a subquery with SELECT DISTINCT")
	case sig.NeedsArrival:
		return b.refuse(c.At, "%s(…) goes by the order in which the rows of a stream arrived, and these rows have none: write %s_value(x) OVER (ORDER BY y)", name, name)
	case sig.Param != dataflow.TypeUnknown || sig.Within || sig.Ordered || len(c.OrderBy) > 0 || c.Within:
		return b.refuse(c.At, "%s(…) over a window is not there yet: group by the columns of PARTITION BY in a subquery", name)
	case !c.Star && len(c.Args) != sig.Args:
		return b.errorf(c.At, "%s takes %s, here are %d%s", name, arguments(sig.Args), len(c.Args), arityHint(sig, len(c.Args)))
	}
	for _, e := range c.Args {
		x, err := b.bind(e)
		if err != nil {
			return err
		}
		if x, err = settle(x); err != nil {
			return b.at(err, e.Span())
		}
		w.args, w.argAt = append(w.args, x), append(w.argAt, e.Span())
	}
	if c.Filter != nil {
		cond, err := b.bindBool(c.Filter, "FILTER (WHERE …)")
		if err != nil {
			return err
		}
		if len(w.args) == 0 {
			w.args, w.argAt = []expr.Expr{nil}, []sql.Span{c.At}
		}
		of := &w.args[len(w.args)-1]
		if *of, err = filtered(cond, *of); err != nil {
			return b.at(err, c.Filter.Span())
		}
	}
	w.spec = &agg.Spec{Arg: -1}
	t := dataflow.TypeUnknown
	if len(w.args) > 0 {
		t = w.args[0].Type()
		w.spec.ArgType = t
		for _, by := range w.args[1:] {
			if !by.Type().Ordered() {
				return b.refuse(c.At, "%s by %s is not there yet", name, by.Type())
			}
		}
		w.spec.Order = make([]agg.Order, len(w.args)-1)
	}
	var err error
	if w.spec.Fn, w.out, err = agg.Resolve(name, len(w.args) == 0, t); err != nil {
		return b.at(err, c.At)
	}
	w.spec.Out = w.out
	return nil
}

// windowFunction binds a function that only windows have.
func (b *binder) windowFunction(w *windowCall, c *sql.Call) error {
	least, most := 0, 0
	w.out = dataflow.TypeBigInt
	switch w.fn {
	case "row_number", "rank", "dense_rank":
	case "percent_rank", "cume_dist":
		w.out = dataflow.TypeDouble
	case "ntile", "first_value", "last_value":
		least, most = 1, 1
	case "lag", "lead":
		least, most = 1, 3
	case "nth_value":
		least, most = 2, 2
	default:
		return b.errorf(c.At, "%s is no window function and no aggregate: there are row_number, rank, dense_rank, percent_rank, cume_dist, ntile, lag, lead, first_value, last_value, nth_value and the aggregates%s",
			w.fn, dataflow.DidYouMean(w.fn, []string{"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "first_value", "last_value", "nth_value"}))
	}
	switch {
	case c.Filter != nil:
		return b.errorf(c.Filter.Span(), "FILTER stands behind aggregates only, and %s is not one", w.fn)
	case c.Distinct || c.Star || len(c.Args) < least || len(c.Args) > most:
		return b.errorf(c.At, "%s takes %s", w.fn, map[int]string{0: "no arguments", 1: "one argument", 2: "a value, and the number of a row of the frame", 3: "a value, and perhaps how many rows away it stands and what is given where there is no such row"}[most])
	}
	for i, e := range c.Args {
		x, err := b.bind(e)
		if err != nil {
			return err
		}
		switch {
		case i == 1 || w.fn == "ntile": // of lag, lead and nth_value too
			x, err = expr.Coerce(x, dataflow.TypeBigInt)
		case i == 2:
			x, err = expr.Coerce(x, w.out)
		default:
			if x, err = settle(x); err == nil {
				w.out = x.Type()
			}
		}
		if err != nil {
			return b.at(err, e.Span())
		}
		w.args, w.argAt = append(w.args, x), append(w.argAt, e.Span())
	}
	if w.fn == "ntile" {
		w.out = dataflow.TypeBigInt
	}
	return nil
}

// describe prints the call as SQL.
func (w *windowCall) describe() string {
	args := exprTexts(w.args)
	if w.spec != nil && len(w.args) == 0 {
		args = "*"
	}
	return fmt.Sprintf("%s(%s) over (%s)", w.fn, args, w.framed())
}

// over prints the window; equal texts are equal windows.
func (w *windowCall) over() string {
	var parts []string
	if len(w.partition) > 0 {
		parts = append(parts, "partition by "+exprTexts(w.partition))
	}
	if len(w.order) > 0 {
		order := make([]string, len(w.order))
		for i, x := range w.order {
			order[i] = x.String() + direction(w.by[i])
		}
		parts = append(parts, "order by "+strings.Join(order, ", "))
	}
	return strings.Join(parts, " ")
}

// framed prints the window with its frame.
func (w *windowCall) framed() string {
	if w.frame == nil {
		return w.over()
	}
	return strings.TrimSpace(w.over() + " " + w.frame.String())
}

func exprTexts(list []expr.Expr) string {
	texts := make([]string, len(list))
	for i, x := range list {
		texts[i] = x.String()
	}
	return strings.Join(texts, ", ")
}

// windowPlan is how the window functions of a SELECT are computed.
type windowPlan struct {
	// input has the columns of the rows, then what the windows need.
	input *Project
	width int // columns of the rows
	sets  []windowSet
	out   dataflow.Schema // of the results, in the order of the calls
}

// windowSet is the functions over one window. Columns are those of input.
type windowSet struct {
	text      string
	partition []int
	order     []orderBy
	calls     []windowFn
}

// windowFn is one function of a set.
type windowFn struct {
	fn   string
	spec *agg.Spec
	args []int
	at   int // which result it is
	// frame is which rows of the partition it sees; nil: those up to the current one and its peers.
	frame *frame
	span  sql.Span // of the call's last argument, for errors
}

// plan lays the calls out over rows of a schema.
func (w *windows) plan(src *sql.Source, row dataflow.Schema) *windowPlan {
	p := &windowPlan{input: &Project{}, width: len(row)}
	add := func(x expr.Expr, at Place) int {
		p.input.Exprs = append(p.input.Exprs, x)
		p.input.Schema = append(p.input.Schema, dataflow.Column{Name: x.String(), Type: x.Type()})
		p.input.At = append(p.input.At, at)
		return len(p.input.Exprs) - 1
	}
	for i, c := range row {
		add(expr.NewColumn(i, c.Name, c.Type), Place{1, 1})
	}
	addAll := func(list []expr.Expr, at []sql.Span) (cols []int) {
		for i, x := range list {
			if c := isColumn(x); c >= 0 {
				cols = append(cols, c)
				continue
			}
			cols = append(cols, add(x, place(src, at[i])))
		}
		return cols
	}
	bounds := make(map[string]int)
	addBound := func(b *frameBound) int {
		text := b.value.String()
		if _, have := bounds[text]; !have {
			bounds[text] = add(b.value, place(src, b.at))
		}
		return bounds[text]
	}
	for i, c := range w.calls {
		over := c.over()
		at := -1
		for j := range p.sets {
			if p.sets[j].text == over {
				at = j
			}
		}
		if at < 0 {
			at = len(p.sets)
			s := windowSet{text: over, partition: addAll(c.partition, c.partitionAt)}
			for j, col := range addAll(c.order, c.orderAt) {
				o := c.by[j]
				o.col = col
				s.order = append(s.order, o)
			}
			p.sets = append(p.sets, s)
		}
		f := windowFn{fn: c.fn, args: addAll(c.args, c.argAt), at: i, frame: c.frame}
		if c.frame != nil && c.frame.measured() {
			fr := *c.frame
			for _, b := range []*frameBound{&fr.start, &fr.end} {
				if b.value != nil {
					b.col = addBound(b)
				}
			}
			f.frame = &fr
		}
		if n := len(c.argAt); n > 0 {
			f.span = c.argAt[n-1]
		}
		if c.spec != nil {
			spec := *c.spec
			if len(f.args) > 0 {
				spec.Arg, spec.Order = f.args[0], slices.Clone(spec.Order)
				for j, by := range f.args[1:] {
					spec.Order[j].Col = by
				}
			}
			f.spec = &spec
		}
		p.sets[at].calls = append(p.sets[at].calls, f)
		p.out = append(p.out, dataflow.Column{Name: c.text, Type: c.out})
	}
	return p
}
