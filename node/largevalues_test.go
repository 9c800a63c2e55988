package node_test

import (
	"fmt"
	"testing"

	"github.com/weirdb/weir/node/nodetest"
)

// swollen makes 660,000 bytes of each row.
const swollen = `
CREATE STREAM s (k TEXT);
SET on_error = 'skip';
SET checkpoint.interval = 'off';
CREATE MATERIALIZED VIEW v AS SELECT length(repeat(k, 60000)) AS l, count(*) AS n FROM s GROUP BY l;
`

func TestRowsAreNotSkippedForTheirNeighbours(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{Shards: 1})
	n.Deploy("p", swollen)
	rows := make([]string, 500)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"k":"key-%07d"}`, i)
	}
	n.Append("s", rows...)
	n.Checkpoint("p")
	if cut := wantTable(t, n, "p", "v", nodetest.Committed, `{"l":660000,"n":500}`); cut.GetSkippedRows() != 0 {
		t.Errorf("%d rows are counted as left out", cut.GetSkippedRows())
	}
}
