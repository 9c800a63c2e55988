package conformance

import (
	"flag"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"

	"github.com/weirdb/weir/internal/testkit/postgres"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

var (
	record = flag.Bool("record", false, "record the answers of a private PostgreSQL 15")
	seed   = flag.Uint64("seed", 0, "seed of the random choices; 0 = by the clock")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAnswersArePostgreSQLs runs every program of testdata.
func TestAnswersArePostgreSQLs(t *testing.T) {
	var pg *database
	if *record {
		pg = &database{postgres.Start(t, "client_min_messages=warning")}
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		p := readProgram(t, path)
		run := &runner{t: t, p: p, pg: pg}
		run.start()
		datadriven.RunTest(t, path, run.answer)
	})
}

// runner runs one program.
type runner struct {
	t    *testing.T
	p    *program
	pg   *database // nil when answers are only compared
	node *nodetest.Node
	keys map[string][]string // of each table
}

// start deploys the program and feeds it.
func (r *runner) start() {
	seed := *seed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	r.t.Logf("program %s with -seed=%d", r.p.name, seed)
	rng := rand.New(rand.NewPCG(seed, xxhash.Sum64String(r.p.name)))
	if r.pg != nil {
		r.pg.load(r.t, r.p)
	}
	opts := nodetest.Options{Shards: 1 + rng.IntN(3)}
	if rng.IntN(2) == 0 {
		opts.Tuning = nodetest.Restless()
	}
	r.node = nodetest.Open(r.t, opts)
	interval := []string{"off", "off", "20 ms"}[rng.IntN(3)]
	deployed := r.node.Deploy(r.p.name, "SET checkpoint.interval = '"+interval+"';\n"+r.p.deployed())
	r.keys = make(map[string][]string)
	for _, tb := range deployed.GetTables() {
		r.keys[tb.GetName()] = tb.GetKey()
	}
	f := &feeder{t: r.t, node: r.node, rng: rng, pipeline: r.p.name}
	f.run(r.p)
	if f.token == "" {
		r.node.WaitState(r.p.name, weirv1.PipelineState_PIPELINE_STATE_RUNNING)
		return // no row, and the state is cut 0's
	}
	r.node.WaitProcessed(f.token)
	r.node.Checkpoint(r.p.name)
	r.node.WaitCommitted(f.token)
}

// answer answers one block of the file: as PostgreSQL does when it is recorded, as Weir does otherwise.
func (r *runner) answer(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "rows":
		if !d.HasArg("generate") {
			return d.Expected
		}
		rows := feedOf(t, d).rows
		return (&table{cols: []column{{"row", "JSON"}}, rows: oneColumn(rows)}).print(&block{digest: true, ordered: true})
	case "view", "query":
		c := blockOf(t, d)
		if c.differs != "" {
			return r.both(t, &c, d.Expected)
		}
		if r.pg != nil {
			return r.ask(t, &c).print(&c)
		}
		return postgres.Recorded(t, d.Rewrite, d.Expected, r.weir(t, &c))
	}
	return d.Expected
}

func oneColumn(values []string) [][]cell {
	rows := make([][]cell, len(values))
	for i, v := range values {
		rows[i] = []cell{{text: v}}
	}
	return rows
}

// both prints PostgreSQL's answer, as it was recorded, above Weir's.
func (r *runner) both(t *testing.T, c *block, expected string) string {
	const mark = "PostgreSQL: "
	var b strings.Builder
	if r.pg != nil {
		for _, l := range strings.Split(strings.TrimRight(r.ask(t, c).print(c), "\n"), "\n") {
			b.WriteString(mark + l + "\n")
		}
	} else {
		for _, l := range strings.Split(expected, "\n") {
			if strings.HasPrefix(l, mark) {
				b.WriteString(l + "\n")
			}
		}
	}
	return b.String() + r.weir(t, c)
}

// ask asks PostgreSQL. A table comes in the order of its key.
func (r *runner) ask(t *testing.T, c *block) *table {
	t.Helper()
	if c.name == "" {
		return r.pg.ask(t, c.inFile())
	}
	order := ""
	if keys := r.keys[c.name]; len(keys) > 0 {
		order = " ORDER BY " + strings.Join(keys, ", ")
	}
	return r.pg.ask(t, "SELECT * FROM "+c.name+order)
}

// weir answers in every way there is, and wants them equal.
func (r *runner) weir(t *testing.T, c *block) string {
	if c.name == "" {
		out := r.query(t, c, c.asQuery(r.p), nodetest.Committed).print(c)
		r.same(t, "the live query", r.query(t, c, c.asQuery(r.p), nodetest.Live).print(c), out)
		return out
	}
	table := r.query(t, c, "SELECT * FROM "+r.p.name+"."+c.name, nodetest.Committed)
	out := table.print(c)
	for name, isolation := range map[string]nodetest.Isolation{"scan": nodetest.Committed, "live scan": nodetest.Live} {
		rows, cut := r.node.Scan(r.p.name, c.name, isolation)
		if cut.GetSpeculative() != (isolation == nodetest.Live) {
			t.Errorf("the %s says speculative = %v", name, cut.GetSpeculative())
		}
		r.same(t, "the "+name+" of "+c.name, answered(t, table.cols, rows).print(c), out)
	}
	if !c.onlyView {
		unordered := *c
		unordered.ordered = false
		r.same(t, "the query of "+c.name, r.query(t, c, c.asQuery(r.p), nodetest.Committed).print(&unordered), table.print(&unordered))
	}
	return out
}

func (r *runner) same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s differs from the committed table:\n%s", what, diff(got, want))
	}
}

// query runs a SELECT; an error of the SELECT is an answer.
func (r *runner) query(t *testing.T, c *block, sql string, isolation nodetest.Isolation) *table {
	t.Helper()
	resp, err := r.node.TryQuery(sql, isolation)
	if err != nil {
		e := nodetest.Refusal(err)
		if e == nil {
			t.Fatalf("%v\n%s", err, sql)
		}
		msg, _, _ := strings.Cut(e.Message, "\n")
		if m := place.FindString(msg); m != "" {
			msg = msg[len(m):]
		}
		return &table{err: msg}
	}
	return answered(t, columnsOf(resp.GetColumns()), resp.GetRows())
}

// place is how an error of a query begins.
var place = regexp.MustCompile(`^line \d+, column \d+: `)
