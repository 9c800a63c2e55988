package node_test

import (
	"fmt"
	"testing"

	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// swollen makes 660,000 bytes of each row.
const swollen = `
CREATE STREAM s (k TEXT);
SET on_error = 'skip';
SET checkpoint.interval = 'off';
CREATE MATERIALIZED VIEW v AS SELECT length(repeat(k, 60000)) AS l, count(*) AS n FROM s GROUP BY l;
`

func TestRowsAreNotSkippedForTheirNeighbours(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 1})
	n.Deploy("p", swollen)
	rows := make([]string, 400)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"k":"key-%07d"}`, i)
	}
	n.Append("s", rows...)
	n.Checkpoint("p")
	if cut := wantTable(t, n, "p", "v", nodetest.Committed, `{"l":660000,"n":400}`); cut.GetSkippedRows() != 0 {
		t.Errorf("%d rows are counted as left out", cut.GetSkippedRows())
	}
}

func TestRowsOfALargeTableAreThereWhateverIsReadWithThem(t *testing.T) {
	t.Parallel()
	n := nodetest.Open(t, nodetest.Options{Shards: 2})
	n.Deploy("p", `
CREATE STREAM s (k TEXT);
SET on_error = 'skip';
SET checkpoint.interval = 'off';
CREATE MATERIALIZED VIEW large AS SELECT k, repeat(k, 60000) AS x, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW lengths AS SELECT length(x) AS l, sum(n) AS n FROM large GROUP BY l;
`)
	rows := make([]string, 100)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"k":"key-%07d"}`, i)
	}
	n.Append("s", rows...)
	n.Checkpoint("p")
	for _, isolation := range []nodetest.Isolation{nodetest.Committed, nodetest.Live} {
		wantTable(t, n, "p", "lengths", isolation, `{"l":660000,"n":100}`)
		if rows, _ := n.Scan("p", "large", isolation); len(rows) != 100 {
			t.Errorf("%s: a scan has %d rows", isolation, len(rows))
		}
	}
	for sql, want := range map[string]string{
		"SELECT count(*) AS n, sum(length(x)) AS l FROM p.large":                          `{"n":100,"l":66000000}`,
		"SELECT n FROM p.large LIMIT 1":                                                   `{"n":1}`,
		"SELECT length(max(x)) AS l FROM (SELECT x FROM p.large ORDER BY k LIMIT 9) AS q": `{"l":660000}`,
	} {
		a, err := n.Queries().Query(t.Context(), &weirv1.QueryRequest{Sql: sql})
		if err != nil || len(a.GetRows()) != 1 || string(a.GetRows()[0]) != want {
			t.Errorf("%s: %s, %v", sql, a.GetRows(), err)
		}
	}
}
