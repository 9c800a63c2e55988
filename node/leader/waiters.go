package leader

import (
	"context"
	"sync"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
)

// waiters are the requests that wait for a checkpoint. Each is answered once.
type waiters struct {
	sync.Mutex
	next uint64
	open map[uint64]chan waited // each with room for its answer
}

// waited is the answer to a waiter.
type waited struct {
	id  dataflow.CheckpointID
	err error
}

func (w *waiters) add() (id uint64, answer <-chan waited) {
	w.Lock()
	defer w.Unlock()
	w.next++
	ch := make(chan waited, 1)
	w.open[w.next] = ch
	return w.next, ch
}

// answer answers a waiter, unless it has been answered or has gone.
func (w *waiters) answer(id uint64, a waited) {
	w.Lock()
	defer w.Unlock()
	if ch := w.open[id]; ch != nil {
		ch <- a
		delete(w.open, id)
	}
}

func (w *waiters) answerAll(a waited) {
	w.Lock()
	defer w.Unlock()
	for id, ch := range w.open {
		ch <- a
		delete(w.open, id)
	}
}

func (w *waiters) drop(id uint64) {
	w.Lock()
	defer w.Unlock()
	delete(w.open, id)
}

// trigger asks for a checkpoint, behind which the sources are held if hold says so, and waits for its commit.
func (p *pipeline) trigger(ctx context.Context, hold bool) (dataflow.CheckpointID, error) {
	id, answer := p.waiters.add()
	defer p.waiters.drop(id)
	if err := p.post(coordinator.TriggerRequested{Waiter: id, Hold: hold}); err != nil {
		return 0, err
	}
	select {
	case w := <-answer:
		return w.id, w.err
	case <-ctx.Done():
		return 0, dataflow.Errorf(dataflow.ReasonDeadline, "the checkpoint was not committed in time: %w", context.Cause(ctx))
	}
}
