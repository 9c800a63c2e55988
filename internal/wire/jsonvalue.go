package wire

import (
	"errors"
	"fmt"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/jsonb"
)

// appendJSONB appends JSON text to a JSONB vector, or says what is wrong with it.
func appendJSONB(v *batch.Vector, raw []byte) string {
	data, err := jsonb.Append(v.Data, raw, dataflow.MaxRowBytes)
	switch {
	case errors.Is(err, jsonb.ErrTooLarge):
		return fmt.Sprintf("a JSONB value may have %d bytes", dataflow.MaxRowBytes)
	case err != nil:
		return fmt.Sprintf("this is not valid JSON: %v", err)
	}
	v.Data = data
	v.AppendText(nil) // ends the row
	return ""
}

// appendJSONList appends an array. Text is taken as SQL writes arrays: {1,2,NULL}.
func appendJSONList(v *batch.Vector, kind jsonKind, text, raw []byte) string {
	switch kind {
	case jsonString:
		return appendParsed(v, text)
	case jsonArray:
	default:
		return fmt.Sprintf("%s column, found %s", article(v.Type), kind)
	}
	// A vector of its own first: what fails must leave nothing behind.
	elem := dataflow.Column{Type: v.Type.Elem()}
	elems := batch.NewVector(elem.Type, 0)
	s, size := &jsonScanner{b: raw, i: 1}, 0
	for s.space() != ']' {
		if elems.Len() > 0 && !s.expect(',') {
			return s.err.Error()
		}
		s.space()
		from := s.i
		kind, text := s.value()
		if s.err != nil {
			return s.err.Error()
		}
		if kind == jsonNull && elem.Type != dataflow.TypeJSONB {
			elems.AppendNull()
		} else if msg := appendJSON(elem, elems, kind, text, s.b[from:s.i]); msg != "" {
			return fmt.Sprintf("element %d: %s", elems.Len()+1, msg)
		}
		if size += elems.RowBytes(elems.Len() - 1); size > dataflow.MaxRowBytes {
			return fmt.Sprintf("an array may have %d bytes", dataflow.MaxRowBytes)
		}
	}
	for i := range elems.Len() {
		v.Elems.AppendFrom(elems, i)
	}
	v.CloseList()
	return ""
}
