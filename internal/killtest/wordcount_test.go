package killtest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weirdb/weir/dataflow/key"
)

//go:embed testdata/wordcount.sql
var wordcountSQL string

// book is the text that is counted: the lines, and the words of each as the keys of their rows.
type book struct {
	lines []string
	words [][]string
}

var notWord = regexp.MustCompile(`[^a-z0-9]+`)

// openBook reads the text that every Go installation has.
func openBook(t testing.TB) *book {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env GOROOT: %v", err)
	}
	b, err := readBook(filepath.Join(string(bytes.TrimSpace(root)), "src", "testdata", "Isaac.Newton-Opticks.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readBook(path string) (*book, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b := &book{lines: strings.Split(strings.TrimRight(string(text), "\n"), "\n")}
	for _, line := range b.lines {
		var keys []string
		for _, w := range notWord.Split(strings.ToLower(line), -1) {
			if w != "" {
				keys = append(keys, strconv.Quote(w))
			}
		}
		b.words = append(b.words, keys)
	}
	return b, nil
}

// line returns row i, from 0, of a producer that sends the book over and over.
func (b *book) line(i int) string { return b.lines[i%len(b.lines)] }

// wordFold is the model of wordcount.sql.
type wordFold struct {
	book   *book
	counts map[string]int64 // by key
}

func newWordFold(b *book) *wordFold { return &wordFold{book: b, counts: make(map[string]int64)} }

// apply folds one row of the log: the number of a line of the book.
func (f *wordFold) apply(row any) {
	for _, w := range f.book.words[row.(int)%len(f.book.lines)] {
		f.counts[w]++
	}
}

func (f *wordFold) row(_, key string) (string, bool) {
	n, ok := f.counts[key]
	return key + "|" + strconv.FormatInt(n, 10), ok
}

func (f *wordFold) keys(string) iter.Seq[string] { return maps.Keys(f.counts) }

func (f *wordFold) grown(_, key string) int64 { return f.counts[key] }

// totals returns what totalsSQL asks for.
func (f *wordFold) totals(string) string {
	var sum int64
	for _, n := range f.counts {
		sum += n
	}
	if len(f.counts) == 0 {
		return `0|\N`
	}
	return fmt.Sprintf("%d|%d", len(f.counts), sum)
}

// lineLog checks the log of the stream lines. Rows carry no number, but a stream without PARTITION BY takes the rows of
// a producer in runs of 4,096 to a shard, the shards in turn (P8), so the place of a row says which it must be. In which
// shard the first run is follows from what is found.
type lineLog struct {
	book   *book
	shards int
	starts []int // shards that the first run can be in, by what was read so far
	rows   int   // in the log
	last   []int // rows read per shard
}

func newLineLog(b *book, shards int) *lineLog {
	l := &lineLog{book: b, shards: shards, last: make([]int, shards)}
	for s := range shards {
		l.starts = append(l.starts, s)
	}
	return l
}

// number returns which row, from 0, stands at an offset of a shard when the first run is in shard start.
func (l *lineLog) number(start, shard, offset int) int {
	run := offset / key.RunRows * l.shards
	run += (shard - start + l.shards) % l.shards
	return run*key.RunRows + offset%key.RunRows
}

// read takes the next row of a shard and returns what the model folds.
func (l *lineLog) read(shard int, offset uint64, text []byte) (any, error) {
	var row struct{ Line *string }
	if err := json.Unmarshal(text, &row); err != nil {
		return nil, err
	}
	if row.Line == nil {
		return nil, fmt.Errorf("the line is NULL")
	}
	var fit []int
	for _, start := range l.starts {
		if l.book.line(l.number(start, shard, int(offset))) == *row.Line {
			fit = append(fit, start)
		}
	}
	if len(fit) == 0 {
		want := l.number(l.starts[0], shard, int(offset))
		return nil, fmt.Errorf("%q stands where line %d of the producer must be: %q (a row is missing, doubled or out of order)", *row.Line, want, l.book.line(want))
	}
	l.starts = fit
	l.rows++
	l.last[shard] = int(offset) + 1
	// Which of the remaining starts it is makes no difference to the words.
	return l.number(fit[0], shard, int(offset)) % len(l.book.lines), nil
}

// holds reports whether the first n rows of the producer are in the log.
func (l *lineLog) holds(_ string, n int) error {
	var missing string
	for _, start := range l.starts {
		missing = ""
		for shard := range l.shards {
			// The first row that the shard does not have yet.
			if next := l.number(start, shard, l.last[shard]); next < n {
				missing = fmt.Sprintf("row %d of %d acknowledged rows is not in shard %d, which ends at offset %d", next, n, shard, l.last[shard])
			}
		}
		if missing == "" {
			return nil
		}
	}
	return fmt.Errorf("%s", missing)
}

func (l *lineLog) count(string) int { return l.rows }
