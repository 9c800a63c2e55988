package operator

import (
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/batch"
	"github.com/weirdb/weir/dataflow/plan"
)

// PreAgg combines the rows of a batch that share a key into one partial accumulator before they are sent. It pays when
// keys repeat within a batch; when they do not, it switches itself off and looks again from time to time. One goroutine
// uses it at a time.
type PreAgg struct {
	layout *agg.Layout
	nkeys  int
	size   int // of an accumulator; 0 = they differ

	groups groups
	out    Partials
	idle   int // batches left until the next look
}

const (
	// minReduction is the share of rows that combining must save: below it the table costs more than the exchange.
	minReduction = 0.20
	// lookAgain is how many batches pass before a PreAgg that saved too little tries again. Few would waste work on
	// data that never repeats, many would miss that it has begun to.
	lookAgain = 64
	// minRows is how many rows a batch needs to say anything about repetition.
	minRows = 256

	// A PreAgg does not keep the memory of a batch of more rows than keepRows, or whose keys and accumulators took more than
	// keepBytes.
	keepRows  = 16 * batch.TargetRows
	keepBytes = 1 << 20
)

// NewPreAgg returns a PreAgg for a stage, or nil when the stage's rows cannot be combined: a stage that keeps one row
// per key has nothing to combine.
func NewPreAgg(st *plan.Stage) *PreAgg {
	if st.Kind != plan.StageAggregate {
		return nil
	}
	for _, a := range st.Aggs {
		if a.Fn == agg.Any {
			return nil
		}
	}
	p := &PreAgg{layout: agg.NewLayout(st.Aggs), nkeys: len(st.Key)}
	if size, ok := p.layout.Fixed(); ok {
		p.size = size
	}
	return p
}

// Enabled reports whether the next batch should be combined. It is called once per batch.
func (p *PreAgg) Enabled() bool {
	if p.idle > 0 {
		p.idle--
		return p.idle == 0
	}
	return true
}

// Fold folds the rows of b, the stage's key columns and aggregate arguments, by key. The result is good until the next call.
// Weights are respected: a partial may stand for no rows at all and still matter.
func (p *PreAgg) Fold(b *batch.Batch) (*Partials, error) {
	if cap(p.groups.of) > keepRows || cap(p.groups.keys)+cap(p.out.keys)+cap(p.out.accs) > keepBytes {
		p.groups, p.out = groups{}, Partials{}
	}
	p.groups.find(b, p.nkeys)
	p.judge(b.N, len(p.groups.first))
	p.out.encode(b.Cols[:p.nkeys], p.groups.first)
	if p.size > 0 {
		return &p.out, p.foldFixed(b)
	}
	return &p.out, p.foldVarying(b)
}

// foldFixed folds the rows of b into accumulators of one size.
func (p *PreAgg) foldFixed(b *batch.Batch) error {
	o := &p.out
	o.size, o.accs = p.size, resized(o.accs, len(p.groups.first)*p.size)
	clear(o.accs)
	return p.layout.UpdateGroups(o.accs, p.groups.of, b)
}

// foldVarying folds the rows of b into accumulators that differ in size.
func (p *PreAgg) foldVarying(b *batch.Batch) (err error) {
	accs := make([][]byte, len(p.groups.first))
	for i := range accs {
		accs[i] = p.layout.New(nil)
	}
	for row, n := range p.groups.of {
		if accs[n], err = p.layout.Update(accs[n], b, row, b.Weight(row)); err != nil {
			return err
		}
	}
	p.out.varying = accs
	return nil
}

// judge switches off when too few rows were saved.
func (p *PreAgg) judge(rows, distinct int) {
	if rows >= minRows && float64(rows-distinct) < minReduction*float64(rows) {
		p.idle = lookAgain
	}
}
