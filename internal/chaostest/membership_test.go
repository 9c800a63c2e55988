package chaostest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
)

// busyWithNodes reports whether a node is being replaced, or has been harmed and is still to be: the group may lose one at a time.
func (w *world) busyWithNodes() bool {
	return w.job != nil || len(w.nodes(func(n *node) bool { return n.damaged != "" && n.state == member })) > 0
}

func (w *world) spares() int {
	return len(w.nodes(func(n *node) bool { return n.state == spare }))
}

// job is a node that takes another's place, beside everything else.
type job struct {
	old, new *node
	done     chan error
}

// replace has a new node take the place of old, which is there or not. It reports whether it can be done now.
func (w *world) replace(old *node) bool {
	spares := w.nodes(func(n *node) bool { return n.state == spare })
	if w.job != nil || len(spares) == 0 {
		return false
	}
	j := &job{old: old, new: spares[0], done: make(chan error, 1)}
	w.job = j
	// Of one that was emptied or damaged nothing is to be expected: it is not started again.
	old.state, old.down = leaving, false
	old.expect(true) // once it has left, it ends
	j.new.state = member
	w.makePresent()
	var join []string
	for _, n := range w.nodes(func(n *node) bool { return n.state == member && n != j.new }) {
		join = append(join, n.peer)
	}
	w.arm(j.new, strings.Join(join, ","), 0)
	if err := w.startNode(j.new); err != nil {
		w.fail(err)
	}
	w.history.log("%s is to take the place of %s", j.new.name, old.name)
	go func() { j.done <- w.work(w.ctx, j) }()
	return true
}

// work makes the two changes, each until it is done, whatever happens meanwhile.
func (w *world) work(ctx context.Context, j *job) error {
	steps := []struct {
		node, state string
		call        func(context.Context) error
	}{
		{j.new.name, "active", func(ctx context.Context) error { _, err := w.client.AddNode(ctx, j.new.name, j.new.peer); return err }},
		{j.old.name, "gone", func(ctx context.Context) error { _, err := w.client.RemoveNode(ctx, j.old.name, false); return err }},
	}
	for _, s := range steps {
		for {
			is, err := w.stateOf(ctx, s.node)
			if err == nil && (is == s.state || is == "drained" && s.state == "active") {
				w.history.log("%s is %s", s.node, is)
				break
			}
			if err == nil && is != "joining" && is != "leaving" {
				call, cancel := context.WithTimeout(ctx, 5*time.Second)
				err := s.call(call)
				cancel()
				if err != nil {
					w.history.log("%s is to become %s: %s", s.node, s.state, short(err))
					if err := explain("change of "+s.node, err, dataflow.ReasonNodeConflict, dataflow.ReasonNodeNotFound); !errors.Is(err, errAway) {
						return err
					}
				}
			}
			if err := pause.For(ctx, 150*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// stateOf returns what the group says of a node; "" when it does not know it.
func (w *world) stateOf(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := w.client.Status(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range st.GetNodes() {
		if n.GetNode() == name {
			return n.GetState(), nil
		}
	}
	return "", nil
}

// settle waits until the node that takes another's place has done so, and ends the other.
func (w *world) settle(ctx context.Context) error {
	if w.job == nil {
		return nil
	}
	j := w.job
	began := time.Now()
	select {
	case err := <-j.done:
		if err != nil {
			return err
		}
	case <-time.After(patience):
		is, err := w.stateOf(ctx, j.new.name)
		was, _ := w.stateOf(ctx, j.old.name) // for the message
		return violation("C7: %s has not taken the place of %s after %s: it is %q (%v), the other %q", j.new.name, j.old.name, patience, is, err, was)
	case <-ctx.Done():
		return ctx.Err()
	}
	w.job = nil
	if err := w.leaves(ctx, j.old); err != nil {
		return err
	}
	j.old.kill()
	j.old.state, j.old.down = departed, false
	w.mu.Lock()
	delete(w.mu.harmed, j.old.name)
	w.mu.Unlock()
	w.makePresent()
	w.sum.sometimes["a node that took another's place"]++
	w.history.log("%s has taken the place of %s, %s after everything was healed", j.new.name, j.old.name, time.Since(began).Round(time.Millisecond))
	return nil
}

// leaves waits until a node that has left the group ends, if it runs: it would answer from what it had then.
func (w *world) leaves(ctx context.Context, n *node) error {
	for ends := time.Now().Add(patience); n.runs(); {
		if time.Now().After(ends) {
			return violation("C7: %s has left the group and still runs after %s", n.name, patience)
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
