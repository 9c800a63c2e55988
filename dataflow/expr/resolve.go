package expr

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/weirdb/weir/dataflow"
)

// index finds functions by name.
type index struct {
	all    []*function
	byName map[string][]*function
}

// registry returns all functions. The tables are literals that nothing changes.
var registry = sync.OnceValue(func() *index {
	x := &index{byName: make(map[string][]*function)}
	for _, t := range topics() {
		for i := range t.functions {
			fn := &t.functions[i]
			x.all = append(x.all, fn)
			x.byName[fn.name] = append(x.byName[fn.name], fn)
		}
	}
	return x
})

// isLiteral reports whether e takes the type that its place asks for.
func isLiteral(e Expr) bool {
	c, ok := e.(*Const)
	return ok && c.literal
}

// implicit reports whether from becomes to without being asked.
func implicit(from, to dataflow.Type) bool {
	if from == to {
		return true
	}
	switch from {
	case dataflow.TypeBigInt:
		return to == dataflow.TypeNumeric || to == dataflow.TypeDouble
	case dataflow.TypeNumeric:
		return to == dataflow.TypeDouble
	case dataflow.TypeDate:
		return to == dataflow.TypeTimestamp
	}
	return false
}

// preferred reports whether PostgreSQL prefers t within its category when a choice is left.
func preferred(t dataflow.Type) bool {
	switch t {
	case dataflow.TypeDouble, dataflow.TypeText, dataflow.TypeTimestamp, dataflow.TypeBool, dataflow.TypeInterval:
		return true
	}
	return false
}

// commonType returns the type that all of args can have without being asked, as for CASE, COALESCE and comparisons;
// ok is false if there is none, and then a and b are two types that do not go together.
func commonType(args []Expr) (t, a, b dataflow.Type, ok bool) {
	for _, e := range args {
		if isLiteral(e) {
			continue
		}
		u := e.Type()
		switch {
		case t == dataflow.TypeUnknown || implicit(t, u):
			t = u
		case !implicit(u, t):
			return 0, t, u, false
		}
	}
	if t == dataflow.TypeUnknown {
		t = dataflow.TypeText
	}
	return t, 0, 0, true
}

// match returns the argument types of fn for args, and how well they fit: the number of arguments that have their type
// already, and of those that have it or become the preferred one. ok is false if fn cannot take them.
func (fn *function) match(args []Expr) (types []dataflow.Type, exact, liked int, ok bool) {
	if len(args) < len(fn.args) || len(args) > len(fn.args) && !fn.variadic {
		return nil, 0, 0, false
	}
	var alike []Expr
	list, ok := fn.listOf(args)
	if !ok {
		return nil, 0, 0, false
	}
	for i, a := range args {
		switch fn.param(i) {
		case typeAny:
			alike = append(alike, a)
		}
	}
	var common dataflow.Type
	if alike != nil {
		if common, _, _, ok = commonType(alike); !ok {
			return nil, 0, 0, false
		}
	}
	types = make([]dataflow.Type, len(args))
	for i, a := range args {
		t := fn.param(i)
		switch t {
		case typeAny:
			t = common
		case typeList:
			t = list
		case typeItem:
			t = list.Elem()
		case typeEach:
			types[i] = typeEach
			continue
		}
		types[i] = t
		switch {
		case isLiteral(a):
		case a.Type() == t:
			exact++
			liked++
		case !implicit(a.Type(), t):
			return nil, 0, 0, false
		case preferred(t):
			liked++
		}
	}
	return types, exact, liked, true
}

// listOf returns the array type that typeList stands for in a call; false if the arguments do not have one.
func (fn *function) listOf(args []Expr) (list dataflow.Type, ok bool) {
	needed := false
	for i, a := range args {
		if fn.param(i) != typeList {
			continue
		}
		needed = true
		t := a.Type()
		switch {
		case isLiteral(a):
		case t.Form() != dataflow.FormList || list != dataflow.TypeUnknown && list != t:
			return 0, false
		default:
			list = t
		}
	}
	if !needed || list != dataflow.TypeUnknown {
		return list, true
	}
	if fn.name == "||" {
		return 0, false // literals are texts then, as in PostgreSQL: '{1}' || 2 is '{1}2'
	}
	for i, a := range args { // all arrays are literals: an element may tell
		if fn.param(i) == typeItem && !isLiteral(a) {
			list = dataflow.ArrayOf(a.Type())
			return list, list != dataflow.TypeUnknown
		}
	}
	return dataflow.TypeTextArray, true
}

// resolve chooses among the functions of one name by PostgreSQL's rules (its manual, chapter 10).
func resolve(name string, candidates []*function, args []Expr) (*function, []dataflow.Type, error) {
	type choice struct {
		fn           *function
		types        []dataflow.Type
		exact, liked int
	}
	var choices []choice
	for _, fn := range candidates {
		if types, exact, liked, ok := fn.match(args); ok {
			choices = append(choices, choice{fn, types, exact, liked})
		}
	}
	keepBest := func(score func(c choice) int) {
		best := -1
		for _, c := range choices {
			best = max(best, score(c))
		}
		choices = slices.DeleteFunc(choices, func(c choice) bool { return score(c) != best })
	}
	if len(choices) > 1 && len(args) == 2 && !isWord(name) && isLiteral(args[0]) != isLiteral(args[1]) {
		// An operator with one literal: the literal has the other side's type, if there is such an operator.
		t := args[0].Type()
		if isLiteral(args[0]) {
			t = args[1].Type()
		}
		for _, c := range choices {
			if c.types[0] == t && c.types[1] == t {
				return c.fn, c.types, nil
			}
		}
	}
	if len(choices) > 1 {
		keepBest(func(c choice) int { return c.exact })
	}
	if len(choices) > 1 {
		keepBest(func(c choice) int { return c.liked })
	}
	for i := 0; i < len(args) && len(choices) > 1; i++ {
		if !isLiteral(args[i]) {
			continue
		}
		keepBest(func(c choice) int {
			switch {
			case c.types[i] == dataflow.TypeText:
				return 3
			case c.types[i] == typeEach:
				return 2
			case preferred(c.types[i]):
				return 1
			}
			return 0
		})
	}
	switch {
	case len(choices) == 1:
		return choices[0].fn, choices[0].types, nil
	case len(choices) == 0:
		return nil, nil, noMatch(name, candidates, args)
	}
	kind := "function"
	if isOperator(name) {
		kind = "operator"
	}
	return nil, nil, dataflow.Errorf(dataflow.ReasonSQLType, "%s is not unique: %s", kind, signature(name, args)).
		WithHint("give the arguments a type, for example '…'::bigint")
}

// argName returns the type of an argument for messages.
func argName(e Expr) string {
	if isLiteral(e) {
		return "unknown"
	}
	return typeName(e.Type())
}

// signature returns a call with the types of its arguments: left(text, boolean), bigint + text.
func signature(name string, args []Expr) string {
	types := make([]string, len(args))
	for i, a := range args {
		types[i] = argName(a)
	}
	return formatSignature(name, types)
}

func formatSignature(name string, types []string) string {
	upper := strings.ToUpper(name)
	switch n := len(types); {
	case (name == "in" || name == "not in") && n > 1:
		return types[0] + " " + upper + " (" + strings.Join(types[1:], ", ") + ")"
	case strings.HasPrefix(name, "is ") && n == 1:
		return types[0] + " " + upper
	case name == "[]" && n == 2:
		return types[0] + "[" + types[1] + "]"
	case name == "[:]" && n == 3:
		return types[0] + "[" + types[1] + ":" + types[2] + "]"
	case name == "array" && n > 0:
		return "ARRAY[" + strings.Join(types, ", ") + "]"
	case isQuantified(name) && n == 2:
		return types[0] + " " + upper + " (" + types[1] + ")"
	case (name == "not" || !isWord(name)) && n == 1:
		return upper + " " + types[0]
	case isLike(name) && n == 3:
		return types[0] + " " + upper + " " + types[1] + " ESCAPE " + types[2]
	case isOperator(name) && n > 1:
		return strings.Join(types, " "+upper+" ")
	}
	return name + "(" + strings.Join(types, ", ") + ")"
}

// isOperator reports whether a name stands between its arguments.
func isOperator(name string) bool {
	return !isWord(name) || name == "and" || name == "or" || isLike(name) || strings.HasSuffix(name, "distinct from")
}

// isLike reports whether a name is one of LIKE's.
func isLike(name string) bool {
	return name == "like" || name == "ilike" || name == "not like" || name == "not ilike"
}

// declared returns the signature of fn as documentation shows it.
func (fn *function) declared() string {
	types := make([]string, 0, len(fn.args)+1)
	for _, t := range fn.args {
		types = append(types, typeName(t))
	}
	if fn.variadic {
		if name := fn.name; name == "and" || name == "or" {
			types = append(types, types[0])
		} else {
			types[len(types)-1] += ", …"
		}
	}
	return formatSignature(fn.name, types)
}

// noMatch describes a call that no function of the name can take.
func noMatch(name string, candidates []*function, args []Expr) *dataflow.Error {
	if n := len(candidates[0].args); len(candidates) == 1 && n > 0 && len(args) >= n {
		if fn := candidates[0]; fn.param(len(fn.args)-1) == typeAny && isWord(name) {
			if _, a, b, ok := commonType(args); !ok {
				return dataflow.Errorf(dataflow.ReasonSQLType, "%s types %s and %s cannot be matched", strings.ToUpper(name), typeName(a), typeName(b)).
					WithHint("cast one of them, for example x::text")
			}
		}
	}
	have := make([]string, len(candidates))
	for i, fn := range candidates {
		have[i] = fn.declared()
	}
	if isWord(name) && !isOperator(name) {
		err := dataflow.Errorf(dataflow.ReasonSQLType, "function %s does not exist", signature(name, args))
		if len(args) == 2 && args[0].Type() == dataflow.TypeDouble && (name == "round" || name == "trunc") {
			return err.WithHint("a DOUBLE PRECISION has no decimal digits: write %s((%s)::numeric, %s)", name, args[0], args[1])
		}
		return err.WithHint("there is %s", strings.Join(have, "; "))
	}
	err := dataflow.Errorf(dataflow.ReasonSQLType, "operator does not exist: %s", signature(name, args))
	if instead := insteadOf(name, args); instead != "" {
		return err.WithHint("%s", instead)
	}
	if args := candidates[0].args; len(args) > 0 && args[0] == typeAny {
		return err.WithHint("both sides must have one type: cast one of them, for example x::text")
	}
	return err.WithHint("there is %s", strings.Join(have, "; "))
}

// insteadOf says what was probably meant by an operator that does not exist for its arguments; "" if that is not known.
func insteadOf(name string, args []Expr) string {
	if len(args) != 2 {
		return ""
	}
	l, r := args[0], args[1]
	isTime := func(x Expr) bool { return x.Type() == dataflow.TypeTimestamp }
	isNumber := func(x Expr) bool {
		return x.Type() == dataflow.TypeBigInt || x.Type() == dataflow.TypeNumeric || x.Type() == dataflow.TypeDouble
	}
	switch name {
	case "+", "-":
		switch {
		case name == "+" && (l.Type() == dataflow.TypeText || r.Type() == dataflow.TypeText):
			return "texts are joined by ||"
		case isTime(l) && isNumber(r):
			return "what is added to a time is an INTERVAL, such as INTERVAL '1 day'"
		}
	case "=", "<>", "<", "<=", ">", ">=":
		if isTime(l) && isNumber(r) || isNumber(l) && isTime(r) {
			return "a time is compared with a time: write '2026-01-31', or to_timestamp(n) for seconds since 1970"
		}
	}
	return ""
}

// unknownFunction describes a call of a name that nothing has.
func unknownFunction(name string, args []Expr) *dataflow.Error {
	err := dataflow.Errorf(dataflow.ReasonSQLType, "function %s does not exist", signature(name, args))
	var near []string
	for n := range registry().byName {
		if isWord(n) && distance(name, n) <= 1+len(name)/4 {
			near = append(near, n)
		}
	}
	if len(near) == 0 {
		return err.WithHint("docs/sql.md lists the functions")
	}
	slices.Sort(near)
	return err.WithHint("did you mean %s?", strings.Join(near, " or "))
}

// distance returns the number of letters to insert, delete or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost = 1 + min(diagonal, row[j], row[j-1])
			}
			diagonal, row[j] = row[j], cost
		}
	}
	return row[len(b)]
}

// FuncDoc documents a function or operator: one row of the table in docs/sql.md.
type FuncDoc struct {
	Topic      string
	Name       string
	Signatures []string // each with its result type: left(text, bigint) → text
	Doc        string
	Differs    string // how PostgreSQL differs; empty if it does not
	Example    string // an expression to show; empty where none can be
}

// Functions returns the documentation of every function and operator, by topic and in the tables' order.
func Functions() []FuncDoc {
	var docs []FuncDoc
	for _, t := range topics() {
		for i := range t.functions {
			fn := &t.functions[i]
			sig := fmt.Sprintf("%s → %s", fn.declared(), typeName(fn.result))
			if n := len(docs); fn.doc == "" && n > 0 {
				docs[n-1].Signatures = append(docs[n-1].Signatures, sig)
				continue
			}
			docs = append(docs, FuncDoc{Topic: t.name, Name: fn.name, Signatures: []string{sig}, Doc: fn.doc, Differs: fn.differs, Example: fn.example})
		}
	}
	return docs
}

// topic is the table of one topic file.
type topic struct {
	name      string
	functions []function
}

func topics() []topic {
	return []topic{
		{"Comparison", compareFunctions()},
		{"Logic and conditions", logicFunctions()},
		{"Numbers", append(numberFunctions(), trigFunctions()...)},
		{"Text", append(textFunctions(), formatFunctions()...)},
		{"Patterns", append(likeFunctions(), regexpFunctions()...)},
		{"Arrays", arrayFunctions()},
		{"Time", append(timeFunctions(), dateFunctions()...)},
		{"Bytes", byteaFunctions()},
		{"JSON", append(jsonFunctions(), jsonPathFunctions()...)},
		{"URLs", urlFunctions()},
	}
}
