package operator

import (
	"bytes"

	"github.com/weirdb/weir/dataflow/batch"
)

// Combine is Fold for tests, with copies of all that it returns. hashes, if not nil, must be those of the rows.
func (p *PreAgg) Combine(b *batch.Batch, hashes []uint64) (outHashes []uint64, keys, accs [][]byte, err error) {
	out, err := p.Fold(b)
	if err != nil {
		return nil, nil, nil, err
	}
	for i, h := range out.Hashes {
		if row := p.groups.first[i]; hashes != nil && hashes[row] != h {
			panic("the hash of a row is not that of its key")
		}
		outHashes = append(outHashes, h)
		keys, accs = append(keys, bytes.Clone(out.Key(i))), append(accs, bytes.Clone(out.Acc(i)))
	}
	return outHashes, keys, accs, nil
}
