// Package catalog gives the programs behind the pipelines of the meta log: it parses and plans a pipeline's SQL text
// once per deployment, so that tasks, queries and descriptions share one plan.
package catalog

import (
	"fmt"
	"strings"
	"sync"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/plan"
	"github.com/weirdb/weir/dataflow/sql"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/statequery"
)

// Program is a deployed pipeline's plan with its streams resolved. It is immutable: the text of a uid never changes, and
// neither do the columns of a stream.
type Program struct {
	UID     dataflow.PipelineUID
	Name    string
	Plan    *plan.Plan
	Streams map[string]dataflow.StreamID // by the names in Plan.Reads

	tables map[string]*statequery.Table
}

// Table returns the table called name, ready to be read, or TABLE_NOT_FOUND.
func (p *Program) Table(name string) (*statequery.Table, error) {
	if t := p.tables[name]; t != nil {
		return t, nil
	}
	_, err := p.Stage(name)
	return nil, err
}

// Stage returns the stage that keeps the table called name, or TABLE_NOT_FOUND.
func (p *Program) Stage(name string) (*plan.Stage, error) {
	if st, ok := p.Plan.Table(name); ok {
		return st, nil
	}
	return nil, dataflow.Errorf(dataflow.ReasonTableNotFound, "pipeline %s has no table %q", p.Name, name).
		WithHint("its tables are %s", p.tableNames()).WithMeta("pipeline", p.Name).WithMeta("table", name)
}

func (p *Program) tableNames() string {
	var names []string
	for _, st := range p.Plan.Tables() {
		names = append(names, st.Name)
	}
	return strings.Join(names, ", ")
}

// Catalog caches programs by uid. It is safe for concurrent use.
type Catalog struct {
	mu struct {
		sync.Mutex
		programs map[dataflow.PipelineUID]*Program
	}
}

// New returns an empty catalog.
func New() *Catalog {
	c := &Catalog{}
	c.mu.programs = make(map[dataflow.PipelineUID]*Program)
	return c
}

// Program returns the program of a pipeline. An error means that a text which was deployed once does not plan any more:
// a defect, or a downgrade.
func (c *Catalog) Program(st *meta.State, p *meta.Pipeline) (*Program, error) {
	c.mu.Lock()
	prog := c.mu.programs[p.UID]
	c.mu.Unlock()
	if prog != nil {
		return prog, nil
	}
	file, err := sql.Parse(p.SQL)
	if err != nil {
		return nil, fmt.Errorf("parse the deployed text of pipeline %s: %w", p.Name, err)
	}
	pl, err := plan.Build(file, Streams{st})
	if err != nil {
		return nil, fmt.Errorf("plan the deployed text of pipeline %s: %w", p.Name, err)
	}
	prog = &Program{UID: p.UID, Name: p.Name, Plan: pl, Streams: make(map[string]dataflow.StreamID), tables: make(map[string]*statequery.Table)}
	for _, st := range pl.Tables() {
		prog.tables[st.Name] = statequery.NewTable(pl, st)
	}
	for _, r := range pl.Reads {
		s, err := st.Stream(r.Name)
		if err != nil {
			return nil, fmt.Errorf("resolve the streams of pipeline %s: %w", p.Name, err)
		}
		prog.Streams[r.Name] = s.ID
	}
	c.mu.Lock()
	c.mu.programs[p.UID] = prog
	c.mu.Unlock()
	return prog, nil
}

// Forget drops the programs of pipelines that the meta log has no more.
func (c *Catalog) Forget(st *meta.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.mu.programs {
		if st.PipelineDeleted(uid) {
			delete(c.mu.programs, uid)
		}
	}
}

// Streams is the planner's view of the meta log's streams.
type Streams struct{ State *meta.State }

// Stream returns the stream called name as a plan sees it.
func (s Streams) Stream(name string) (plan.Stream, bool) {
	st, err := s.State.Stream(name)
	if err != nil {
		return plan.Stream{}, false
	}
	return plan.Stream{Name: st.Name, Schema: st.Schema, PartitionBy: st.PartitionBy}, true
}

// StreamNames returns the names of all streams, for suggestions.
func (s Streams) StreamNames() []string {
	var out []string
	for _, st := range s.State.StreamList() {
		out = append(out, st.Name)
	}
	return out
}
