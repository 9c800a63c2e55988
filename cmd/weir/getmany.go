package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
)

// wholeKey is one of several keys, with all its parts.
type wholeKey struct {
	parts dataflow.Row
	json  []byte // as an array
}

// keysOfOnePart takes each argument for a key.
func keysOfOnePart(args []string) []wholeKey {
	keys := make([]wholeKey, len(args))
	for i, a := range args {
		keys[i] = keyOfOnePart(a)
	}
	return keys
}

func keyOfOnePart(a string) wholeKey {
	k := wholeKey{parts: keyParts([]string{a}), json: []byte(`[null]`)}
	if !k.parts[0].Null {
		k.json = append(wire.AppendStringJSON([]byte{'['}, a), ']')
	}
	return k
}

// parseKeys reads what --key was given: a JSON array of a key's parts, or the one part of a key as text, which then does not begin
// with [.
func parseKeys(flags []string) ([]wholeKey, error) {
	var keys []wholeKey
	for _, f := range flags {
		if len(f) == 0 || f[0] != '[' {
			keys = append(keys, keyOfOnePart(f))
			continue
		}
		parts, err := parseKeyArray(f)
		if err != nil {
			return nil, usagef("--key %s: %w; write the parts of a key as a JSON array, or the only part as it is, without [ at its beginning", f, err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(f)); err != nil {
			return nil, err // it was parsed
		}
		keys = append(keys, wholeKey{parts: parts, json: compact.Bytes()})
	}
	return keys, nil
}

// parseKeyArray turns a JSON array into key parts: texts for the server to parse, numbers with all their digits.
func parseKeyArray(s string) (dataflow.Row, error) {
	dec := json.NewDecoder(bytes.NewReader([]byte(s)))
	dec.UseNumber()
	var parts []any
	if err := dec.Decode(&parts); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the array")
	}
	row := make(dataflow.Row, len(parts))
	for i, p := range parts {
		switch p := p.(type) {
		case nil:
			row[i] = dataflow.NullValue(dataflow.TypeUnknown)
		case string:
			row[i] = weir.Literal(p)
		case json.Number, bool:
			row[i] = weir.Literal(fmt.Sprint(p))
		default:
			return nil, fmt.Errorf("part %d is neither text, number, true, false nor null", i+1)
		}
	}
	return row, nil
}

// otherKeyShape reports whether a read was refused because its table's key has another number of columns than its keys had parts.
func otherKeyShape(err error) bool {
	var e *dataflow.Error
	return errors.As(err, &e) && e.Reason == dataflow.ReasonKeyInvalid && e.Metadata["key_columns"] != ""
}

// getMany reads and prints the rows of several keys, from one cut.
func (c *cli) getMany(ctx context.Context, w *weir.Client, table string, keys []wholeKey, o weir.ReadOptions) error {
	rows := make([]dataflow.Row, len(keys))
	for i, k := range keys {
		rows[i] = k.parts
	}
	a, err := w.BatchGet(ctx, table, rows, o)
	if err != nil {
		return err
	}
	show := c.printManyText
	if c.json() {
		show = c.printManyJSON
	}
	missing, err := show(keys, a)
	if err == nil && missing > 0 {
		err = dataflow.Errorf(dataflow.ReasonRowNotFound, "%d of %d keys have no row", missing, len(keys))
	}
	return err
}

// printManyJSON prints a line per key, in the order of the keys, then one with the cut.
func (c *cli) printManyJSON(keys []wholeKey, a *weir.Answers) (missing int, err error) {
	out := bufio.NewWriterSize(c.stdout, outputBuffer)
	for i, row := range a.Rows {
		if row == nil {
			missing++
			row = weir.Row("null")
		}
		if _, err := fmt.Fprintf(out, `{"key":%s,"row":%s}`+"\n", keys[i].json, row); err != nil {
			return missing, err
		}
	}
	if _, err := out.Write(append(wire.AppendCutJSON([]byte(`{"cut":`), a.Cut), '}', '\n')); err != nil {
		return missing, err
	}
	return missing, out.Flush()
}

// printManyText prints the rows that are there as a table, then the keys that have none, then the cut.
func (c *cli) printManyText(keys []wholeKey, a *weir.Answers) (missing int, err error) {
	var t *table
	var absent bytes.Buffer
	for i, row := range a.Rows {
		if row == nil {
			missing++
			fmt.Fprintf(&absent, "missing: %s\n", keys[i].text())
			continue
		}
		names, cells, err := rowCells(row)
		if err != nil {
			return missing, err
		}
		if t == nil {
			t = newTable(c.stdout, names...)
		}
		if err := t.add(cells...); err != nil {
			return missing, err
		}
	}
	if t != nil {
		if err := t.flush(); err != nil {
			return missing, err
		}
	}
	if _, err := c.stdout.Write(absent.Bytes()); err != nil {
		return missing, err
	}
	_, err = fmt.Fprintf(c.stdout, "\n%s; %s\n", rows(uint64(len(keys)-missing)), cutLine(a.Cut))
	return missing, err
}

// text shows a key for people.
func (k *wholeKey) text() string {
	if len(k.parts) == 1 && !k.parts[0].Null {
		return oneLine(k.parts[0].Str)
	}
	return string(k.json)
}
