package nodetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/node/nodetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sql = `
SET checkpoint.interval = 'off';
CREATE STREAM lines (line TEXT);
CREATE MATERIALIZED VIEW counts AS
SELECT word, count(*) AS n
FROM lines, UNNEST(regexp_split_to_array(lower(line), '[^a-z0-9]+')) AS t(word)
WHERE word <> ''
GROUP BY word;
`

func count(t *testing.T, n *nodetest.Node, isolation nodetest.Isolation, word, want string) {
	t.Helper()
	row, _, _ := n.Get("wc", "counts", isolation, word)
	if want != "" {
		want = `{"word":"` + word + `","n":` + want + `}`
	}
	if row != want {
		t.Errorf("%s of %s is %s, want %s", isolation, word, row, want)
	}
}

func TestACrashKeepsWhatWasAcknowledgedAndCommitted(t *testing.T) {
	n := nodetest.Open(t, nodetest.Options{})
	n.Deploy("wc", sql)
	n.Append("lines", `{"line":"Call me Ishmael."}`, `{"line":"Call me now"}`)
	n.Checkpoint("wc")
	token := n.Append("lines", `{"line":"call"}`)
	n.WaitProcessed(token)
	count(t, n, nodetest.Committed, "call", "2")
	count(t, n, nodetest.Live, "call", "3")
	n.Crash(nodetest.LoseUnsynced)
	count(t, n, nodetest.Committed, "call", "2")
	n.WaitProcessed(token)
	count(t, n, nodetest.Live, "call", "3")
	n.Checkpoint("wc")
	n.Restart()
	count(t, n, nodetest.Committed, "call", "3")
	count(t, n, nodetest.Committed, "whale", "")
	if rows, cut := n.Scan("wc", "counts", nodetest.Committed); len(rows) != 4 || cut.GetSpeculative() {
		t.Errorf("scan: %s at %v", rows, cut)
	}
	if r := n.Query("SELECT sum(n) AS n FROM wc.counts", nodetest.Committed); string(r.GetRows()[0]) != `{"n":7}` {
		t.Errorf("query: %s", r.GetRows())
	}
}
