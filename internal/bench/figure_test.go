package bench

import (
	"testing"
	"time"
)

func TestFiguresAreMediansAndPrintStableBytes(t *testing.T) {
	f := &figures{bench: "engine", name: "keys=1000000"}
	f.add("rows_per_second", "rows/s", 3_000_000, 1_234_567, 2_000_000)
	f.add("ratio", "ratio", 0.123456)
	f.add("nothing", "ms")
	f.addLatency("ack", latencies{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond})
	var got []byte
	for _, f := range f.list {
		got = f.AppendJSON(got)
	}
	want := `{"bench":"engine","case":"keys=1000000","metric":"rows_per_second","value":2000000,"unit":"rows/s"}
{"bench":"engine","case":"keys=1000000","metric":"rows_per_second_min","value":1234567,"unit":"rows/s"}
{"bench":"engine","case":"keys=1000000","metric":"rows_per_second_max","value":3000000,"unit":"rows/s"}
{"bench":"engine","case":"keys=1000000","metric":"ratio","value":0.1235,"unit":"ratio"}
{"bench":"engine","case":"keys=1000000","metric":"ack_p50","value":2,"unit":"ms"}
{"bench":"engine","case":"keys=1000000","metric":"ack_p99","value":3,"unit":"ms"}
`
	if string(got) != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestQuantilesAreOfTheValuesThatThereAre(t *testing.T) {
	var l latencies
	for i := 100; i > 0; i-- {
		l = append(l, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.999: 100, 1: 100} {
		if got := l.quantile(q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if got := (latencies{7}).quantile(0.5); got != 7 {
		t.Errorf("the median of one value is %d", got)
	}
}

func TestValuesPrintWithTheDigitsTheyAreWorth(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1234567.8: "1234568", 12.3456: "12.35", 0.00012346: "0.0001235", 1: "1", 999.96: "1000", 120: "120"} {
		if got := FormatValue(v); got != want {
			t.Errorf("%v prints as %s, want %s", v, got, want)
		}
	}
}
