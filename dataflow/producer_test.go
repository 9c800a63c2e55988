package dataflow_test

import (
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow"
)

func TestProducersNamesPrint(t *testing.T) {
	for _, name := range []string{"p", "zähler 1", "日本/α:β", "a\u0301", "😀", strings.Repeat("x", dataflow.MaxProducerName)} {
		if err := dataflow.CheckProducerName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "\x00", "a\nb", "\x7f", "a\u0085", "a\u202eb", "a\u00a0b", "\ufeffa", "\xff", "a\xed\xa0\x80", strings.Repeat("x", dataflow.MaxProducerName+1)} {
		if err := dataflow.CheckProducerName(name); dataflow.ReasonOf(err) != dataflow.ReasonRequestInvalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}
