package resp_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/node/resp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a backend with tables in memory. Live reads find "live" where committed ones find what the row has.
type fake struct {
	tables map[string]*fakeTable
	// begun counts requests, open those that have not ended.
	begun, open atomic.Int64
}

var _ resp.Backend = (*fake)(nil)

type fakeTable struct {
	f      *fake
	name   string
	schema dataflow.Schema
	keys   []int
	rows   []dataflow.Row
	fail   error
}

func newFake() *fake {
	f := &fake{tables: map[string]*fakeTable{}}
	col := func(name string, t dataflow.Type) dataflow.Column { return dataflow.Column{Name: name, Type: t} }
	f.add("wc.counts", dataflow.Schema{col("word", dataflow.TypeText), col("n", dataflow.TypeBigInt)}, []int{0},
		dataflow.Row{dataflow.Text("whale"), dataflow.BigInt(1226)}, dataflow.Row{dataflow.Text("what"), dataflow.BigInt(7)},
		dataflow.Row{dataflow.Text(`a|b\c`), dataflow.BigInt(1)}, dataflow.Row{dataflow.Text(""), dataflow.BigInt(2)},
		dataflow.Row{dataflow.NullValue(dataflow.TypeText), dataflow.BigInt(3)}, dataflow.Row{dataflow.Text("void"), dataflow.NullValue(dataflow.TypeBigInt)})
	f.add("wc.total", dataflow.Schema{col("n", dataflow.TypeBigInt)}, nil, dataflow.Row{dataflow.BigInt(1240)})
	f.add("sales.by_day", dataflow.Schema{col("country", dataflow.TypeText), col("day", dataflow.TypeBigInt), col("n", dataflow.TypeBigInt), col("best", dataflow.TypeText)}, []int{0, 1},
		dataflow.Row{dataflow.Text("NZ"), dataflow.BigInt(1), dataflow.BigInt(10), dataflow.Text(`say "hi"`)},
		dataflow.Row{dataflow.Text("NZ"), dataflow.BigInt(2), dataflow.BigInt(20), dataflow.NullValue(dataflow.TypeText)},
		dataflow.Row{dataflow.NullValue(dataflow.TypeText), dataflow.BigInt(3), dataflow.BigInt(30), dataflow.Text("x")})
	broken := f.add("wc.broken", dataflow.Schema{col("k", dataflow.TypeText), col("v", dataflow.TypeText)}, []int{0})
	broken.fail = dataflow.Errorf(dataflow.ReasonPipelineRecovering, "pipeline wc is RECOVERING\r\n+OK").WithHint("try again")
	big := f.add("big.rows", dataflow.Schema{col("k", dataflow.TypeBigInt), col("v", dataflow.TypeText)}, []int{0})
	for i := range 4 {
		big.rows = append(big.rows, dataflow.Row{dataflow.BigInt(int64(i)), dataflow.Text(strings.Repeat("x", 900<<10))})
	}
	return f
}

func (f *fake) add(name string, schema dataflow.Schema, keys []int, rows ...dataflow.Row) *fakeTable {
	t := &fakeTable{f: f, name: name, schema: schema, keys: keys, rows: rows}
	f.tables[name] = t
	return t
}

func (f *fake) names() []string {
	var out []string
	for name := range f.tables {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (f *fake) NewReader() resp.Reader { return &fakeReader{f: f} }

type fakeReader struct {
	f   *fake
	isn bool // in a request
}

func (r *fakeReader) Begin() {
	r.isn = true
	r.f.begun.Add(1)
	r.f.open.Add(1)
}

func (r *fakeReader) End() {
	if r.isn {
		r.isn = false
		r.f.open.Add(-1)
	}
}

func (r *fakeReader) Table(name []byte) (resp.Table, error) {
	if t := r.f.tables[string(name)]; t != nil {
		return t, nil
	}
	return nil, dataflow.Errorf(dataflow.ReasonTableNotFound, "there is no table %q", name)
}

func (t *fakeTable) Schema() dataflow.Schema { return t.schema }
func (t *fakeTable) KeyCols() []int          { return t.keys }
func (t *fakeTable) ValueCols() (out []int) {
	for i := range t.schema {
		if !slices.Contains(t.keys, i) {
			out = append(out, i)
		}
	}
	return out
}

func (t *fakeTable) Get(_ context.Context, key dataflow.Row, isolation dataflow.Isolation) (*batch.Batch, error) {
	if t.fail != nil {
		return nil, t.fail
	}
	if len(key) != len(t.keys) {
		return nil, dataflow.Errorf(dataflow.ReasonKeyInvalid, "the key of %s has %d columns; %d given", t.name, len(t.keys), len(key))
	}
	b := batch.NewBatch(t.schema)
	for _, row := range t.rows {
		if !matches(row, t.keys, t.schema, key) {
			continue
		}
		row = slices.Clone(row)
		if v := &row[len(row)-1]; isolation == dataflow.ReadUncommitted && v.Type == dataflow.TypeBigInt {
			v.Int++
		}
		b.AppendRow(row)
		return b, nil
	}
	return nil, nil
}

func matches(row dataflow.Row, cols []int, schema dataflow.Schema, key dataflow.Row) bool {
	for i, v := range key {
		want, err := expr.ParseValue(schema[cols[i]].Type, v.Str)
		is := row[cols[i]]
		if v.Null != is.Null || !v.Null && (err != nil || expr.FormatValue(is) != expr.FormatValue(want)) {
			return false
		}
	}
	return true
}

func (t *fakeTable) Cut(_ context.Context, isolation dataflow.Isolation) (dataflow.Cut, error) {
	pipeline, _, _ := strings.Cut(t.name, ".")
	return dataflow.Cut{Pipeline: pipeline, Checkpoint: dataflow.CheckpointID(t.f.begun.Load()), Speculative: isolation == dataflow.ReadUncommitted}, nil
}

func (f *fake) Scan(_ context.Context, pipeline, table string, r dataflow.ScanRange, p dataflow.Page, _ dataflow.ReadOptions) (*batch.Batch, string, dataflow.Cut, error) {
	t := f.tables[pipeline+"."+table]
	at, _ := strconv.Atoi(p.Token)
	b := batch.NewBatch(t.schema)
	for ; at < len(t.rows) && b.N < p.Limit; at++ {
		row := t.rows[at]
		next := len(r.Equal)
		if !matches(row, t.keys, t.schema, r.Equal) || r.Prefix != "" && !strings.HasPrefix(row[t.keys[next]].Str, r.Prefix) {
			continue
		}
		b.AppendRow(row)
	}
	if at == len(t.rows) {
		return b, "", dataflow.Cut{}, nil
	}
	return b, strconv.Itoa(at), dataflow.Cut{}, nil
}

func (f *fake) Tables(context.Context) (out []resp.TableInfo, err error) {
	for _, name := range f.names() {
		pipeline, table, _ := strings.Cut(name, ".")
		if pipeline != "big" {
			out = append(out, resp.TableInfo{Pipeline: pipeline, Name: table, Rows: uint64(len(f.tables[name].rows))})
		}
	}
	return out, nil
}

func (f *fake) Cuts(context.Context) ([]dataflow.Cut, error) {
	return []dataflow.Cut{{Pipeline: "wc", Checkpoint: 12, Incarnation: 3, State: dataflow.PipelineRunning, AgeMillis: 5, BehindRows: 2, BehindMillis: 9}}, nil
}

func (f *fake) Wait(ctx context.Context, token string, pipelines []string, processed bool) ([]dataflow.Cut, error) {
	if token == "never" {
		<-ctx.Done()
		return nil, dataflow.Errorf(dataflow.ReasonTokenNotReached, "the token was not covered in time")
	}
	return []dataflow.Cut{{Pipeline: fmt.Sprint(token, pipelines), Speculative: processed}}, nil
}

func (f *fake) AppendCut(dst []byte, c *dataflow.Cut) []byte {
	return fmt.Appendf(dst, `{"pipeline":%q,"speculative":%v}`, c.Pipeline, c.Speculative)
}

// serve runs a server over TCP until the test ends.
func serve(t testing.TB, cfg resp.Config) (s *resp.Server, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = resp.New(cfg)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.Stop(ctx)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// request writes a command as clients do.
func request(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}
