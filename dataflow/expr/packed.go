package expr

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// Packed makes one value of several, for an aggregate that keeps rows: a BYTEA that Field takes apart. It is never shown.
//
// Format, per field: 0 for NULL; else the length of the value + 1 as a uvarint, and the value as batch.AppendCell has it.
// Equal rows have equal bytes.
type Packed struct{ fields []Expr }

// NewPacked returns the fields as one value.
func NewPacked(fields ...Expr) *Packed { return &Packed{fields: fields} }

// Type implements Expr.
func (p *Packed) Type() dataflow.Type { return dataflow.TypeBytea }

// String implements Expr.
func (p *Packed) String() string {
	parts := make([]string, len(p.fields))
	for i, f := range p.fields {
		parts[i] = f.String()
	}
	return "row(" + strings.Join(parts, ", ") + ")"
}

// Eval implements Expr.
func (p *Packed) Eval(env *Env, b *batch.Batch, sel Sel) *batch.Vector {
	cols := make([]*batch.Vector, len(p.fields))
	for i, f := range p.fields {
		cols[i] = f.Eval(env, b, sel)
	}
	out := batch.NewVector(dataflow.TypeBytea, b.N)
	var row, cell []byte
	taken := env.Take(int64(b.N) * width(dataflow.TypeBytea))
	for _, i := range allRows(sel, b.N) {
		if !taken {
			return env.nothing(dataflow.TypeBytea, b.N)
		}
		padTo(out, int(i))
		row = row[:0]
		for _, v := range cols {
			if v.IsNull(int(i)) {
				row = append(row, 0)
				continue
			}
			cell = batch.AppendCell(cell[:0], v, int(i))
			row = append(binary.AppendUvarint(row, uint64(len(cell))+1), cell...)
		}
		out.AppendText(row)
		taken = env.Take(int64(len(row)))
	}
	padTo(out, b.N)
	return out
}

// padTo appends NULL until v has n rows.
func padTo(v *batch.Vector, n int) {
	for v.Len() < n {
		v.AppendNull()
	}
}

// Field is one field of a value that Packed has made.
type Field struct {
	row   Expr
	index int
	name  string
	typ   dataflow.Type
}

// NewField returns field i of row, a value that Packed has made of fields of which this one has type t. The name is for
// String only.
func NewField(row Expr, i int, name string, t dataflow.Type) *Field {
	return &Field{row: row, index: i, name: name, typ: t}
}

// Type implements Expr.
func (f *Field) Type() dataflow.Type { return f.typ }

// String implements Expr.
func (f *Field) String() string { return f.row.String() + "." + f.name }

// errPacked says that a value is not one of Packed.
var errPacked = errors.New("malformed packed row")

// Eval implements Expr. The bytes are not trusted.
func (f *Field) Eval(env *Env, b *batch.Batch, sel Sel) *batch.Vector {
	rows := f.row.Eval(env, b, sel)
	out := batch.NewVector(f.typ, b.N)
	taken := env.Take(int64(b.N) * width(f.typ))
	for _, i := range allRows(sel, b.N) {
		if !taken {
			return env.nothing(f.typ, b.N)
		}
		padTo(out, int(i))
		if rows.IsNull(int(i)) {
			out.AppendNull()
			continue
		}
		if err := f.read(rows.Text(int(i)), out); err != nil {
			env.fail(int(i), dataflow.Errorf(dataflow.ReasonCorrupt, "state of a group is damaged: %w", err))
			padTo(out, int(i)+1)
			continue
		}
		taken = env.Take(RowMemory(out, int(i)))
	}
	padTo(out, b.N)
	return out
}

// read appends the field of a row to out. After an error out may have no row more.
func (f *Field) read(row []byte, out *batch.Vector) error {
	for i := 0; ; i++ {
		n, k := binary.Uvarint(row)
		if k <= 0 || n > uint64(len(row)-k)+1 {
			return errPacked
		}
		row = row[k:]
		size := int(max(n, 1) - 1)
		switch {
		case i < f.index:
			row = row[size:]
			continue
		case n == 0:
			out.AppendNull()
			return nil
		}
		rest, err := batch.ReadCell(row[:size], out)
		if err == nil && len(rest) != 0 {
			err = errPacked
		}
		return err
	}
}

var (
	_ Expr = (*Packed)(nil)
	_ Expr = (*Field)(nil)
)
