package apitest

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/api"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

func (f *Fake) pipelineLocked(name string) (*api.Pipeline, error) {
	i := slices.IndexFunc(f.mu.deploys, func(d api.Deploy) bool { return d.Pipeline == name })
	if i < 0 {
		return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "there is no pipeline %q", name).WithMeta("pipeline", name)
	}
	d := f.mu.deploys[i]
	cut := f.cutLocked(name, dataflow.ReadOptions{})
	return &api.Pipeline{Name: name, UID: 1, SQL: d.SQL, Options: d.Options, State: f.mu.state, Timeline: 1, Incarnation: 3,
		Tables: []string{"counts"}, Streams: []string{"lines"}, CreatedAt: 1, Cut: &cut}, nil
}

// pipeline runs fn with the lock and the pipeline.
func (f *Fake) pipeline(name string, fn func(*api.Pipeline)) (*api.Pipeline, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	p, err := f.pipelineLocked(name)
	if err == nil && fn != nil {
		fn(p)
	}
	return p, err
}

// Deploy implements api.Pipelines.
func (f *Fake) Deploy(_ context.Context, d api.Deploy) (*api.Deployed, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	out := &api.Deployed{Tables: []api.Table{{Pipeline: d.Pipeline, Name: "counts", Key: []string{"word"}}},
		Streams: []api.DeployedStream{{Name: "lines", Read: true, RowsToRead: 7}}}
	if i := slices.IndexFunc(f.mu.deploys, func(x api.Deploy) bool { return x.Pipeline == d.Pipeline }); i >= 0 {
		if f.mu.deploys[i].SQL != d.SQL {
			return nil, dataflow.Errorf(dataflow.ReasonPipelineExists, "pipeline %s runs another program", d.Pipeline).WithMeta("pipeline", d.Pipeline)
		}
		out.Unchanged = true
	} else if !d.ValidateOnly {
		f.mu.deploys = append(f.mu.deploys, d)
	} else {
		return out, nil
	}
	var err error
	out.Pipeline, err = f.pipelineLocked(d.Pipeline)
	return out, err
}

// DeletePipeline implements api.Pipelines.
func (f *Fake) DeletePipeline(_ context.Context, name string) ([]string, error) {
	_, err := f.pipeline(name, func(*api.Pipeline) {
		f.mu.deploys = slices.DeleteFunc(f.mu.deploys, func(d api.Deploy) bool { return d.Pipeline == name })
	})
	return []string{"lines"}, err
}

// ListPipelines implements api.Pipelines.
func (f *Fake) ListPipelines(context.Context) ([]*api.Pipeline, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	var names []string
	for _, d := range f.mu.deploys {
		names = append(names, d.Pipeline)
	}
	slices.Sort(names)
	var out []*api.Pipeline
	for _, n := range names {
		p, err := f.pipelineLocked(n)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// GetPipeline implements api.Pipelines.
func (f *Fake) GetPipeline(_ context.Context, name string) (*api.Pipeline, error) {
	return f.pipeline(name, nil)
}

// StopPipeline implements api.PipelineControl.
func (f *Fake) StopPipeline(_ context.Context, name string) (*api.Pipeline, error) {
	return f.pipeline(name, func(p *api.Pipeline) { f.mu.state, p.State = dataflow.PipelineStopped, dataflow.PipelineStopped })
}

// ResumePipeline implements api.PipelineControl.
func (f *Fake) ResumePipeline(_ context.Context, name string, _ bool) (*api.Pipeline, error) {
	return f.pipeline(name, func(p *api.Pipeline) { f.mu.state, p.State = dataflow.PipelineRunning, dataflow.PipelineRunning })
}

// SetPipelineOptions implements api.PipelineControl.
func (f *Fake) SetPipelineOptions(_ context.Context, name string, options []dataflow.Option) (*api.Pipeline, error) {
	if _, err := dataflow.DefaultPipelineOptions().With(options); err != nil {
		return nil, err
	}
	return f.pipeline(name, func(p *api.Pipeline) { p.Options = options })
}

// FailPipeline implements api.PipelineControl.
func (f *Fake) FailPipeline(_ context.Context, name string) (dataflow.Incarnation, error) {
	_, err := f.pipeline(name, nil)
	return 3, err
}

// ListTables implements api.Tables.
func (f *Fake) ListTables(_ context.Context, pipeline string) ([]api.Table, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	return []api.Table{{Pipeline: pipeline, Name: "counts", Schema: dataflow.Schema{{Name: "word", Type: dataflow.TypeText}}, Key: []string{"word"}}}, nil
}

// DescribeTable implements api.Tables.
func (f *Fake) DescribeTable(_ context.Context, pipeline, table string) (api.Table, *dataflow.Cut, error) {
	if err := f.enter(); err != nil {
		return api.Table{}, nil, err
	}
	defer f.mu.Unlock()
	t, err := f.tableLocked(pipeline, table)
	if err != nil {
		return api.Table{}, nil, err
	}
	cut := f.cutLocked(pipeline, dataflow.ReadOptions{})
	out := api.Table{Pipeline: pipeline, Name: table, Schema: t.Rows.Schema, Rows: uint64(t.Rows.N)}
	for _, c := range t.Rows.Schema[:t.KeyCols] {
		out.Key = append(out.Key, c.Name)
	}
	return out, &cut, nil
}

func checkpoint() api.Checkpoint {
	return api.Checkpoint{Leases: 1, Commit: &dataflow.CheckpointCommit{Pipeline: 1, Timeline: 1, Incarnation: 3, ID: 42,
		Guarantee: dataflow.GuaranteeExactlyOnce, CommittedAt: 2, Positions: dataflow.Positions{{Stream: 1}: 5},
		Shards: []dataflow.ShardCommit{{Shard: 0, Seq: 1, Digest: 1 << 63, Index: 9, AckMicros: 1500}}}}
}

// ListCheckpoints implements api.Checkpoints.
func (f *Fake) ListCheckpoints(_ context.Context, pipeline string) ([]api.Checkpoint, error) {
	_, err := f.pipeline(pipeline, nil)
	return []api.Checkpoint{checkpoint()}, err
}

// GetCheckpoint implements api.Checkpoints.
func (f *Fake) GetCheckpoint(_ context.Context, pipeline string, id dataflow.CheckpointID) (api.Checkpoint, error) {
	if _, err := f.pipeline(pipeline, nil); err != nil {
		return api.Checkpoint{}, err
	}
	if id != 42 {
		return api.Checkpoint{}, dataflow.Errorf(dataflow.ReasonCheckpointNotFound, "pipeline %s has no checkpoint %d", pipeline, id)
	}
	return checkpoint(), nil
}

// TriggerCheckpoint implements api.Checkpoints.
func (f *Fake) TriggerCheckpoint(_ context.Context, pipeline string, wait bool) (*api.Checkpoint, error) {
	if _, err := f.pipeline(pipeline, nil); err != nil || !wait {
		return nil, err
	}
	c := checkpoint()
	return &c, nil
}

// LeaseCheckpoint implements api.Checkpoints.
func (f *Fake) LeaseCheckpoint(_ context.Context, pipeline string, id dataflow.CheckpointID, ttl time.Duration, lease string) (api.Lease, error) {
	_, err := f.pipeline(pipeline, func(*api.Pipeline) {
		if lease == "" {
			f.mu.leases++
			lease = "lease-" + strconv.Itoa(f.mu.leases)
		}
	})
	return api.Lease{ID: lease, Checkpoint: max(id, 42), ExpiresAt: ttl.Microseconds()}, err
}

// ReleaseLease implements api.Checkpoints.
func (f *Fake) ReleaseLease(_ context.Context, pipeline, _ string) error {
	_, err := f.pipeline(pipeline, nil)
	return err
}

// WaitToken implements api.Tokens. A token with positions past the rows that are there is never covered.
func (f *Fake) WaitToken(ctx context.Context, w api.TokenWait) ([]dataflow.Cut, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	have := make(dataflow.Positions)
	for _, s := range f.mu.streams {
		for i := range s.shards {
			have[dataflow.StreamShard{Stream: s.info.ID, Shard: dataflow.ShardID(i)}] = dataflow.Offset(len(s.shards[i].rows))
		}
	}
	cut := f.cutLocked("p", dataflow.ReadOptions{})
	f.mu.Unlock()
	if !have.Covers(w.Positions) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []dataflow.Cut{cut}, nil
}

// Nodes implements api.Cluster: the fake has none beside itself.
func (f *Fake) Nodes(context.Context) []*weirv1.NodeStatus { return nil }

// Addresses implements api.Cluster.
func (f *Fake) Addresses() []*weirv1.NodeAddress {
	return []*weirv1.NodeAddress{{Node: "n1", State: "active", GrpcAddr: "10.0.0.1:7711", HttpAddr: "10.0.0.1:7710"}}
}

// AddNode implements api.Cluster.
func (f *Fake) AddNode(_ context.Context, _, name string) (*weirv1.NodeStatus, error) {
	return &weirv1.NodeStatus{Node: name, State: "joining"}, nil
}

// RemoveNode implements api.Cluster.
func (f *Fake) RemoveNode(_ context.Context, node string, undo bool) (*weirv1.NodeStatus, error) {
	if undo {
		return &weirv1.NodeStatus{Node: node, State: "joining"}, nil
	}
	return &weirv1.NodeStatus{Node: node, State: "leaving"}, nil
}

// DrainNode implements api.Cluster.
func (f *Fake) DrainNode(_ context.Context, node string, undo bool) (*weirv1.NodeStatus, error) {
	if undo {
		return &weirv1.NodeStatus{Node: node, State: "active"}, nil
	}
	return &weirv1.NodeStatus{Node: node, State: "drained"}, nil
}

// Rebalance implements api.Cluster.
func (f *Fake) Rebalance(context.Context) ([]*weirv1.Move, error) { return nil, nil }

// Replicas implements api.Cluster.
func (f *Fake) Replicas() int { return 0 }

// SetReplicas implements api.Cluster.
func (f *Fake) SetReplicas(_ context.Context, n int) (int, error) { return n, nil }

// Verify implements api.Cluster.
func (f *Fake) Verify(context.Context, []string) ([]*weirv1.Verified, error) { return nil, nil }

// Status implements api.Cluster.
func (f *Fake) Status(context.Context) (api.ClusterStatus, error) {
	if err := f.enter(); err != nil {
		return api.ClusterStatus{}, err
	}
	defer f.mu.Unlock()
	return api.ClusterStatus{Node: "n1", Shards: Shards, Meta: api.RaftLog{Group: "meta", Role: "leader", Term: 1}, StartedAt: 1, Streams: len(f.mu.streams)}, nil
}

// Ready implements api.Cluster.
func (f *Fake) Ready(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.ready
}
