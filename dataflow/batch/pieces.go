package batch

// Pieces cuts rows into pieces whose computation fits in memory. It remembers what fitted, so that many large rows do
// not pay for finding out again and again. The zero value is ready; one goroutine uses it.
type Pieces struct {
	rows   int // of the next piece to try; 0 = all there are
	fitted int // pieces of that size that have fitted
}

const (
	// growAfter is how many pieces must fit before larger ones are tried: a try that does not fit is wasted work.
	growAfter = 16
	// noPieces is a size from which on pieces are as good as whole batches.
	noPieces = 1 << 16
)

// Next calls fn for the first rows of n, at least one, and returns how many. When fn returns fits = false it has done
// nothing, and is called again for fewer rows; one row always fits.
func (p *Pieces) Next(n int, fn func(rows int) (fits bool, err error)) (int, error) {
	rows := n
	if p.rows > 0 {
		rows = min(p.rows, n)
	}
	for {
		fits, err := fn(rows)
		switch {
		case err != nil:
			return 0, err
		case !fits && rows == 1:
			panic("batch: a piece of one row does not fit") // a defect of fn, never input
		case !fits:
			rows /= 2
			p.rows, p.fitted = rows, 0
			continue
		}
		if rows == p.rows {
			if p.fitted++; p.fitted == growAfter {
				p.rows, p.fitted = 2*p.rows, 0
			}
			if p.rows >= noPieces {
				p.rows = 0
			}
		}
		return rows, nil
	}
}

// Each calls fn for pieces of b that follow each other and cover it, as Next does.
func (p *Pieces) Each(b *Batch, fn func(piece *Batch) (fits bool, err error)) error {
	for from := 0; from < b.N; {
		n, err := p.Next(b.N-from, func(n int) (bool, error) {
			if n == b.N {
				return fn(b)
			}
			return fn(b.Slice(from, from+n))
		})
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}
