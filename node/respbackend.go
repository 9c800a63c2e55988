package node

import (
	"context"
	"errors"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/resp"
	"github.com/weirdb/weir/node/service"
	"github.com/weirdb/weir/statequery"
)

// respBackend gives the face for Redis clients the engine and the catalog.
type respBackend struct {
	engine  *statequery.Engine
	service *service.Service
	group   dataflow.GroupID
}

var _ resp.Backend = respBackend{}

// NewReader implements resp.Backend.
func (b respBackend) NewReader() resp.Reader { return respReader{b.engine.NewReader()} }

type respReader struct{ *statequery.Reader }

// Table implements resp.Reader.
func (r respReader) Table(name []byte) (resp.Table, error) {
	t, err := r.Reader.Table(name)
	if err != nil {
		return nil, err // not a nil table in an interface
	}
	return t, nil
}

// Scan implements resp.Backend.
func (b respBackend) Scan(ctx context.Context, pipeline, table string, r dataflow.ScanRange, p dataflow.Page, o dataflow.ReadOptions) (*batch.Batch, string, dataflow.Cut, error) {
	return b.engine.Scan(ctx, pipeline, table, r, p, o)
}

// Tables implements resp.Backend.
func (b respBackend) Tables(ctx context.Context) ([]resp.TableInfo, error) {
	tables, err := b.service.ListTables(ctx, "")
	if err != nil {
		return nil, err
	}
	out := make([]resp.TableInfo, len(tables))
	for i, t := range tables {
		out[i] = resp.TableInfo{Pipeline: t.Pipeline, Name: t.Name, Rows: t.Rows}
	}
	return out, nil
}

// Cuts implements resp.Backend.
func (b respBackend) Cuts(ctx context.Context) ([]dataflow.Cut, error) {
	pipelines, err := b.service.ListPipelines(ctx)
	if err != nil {
		return nil, err
	}
	var out []dataflow.Cut
	for _, p := range pipelines {
		if p.Cut != nil {
			out = append(out, *p.Cut)
		}
	}
	return out, nil
}

// Wait implements resp.Backend.
func (b respBackend) Wait(ctx context.Context, token string, pipelines []string, processed bool) ([]dataflow.Cut, error) {
	t, err := dataflow.ParseToken(token, b.group)
	if err != nil {
		return nil, err
	}
	cuts, err := b.service.WaitToken(ctx, api.TokenWait{Positions: t.Positions, Pipelines: pipelines, Processed: processed})
	if errors.Is(err, context.DeadlineExceeded) {
		err = dataflow.Errorf(dataflow.ReasonTokenNotReached, "the token was not covered in time")
	}
	return cuts, err
}

// AppendCut implements resp.Backend.
func (b respBackend) AppendCut(dst []byte, c *dataflow.Cut) []byte {
	return api.AppendCutJSON(dst, c, b.service.StreamName)
}
