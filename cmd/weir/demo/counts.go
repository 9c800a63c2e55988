package demo

import (
	"context"
	"encoding/json"
	"fmt"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// counts is the table by_page as one read saw it.
type counts struct {
	byPage map[string]uint64
	total  uint64
	cut    *weirv1.Cut
}

// readCounts reads the table at an isolation.
func readCounts(ctx context.Context, w *weir.Client, isolation dataflow.Isolation) (*counts, error) {
	rows, err := w.Scan(ctx, table, weir.ScanRange{}, weir.ReadOptions{Isolation: isolation})
	if err != nil {
		return nil, err
	}
	c := &counts{byPage: make(map[string]uint64), cut: rows.Cut()}
	for row := range rows.All() {
		var r struct {
			Page  string `json:"page"`
			Views uint64 `json:"views"`
		}
		if err := json.Unmarshal(row, &r); err != nil {
			return nil, fmt.Errorf("read a row of %s: %w", table, err)
		}
		c.byPage[r.Page] = r.Views
		c.total += r.Views
	}
	return c, rows.Err()
}

// Result is what the demo found at its end.
type Result struct {
	Sent, Counted, Lost, Doubled uint64
	Crashes                      int
}

// String is the demo's last line.
func (r Result) String() string {
	return fmt.Sprintf("sent %d rows, counted %d, lost %d, doubled %d, crashes %d", r.Sent, r.Counted, r.Lost, r.Doubled, r.Crashes)
}

// Exact reports whether every row was counted once.
func (r Result) Exact() bool { return r.Lost == 0 && r.Doubled == 0 && r.Sent == r.Counted }

// compare compares the table with the truth, page by page: a view lost here does not make up for one doubled there.
// before is what the table held when the demo began.
func compare(truth map[string]uint64, sent uint64, before, now *counts) Result {
	r := Result{Sent: sent}
	seen := make(map[string]bool)
	for _, of := range []map[string]uint64{truth, before.byPage, now.byPage} {
		for page := range of {
			if seen[page] {
				continue
			}
			seen[page] = true
			want, got := truth[page]+before.byPage[page], now.byPage[page]
			if got < want {
				r.Lost += want - got
			} else {
				r.Doubled += got - want
			}
		}
	}
	if now.total >= before.total {
		r.Counted = now.total - before.total
	}
	return r
}
