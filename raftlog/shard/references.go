package shard

import (
	"slices"

	"github.com/weirdb/weir/dataflow"
)

// references are the entries that a machine refers to (P7).
type references struct {
	floor   dataflow.LogIndex   // after the machine's last entry: what a log that starts from it goes on with
	islands []dataflow.LogRange // below the floor, ascending
}

// references lists the entries that the machine refers to: those with rows that are retained, and those of unsettled
// deltas.
func (m *machine) references() references {
	n := 0
	for _, s := range m.streams {
		n += len(s.batches)
	}
	all := make([]dataflow.LogIndex, 0, n)
	for _, s := range m.streams {
		for i := range s.batches {
			all = append(all, s.batches[i].index)
		}
	}
	for _, p := range m.pipelines {
		for i := range p.deltas {
			d := &p.deltas[i]
			for _, c := range d.chunks {
				all = append(all, c.index)
			}
			if d.end != 0 {
				all = append(all, d.end)
			}
		}
	}
	slices.Sort(all)
	r := references{floor: m.applied + 1}
	for _, i := range all {
		if n := len(r.islands); n > 0 && r.islands[n-1].Last+1 >= i {
			r.islands[n-1].Last = i
		} else {
			r.islands = append(r.islands, dataflow.LogRange{First: i, Last: i})
		}
	}
	return r
}
