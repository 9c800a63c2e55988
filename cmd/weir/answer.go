package main

import (
	"bufio"
	"errors"
	"fmt"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// printAnswer prints the answer of get. A nil row says that there is none at the cut.
func (c *cli) printAnswer(row weir.Row, cut *weirv1.Cut) error {
	if c.json() {
		line := append([]byte(`{"row":`), row...)
		if row == nil {
			line = append(line, "null"...)
		}
		return c.printLine(append(wire.AppendCutJSON(append(line, `,"cut":`...), cut), '}'))
	}
	names, cells, err := rowCells(row)
	if err != nil {
		return err
	}
	t := newTable(c.stdout, names...)
	if err := t.add(cells...); err != nil {
		return err
	}
	if err := t.flush(); err != nil {
		return err
	}
	return c.printCut(cut)
}

func (c *cli) printCut(cut *weirv1.Cut) error {
	_, err := fmt.Fprintf(c.stdout, "\n%s\n", cutLine(cut))
	return err
}

// outputBuffer is enough for a page of small rows.
const outputBuffer = 64 << 10

// printRows prints the answer of scan and query: in JSON one row per line, then a line with the cut, which says that
// the answer is complete.
func (c *cli) printRows(r *weir.Rows) error {
	if c.json() {
		out := bufio.NewWriterSize(c.stdout, outputBuffer)
		for row := range r.All() {
			if _, err := out.Write(append(row, '\n')); err != nil {
				return err
			}
		}
		if err := r.Err(); err != nil {
			return errors.Join(err, out.Flush())
		}
		if _, err := out.Write(append(wire.AppendCutJSON([]byte(`{"cut":`), r.Cut()), '}', '\n')); err != nil {
			return err
		}
		return out.Flush()
	}
	var t *table
	if cols := r.Columns(); len(cols) > 0 {
		names := make([]string, len(cols))
		for i, col := range cols {
			names[i] = col.GetName()
		}
		t = newTable(c.stdout, names...)
	}
	n := uint64(0)
	for row := range r.All() {
		names, cells, err := rowCells(row)
		if err != nil {
			return err
		}
		if t == nil {
			t = newTable(c.stdout, names...)
		}
		if err := t.add(cells...); err != nil {
			return err
		}
		n++
	}
	if t != nil {
		if err := t.flush(); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.stdout, "\n%s; %s\n", rows(n), cutLine(r.Cut()))
	return err
}
