package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const words = `SET checkpoint.interval = 'off';
CREATE STREAM words (word TEXT);
CREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n FROM words GROUP BY word;
`

func word(w string) string { return fmt.Sprintf(`{"word":%q}`, w) }

// refused wants an error with a reason whose text, hint included, has all the parts.
func refused(t *testing.T, err error, want dataflow.Reason, parts ...string) {
	t.Helper()
	e := nodetest.Refusal(err)
	if e == nil || e.Reason != want {
		t.Fatalf("got %v (%s), want %s", err, nodetest.Reason(err), want)
	}
	for _, p := range parts {
		if !strings.Contains(e.Message+" "+e.Hint, p) {
			t.Errorf("%q does not say %q", e.Message+" "+e.Hint, p)
		}
	}
}

func deploy(ctx context.Context, n *nodetest.Node, r *weirv1.DeployPipelineRequest) (*weirv1.DeployPipelineResponse, error) {
	return n.Pipelines().DeployPipeline(ctx, r)
}

// read reads a stream and returns the rows as shard:offset row, and the positions that the answer ends with.
func read(t *testing.T, n *nodetest.Node, r *weirv1.ReadStreamRequest) (rows []string, positions map[uint32]uint64, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	call, err := n.Ingest().ReadStream(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	for {
		m, err := call.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return rows, positions, nil
		case err != nil:
			return rows, nil, err
		}
		for _, row := range m.GetRows() {
			if row.GetAppendTime() == nil {
				t.Errorf("row %d:%d has no append time", row.GetShard(), row.GetOffset())
			}
			rows = append(rows, fmt.Sprintf("%d:%d %s", row.GetShard(), row.GetOffset(), row.GetRow()))
		}
		if m.GetEnd() {
			positions = make(map[uint32]uint64)
			for _, p := range m.GetPositions() {
				positions[p.GetShard()] = p.GetOffset()
			}
		}
	}
}
