package demo

import (
	"math/rand/v2"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/batch"
)

// pages are what is viewed, the most popular first. Some need quoting in a URL, as real ones do.
var pages = [...]string{"/", "/docs", "/pricing", "/blog/exactly once", "/docs/sql", "/download", "/about", "/contact"}

var countries = [...]string{"NZ", "DE", "BR", "IN", "US"}

// generator makes page views, and knows how many it has made.
type generator struct {
	rng    *rand.Rand
	schema dataflow.Schema
	truth  map[string]uint64 // views by page
	total  uint64
}

func newGenerator(seed uint64, schema dataflow.Schema) *generator {
	return &generator{rng: rand.New(rand.NewPCG(seed, 1)), schema: schema, truth: make(map[string]uint64)}
}

// batch returns n more views. They count in truth once add is called: when they have been handed over.
func (g *generator) batch(n int) *batch.Batch {
	b := batch.NewBatch(g.schema)
	for range n {
		b.AppendRow(dataflow.Row{dataflow.Text(g.page()), dataflow.Text(countries[g.rng.IntN(len(countries))]), dataflow.BigInt(g.rng.Int64N(400))})
	}
	return b
}

// page picks page i with probability 2^-(i+1): a few pages have most of the views.
func (g *generator) page() string {
	i := 0
	for i < len(pages)-1 && g.rng.IntN(2) == 0 {
		i++
	}
	return pages[i]
}

func (g *generator) add(b *batch.Batch) {
	for i := range b.N {
		g.truth[string(b.Cols[0].Text(i))]++
	}
	g.total += uint64(b.N)
}
