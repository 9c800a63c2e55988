package chaostest

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	weir "github.com/weirdb/weir/clients/go"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const (
	accounts = 40
	words    = 60
)

const bankSQL = `
SET checkpoint.interval = '100 ms';
CREATE STREAM transfers (sender TEXT NOT NULL, n BIGINT NOT NULL, src BIGINT, dst BIGINT, amount BIGINT);
CREATE MATERIALIZED VIEW balances AS
SELECT account, sum(CASE WHEN account = src THEN -amount ELSE amount END) AS balance, count(*) AS n
FROM transfers, UNNEST(ARRAY[src, dst]) AS t(account)
GROUP BY account;
`

const linesSQL = `
SET checkpoint.interval = '100 ms';
CREATE STREAM lines (sender TEXT NOT NULL, n BIGINT NOT NULL, line TEXT) PARTITION BY (line);
`

const wordsSQL = linesSQL + `
CREATE MATERIALIZED VIEW counts AS
SELECT word, count(*) AS n
FROM lines, UNNEST(regexp_split_to_array(lower(line), '[^a-z0-9]+')) AS t(word)
WHERE word <> ''
GROUP BY word;
CREATE MATERIALIZED VIEW sizes AS SELECT n, count(*) AS words FROM counts GROUP BY n;
`

// extraSQL is of a pipeline that comes and goes.
const extraSQL = linesSQL + `
CREATE MATERIALIZED VIEW senders AS SELECT sender, count(*) AS n, max(n) AS newest FROM lines GROUP BY sender;
`

// transfer is a row of the stream transfers.
type transfer struct {
	Sender string `json:"sender"`
	N      int64  `json:"n"`
	Src    int64  `json:"src"`
	Dst    int64  `json:"dst"`
	Amount int64  `json:"amount"`
}

// line is a row of the stream lines.
type line struct {
	Sender string `json:"sender"`
	N      int64  `json:"n"`
	Line   string `json:"line"`
}

// dice are thrown alike for a row of a sender, whenever it is made.
func dice(sender string, n int64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(sender)) // it returns no errors
	return rand.New(rand.NewPCG(h.Sum64(), uint64(n)))
}

// makeTransfer returns row n, from 1, of a sender: always the same one.
func makeTransfer(sender string, n int64) transfer {
	r := dice(sender, n)
	src := r.Int64N(accounts)
	return transfer{sender, n, src, (src + 1 + r.Int64N(accounts-1)) % accounts, 1 + r.Int64N(100)}
}

// makeLine returns row n, from 1, of a sender: always the same one.
func makeLine(sender string, n int64) line {
	r := dice(sender, n)
	var text []string
	for range 1 + r.IntN(6) {
		text = append(text, fmt.Sprintf("w%d", r.IntN(words)))
	}
	return line{sender, n, strings.Join(text, " ")}
}

// streamLog is the acknowledged log of a stream, as it is read back at the end.
type streamLog struct {
	stream string
	rows   [][]any          // per shard
	seen   map[string][]int // by sender: how often row n-1 is there
}

// readLog reads a stream from its beginning, and checks that each row is one that was sent (C1).
func readLog[R transfer | line](ctx context.Context, c *weir.Client, stream string, shards int, made func(sender string, n int64) R, id func(R) (string, int64)) (*streamLog, error) {
	l := &streamLog{stream: stream, rows: make([][]any, shards), seen: make(map[string][]int)}
	last := make([]map[string]int64, shards)
	for i := range last {
		last[i] = make(map[string]int64)
	}
	for r, err := range c.ReadStream(ctx, weir.ReadStream{Stream: stream}) {
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", stream, err)
		}
		s, offset := int(r.GetShard()), r.GetOffset()
		if s >= shards || offset != uint64(len(l.rows[s])) {
			return nil, violation("C1: %s: shard %d has offset %d after %d rows", stream, s, offset, len(l.rows[s]))
		}
		var row R
		if err := json.Unmarshal(r.GetRow(), &row); err != nil {
			return nil, violation("C1: %s: shard %d, offset %d: %v", stream, s, offset, err)
		}
		sender, n := id(row)
		if n < 1 || row != made(sender, n) {
			return nil, violation("C1: %s: shard %d, offset %d: nobody has sent %s", stream, s, offset, r.GetRow())
		}
		if n <= last[s][sender] {
			return nil, violation("C1: %s: shard %d, offset %d: row %d of %s comes after its row %d", stream, s, offset, n, sender, last[s][sender])
		}
		last[s][sender] = n
		for int64(len(l.seen[sender])) < n {
			l.seen[sender] = append(l.seen[sender], 0)
		}
		l.seen[sender][n-1]++
		l.rows[s] = append(l.rows[s], row)
	}
	return l, nil
}

// holds checks that the first acked rows of a sender are there once, of those after them up to sent any, and no others.
func (l *streamLog) holds(sender string, acked, sent int64) error {
	seen := l.seen[sender]
	for n := range max(acked, int64(len(seen))) {
		times := 0
		if n < int64(len(seen)) {
			times = seen[n]
		}
		switch {
		case times > 1:
			return violation("C1: %s: row %d of %s is there %d times", l.stream, n+1, sender, times)
		case times == 0 && n < acked:
			return violation("C1: %s: row %d of %s is not there; %d were acknowledged", l.stream, n+1, sender, acked)
		case times == 1 && n >= sent:
			return violation("C1: %s: row %d of %s is there, of %d that were sent", l.stream, n+1, sender, sent)
		}
	}
	return nil
}

// model folds rows of a log into the tables of a pipeline. Rows of tables are JSON as the server writes it.
type model interface {
	apply(row any)
	// table returns the rows of a table, by the key as text.
	table(name string) map[string]string
}

type bankModel struct {
	balance, moves [accounts]int64
}

func (b *bankModel) apply(row any) {
	t := row.(transfer)
	b.balance[t.Src] -= t.Amount
	b.balance[t.Dst] += t.Amount
	b.moves[t.Src]++
	b.moves[t.Dst]++
}

func (b *bankModel) table(string) map[string]string {
	rows := make(map[string]string)
	for a := range int64(accounts) {
		if b.moves[a] > 0 {
			rows[fmt.Sprint(a)] = fmt.Sprintf(`{"account":%d,"balance":%d,"n":%d}`, a, b.balance[a], b.moves[a])
		}
	}
	return rows
}

type wordModel struct{ counts map[string]int64 }

func (w *wordModel) apply(row any) {
	for word := range strings.FieldsSeq(row.(line).Line) {
		w.counts[word]++
	}
}

func (w *wordModel) table(name string) map[string]string {
	rows := make(map[string]string)
	if name == "counts" {
		for word, n := range w.counts {
			rows[word] = fmt.Sprintf(`{"word":%q,"n":%d}`, word, n)
		}
		return rows
	}
	sizes := make(map[int64]int64)
	for _, n := range w.counts {
		sizes[n]++
	}
	for n, words := range sizes {
		rows[fmt.Sprint(n)] = fmt.Sprintf(`{"n":%d,"words":%d}`, n, words)
	}
	return rows
}

type senderModel struct{ n, newest map[string]int64 }

func (s *senderModel) apply(row any) {
	l := row.(line)
	s.n[l.Sender]++
	s.newest[l.Sender] = max(s.newest[l.Sender], l.N)
}

func (s *senderModel) table(string) map[string]string {
	rows := make(map[string]string)
	for sender, n := range s.n {
		rows[sender] = fmt.Sprintf(`{"sender":%q,"n":%d,"newest":%d}`, sender, n, s.newest[sender])
	}
	return rows
}

// pipeline is a program of the test and what its tables are made of.
type pipeline struct {
	name, sql, stream string
	tables            map[string]string // the name of each table's key
	model             func() model
	comes             bool // and goes: it may not be there
}

var pipelines = []*pipeline{
	{name: "bank", sql: bankSQL, stream: "transfers", tables: map[string]string{"balances": "account"}, model: func() model { return &bankModel{} }},
	{name: "words", sql: wordsSQL, stream: "lines", tables: map[string]string{"counts": "word", "sizes": "n"}, model: func() model {
		return &wordModel{counts: make(map[string]int64)}
	}},
	{name: "extra", sql: extraSQL, stream: "lines", tables: map[string]string{"senders": "sender"}, comes: true, model: func() model {
		return &senderModel{make(map[string]int64), make(map[string]int64)}
	}},
}

// cutName names a cut for good: a pipeline that was deleted and deployed again is another.
type cutName struct{ uid, timeline, id uint64 }

// cutInfo is what the cut of an answer says.
type cutInfo struct {
	cutName
	incarnation uint64
	positions   []uint64 // by shard
}

func (c cutInfo) String() string {
	return fmt.Sprintf("cut %d of incarnation %d at %v", c.id, c.incarnation, c.positions)
}

// answer is one that is still to be compared with the model.
type answer struct {
	who, what string
	node      string
	cut       cutInfo
	table     string
	all       bool            // rows are the whole table
	key       string          // else: of the row that was asked for
	rows      map[string]bool // as they came
}

// audit keeps the committed answers of a pipeline.
type audit struct {
	p      *pipeline
	shards int
	mu     sync.Mutex
	cuts   map[cutName]cutInfo
	kept   []answer
}

func newAudit(p *pipeline, shards int) *audit {
	return &audit{p: p, shards: shards, cuts: make(map[cutName]cutInfo)}
}

// read takes apart the cut of an answer and compares it with what other answers have said of it (C4).
func (a *audit) read(c *weirv1.Cut) (cutInfo, error) {
	info := cutInfo{cutName: cutName{c.GetPipelineUid(), c.GetTimeline(), c.GetCheckpointId()}, incarnation: c.GetIncarnation(), positions: make([]uint64, a.shards)}
	for _, p := range c.GetPositions() {
		if p.GetStream() != a.p.stream || int(p.GetShard()) >= a.shards {
			return info, violation("C4: a cut of %s names shard %d of %s", a.p.name, p.GetShard(), p.GetStream())
		}
		info.positions[p.GetShard()] = p.GetOffset()
	}
	switch {
	case c.GetPipeline() != a.p.name:
		return info, violation("C4: an answer of %s has a cut of %s", a.p.name, c.GetPipeline())
	case c.GetSkippedRows() != 0:
		return info, violation("C4: %s: %s has skipped %d rows", a.p.name, info, c.GetSkippedRows())
	case c.GetSpeculative():
		return info, violation("C4: %s: the committed answer of %s is speculative", a.p.name, info)
	case c.GetToken() == "":
		return info, violation("C4: %s: %s has no session token", a.p.name, info)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known, seen := a.cuts[info.cutName]
	if seen && (known.incarnation != info.incarnation || !slices.Equal(known.positions, info.positions)) {
		return info, violation("C4: %s: %s was %s before", a.p.name, info, known)
	}
	a.cuts[info.cutName] = info
	return info, nil
}

func (a *audit) keep(ans answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept = append(a.kept, ans)
}

// compare compares all answers with the log (C2), and returns how many there were.
func (a *audit) compare(log *streamLog) (int, error) {
	slices.SortStableFunc(a.kept, func(x, y answer) int {
		for _, d := range [][2]uint64{{x.cut.uid, y.cut.uid}, {x.cut.timeline, y.cut.timeline}, {x.cut.id, y.cut.id}} {
			if d[0] != d[1] {
				if d[0] < d[1] {
					return -1
				}
				return 1
			}
		}
		return 0
	})
	var at []uint64
	var m model
	var last cutName
	tables := make(map[string]map[string]string)
	for _, ans := range a.kept {
		if m == nil || last.uid != ans.cut.uid || last.timeline != ans.cut.timeline {
			m, at = a.p.model(), make([]uint64, a.shards)
		}
		if last != ans.cut.cutName {
			clear(tables)
		}
		last = ans.cut.cutName
		for s, to := range ans.cut.positions {
			if to < at[s] {
				return 0, violation("C4: %s: %s is behind an older cut, which is at %v: %s asked %s for %s", a.p.name, ans.cut, at, ans.who, ans.node, ans.what)
			}
			if to > uint64(len(log.rows[s])) {
				return 0, violation("C2: %s: %s names more than the log of shard %d, which has %d rows: %s asked %s for %s", a.p.name, ans.cut, s, len(log.rows[s]), ans.who, ans.node, ans.what)
			}
			for ; at[s] < to; at[s]++ {
				m.apply(log.rows[s][at[s]])
			}
		}
		if tables[ans.table] == nil {
			tables[ans.table] = m.table(ans.table)
		}
		if err := ans.compare(tables[ans.table]); err != nil {
			return 0, violation("C2: %s: %s: %s asked %s for %s: %v", a.p.name, ans.cut, ans.who, ans.node, ans.what, err)
		}
	}
	return len(a.kept), nil
}

func (ans *answer) compare(want map[string]string) error {
	if !ans.all {
		row, ok := want[ans.key]
		if ok != (len(ans.rows) == 1) || ok && !ans.rows[row] {
			return fmt.Errorf("it has %v, the model %q", ans.rows, row)
		}
		return nil
	}
	var diff []string
	for _, row := range want {
		if !ans.rows[row] {
			diff = append(diff, row+" is missing")
		}
	}
	right := make(map[string]bool, len(want))
	for _, row := range want {
		right[row] = true
	}
	for row := range ans.rows {
		if !right[row] {
			diff = append(diff, row+" is wrong")
		}
	}
	if len(diff) == 0 {
		return nil
	}
	slices.Sort(diff)
	return fmt.Errorf("%d differences: %s", len(diff), strings.Join(diff[:min(len(diff), 8)], "; "))
}
