package chaostest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/inject"
	"github.com/weirdb/weir/internal/pause"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// heal ends everything that is broken, and waits until the group is whole (C7).
func (w *world) heal(ctx context.Context) error {
	for _, l := range w.later {
		l.do()
	}
	w.later = nil
	w.net.heal()
	for _, n := range w.all {
		w.wake(n)
	}
	w.history.log("HEALED")
	began := time.Now()
	// One that was damaged is replaced, also when nobody has noticed: what its log holds is not to be relied on.
	for _, n := range w.nodes(func(n *node) bool { return n.state == member && n.damaged != "" }) {
		if !n.runs() && !n.down {
			w.sum.sometimes["a damaged node that stopped later"]++
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		w.replace(n)
	}
	for _, n := range w.nodes(func(n *node) bool { return n.state == member && n.full && !n.down }) {
		if !n.runs() {
			w.sum.sometimes["a node that stopped because its disk was full"]++
		}
		n.kill() // it may be about to stop
	}
	if err := w.haveStopped(ctx); err != nil {
		return err
	}
	for _, n := range w.nodes(func(n *node) bool { return n.state == member && (n.down || !n.runs()) }) {
		if err := w.startNode(n); err != nil {
			return err
		}
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	for _, n := range w.nodes(func(n *node) bool { return n.state == member }) {
		if err := w.ready(ctx, n); err != nil {
			return err
		}
	}
	if err := w.restore(ctx); err != nil {
		return err
	}
	if err := w.check(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	w.history.log("WHOLE after %s", took.Round(time.Millisecond))
	w.sum.heals = append(w.sum.heals, took)
	w.longest = max(w.longest, took)
	return nil
}

// until repeats a call until it succeeds, within patience.
func (w *world) until(ctx context.Context, what string, call func(context.Context) error) error {
	for ends := time.Now().Add(patience); ; {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := call(try)
		cancel()
		if err == nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var broken *violationError
		if errors.As(err, &broken) {
			return err
		}
		if time.Now().After(ends) {
			return violation("C7: %s: still not %s after everything was healed: %v", what, patience, err)
		}
		w.history.log("%s: %s", what, short(err))
		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// restore undoes what administrators have done.
func (w *world) restore(ctx context.Context) error {
	for _, n := range w.drained {
		if n.state != member {
			continue
		}
		if err := w.until(ctx, n.name+" may lead again", func(ctx context.Context) error {
			_, err := w.client.DrainNode(ctx, n.name, true)
			if e := reasonOf(err); e != nil && e.Reason == dataflow.ReasonNodeConflict {
				return nil // it was not drained
			}
			return err
		}); err != nil {
			return err
		}
	}
	w.drained = nil
	for p := range w.stopped {
		if err := w.until(ctx, p+" is resumed", func(ctx context.Context) error {
			pl, err := w.client.GetPipeline(ctx, p)
			if err == nil && pl.GetState() != weirv1.PipelineState_PIPELINE_STATE_RUNNING {
				if pl.GetState() == weirv1.PipelineState_PIPELINE_STATE_FAILED {
					return violation("C7: %s has failed: %v", p, pl.GetFailure())
				}
				if _, err = w.client.ResumePipeline(ctx, p, false); err == nil {
					err = fmt.Errorf("it is %s", pl.GetState())
				}
			}
			return err
		}); err != nil {
			return err
		}
	}
	clear(w.stopped)
	return nil
}

// whole checks that every node takes rows, commits and answers, and that all hold the same: what a copy lacks may be made good by
// what comes later.
func (w *world) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	members := w.nodes(func(n *node) bool { return n.state == member })
	late := func(what string, n *node, err error) error {
		if w.ctx.Err() != nil {
			return w.ctx.Err()
		}
		return violation("C7: %s %s after everything was healed: %s: %v", n.name, patience, what, err)
	}
	for _, n := range members {
		r, err := w.probe.append(ctx, 2, n)
		if err != nil {
			return err
		}
		if r == nil {
			return late("it takes no rows", n, ctx.Err())
		}
	}
	if err := w.covered(ctx, w.probe.token, late); err != nil {
		return err
	}
	return w.equalCopies(ctx)
}

// covered waits until every node answers from cuts that cover a token.
func (w *world) covered(ctx context.Context, token string, late func(string, *node, error) error) error {
	for _, n := range w.nodes(func(n *node) bool { return n.state == member }) {
		for {
			call, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err := w.ask(call, n, "probe", w.audits["bank"], "balances", "", &weirv1.QueryRequest{MinToken: token})
			if err == nil {
				_, err = w.ask(call, n, "probe", w.audits["words"], "counts", "", &weirv1.QueryRequest{})
			}
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, errAway) {
				return err
			}
			if ctx.Err() != nil || pause.For(ctx, 50*time.Millisecond) != nil {
				return late("it does not answer from a new cut", n, err)
			}
		}
	}
	return nil
}

// finish lets the actors end, and compares everything.
func (w *world) finish(ctx context.Context) error {
	w.done.Store(true)
	ended := make(chan struct{})
	go func() {
		// All but those that run until ctx ends.
		for _, s := range w.senders {
			for s.busy.Load() && pause.For(ctx, 10*time.Millisecond) == nil {
			}
		}
		for _, p := range w.producers {
			for p.acked.Load() < p.sent.Load() && pause.For(ctx, 10*time.Millisecond) == nil {
			}
		}
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		return violation("C7: what was sent is not acknowledged %s after everything was healed", patience)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.compareNodes(ctx); err != nil {
		return err
	}
	if err := w.compareLogs(ctx); err != nil {
		return err
	}
	return w.complaints()
}

// compareNodes waits until every node has everything, and compares digests (C8).
func (w *world) compareNodes(ctx context.Context) error {
	members := w.nodes(func(n *node) bool { return n.state == member })
	for _, token := range []string{w.senders[0].token, w.senders[1].token, w.producers[0].token, w.producers[1].token, w.probe.token} {
		if token == "" {
			continue
		}
		for _, n := range members {
			if err := w.until(ctx, n.name+" commits", func(ctx context.Context) error {
				_, err := weirv1.NewPipelineServiceClient(n.conn).WaitToken(ctx, &weirv1.WaitTokenRequest{
					Token: token, WaitFor: weirv1.WaitFor_WAIT_FOR_COMMITTED, Pipelines: []string{},
				})
				return err
			}); err != nil {
				return err
			}
		}
	}
	for _, n := range members {
		for _, p := range pipelines[:2] {
			for table := range p.tables {
				if err := w.until(ctx, fmt.Sprintf("%s answers of %s.%s", n.name, p.name, table), func(ctx context.Context) error {
					_, err := w.ask(ctx, n, "the end", w.audits[p.name], table, "", &weirv1.QueryRequest{MinToken: w.probe.token})
					return err
				}); err != nil {
					return err
				}
			}
		}
	}
	if err := w.equalCopies(ctx); err != nil {
		return err
	}
	// The same as an operator asks for it.
	return w.until(ctx, "weir cluster verify", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, w.bin, "cluster", "verify", "--addr", strings.Join(w.client.Addrs(), ",")).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// equalCopies compares the digests of what all nodes hold (C8).
func (w *world) equalCopies(ctx context.Context) error {
	return w.until(ctx, "the copies are equal", func(ctx context.Context) error {
		r, err := w.client.VerifyCluster(ctx)
		if err != nil {
			return err
		}
		for _, v := range r.GetVerified() {
			for _, c := range v.GetReplicas() {
				if c.GetProblem() != "" {
					return fmt.Errorf("%s, shard %d, cut %d: %s: %s", v.GetPipeline(), v.GetShard(), v.GetCheckpoint(), c.GetNode(), c.GetProblem())
				}
			}
			if !v.GetEqual() {
				return violation("C8: %s, shard %d: the copies differ at cut %d: %v", v.GetPipeline(), v.GetShard(), v.GetCheckpoint(), v.GetReplicas())
			}
		}
		return nil
	})
}

// compareLogs reads the logs back, and compares them with what was sent and all answers with them.
func (w *world) compareLogs(ctx context.Context) error {
	logs := make(map[string]*streamLog)
	if err := w.until(ctx, "the logs are read", func(context.Context) error {
		transfers, err := readLog(ctx, w.client, "transfers", shards, makeTransfer, func(t transfer) (string, int64) { return t.Sender, t.N })
		if err != nil {
			return err
		}
		lines, err := readLog(ctx, w.client, "lines", shards, makeLine, func(l line) (string, int64) { return l.Sender, l.N })
		logs["transfers"], logs["lines"] = transfers, lines
		return err
	}); err != nil {
		return err
	}
	for _, s := range append([]*sender{w.probe}, w.senders...) {
		w.acked += s.acked.Load()
		if err := logs["transfers"].holds(s.name, s.acked.Load(), s.sent.Load()); err != nil {
			return err
		}
	}
	for _, p := range w.producers {
		w.acked += p.acked.Load()
		if err := logs["lines"].holds(p.name, p.acked.Load(), p.sent.Load()); err != nil {
			return err
		}
	}
	w.stop() // nobody asks from here on
	w.beside.Wait()
	for _, a := range w.audits {
		n, err := a.compare(logs[a.p.stream])
		w.compared += n
		if err != nil {
			return err
		}
	}
	most := pipelines[1].model().(*wordModel)
	for _, rows := range logs["lines"].rows {
		for _, row := range rows {
			most.apply(row)
		}
	}
	for word, n := range w.liveMost {
		if n > most.counts[word] {
			return violation("C2: a live answer counts %s %d times, the log %d times", word, n, most.counts[word])
		}
	}
	return nil
}

// complaints looks for what no server may write, whatever breaks (C6), and counts what is good to know.
func (w *world) complaints() error {
	var bad []string
	for _, n := range w.all {
		failing := false // a sync was made to fail in this life: more fails because of that
		if err := n.lines(func(l string) {
			failing = failing && !strings.HasPrefix(l, "---- life") || strings.Contains(l, inject.ErrSync.Error())
			for what, marks := range said {
				for _, m := range marks {
					if strings.Contains(l, m) {
						w.sum.sometimes[what]++
					}
				}
			}
			switch {
			case strings.HasPrefix(l, "panic:"), strings.HasPrefix(l, "fatal error:"), strings.Contains(l, "DATA RACE"), strings.Contains(l, "panicked"):
			case strings.Contains(l, "level=ERROR") && n.damaged == "" && n != w.disk && !failing:
			default:
				return
			}
			bad = append(bad, n.name+": "+l)
		}); err != nil {
			return err
		}
	}
	if len(bad) > 0 {
		return violation("C6: %d complaints in the servers' logs:\n%s", len(bad), strings.Join(bad[:min(len(bad), 10)], "\n"))
	}
	return nil
}

// said are parts of log lines that show that something happened which the test is for.
var said = map[string][]string{
	"an incarnation that began":        {`msg="incarnation begins"`},
	"a commit refused":                 {`msg="commit refused"`},
	"tasks taken over by a new leader": {`msg="tasks are taken over"`},
	"a replica rebuilt from another":   {`msg="a replica that was brought is in its place"`},
}
