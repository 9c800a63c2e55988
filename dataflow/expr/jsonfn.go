package expr

import (
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/jsonb"
)

// jsonFunctions are those of JSONB.
func jsonFunctions() []function {
	json, text, index, path := []dataflow.Type{tJSON}, []dataflow.Type{tJSON, tText}, []dataflow.Type{tJSON, tInt}, []dataflow.Type{tJSON, tArray}
	both := []dataflow.Type{tJSON, tJSON}
	pathArgs := []dataflow.Type{tJSON, tText}
	return []function{
		{name: "->", args: text, result: tJSON, eval: evalJSONField(false),
			doc: "The member of an object, or the element of an array by its number from 0 (from the end, if negative); NULL if there is none.", example: `'{"a": [1, 2]}'::jsonb -> 'a'`},
		{name: "->", args: index, result: tJSON, eval: evalJSONIndex(false)},
		{name: "->>", args: text, result: tText, eval: evalJSONField(true),
			doc: "The same as text: a string without its quotes; NULL for null.", example: `'{"a": "x"}'::jsonb ->> 'a'`},
		{name: "->>", args: index, result: tText, eval: evalJSONIndex(true)},
		{name: "#>", args: path, result: tJSON, eval: evalJSONPath(false),
			doc: "What a path of keys and numbers leads to; NULL if nothing.", example: `'{"a": [1, {"b": 2}]}'::jsonb #> '{a,1,b}'`},
		{name: "#>>", args: path, result: tText, eval: evalJSONPath(true),
			doc: "The same as text.", example: `'{"a": {"b": "x"}}'::jsonb #>> '{a,b}'`},
		{name: "@>", args: both, result: tBool, eval: jsonTest(jsonb.Contains),
			doc: "Whether the first contains the second: all its members, or elements in any order, at the same place.", example: `'{"a": 1, "b": [2, 3]}'::jsonb @> '{"b": [3]}'`},
		{name: "<@", args: both, result: tBool, eval: jsonTest(func(a, b []byte) bool { return jsonb.Contains(b, a) }),
			doc: "Whether the second contains the first.", example: `'[1]'::jsonb <@ '[2, 1]'`},
		{name: "?", args: text, result: tBool, eval: jsonTest(jsonb.Has),
			doc: "Whether an object has a key, or an array a string.", example: `'{"a": null}'::jsonb ? 'a'`},
		{name: "?|", args: path, result: tBool, eval: evalJSONHas(true),
			doc: "Whether it has any of several.", example: `'{"a": 1}'::jsonb ?| '{a,b}'`},
		{name: "?&", args: path, result: tBool, eval: evalJSONHas(false),
			doc: "Whether it has all of several.", example: `'{"a": 1}'::jsonb ?& '{a,b}'`},
		{name: "||", args: both, result: tJSON, eval: jsonMake2(jsonb.Concat),
			doc: "JSONB: objects merged, the second's members winning; anything else joined to an array.", example: `'{"a": 1}'::jsonb || '{"b": 2}'::jsonb`},
		{name: "-", args: text, result: tJSON, eval: evalJSONDelete,
			doc: "JSONB without a key, an element by its number, or several keys.", example: `'{"a": 1, "b": 2}'::jsonb - 'a'`},
		{name: "-", args: index, result: tJSON, eval: evalJSONDeleteAt},
		{name: "-", args: path, result: tJSON, eval: evalJSONDeleteAll},
		{name: "jsonb_typeof", args: json, result: tText, eval: evalJSONType,
			doc: "object, array, string, number, boolean or null.", example: `jsonb_typeof('[1]')`},
		{name: "jsonb_array_length", args: json, result: tInt, eval: evalJSONLength,
			doc: "The number of elements of an array; fails for anything else.", example: `jsonb_array_length('[1, 2]')`},
		{name: "jsonb_extract_path", args: pathArgs, variadic: true, result: tJSON, eval: evalJSONExtract(false),
			doc: "What keys and numbers, one argument each, lead to: as #>.", example: `jsonb_extract_path('{"a": {"b": 1}}', 'a', 'b')`},
		{name: "jsonb_extract_path_text", args: pathArgs, variadic: true, result: tText, eval: evalJSONExtract(true),
			doc: "The same as text: as #>>.", example: `jsonb_extract_path_text('{"a": "x"}', 'a')`},
		{name: "to_jsonb", args: []dataflow.Type{typeEach}, result: tJSON, eval: evalToJSON,
			doc: "Any value as JSONB: texts and times as strings, numbers, booleans and arrays as what they are.", example: `to_jsonb('{a,b}'::text[])`},
		{name: "jsonb_build_array", args: nil, result: tJSON, eval: evalBuildArray,
			doc: "An array of the arguments.", example: `jsonb_build_array(1, 'a', NULL)`},
		{name: "jsonb_build_array", args: []dataflow.Type{typeEach}, variadic: true, result: tJSON, nullable: true, eval: evalBuildArray},
		{name: "jsonb_build_object", args: nil, result: tJSON, eval: evalBuildObject,
			doc: "An object of keys and values in turn.", example: `jsonb_build_object('a', 1, 'b', now() IS NULL)`},
		{name: "jsonb_build_object", args: []dataflow.Type{typeEach}, variadic: true, result: tJSON, nullable: true, check: checkBuildObject, eval: evalBuildObject},
		{name: "jsonb_strip_nulls", args: json, result: tJSON, eval: jsonMake1(jsonb.StripNulls),
			doc: "Without the members that are null, at any depth.", example: `jsonb_strip_nulls('{"a": null, "b": 1}')`},
		{name: "jsonb_array_elements", args: json, result: dataflow.TypeJSONBArray, eval: evalJSONElements(false),
			doc: "In FROM: a row for each element of an array.", differs: "it stands in FROM only, and may be used as UNNEST is"},
		{name: "jsonb_array_elements_text", args: json, result: tArray, eval: evalJSONElements(true),
			doc: "In FROM: the same as text.", differs: "it stands in FROM only"},
		{name: "jsonb_object_keys", args: json, result: tArray, eval: evalJSONKeys,
			doc: "In FROM: a row for each key of an object.", differs: "it stands in FROM only"},
	}
}

// jsonResult appends v, as text if asked, or makes row i NULL.
func (f *frame) jsonResult(dst []byte, i int, v []byte, ok, text bool) ([]byte, *dataflow.Error) {
	if ok && text {
		v, ok = jsonb.Text(v)
	}
	if !ok {
		f.null(i)
		return dst, nil
	}
	return append(dst, v...), nil
}

func evalJSONField(text bool) func(f *frame) {
	return func(f *frame) {
		a, key := f.args[0], f.args[1]
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
			v, ok := jsonb.Field(a.text(i), key.text(i))
			return f.jsonResult(dst, i, v, ok, text)
		})
	}
}

func evalJSONIndex(text bool) func(f *frame) {
	return func(f *frame) {
		a, n := f.args[0], f.args[1]
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
			doc := a.text(i)
			v, ok := jsonb.At(doc, n.int(i))
			if k := jsonb.KindOf(doc); k != jsonb.Array && k != jsonb.Object && (n.int(i) == 0 || n.int(i) == -1) {
				v, ok = doc, true // PostgreSQL holds a scalar as an array of one
			}
			return f.jsonResult(dst, i, v, ok, text)
		})
	}
}

// walkPath follows the steps of row i, elements of an array; a NULL step leads nowhere.
func walkPath(doc []byte, steps *operand, i int) ([]byte, bool) {
	from, to := steps.list(i)
	for j := from; j < to; j++ {
		if elemNull(steps.v.Elems, j) {
			return nil, false
		}
		var ok bool
		if doc, ok = jsonb.Step(doc, steps.v.Elems.Text(j)); !ok {
			return nil, false
		}
	}
	return doc, true
}

func evalJSONPath(text bool) func(f *frame) {
	return func(f *frame) {
		a, steps := f.args[0], f.args[1]
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
			v, ok := walkPath(a.text(i), &steps, i)
			return f.jsonResult(dst, i, v, ok, text)
		})
	}
}

func evalJSONExtract(text bool) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
			v, ok := a.text(i), true
			for k := 1; k < len(f.args) && ok; k++ {
				v, ok = jsonb.Step(v, f.args[k].text(i))
			}
			return f.jsonResult(dst, i, v, ok, text)
		})
	}
}

// jsonTest is a test of the bytes of two arguments.
func jsonTest(test func(a, b []byte) bool) func(f *frame) {
	return func(f *frame) {
		a, b := f.args[0], f.args[1]
		f.each(func(i int) *dataflow.Error {
			f.out.Ints[i] = boolInt(test(a.text(i), b.text(i)))
			return nil
		})
	}
}

func evalJSONHas(any bool) func(f *frame) {
	return func(f *frame) {
		a, keys := f.args[0], f.args[1]
		f.each(func(i int) *dataflow.Error {
			from, to := keys.list(i)
			holds := !any
			for j := from; j < to && holds != any; j++ {
				if !elemNull(keys.v.Elems, j) && jsonb.Has(a.text(i), keys.v.Elems.Text(j)) == any {
					holds = any
				}
			}
			f.out.Ints[i] = boolInt(holds)
			return nil
		})
	}
}

func jsonMake1(make func(dst, v []byte) []byte) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) { return make(dst, a.text(i)), nil })
	}
}

func jsonMake2(make func(dst, a, b []byte) []byte) func(f *frame) {
	return func(f *frame) {
		a, b := f.args[0], f.args[1]
		f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) { return make(dst, a.text(i), b.text(i)), nil })
	}
}

// needContainer refuses to delete from a scalar.
func needContainer(v []byte) *dataflow.Error {
	if k := jsonb.KindOf(v); k != jsonb.Object && k != jsonb.Array {
		return failf("cannot delete from scalar")
	}
	return nil
}

func evalJSONDelete(f *frame) {
	a, key := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		if err := needContainer(a.text(i)); err != nil {
			return dst, err
		}
		return jsonb.Without(dst, a.text(i), func(k []byte) bool { return string(k) == string(key.text(i)) }), nil
	})
}

func evalJSONDeleteAll(f *frame) {
	a, keys := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		if err := needContainer(a.text(i)); err != nil {
			return dst, err
		}
		drop := make(map[string]bool)
		from, to := keys.list(i)
		for j := from; j < to; j++ {
			if !elemNull(keys.v.Elems, j) {
				drop[string(keys.v.Elems.Text(j))] = true
			}
		}
		return jsonb.Without(dst, a.text(i), func(k []byte) bool { return drop[string(k)] }), nil
	})
}

func evalJSONDeleteAt(f *frame) {
	a, n := f.args[0], f.args[1]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		v := a.text(i)
		if err := needContainer(v); err != nil {
			return dst, err
		}
		if jsonb.KindOf(v) == jsonb.Object {
			return dst, failf("cannot delete from object using integer index")
		}
		return jsonb.WithoutAt(dst, v, n.int(i)), nil
	})
}

func evalJSONType(f *frame) {
	a := f.args[0]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		return append(dst, jsonb.KindOf(a.text(i)).String()...), nil
	})
}

func evalJSONLength(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error {
		switch v := a.text(i); jsonb.KindOf(v) {
		case jsonb.Array:
			f.out.Ints[i] = int64(jsonb.Len(v))
			return nil
		case jsonb.Object:
			return failf("cannot get array length of a non-array")
		}
		return failf("cannot get array length of a scalar")
	})
}

func evalJSONElements(text bool) func(f *frame) {
	return func(f *frame) {
		a := f.args[0]
		f.each(func(i int) *dataflow.Error {
			v := a.text(i)
			switch jsonb.KindOf(v) {
			case jsonb.Array:
			case jsonb.Object:
				return failf("cannot extract elements from an object")
			default:
				return failf("cannot extract elements from a scalar")
			}
			fillTo(f.out, i)
			for x := range jsonb.Elements(v) {
				ok := true
				if text {
					x, ok = jsonb.Text(x)
				}
				if ok {
					f.out.Elems.AppendText(x)
				} else {
					f.out.Elems.AppendNull()
				}
			}
			f.out.Lists = append(f.out.Lists, uint32(f.out.Elems.Len()))
			return nil
		})
	}
}

func evalJSONKeys(f *frame) {
	a := f.args[0]
	f.each(func(i int) *dataflow.Error {
		v := a.text(i)
		switch jsonb.KindOf(v) {
		case jsonb.Object:
		case jsonb.Array:
			return failf("cannot call jsonb_object_keys on an array")
		default:
			return failf("cannot call jsonb_object_keys on a scalar")
		}
		fillTo(f.out, i)
		for k := range jsonb.Members(v) {
			f.out.Elems.AppendText(jsonb.Key(k))
		}
		f.out.Lists = append(f.out.Lists, uint32(f.out.Elems.Len()))
		return nil
	})
}

func evalToJSON(f *frame) {
	a := f.args[0]
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) { return appendToJSON(dst, a.v, i&a.mask), nil })
}

func evalBuildArray(f *frame) {
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		dst = append(dst, '[')
		for k := range f.args {
			if k > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendToJSON(dst, f.args[k].v, i&f.args[k].mask)
		}
		return append(dst, ']'), nil
	})
}

func checkBuildObject(c *Call) *dataflow.Error {
	if len(c.args)%2 != 0 {
		return dataflow.Errorf(dataflow.ReasonSQLType, "argument list must have even number of elements").
			WithHint("jsonb_build_object takes keys and values in turn")
	}
	return nil
}

func evalBuildObject(f *frame) {
	var text, key []byte
	f.eachText(func(dst []byte, i int) ([]byte, *dataflow.Error) {
		text = append(text[:0], '{')
		for k := 0; k+1 < len(f.args); k += 2 {
			name := &f.args[k]
			if name.v.Type == dataflow.TypeUnknown || name.null(i) {
				return dst, failf("argument %d: key must not be null", k+1)
			}
			if k > 0 {
				text = append(text, ", "...)
			}
			key = name.appendText(key[:0], i)
			text = append(jsonb.AppendString(text, key), ": "...)
			text = appendToJSON(text, f.args[k+1].v, i&f.args[k+1].mask)
		}
		text = append(text, '}')
		return appendJSONB(dst, text)
	})
}

// jsonScalar is the cast of a JSONB scalar of a kind to another type.
func jsonScalar(kind jsonb.Kind, to dataflow.Type, set func(f *frame, i int, v []byte) *dataflow.Error) castFunc {
	return func(f *frame) {
		a := f.args[0]
		f.each(func(i int) *dataflow.Error {
			v := a.text(i)
			if k := jsonb.KindOf(v); k != kind {
				name := k.String()
				if k == jsonb.Number {
					name = "numeric"
				}
				return failf("cannot cast jsonb %s to type %s", name, typeName(to))
			}
			return set(f, i, v)
		})
	}
}

// fromJSON returns the cast of JSONB to another type, nil if there is none.
func fromJSON(to dataflow.Type) castFunc {
	switch to {
	case tBool:
		return jsonScalar(jsonb.Bool, to, func(f *frame, i int, v []byte) *dataflow.Error {
			f.out.Ints[i] = boolInt(v[0] == 't')
			return nil
		})
	case tNum, tInt, tFlt:
		return jsonScalar(jsonb.Number, to, func(f *frame, i int, v []byte) *dataflow.Error {
			d, err := parseNumeric(string(v))
			if err != nil {
				return err
			}
			switch to {
			case tNum:
				f.out.Decs[i].Set(d)
			case tInt:
				f.out.Ints[i], err = numericToInt(d)
			default:
				f.out.Floats[i], err = numericToFloat(d)
			}
			return err
		})
	}
	return nil
}
