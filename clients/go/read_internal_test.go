package weir

import (
	"testing"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestPackedRowsAreTakenApart(t *testing.T) {
	rows, err := unpack(&weirv1.TextValues{Data: []byte("{}[]{}"), Lengths: []uint32{2, 0, 4}})
	if err != nil || len(rows) != 3 || string(rows[0]) != "{}" || rows[1] != nil || string(rows[2]) != "[]{}" {
		t.Errorf("%q, %v", rows, err)
	}
	if cap(rows[0]) != 2 {
		t.Errorf("what is appended to a row is written over the next: it has room for %d bytes", cap(rows[0]))
	}
	if _, err := unpack(&weirv1.TextValues{Data: []byte("{}"), Lengths: []uint32{2, 1}}); dataflow.ReasonOf(err) != dataflow.ReasonInternal {
		t.Errorf("rows that are not there: %v", err)
	}
}
