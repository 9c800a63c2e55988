package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// victim is the node that all bad input goes to, with what it must go on doing.
type victim struct {
	*nodetest.Node
	t      *testing.T
	probes int
	rows   int // that were accepted by stream s
}

const victimSQL = `
SET checkpoint.interval = '50 ms';
SET on_error = 'skip';
CREATE STREAM s (k TEXT NOT NULL, n BIGINT, f DOUBLE PRECISION, b BOOLEAN, at TIMESTAMPTZ);
CREATE STREAM placed (k TEXT, v BIGINT) PARTITION BY (k);
CREATE STREAM probe (x BIGINT);
CREATE MATERIALIZED VIEW by_k AS SELECT k, count(*) AS n, sum(n) AS total FROM s GROUP BY k;
CREATE MATERIALIZED VIEW by_f AS SELECT f, count(*) AS n FROM s GROUP BY f;
CREATE MATERIALIZED VIEW by_at AS SELECT at, count(*) AS n FROM s GROUP BY at;
CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM s;
CREATE MATERIALIZED VIEW probes AS SELECT count(*) AS n FROM probe;
`

func newVictim(t *testing.T) *victim {
	v := &victim{Node: nodetest.Open(t, nodetest.Options{Shards: 2}), t: t}
	v.Deploy("v", victimSQL)
	v.probe("the start")
	return v
}

// probe wants an append and a live read to work as if nothing had happened.
func (v *victim) probe(after string) {
	v.t.Helper()
	v.probes++
	token := v.Append("probe", fmt.Sprintf(`{"x":%d}`, v.probes))
	v.WaitProcessed(token)
	row, _, _ := v.Get("v", "probes", nodetest.Live)
	if want := fmt.Sprintf(`{"n":%d}`, v.probes); row != want {
		v.t.Fatalf("after %s the probe reads %s, want %s", after, row, want)
	}
}

// intact wants exactly the accepted rows in the stream and in the table, also after a crash.
func (v *victim) intact() {
	v.t.Helper()
	for range 2 {
		d, err := v.Ingest().DescribeStream(v.t.Context(), &weirv1.DescribeStreamRequest{Stream: "s"})
		if err != nil {
			v.t.Fatal(err)
		}
		if d.GetRows() != uint64(v.rows) {
			v.t.Errorf("the stream holds %d rows; %d were accepted", d.GetRows(), v.rows)
		}
		v.Checkpoint("v")
		row, cut, _ := v.Get("v", "total", nodetest.Committed)
		if want := fmt.Sprintf(`{"n":%d}`, v.rows-int(cut.GetSkippedRows())); row != want {
			v.t.Errorf("the table counts %s, want %s", row, want)
		}
		v.Crash(nodetest.LoseUnsynced)
	}
}

// badCall is a call that must end with one of the reasons; "" among them accepts it.
type badCall struct {
	name string
	call func(ctx context.Context) error
	want []dataflow.Reason
}

func reasons(r ...dataflow.Reason) []dataflow.Reason { return r }

func (v *victim) run(calls []badCall) {
	for _, c := range calls {
		v.t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err := c.call(ctx)
			got := nodetest.Reason(err)
			ok := false
			for _, r := range c.want {
				ok = ok || r == got && (r != "" || err == nil)
			}
			if !ok {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if e := nodetest.Refusal(err); e != nil && (e.Message == "" || len(e.Message) > 4096) {
				t.Errorf("the message has %d bytes", len(e.Message))
			}
			v.probe(c.name)
		})
	}
}

// json appends JSON rows to s.
func (v *victim) json(text string) func(context.Context) error {
	return v.jsonTo("s", text)
}

func (v *victim) jsonTo(stream, text string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: stream, JsonRows: []byte(text)})
		if stream == "s" {
			v.rows += int(r.GetRows())
		}
		return err
	}
}

// columns appends a column batch to s.
func (v *victim) columns(b *weirv1.ColumnBatch) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := v.Ingest().Append(ctx, &weirv1.AppendRequest{Stream: "s", Batch: b})
		v.rows += int(r.GetRows())
		return err
	}
}

func texts(name string, values ...string) *weirv1.ColumnData {
	t := &weirv1.TextValues{Data: []byte(strings.Join(values, ""))}
	for _, s := range values {
		t.Lengths = append(t.Lengths, uint32(len(s)))
	}
	return &weirv1.ColumnData{Name: name, Values: &weirv1.ColumnData_Texts{Texts: t}}
}

func ints(name string, values ...int64) *weirv1.ColumnData {
	return &weirv1.ColumnData{Name: name, Values: &weirv1.ColumnData_Bigints{Bigints: &weirv1.Int64Values{Values: values}}}
}

func times(name string, values ...int64) *weirv1.ColumnData {
	return &weirv1.ColumnData{Name: name, Values: &weirv1.ColumnData_Timestamps{Timestamps: &weirv1.Int64Values{Values: values}}}
}

func doubles(name string, values ...float64) *weirv1.ColumnData {
	return &weirv1.ColumnData{Name: name, Values: &weirv1.ColumnData_Doubles{Doubles: &weirv1.DoubleValues{Values: values}}}
}

func cols(n uint32, c ...*weirv1.ColumnData) *weirv1.ColumnBatch {
	return &weirv1.ColumnBatch{Rows: n, Columns: c}
}

// foreignToken is a token of another node group.
func foreignToken() string {
	return dataflow.Token{Group: dataflow.GroupID{1, 2, 3}, Positions: dataflow.Positions{{Stream: 1, Shard: 0}: 1}}.String()
}
