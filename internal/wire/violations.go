package wire

import (
	"fmt"

	"github.com/weirdb/weir/dataflow"
)

// maxViolations bounds how many wrong values are listed: enough to see a pattern, few enough to read.
const maxViolations = 20

// violations collects what is wrong with the rows of one request.
type violations struct {
	prefix string // before rows[i], for example "shards[2]."
	list   []dataflow.Violation
	total  int
}

// full reports whether looking on would only count.
func (v *violations) full() bool { return v.total >= maxViolations }

func (v *violations) add(field, format string, args ...any) {
	v.total++
	if len(v.list) < maxViolations {
		v.list = append(v.list, dataflow.Violation{Field: v.prefix + field, Description: fmt.Sprintf(format, args...)})
	}
}

func (v *violations) addCell(row int, column, format string, args ...any) {
	if v.full() {
		v.total++
		return
	}
	v.add(fmt.Sprintf("rows[%d].%s", row, column), format, args...)
}

func (v *violations) addRow(row int, format string, args ...any) {
	v.add(fmt.Sprintf("rows[%d]", row), format, args...)
}

// err returns ROW_INVALID with the collected violations, or nil when there are none.
func (v *violations) err() error {
	if v.total == 0 {
		return nil
	}
	first := v.list[0]
	e := dataflow.Errorf(dataflow.ReasonRowInvalid, "%s: %s", first.Field, first.Description)
	if v.total > 1 {
		do := "do"
		if v.total == 2 {
			do = "does"
		}
		e = dataflow.Errorf(dataflow.ReasonRowInvalid, "%s: %s; and %d more %s not fit", first.Field, first.Description, v.total-1, do)
	}
	e.Violations = v.list
	return e
}

func tooLarge(field, format string, args ...any) error {
	e := dataflow.Errorf(dataflow.ReasonTooLarge, format, args...)
	e.Violations = []dataflow.Violation{{Field: field, Description: e.Message}}
	return e
}
