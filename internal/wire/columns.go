package wire

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// DecodeColumns returns the rows of m as a batch that fits schema. The batch shares memory with m, which must not be
// changed afterwards. field names m in errors, for example "batch" or "shards[1].batch"; "" for none.
//
// Errors: ROW_INVALID with a violation per wrong value (at most 20 are listed), TOO_LARGE, REQUEST_INVALID for no rows, that
// of ctx, which is looked at between values that may be slow to read.
func DecodeColumns(ctx context.Context, schema dataflow.Schema, m *weirv1.ColumnBatch, field string) (*batch.Batch, error) {
	n := int(m.GetRows())
	at := field
	if at != "" {
		at += "."
	}
	switch {
	case n == 0:
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "%srows is 0: an append needs at least one row", at)
	case n > dataflow.MaxBatchRows:
		return nil, tooLarge(at+"rows", "%d rows are over the limit of %d per append", n, dataflow.MaxBatchRows)
	}
	if size := dataBytes(m); size > dataflow.MaxBatchBytes {
		return nil, tooLarge(at+"columns", "rows of at least %d bytes are over the limit of %d per append", size, dataflow.MaxBatchBytes)
	}
	d := columnDecoder{schema: schema, n: n, bad: violations{prefix: at}}
	b := &batch.Batch{Schema: schema, N: n, Cols: make([]*batch.Vector, len(schema))}
	total := 0
	for ci, c := range m.GetColumns() {
		i := schema.Index(c.GetName())
		name := fmt.Sprintf("columns[%d]", ci)
		switch {
		case i < 0:
			d.bad.add(name, "the stream has no column %s; it has %s", quoteShort(c.GetName()), schema)
			continue
		case b.Cols[i] != nil:
			d.bad.add(name, "column %s comes twice", schema[i].Name)
			continue
		}
		b.Cols[i] = d.column(ctx, name, schema[i], c)
		if d.ended != nil {
			return nil, d.ended
		}
		total += vectorBytes(b.Cols[i])
	}
	for i, c := range schema {
		if b.Cols[i] != nil {
			continue
		}
		if c.NotNull {
			d.bad.addCell(0, c.Name, "column %s is NOT NULL and missing", c.Name)
		}
		b.Cols[i] = nullVector(c.Type, n)
		total += vectorBytes(b.Cols[i])
	}
	if err := d.bad.err(); err != nil {
		return nil, err
	}
	if total > dataflow.MaxBatchBytes {
		return nil, tooLarge(at+"columns", "rows of %d bytes are over the limit of %d per append", total, dataflow.MaxBatchBytes)
	}
	return b, checkRows(b, total)
}

// dataBytes is how much text the columns bring: what is over the limit by it alone is not looked at.
func dataBytes(m *weirv1.ColumnBatch) int {
	n := 0
	for _, c := range m.GetColumns() {
		n += len(c.GetTexts().GetData()) + len(c.GetNumerics().GetData()) + len(c.GetByteas().GetData())
	}
	return n
}

type columnDecoder struct {
	schema dataflow.Schema
	n      int
	size   int   // of the values that were read from text, at most what vectorBytes finds
	ended  error // why the rest is not read
	bad    violations
}

// goesOn reports whether to read on after the value of row i, which has size bytes. When not, d.ended says why.
func (d *columnDecoder) goesOn(ctx context.Context, c dataflow.Column, i, size int) bool {
	if d.size += size; d.size > dataflow.MaxBatchBytes {
		d.ended = upToHere(fmt.Sprintf("%srows[%d].%s", d.bad.prefix, i, c.Name))
	} else {
		d.ended = ctx.Err()
	}
	return d.ended == nil
}

// column decodes one column. It returns a vector of the right shape also when it has found violations.
func (d *columnDecoder) column(ctx context.Context, field string, c dataflow.Column, m *weirv1.ColumnData) *batch.Vector {
	if m.GetValues() == nil {
		if c.NotNull {
			d.bad.addCell(0, c.Name, "column %s is NOT NULL", c.Name)
		}
		return nullVector(c.Type, d.n)
	}
	v := &batch.Vector{Type: c.Type}
	if !d.nulls(field, c, m.GetNulls(), v) {
		return nullVector(c.Type, d.n)
	}
	ok := false
	switch vals := m.GetValues().(type) {
	case *weirv1.ColumnData_Booleans:
		ok = d.typed(field, c, dataflow.TypeBool, len(vals.Booleans.GetValues())) && d.bools(v, vals.Booleans.GetValues())
	case *weirv1.ColumnData_Bigints:
		ok = d.typed(field, c, dataflow.TypeBigInt, len(vals.Bigints.GetValues())) && d.ints(c, v, vals.Bigints.GetValues())
	case *weirv1.ColumnData_Timestamps:
		ok = d.typed(field, c, dataflow.TypeTimestamp, len(vals.Timestamps.GetValues())) && d.ints(c, v, vals.Timestamps.GetValues())
	case *weirv1.ColumnData_Doubles:
		ok = d.typed(field, c, dataflow.TypeDouble, len(vals.Doubles.GetValues())) && d.floats(v, vals.Doubles.GetValues())
	case *weirv1.ColumnData_Texts:
		got := dataflow.TypeText
		if byText(c.Type) {
			got = c.Type
		}
		ok = d.typed(field, c, got, len(vals.Texts.GetLengths())) && d.texts(ctx, field, c, v, vals.Texts)
	case *weirv1.ColumnData_Byteas:
		ok = d.typed(field, c, dataflow.TypeBytea, len(vals.Byteas.GetLengths())) && d.byteas(field, c, v, vals.Byteas)
	case *weirv1.ColumnData_Numerics:
		ok = d.typed(field, c, dataflow.TypeNumeric, len(vals.Numerics.GetLengths())) && d.numerics(ctx, field, c, v, vals.Numerics)
	default:
		d.bad.add(field, "values of a kind that this server does not know")
	}
	if !ok {
		return nullVector(c.Type, d.n)
	}
	return v
}

func (d *columnDecoder) typed(field string, c dataflow.Column, got dataflow.Type, values int) bool {
	if got != c.Type {
		d.bad.add(field, "column %s is %s, the values are %s", c.Name, c.Type, got)
		return false
	}
	if values != d.n {
		d.bad.add(field, "column %s has %d values for %d rows", c.Name, values, d.n)
		return false
	}
	return true
}

func (d *columnDecoder) nulls(field string, c dataflow.Column, m []byte, v *batch.Vector) bool {
	if len(m) == 0 {
		return true
	}
	if len(m) != (d.n+7)/8 {
		d.bad.add(field, "nulls of column %s has %d bytes, %d rows need %d", c.Name, len(m), d.n, (d.n+7)/8)
		return false
	}
	nulls, any := batch.NewBitmap(d.n), false
	for i, x := range m {
		for ; x != 0; x &= x - 1 {
			row := i*8 + bits.TrailingZeros8(x)
			if row >= d.n {
				d.bad.add(field, "nulls of column %s names row %d of %d", c.Name, row, d.n)
				return false
			}
			nulls.Set(row)
			any = true
			if c.NotNull {
				d.bad.addCell(row, c.Name, "column %s is NOT NULL", c.Name)
			}
		}
	}
	if any {
		v.Nulls = nulls
	}
	return true
}

func (d *columnDecoder) bools(v *batch.Vector, vals []bool) bool {
	v.Ints = make([]int64, d.n)
	for i, b := range vals {
		if b && !v.IsNull(i) {
			v.Ints[i] = 1
		}
	}
	return true
}

func (d *columnDecoder) ints(c dataflow.Column, v *batch.Vector, vals []int64) bool {
	v.Ints = vals
	if v.Nulls != nil {
		v.Ints = make([]int64, d.n)
		for i, x := range vals {
			if !v.IsNull(i) {
				v.Ints[i] = x
			}
		}
	}
	if c.Type == dataflow.TypeTimestamp {
		for i, x := range v.Ints {
			if !timestampInRange(x) {
				d.bad.addCell(i, c.Name, "%s", describeTimestampRange(x))
			}
		}
	}
	return true
}

func (d *columnDecoder) floats(v *batch.Vector, vals []float64) bool {
	v.Floats = vals
	if v.Nulls != nil {
		v.Floats = make([]float64, d.n)
		for i, x := range vals {
			if !v.IsNull(i) {
				v.Floats[i] = x
			}
		}
	}
	return true
}

// offsets turns lengths into offsets, checked against data. NULL rows must have no bytes.
func (d *columnDecoder) offsets(field string, c dataflow.Column, v *batch.Vector, m *weirv1.TextValues) ([]uint32, bool) {
	offs := make([]uint32, d.n+1)
	var at uint64
	for i, l := range m.GetLengths() {
		at += uint64(l)
		if at > uint64(len(m.GetData())) {
			d.bad.add(field, "lengths of column %s add up to more than its %d bytes of data", c.Name, len(m.GetData()))
			return nil, false
		}
		if l > 0 && v.IsNull(i) {
			d.bad.addCell(i, c.Name, "the value is NULL and has %d bytes of text", l)
			return nil, false
		}
		offs[i+1] = uint32(at)
	}
	if at != uint64(len(m.GetData())) {
		d.bad.add(field, "lengths of column %s add up to %d, its data has %d bytes", c.Name, at, len(m.GetData()))
		return nil, false
	}
	return offs, true
}

func (d *columnDecoder) texts(ctx context.Context, field string, c dataflow.Column, v *batch.Vector, m *weirv1.TextValues) bool {
	offs, ok := d.offsets(field, c, v, m)
	if !ok {
		return false
	}
	if byText(c.Type) {
		return d.parsed(ctx, c, v, offs, m.GetData())
	}
	v.Offs, v.Data = offs, m.GetData()
	if textsValid(v) {
		return true
	}
	for i := range d.n {
		if msg := describeBadText(v.Text(i)); msg != "" {
			d.bad.addCell(i, c.Name, "%s", msg)
		}
	}
	return true
}

// byText reports whether values of a type travel as text.
func byText(t dataflow.Type) bool {
	switch t {
	case dataflow.TypeJSONB, dataflow.TypeInterval, dataflow.TypeDate:
		return true
	}
	return t.Form() == dataflow.FormList
}

// parsed reads values that travel as text.
func (d *columnDecoder) parsed(ctx context.Context, c dataflow.Column, v *batch.Vector, offs []uint32, data []byte) bool {
	nulls := v.Nulls
	*v = *batch.NewVector(c.Type, d.n)
	for i := range d.n {
		if nulls.Get(i) || d.bad.full() && mayGrow(c.Type) {
			v.AppendNull()
			continue
		}
		msg := appendParsed(v, data[offs[i]:offs[i+1]])
		if msg != "" {
			d.bad.addCell(i, c.Name, "%s", msg)
			v.AppendNull()
			continue
		}
		if !d.goesOn(ctx, c, i, v.RowBytes(i)) {
			return false
		}
	}
	return true
}

// appendParsed appends a value from its text, or says what is wrong with it.
func appendParsed(v *batch.Vector, text []byte) string {
	if v.Type == dataflow.TypeJSONB {
		return appendJSONB(v, text)
	}
	x, err := expr.ParseValue(v.Type, string(text))
	if err != nil {
		return err.Error()
	}
	v.AppendValue(x)
	return ""
}

func (d *columnDecoder) byteas(field string, c dataflow.Column, v *batch.Vector, m *weirv1.TextValues) bool {
	offs, ok := d.offsets(field, c, v, m)
	v.Offs, v.Data = offs, m.GetData()
	return ok
}

// textsValid checks all texts of a vector at once: the whole is valid UTF-8 without NUL and no text begins inside a
// rune, so every text is.
func textsValid(v *batch.Vector) bool {
	if !utf8.Valid(v.Data) || bytes.IndexByte(v.Data, 0) >= 0 {
		return false
	}
	for _, o := range v.Offs {
		if int(o) < len(v.Data) && !utf8.RuneStart(v.Data[o]) {
			return false
		}
	}
	return true
}

// describeBadText says why t is not a TEXT, or "".
func describeBadText(t []byte) string {
	if !utf8.Valid(t) {
		for i := 0; i < len(t); {
			r, n := utf8.DecodeRune(t[i:])
			if r == utf8.RuneError && n == 1 {
				return fmt.Sprintf("byte %d (0x%02x) is not valid UTF-8", i, t[i])
			}
			i += n
		}
	}
	if i := bytes.IndexByte(t, 0); i >= 0 {
		return fmt.Sprintf("byte %d is NUL, which a TEXT cannot hold", i)
	}
	return ""
}

func (d *columnDecoder) numerics(ctx context.Context, field string, c dataflow.Column, v *batch.Vector, m *weirv1.TextValues) bool {
	offs, ok := d.offsets(field, c, v, m)
	if !ok {
		return false
	}
	v.Decs = make([]apd.Decimal, d.n)
	for i := range d.n {
		if v.IsNull(i) || d.bad.full() {
			continue
		}
		n, msg := parseNumericMod(c.Mod, string(m.GetData()[offs[i]:offs[i+1]]))
		if msg != "" {
			d.bad.addCell(i, c.Name, "%s", msg)
			continue
		}
		v.Decs[i].Set(n)
		if !d.goesOn(ctx, c, i, v.RowBytes(i)) {
			return false
		}
	}
	return true
}

// nullVector returns n NULLs.
func nullVector(t dataflow.Type, n int) *batch.Vector {
	v := batch.NewVectorLen(t, n)
	for i := range n {
		v.SetNull(i)
	}
	return v
}

// vectorBytes is what a vector's values take by the measure of MaxBatchBytes: 8 bytes per fixed value, 4 and the text
// per TEXT, JSONB and BYTEA. A NUMERIC counts by its digits, an array by its elements.
func vectorBytes(v *batch.Vector) int {
	switch v.Type.Form() {
	case dataflow.FormBytes:
		return 4*(len(v.Offs)-1) + len(v.Data)
	case dataflow.FormDecimal, dataflow.FormList:
		n := 0
		for i := range v.Len() {
			n += v.RowBytes(i)
		}
		return n
	}
	return 8 * v.Len()
}

// BatchBytes is what the rows of b take by the measure of MaxBatchBytes.
func BatchBytes(b *batch.Batch) int {
	total := 0
	for _, v := range b.Cols {
		total += vectorBytes(v)
	}
	return total
}

// checkRows refuses rows over MaxRowBytes. Only a batch that large in all can have one.
func checkRows(b *batch.Batch, total int) error {
	if total <= dataflow.MaxRowBytes {
		return nil
	}
	return b.CheckRows()
}

// EncodeColumns returns rows from (inclusive) to (exclusive) of b as a message. The message shares memory with b where
// it can, so b must not change while it is in use. Columns of which all those rows are NULL are left out.
func EncodeColumns(b *batch.Batch, from, to int) *weirv1.ColumnBatch {
	m := &weirv1.ColumnBatch{Rows: uint32(to - from)}
	for i, c := range b.Schema {
		if col := encodeColumn(c, b.Cols[i], from, to); col != nil {
			m.Columns = append(m.Columns, col)
		}
	}
	return m
}

func encodeColumn(c dataflow.Column, v *batch.Vector, from, to int) *weirv1.ColumnData {
	m := &weirv1.ColumnData{Name: c.Name}
	if v.Nulls != nil {
		nulls, count := make([]byte, (to-from+7)/8), 0
		for i := from; i < to; i++ {
			if v.Nulls.Get(i) {
				nulls[(i-from)/8] |= 1 << ((i - from) % 8)
				count++
			}
		}
		if count == to-from {
			return nil
		}
		if count > 0 {
			m.Nulls = nulls
		}
	}
	switch v.Type {
	case dataflow.TypeBool:
		vals := make([]bool, to-from)
		for i := range vals {
			vals[i] = v.Ints[from+i] != 0
		}
		m.Values = &weirv1.ColumnData_Booleans{Booleans: &weirv1.BoolValues{Values: vals}}
	case dataflow.TypeTimestamp:
		m.Values = &weirv1.ColumnData_Timestamps{Timestamps: &weirv1.Int64Values{Values: v.Ints[from:to]}}
	case dataflow.TypeBigInt:
		m.Values = &weirv1.ColumnData_Bigints{Bigints: &weirv1.Int64Values{Values: v.Ints[from:to]}}
	case dataflow.TypeDouble:
		m.Values = &weirv1.ColumnData_Doubles{Doubles: &weirv1.DoubleValues{Values: v.Floats[from:to]}}
	case dataflow.TypeText, dataflow.TypeJSONB:
		m.Values = &weirv1.ColumnData_Texts{Texts: textValues(v, from, to)}
	case dataflow.TypeBytea:
		m.Values = &weirv1.ColumnData_Byteas{Byteas: textValues(v, from, to)}
	case dataflow.TypeNumeric:
		t := &weirv1.TextValues{Lengths: make([]uint32, to-from)}
		for i := range t.Lengths {
			if v.IsNull(from + i) {
				continue
			}
			at := len(t.Data)
			t.Data = v.Decs[from+i].Append(t.Data, 'f')
			t.Lengths[i] = uint32(len(t.Data) - at)
		}
		m.Values = &weirv1.ColumnData_Numerics{Numerics: t}
	default:
		t := &weirv1.TextValues{Lengths: make([]uint32, to-from)}
		for i := range t.Lengths {
			if v.IsNull(from + i) {
				continue
			}
			at := len(t.Data)
			t.Data = append(t.Data, expr.FormatValue(v.Value(from+i))...)
			t.Lengths[i] = uint32(len(t.Data) - at)
		}
		m.Values = &weirv1.ColumnData_Texts{Texts: t}
	}
	return m
}

// textValues returns the rows of a vector of texts or bytes. It shares their memory.
func textValues(v *batch.Vector, from, to int) *weirv1.TextValues {
	t := &weirv1.TextValues{Data: v.Data[v.Offs[from]:v.Offs[to]], Lengths: make([]uint32, to-from)}
	for i := range t.Lengths {
		t.Lengths[i] = v.Offs[from+i+1] - v.Offs[from+i]
	}
	return t
}
