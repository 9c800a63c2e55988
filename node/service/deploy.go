package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
	"github.com/weirdb/weir/node/api"
	"github.com/weirdb/weir/node/catalog"
	"github.com/weirdb/weir/raftlog/meta"
)

// deployTries is how often a deploy looks at the streams anew, when one that it saw is dropped before the meta log has the
// pipeline. Each time somebody else has dropped one.
const deployTries = 10

// Deploy plans the text and hands it to the meta log. A text without a materialized view makes its streams, and no
// pipeline.
func (s *Service) Deploy(ctx context.Context, d api.Deploy) (*api.Deployed, error) {
	for try := 1; ; try++ {
		st, err := s.cfg.Meta.Current(ctx)
		if err != nil {
			return nil, err
		}
		out, err := s.deploy(ctx, st, d)
		if r := dataflow.ReasonOf(err); r != dataflow.ReasonStreamConflict && r != dataflow.ReasonStreamNotFound || st == s.cfg.Meta.State() || try == deployTries {
			return out, err
		}
	}
}

// deploy deploys as things are in st.
func (s *Service) deploy(ctx context.Context, st *meta.State, d api.Deploy) (*api.Deployed, error) {
	if !dataflow.ValidName(d.Pipeline) {
		e := dataflow.Errorf(dataflow.ReasonNameInvalid, "%q cannot name a pipeline: a name is [a-z_][a-z0-9_]{0,62}", d.Pipeline)
		if n := strings.ReplaceAll(strings.ToLower(d.Pipeline), "-", "_"); dataflow.ValidName(n) {
			e = e.WithHint("use --pipeline %s", n)
		}
		return nil, e
	}
	file, err := sql.Parse(d.SQL)
	if err != nil {
		return nil, err
	}
	pl, err := plan.Build(file, catalog.Streams{State: st})
	if err != nil {
		return nil, err
	}
	dep := &deployment{Service: s, request: d, state: st, file: file, plan: pl, out: &api.Deployed{Tables: s.tablesOf(d.Pipeline, pl, nil)}}
	dep.command = meta.CreatePipeline{Name: d.Pipeline, SQL: d.SQL, Fingerprint: plan.Fingerprint(pl), Options: append(pl.Options, d.Options...)}
	if err := dep.check(); err != nil {
		return nil, err
	}
	if len(pl.Stages) == 0 {
		return dep.createStreams(ctx)
	}
	if err := dep.reads(); err != nil {
		return nil, err
	}
	return dep.create(ctx)
}

// deployment is one deploy under way.
type deployment struct {
	*Service
	request api.Deploy
	state   *meta.State
	file    *sql.File
	plan    *plan.Plan
	command meta.CreatePipeline
	out     *api.Deployed
}

// check refuses what the meta log would refuse, before anything is created, and what differs from the pipeline that is
// there.
func (d *deployment) check() error {
	if _, err := dataflow.DefaultPipelineOptions().With(d.command.Options); err != nil {
		return err
	}
	if old, err := d.state.Pipeline(d.request.Pipeline); err == nil {
		prog, err := d.cfg.Catalog.Program(d.state, old)
		if err != nil {
			return err
		}
		if plan.Fingerprint(prog.Plan) != d.command.Fingerprint {
			return d.exists(d.state, old)
		}
		d.command.Fingerprint = old.Fingerprint // of another version it may be another text for the same program
		if err := sameOptions(old, prog.Plan.Options, d.command.Options); err != nil {
			return err
		}
	}
	for _, decl := range d.plan.Declared {
		def := meta.StreamDefinition{Name: decl.Name, Schema: decl.Schema, PartitionBy: decl.PartitionBy, Options: decl.Options}
		if err := d.state.CheckStream(def); err != nil {
			return err
		}
		d.command.Declared = append(d.command.Declared, def)
		_, missing := d.state.Stream(decl.Name)
		d.out.Streams = append(d.out.Streams, api.DeployedStream{Name: decl.Name, Created: missing != nil})
	}
	return nil
}

// sameOptions refuses options that a pipeline, which is left as it is, does not have. An option that the deployed text set and
// the new one does not is wanted at its default.
func sameOptions(old *meta.Pipeline, deployed, options []dataflow.Option) error {
	wanted := old.Options
	for _, o := range dataflow.DefaultPipelineOptions().List() {
		named := func(n dataflow.Option) bool { return n.Name == o.Name }
		if !slices.ContainsFunc(deployed, named) || slices.ContainsFunc(options, named) {
			continue
		}
		var err error
		if wanted, err = wanted.With([]dataflow.Option{o}); err != nil {
			return err
		}
	}
	wanted, err := wanted.With(options)
	if err != nil || wanted == old.Options {
		return err
	}
	var diff, set []string
	was := old.Options.List()
	for i, o := range wanted.List() {
		if o != was[i] {
			diff = append(diff, fmt.Sprintf("%s is %s, not %s", o.Name, was[i].Value, o.Value))
			set = append(set, fmt.Sprintf("%s='%s'", o.Name, o.Value))
		}
	}
	return dataflow.Errorf(dataflow.ReasonPipelineExists, "pipeline %s runs this program with other options:\n  %s", old.Name, strings.Join(diff, "\n  ")).
		WithHint("weir pipeline set %s %s", old.Name, strings.Join(set, " ")).WithMeta("pipeline", old.Name)
}

// createStreams makes the streams of a text that has no materialized view. What it has beside them would do nothing, so it
// is refused.
func (d *deployment) createStreams(ctx context.Context) (*api.Deployed, error) {
	for _, stmt := range d.file.Statements {
		if v, ok := stmt.(*sql.CreateView); ok {
			return nil, d.file.Source.At(dataflow.Errorf(dataflow.ReasonSQLUnsupported, "view %s is read by no materialized view: nothing would compute it", v.Name.Name).
				WithHint("write CREATE MATERIALIZED VIEW"), v.At)
		}
	}
	switch {
	case len(d.plan.Declared) == 0:
		return nil, dataflow.Errorf(dataflow.ReasonSQLUnsupported, "the file creates nothing").
			WithHint("it needs a CREATE MATERIALIZED VIEW, or at least a CREATE STREAM")
	case len(d.command.Options) > 0:
		return nil, dataflow.Errorf(dataflow.ReasonOptionInvalid, "option %s is a pipeline's, and without a materialized view the file makes none", d.command.Options[0].Name)
	case d.request.Start.Kind != api.StartEarliest:
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "start: it is a pipeline's, and without a materialized view the file makes none")
	}
	d.out.Unchanged = true
	for i, def := range d.command.Declared {
		if !d.request.ValidateOnly {
			var err error
			if _, d.out.Streams[i].Created, err = d.cfg.Meta.CreateStream(ctx, def); err != nil {
				return nil, err
			}
		}
		d.out.Unchanged = d.out.Unchanged && !d.out.Streams[i].Created
	}
	return d.out, nil
}

// reads sets where the pipeline begins to read its streams.
func (d *deployment) reads() error {
	if at, now := d.request.Start.Time, d.cfg.Now(); d.request.Start.Kind == api.StartTime && at > now {
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "start: %s is in the future, here it is %s; the pipeline would read rows from before it",
			time.UnixMicro(at).UTC().Format(time.RFC3339), time.UnixMicro(now).UTC().Format(time.RFC3339)).WithHint("start at latest, or deploy then")
	}
	c := &d.command
	c.Reads, c.Start, c.DeployEnd = make(map[string]dataflow.StreamID), make(dataflow.Positions), make(dataflow.Positions)
	for _, r := range d.plan.Reads {
		id := dataflow.StreamID(0) // of a stream that is created with the pipeline
		if st, err := d.state.Stream(r.Name); err == nil {
			id = st.ID
		}
		c.Reads[r.Name] = id
		if err := d.startAt(id, d.stream(r.Name)); err != nil {
			return err
		}
	}
	return nil
}

// stream returns the entry of a stream in the answer.
func (d *deployment) stream(name string) *api.DeployedStream {
	for i := range d.out.Streams {
		if d.out.Streams[i].Name == name {
			return &d.out.Streams[i]
		}
	}
	d.out.Streams = append(d.out.Streams, api.DeployedStream{Name: name})
	return &d.out.Streams[len(d.out.Streams)-1]
}

// startAt sets where the pipeline begins to read one stream.
func (d *deployment) startAt(id dataflow.StreamID, out *api.DeployedStream) error {
	out.Read = true
	if id == 0 {
		return nil
	}
	start := d.request.Start
	for _, sh := range d.cfg.Shards {
		k := dataflow.StreamShard{Stream: id, Shard: sh.ID}
		first, end, _ := sh.Log.Range(id)
		at := first
		switch start.Kind {
		case api.StartEarliest:
			out.RowsDropped += uint64(first)
		case api.StartLatest:
			at = end
		case api.StartTime:
			at = sh.Log.OffsetAt(id, start.Time)
		case api.StartToken:
			if want, ok := start.Positions[k]; ok {
				if want < first {
					return dataflow.Errorf(dataflow.ReasonPositionsExpired, "the start token names offset %d of stream %s in shard %d, which retention has dropped: the first kept is %d", want, out.Name, sh.ID, first)
				}
				at = min(want, end)
			}
		}
		if at > 0 {
			d.command.Start[k] = at
		}
		if end > 0 {
			d.command.DeployEnd[k] = end
		}
		out.RowsToRead += uint64(end - at)
	}
	return nil
}

// create makes the pipeline, or says what it would be.
func (d *deployment) create(ctx context.Context) (*api.Deployed, error) {
	if d.request.ValidateOnly {
		old, err := d.state.Pipeline(d.request.Pipeline)
		if err != nil {
			return d.out, nil
		}
		d.out.Unchanged = true
		d.out.Pipeline, err = d.describe(d.state, old)
		return d.out, err
	}
	var err error
	if d.command.Owners, err = d.cfg.Fleet.Placement(ctx); err != nil {
		return nil, err
	}
	p, created, err := d.cfg.Meta.CreatePipeline(ctx, d.command)
	if dataflow.ReasonOf(err) == dataflow.ReasonPipelineExists { // it was made since we looked
		st := d.cfg.Meta.State()
		if old, lookErr := st.Pipeline(d.request.Pipeline); lookErr == nil {
			return nil, d.exists(st, old)
		}
	}
	if err != nil {
		return nil, err
	}
	if !created { // perhaps by somebody else since we looked
		if err := sameOptions(p, d.plan.Options, d.command.Options); err != nil {
			return nil, err
		}
	}
	d.out.Unchanged = !created
	st := d.cfg.Meta.State()
	if st.PipelineDeleted(p.UID) { // and its streams, perhaps
		return nil, dataflow.Errorf(dataflow.ReasonPipelineNotFound, "pipeline %s was deleted as soon as it was deployed", p.Name).WithMeta("pipeline", p.Name)
	}
	d.out.Pipeline, err = d.describe(st, p)
	return d.out, err
}

// exists says how the running program differs from the one that is being deployed.
func (d *deployment) exists(st *meta.State, old *meta.Pipeline) error {
	e := dataflow.Errorf(dataflow.ReasonPipelineExists, "pipeline %s runs another program", old.Name)
	if prog, err := d.cfg.Catalog.Program(st, old); err == nil {
		if diff := plan.Diff(prog.Plan, d.plan); len(diff) > 0 {
			e = dataflow.Errorf(dataflow.ReasonPipelineExists, "pipeline %s runs another program:\n  %s", old.Name, strings.Join(diff, "\n  "))
		}
	}
	return e.WithHint("nothing was changed; deploy under another name, or delete the pipeline first").WithMeta("pipeline", old.Name)
}
