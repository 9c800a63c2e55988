package expr

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/jsonb"
)

// jsonPathFunctions are those that change a JSONB at a path, and print it.
func jsonPathFunctions() []function {
	set := []dataflow.Type{tJSON, tArray, tJSON}
	flagged := append(set[:len(set):len(set)], tBool)
	return []function{
		{name: "#-", args: []dataflow.Type{tJSON, tArray}, result: tJSON, eval: evalJSONChange(jsonb.Delete, jsonb.Delete, false),
			doc: "Without what a path of keys and numbers leads to.", example: `'{"a": [1, 2]}'::jsonb #- '{a,0}'`},
		{name: "jsonb_set", args: set, result: tJSON, eval: evalJSONChange(jsonb.Replace, jsonb.Set, true),
			doc: "With a value at the end of a path; one that is not there is added, unless the fourth argument is false.", example: `jsonb_set('{"a": [1, 2]}', '{a,0}', '"x"')`},
		{name: "jsonb_set", args: flagged, result: tJSON, eval: evalJSONChange(jsonb.Replace, jsonb.Set, true)},
		{name: "jsonb_insert", args: set, result: tJSON, eval: evalJSONChange(jsonb.InsertBefore, jsonb.InsertAfter, false),
			doc: "With a new value before the element that a path leads to, behind it if the fourth argument is true, or as a new member.", example: `jsonb_insert('{"a": [1, 2]}', '{a,0}', '9')`},
		{name: "jsonb_insert", args: flagged, result: tJSON, eval: evalJSONChange(jsonb.InsertBefore, jsonb.InsertAfter, false)},
		{name: "jsonb_pretty", args: []dataflow.Type{tJSON}, result: tText, eval: func(f *frame) {
			a := f.args[0]
			f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
				out, ok := jsonb.Pretty(dst, a.text(i), maxText)
				if !ok {
					return dst, errTooLong()
				}
				return out, nil
			})
		}, doc: "As text with a line for each member and element.", example: `jsonb_pretty('[1]')`},
		{name: "jsonb_object", args: []dataflow.Type{tArray}, result: tJSON, eval: evalJSONObject(1),
			doc: "An object of texts: keys and values in turn, or keys and values.", example: `jsonb_object('{a,1,b,2}')`},
		{name: "jsonb_object", args: []dataflow.Type{tArray, tArray}, result: tJSON, eval: evalJSONObject(2)},
	}
}

// evalJSONChange changes a value at a path: as yes says where the fourth argument is true, as no where it is false; without one
// it is byDefault.
func evalJSONChange(no, yes jsonb.Change, byDefault bool) func(f *frame) {
	return func(f *frame) {
		a, steps := f.args[0], f.args[1]
		var path [][]byte
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
			path = path[:0]
			from, to := steps.list(i)
			for j := from; j < to; j++ {
				if elemNull(steps.v.Elems, j) {
					path = append(path, nil)
					continue
				}
				step := steps.v.Elems.Text(j)
				path = append(path, step[:len(step):len(step)])
				if path[len(path)-1] == nil {
					path[len(path)-1] = []byte{}
				}
			}
			var value []byte
			if len(f.args) > 2 {
				value = f.args[2].text(i)
			}
			change := no
			if len(f.args) > 3 && f.args[3].int(i) != 0 || len(f.args) <= 3 && byDefault {
				change = yes
			}
			out, err := jsonb.AtPath(dst, a.text(i), path, change, value)
			if err != nil {
				return dst, failf("%s", err.Error())
			}
			if len(out)-len(dst) > dataflow.MaxRowBytes {
				return dst, dataflow.Errorf(dataflow.ReasonTooLarge, "a JSONB value may have %d bytes", dataflow.MaxRowBytes)
			}
			return out, nil
		})
	}
}

// evalJSONObject makes an object of one array of keys and values in turn, or of two arrays.
func evalJSONObject(arrays int) func(f *frame) {
	return func(f *frame) {
		keys, values := f.args[0], f.args[arrays-1]
		var text []byte
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
			from, to := keys.list(i)
			at, end := values.list(i)
			step := 1
			switch {
			case arrays == 2 && end-at != to-from:
				return dst, failf("mismatched array dimensions")
			case arrays == 1 && (to-from)%2 != 0:
				return dst, failf("array must have even number of elements")
			case arrays == 1:
				at, step = at+1, 2
			}
			text = append(text[:0], '{')
			for k := from; k < to; k, at = k+step, at+step {
				if elemNull(keys.v.Elems, k) {
					return dst, failf("null value not allowed for object key")
				}
				if k > from {
					text = append(text, ", "...)
				}
				text = append(jsonb.AppendString(text, keys.v.Elems.Text(k)), ": "...)
				if elemNull(values.v.Elems, at) {
					text = append(text, "null"...)
				} else {
					text = jsonb.AppendString(text, values.v.Elems.Text(at))
				}
			}
			return appendJSONB(dst, append(text, '}'))
		})
	}
}
