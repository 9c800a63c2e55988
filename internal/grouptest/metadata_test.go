package grouptest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/node/nodetest"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

const (
	operators = 4 // who create and delete at the same time
	things    = 3 // streams, and pipelines over them
	// checkTime bounds the search for an order. Searches that go well take milliseconds.
	checkTime = 30 * time.Second
)

// TestMetadataIsLinearizable lets operators create, change and delete streams and pipelines through any node while the group is
// broken, and looks for an order in which all of it could have happened, one after another (T7).
//
// It has found that followers described streams that were deleted, and that a node that led answered from metadata that lacked what
// another leader had committed. With a meta.Log.Current that passes no barrier where the node leads, 3 of the first 20 schedules fail.
func TestMetadataIsLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes")
	}
	eachSchedule(t, (*schedules+1)/2, func(w *world) { (&registry{world: w}).run() })
}

// registry is a schedule of operations on metadata.
type registry struct {
	*world
	ops struct {
		sync.Mutex
		all     []porcupine.Operation
		unknown int
	}
}

// deed is what an operator asks for.
type deed struct {
	what    string
	thing   int
	program byte // of a deployment: a or b
}

// state is what there is of one thing.
type state struct {
	stream  bool
	program byte // of the pipeline: a or b; 0 = there is none
	stopped bool // or about to be
}

func (s state) String() string {
	var parts []string
	if s.stream {
		parts = append(parts, "stream")
	}
	if s.program != 0 {
		parts = append(parts, "pipeline "+string(s.program))
	}
	if s.stopped {
		parts = append(parts, "stopped")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// states are all things. They are compared and copied as values.
type states [things]state

// result is what an operator is told.
type result struct {
	unknown bool            // it may have happened, now or later
	refused dataflow.Reason // "" = done
	created bool            // by a deployment
	seen    states          // by a look or a list
}

func streamName(i int) string   { return fmt.Sprintf("s%d", i) }
func pipelineName(i int) string { return fmt.Sprintf("p%d", i) }

func programSQL(i int, program byte) string {
	of := map[byte]string{'a': "count(*)", 'b': "max(v)"}[program]
	return fmt.Sprintf("SET checkpoint.interval = '200 ms';\n%s\nCREATE MATERIALIZED VIEW t AS SELECT k, %s AS x FROM %s GROUP BY k;", streamSQL(i), of, streamName(i))
}

func streamSQL(i int) string {
	return fmt.Sprintf("CREATE STREAM %s (k BIGINT, v BIGINT);", streamName(i))
}

func (r *registry) run() {
	defer r.tell()
	r.open()
	var actors []func(context.Context)
	for i := range operators {
		actors = append(actors, func(ctx context.Context) { r.operate(ctx, i) })
	}
	if !r.live(actors) {
		return
	}
	r.search()
}

// operate does one thing after another, and looks at once at what it has done, through any node.
func (r *registry) operate(ctx context.Context, id int) {
	rnd := rand.New(rand.NewPCG(r.seed, uint64(300+id)))
	changes := []string{"create stream", "delete stream", "deploy", "deploy", "delete pipeline", "stop", "resume"}
	looks := []string{"describe stream", "describe pipeline", "list streams", "list pipelines"}
	for !r.over() && ctx.Err() == nil {
		d := deed{what: changes[rnd.IntN(len(changes))], thing: rnd.IntN(things), program: "ab"[rnd.IntN(2)]}
		r.ask(ctx, rnd, id, d)
		for range 1 + rnd.IntN(3) {
			d.what = looks[rnd.IntN(len(looks))]
			r.ask(ctx, rnd, id, d)
		}
		wait(ctx, time.Duration(rnd.IntN(20))*time.Millisecond)
	}
}

// ask asks any node.
func (r *registry) ask(ctx context.Context, rnd *rand.Rand, id int, d deed) {
	nd, num := r.node(rnd)
	if nd == nil {
		wait(ctx, 10*time.Millisecond)
		return
	}
	call, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	began := time.Since(r.began).Nanoseconds()
	res, err := do(call, nd, d)
	ended := time.Since(r.began).Nanoseconds()
	r.take(id, num, d, res, err, began, ended)
}

// take keeps an operation for the search, unless it has certainly not happened.
func (r *registry) take(id, num int, d deed, res result, err error, began, ended int64) {
	what := fmt.Sprintf("o%d n%d %s", id, num, describe(d, res))
	switch {
	case err == nil:
		r.note("%s", what)
	case strings.HasPrefix(d.what, "describe"), strings.HasPrefix(d.what, "list"):
		r.fits(what, err)
		return // nothing was seen
	case r.fits(what, err):
		r.note("%s: %v", what, err)
		return
	default:
		r.note("%s, perhaps: %v", what, err)
		res.unknown = true
		ended = math.MaxInt64
	}
	r.ops.Lock()
	defer r.ops.Unlock()
	if res.unknown {
		r.ops.unknown++
	}
	r.ops.all = append(r.ops.all, porcupine.Operation{ClientId: id, Input: d, Output: res, Call: began, Return: ended})
}

// fits accepts an error that a group may give whose nodes fail, and reports whether it says that nothing has happened.
func (r *registry) fits(what string, err error) (nothing bool) {
	r.world.check(what, err)
	k := nodetest.Reason(err).Kind()
	return nodetest.Reason(err) != "" && (k == dataflow.KindUnavailable || k == dataflow.KindOverloaded)
}

// errPerhaps is that of a pipeline that was deleted when it had been deployed or stopped: others may have seen it so.
var errPerhaps = errors.New("it was deleted meanwhile")

// do asks a node. An error says that it gave no answer; a refusal is an answer.
func do(ctx context.Context, nd *nodetest.Node, d deed) (res result, err error) {
	refused := func(err error, admitted ...dataflow.Reason) (result, error) {
		reason := nodetest.Reason(err)
		switch {
		case reason == dataflow.ReasonPipelineNotFound && strings.Contains(err.Error(), "was deleted"):
			return res, errPerhaps
		case reason != "" && slices.Contains(admitted, reason):
			res.refused = reason
			return res, nil
		}
		return res, err
	}
	deploy := func(pipeline, sql string) (result, error) {
		a, err := nd.Pipelines().DeployPipeline(ctx, &weirv1.DeployPipelineRequest{Pipeline: pipeline, Sql: sql})
		res.created = a.GetOutcome() == weirv1.DeployOutcome_DEPLOY_OUTCOME_CREATED
		return refused(err, dataflow.ReasonPipelineExists)
	}
	name := pipelineName(d.thing)
	switch d.what {
	case "create stream":
		return deploy("streams_only", streamSQL(d.thing))
	case "delete stream":
		_, err = nd.Ingest().DeleteStream(ctx, &weirv1.DeleteStreamRequest{Stream: streamName(d.thing)})
		return refused(err, dataflow.ReasonStreamNotFound, dataflow.ReasonStreamInUse)
	case "describe stream":
		_, err = nd.Ingest().DescribeStream(ctx, &weirv1.DescribeStreamRequest{Stream: streamName(d.thing)})
		res.seen[d.thing].stream = err == nil
		return refused(err, dataflow.ReasonStreamNotFound)
	case "deploy":
		return deploy(name, programSQL(d.thing, d.program))
	case "delete pipeline":
		_, err = nd.Pipelines().DeletePipeline(ctx, &weirv1.DeletePipelineRequest{Pipeline: name})
		return refused(err, dataflow.ReasonPipelineNotFound)
	case "stop":
		_, err = nd.Pipelines().StopPipeline(ctx, &weirv1.StopPipelineRequest{Pipeline: name})
		return refused(err, dataflow.ReasonPipelineNotFound)
	case "resume":
		_, err = nd.Pipelines().ResumePipeline(ctx, &weirv1.ResumePipelineRequest{Pipeline: name})
		return refused(err, dataflow.ReasonPipelineNotFound, dataflow.ReasonPipelineState)
	case "describe pipeline":
		a, err := nd.Pipelines().GetPipeline(ctx, &weirv1.GetPipelineRequest{Pipeline: name})
		res.seen.add(a.GetPipeline())
		return refused(err, dataflow.ReasonPipelineNotFound)
	case "list streams":
		a, err := nd.Ingest().ListStreams(ctx, &weirv1.ListStreamsRequest{})
		for _, s := range a.GetStreams() {
			for i := range things {
				res.seen[i].stream = res.seen[i].stream || s.GetName() == streamName(i)
			}
		}
		return res, err
	default:
		a, err := nd.Pipelines().ListPipelines(ctx, &weirv1.ListPipelinesRequest{})
		for _, p := range a.GetPipelines() {
			res.seen.add(p)
		}
		return res, err
	}
}

// add takes a pipeline that was shown.
func (s *states) add(p *weirv1.Pipeline) {
	for i := range things {
		if p.GetName() != pipelineName(i) {
			continue
		}
		s[i].program = 'a'
		if strings.Contains(p.GetSql(), "max(v)") {
			s[i].program = 'b'
		}
		st := p.GetState()
		s[i].stopped = st == weirv1.PipelineState_PIPELINE_STATE_STOPPING || st == weirv1.PipelineState_PIPELINE_STATE_STOPPED
	}
}

func describe(d deed, res result) string {
	what := fmt.Sprintf("%s %d", d.what, d.thing)
	if d.what == "deploy" {
		what += string(d.program)
	}
	switch {
	case res.unknown:
		return what + " → ?"
	case res.refused != "":
		return fmt.Sprintf("%s → %s", what, res.refused)
	}
	switch d.what {
	case "deploy", "create stream":
		return fmt.Sprintf("%s → %v", what, map[bool]string{true: "created", false: "unchanged"}[res.created])
	case "describe stream", "describe pipeline":
		return fmt.Sprintf("%s → %s", what, res.seen[d.thing])
	case "list streams", "list pipelines":
		return fmt.Sprintf("%s → %s", what, res.seen)
	}
	return what + " → done"
}

// step is the specification: what a deed does to what there is, and whether the result is the one that it has then. The states
// STOPPING and STOPPED are one here, and RUNNING and RECOVERING.
func step(s states, d deed, res result) (bool, states) {
	at := &s[d.thing]
	refused := func(r dataflow.Reason) bool { return res.unknown || res.refused == r }
	done := func() bool { return res.unknown || res.refused == "" }
	switch d.what {
	case "create stream":
		was := at.stream
		at.stream = true
		return res.unknown || res.refused == "" && res.created != was, s
	case "delete stream":
		switch {
		case !at.stream:
			return refused(dataflow.ReasonStreamNotFound), s
		case at.program != 0:
			return refused(dataflow.ReasonStreamInUse), s
		}
		at.stream = false
		return done(), s
	case "describe stream":
		return at.stream == res.seen[d.thing].stream, s
	case "deploy":
		if at.program != 0 {
			if at.program != d.program {
				return refused(dataflow.ReasonPipelineExists), s
			}
			return res.unknown || res.refused == "" && !res.created, s
		}
		*at = state{stream: true, program: d.program}
		return res.unknown || res.refused == "" && res.created, s
	case "delete pipeline":
		if at.program == 0 {
			return refused(dataflow.ReasonPipelineNotFound), s
		}
		at.program, at.stopped = 0, false
		return done(), s
	case "stop":
		if at.program == 0 {
			return refused(dataflow.ReasonPipelineNotFound), s
		}
		at.stopped = true
		return done(), s
	case "resume":
		switch {
		case at.program == 0:
			return refused(dataflow.ReasonPipelineNotFound), s
		case at.stopped && res.refused == dataflow.ReasonPipelineState:
			return true, s // it is STOPPING
		}
		at.stopped = false
		return done(), s
	case "describe pipeline":
		saw := res.seen[d.thing]
		return at.program == saw.program && at.stopped == saw.stopped, s
	case "list streams":
		for i := range s {
			if s[i].stream != res.seen[i].stream {
				return false, s
			}
		}
		return true, s
	default:
		for i := range s {
			if s[i].program != res.seen[i].program || s[i].stopped != res.seen[i].stopped {
				return false, s
			}
		}
		return true, s
	}
}

// model is the specification as the search wants it.
var model = porcupine.Model{
	Init:              func() any { return states{} },
	Step:              func(s, d, res any) (bool, any) { return step(s.(states), d.(deed), res.(result)) },
	DescribeOperation: func(d, res any) string { return describe(d.(deed), res.(result)) },
}

// of are the operations on one thing. A list is taken as a look at it, which says less than the list does.
func of(all []porcupine.Operation, thing int) []porcupine.Operation {
	var out []porcupine.Operation
	for _, o := range all {
		d, res := o.Input.(deed), o.Output.(result)
		switch {
		case strings.HasPrefix(d.what, "list"):
			d.what = strings.TrimSuffix(strings.Replace(d.what, "list", "describe", 1), "s")
			d.thing = thing
		case d.thing != thing:
			continue
		}
		o.Input, o.Output = d, res
		out = append(out, o)
	}
	return out
}

// search looks for an order of all operations. First for each thing by itself: of a history that has no order, the one for a single
// thing is short to read and quick to find out. A search over all that takes too long decides nothing.
func (r *registry) search() {
	r.ops.Lock()
	defer r.ops.Unlock()
	each := true
	for i := range things {
		ops := of(r.ops.all, i)
		if porcupine.CheckOperationsTimeout(model, ops, checkTime) == porcupine.Ok {
			continue
		}
		each = false
		r.errorf("T7: there is no order of the operations on %s and %s", streamName(i), pipelineName(i))
		slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(min(max(a.Call-b.Call, -1), 1)) })
		for _, o := range ops {
			r.note("%9.3f to %9.3f, o%d: %s", float64(o.Call)/1e9, float64(o.Return)/1e9, o.ClientId, describe(o.Input.(deed), o.Output.(result)))
		}
	}
	all := porcupine.CheckOperationsTimeout(model, r.ops.all, checkTime)
	if all == porcupine.Illegal && each {
		r.errorf("T7: there is an order for each thing, and none for all of them")
	}
	r.t.Logf("seed %d: %d operations, of %d is unknown whether they happened; all together: %s", r.seed, len(r.ops.all), r.ops.unknown, all)
}
