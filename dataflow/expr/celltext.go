package expr

import "github.com/weirdb/weir/dataflow/batch"

// AppendCellText appends the text form of row i of v, as FormatValue has it: nothing for NULL.
func AppendCellText(dst []byte, v *batch.Vector, i int) []byte {
	if v.IsNull(i) {
		return dst
	}
	return appendVector(dst, v, i)
}
