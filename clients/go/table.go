package weir

import (
	"context"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// ListTables returns the tables of one pipeline, or of all when pipeline is empty.
func (c *Client) ListTables(ctx context.Context, pipeline string) ([]*weirv1.Table, error) {
	r, err := call(ctx, c, repeatable, c.pipelines.ListTables, &weirv1.ListTablesRequest{Pipeline: pipeline})
	return r.GetTables(), err
}

// DescribeTable returns a table ("pipeline.table") and the newest committed cut.
func (c *Client) DescribeTable(ctx context.Context, table string) (*weirv1.DescribeTableResponse, error) {
	p, t, err := dataflow.ParsePipelineTable(table)
	if err != nil {
		return nil, err
	}
	return call(ctx, c, repeatable, c.pipelines.DescribeTable, &weirv1.DescribeTableRequest{Pipeline: p, Table: t})
}
