package api

import (
	"context"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// ListTables implements weirv1.PipelineServiceServer.
func (s *pipelineService) ListTables(ctx context.Context, r *weirv1.ListTablesRequest) (*weirv1.ListTablesResponse, error) {
	if r.GetPipeline() != "" {
		if err := checkName("pipeline", r.GetPipeline()); err != nil {
			return nil, err
		}
	}
	tables, err := s.b.Tables.ListTables(ctx, r.GetPipeline())
	if err != nil {
		return nil, err
	}
	m := &weirv1.ListTablesResponse{}
	for _, t := range tables {
		m.Tables = append(m.Tables, tableMessage(t))
	}
	return m, nil
}

// DescribeTable implements weirv1.PipelineServiceServer.
func (s *pipelineService) DescribeTable(ctx context.Context, r *weirv1.DescribeTableRequest) (*weirv1.DescribeTableResponse, error) {
	if err := checkTable(r.GetPipeline(), r.GetTable()); err != nil {
		return nil, err
	}
	t, cut, err := s.b.Tables.DescribeTable(ctx, r.GetPipeline(), r.GetTable())
	if err != nil {
		return nil, err
	}
	return &weirv1.DescribeTableResponse{Table: tableMessage(t), Cut: s.names.cut(cut)}, nil
}
