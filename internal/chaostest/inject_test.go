package chaostest

import (
	"context"
	"fmt"
	"math"
	"time"
)

// jumpClock lets a node's clock be wrong by up to an hour, either way, and later jump back.
func (w *world) jumpClock(context.Context) (string, error) {
	all := w.nodes(func(n *node) bool { return n.state == member })
	n := all[w.rng.IntN(len(all))]
	// From a tenth of a second on, each order of magnitude as often as another.
	by := time.Duration(float64(100*time.Millisecond) * math.Pow(36_000, w.rng.Float64())).Round(time.Millisecond)
	if w.rng.IntN(2) == 0 {
		by = -by
	}
	if err := n.wrong.SetClock(by); err != nil {
		return "", err
	}
	d := w.between(300*time.Millisecond, 8*time.Second)
	w.undoIn(d, func() {
		w.must(n.wrong.SetClock(0))
		w.history.log("the clock of %s is right again", n.name)
	})
	return fmt.Sprintf("%s by %s for %s", n.name, by, d.Round(time.Millisecond)), nil
}

// slowDisk lets every sync of a node take longer.
func (w *world) slowDisk(context.Context) (string, error) {
	n := w.anyUp()
	if n == nil || !w.brokenDisks {
		return "", nil
	}
	by := w.between(10*time.Millisecond, time.Second)
	if err := n.wrong.SlowSyncs(by); err != nil {
		return "", err
	}
	d := w.between(500*time.Millisecond, 6*time.Second)
	w.undoIn(d, func() {
		w.must(n.wrong.SlowSyncs(0))
		w.history.log("the disk of %s is fast again", n.name)
	})
	return fmt.Sprintf("%s, each sync by %s for %s", n.name, by.Round(time.Millisecond), d.Round(time.Millisecond)), nil
}

// failDisk lets every sync of a node fail. It must stop by itself at the first one (haveStopped), and does not come up while they fail.
func (w *world) failDisk(context.Context) (string, error) {
	n := w.anyUp()
	if n == nil || !w.brokenDisks || n.damaged != "" || n.full {
		return "", nil
	}
	n.expect(true)
	n.failing = true
	if err := n.wrong.FailSyncs(true); err != nil {
		return "", err
	}
	d := w.between(500*time.Millisecond, 4*time.Second)
	w.undoIn(d, func() {
		w.must(n.wrong.FailSyncs(false))
		w.history.log("the disk of %s is well again", n.name)
	})
	return fmt.Sprintf("%s for %s", n.name, d.Round(time.Millisecond)), nil
}

// haveStopped waits until every node has ended one of whose syncs has failed: what it would acknowledge might not be there (C10).
func (w *world) haveStopped(ctx context.Context) error {
	for _, n := range w.nodes(func(n *node) bool { return n.failing }) {
		n.failing = false
		now, err := n.wrong.FailedSyncs()
		if err != nil {
			return err
		}
		if now == n.failed {
			n.expect(n.damaged != "") // nothing was synced in this life: it has met nothing
			continue
		}
		select {
		case <-n.ended():
			if !n.down { // else it was killed before it could
				w.sum.sometimes["a node that stopped because a sync failed"]++
			}
		case <-time.After(patience):
			return violation("C10: %s goes on %s after a sync has failed", n.name, patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// must ends the run when the test cannot say what is wrong.
func (w *world) must(err error) {
	if err != nil {
		w.fail(err)
	}
}
