package chaostest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// fault is one way to break the group.
type fault struct {
	name   string
	weight int
	// do breaks something and returns what, in words; "" = it cannot be done now.
	do func(w *world, ctx context.Context) (string, error)
}

var faults = []fault{
	{"kill", 3, (*world).killAny},
	{"kill meta leader", 3, (*world).killMetaLeader},
	{"kill shard leader", 4, (*world).killShardLeader},
	{"kill all", 1, (*world).killAll},
	{"restart", 2, (*world).restart},
	{"pause", 2, (*world).pauseShort},
	{"pause leader", 3, (*world).pauseLeader},
	{"isolate", 2, (*world).isolate},
	{"isolate one way", 2, (*world).isolateOneWay},
	{"cut pair", 2, (*world).cutPair},
	{"cut one way", 2, (*world).cutOneWay},
	{"delay", 2, (*world).delay},
	{"slow", 1, (*world).slow},
	{"half-open", 2, (*world).halfOpen},
	{"refuse", 1, (*world).refuse},
	{"reset", 2, (*world).resetPair},
	{"drain", 1, (*world).drain},
	{"rebalance", 1, (*world).rebalance},
	{"add and remove", 1, (*world).replaceSound},
	{"empty a node", 1, (*world).emptyNode},
	{"damage a file", 2, (*world).damage},
	{"fill a disk", 2, (*world).fillDisk},
	{"clock jumps", 2, (*world).jumpClock},
	{"slow disk", 2, (*world).slowDisk},
	{"failing disk", 2, (*world).failDisk},
	{"pipeline", 2, (*world).pipelineComesAndGoes},
	{"stop and resume", 1, (*world).stopAndResume},
}

// choose returns a fault: any by weight, or one of those that this process has met least.
func (w *world) choose() *fault {
	if w.rng.IntN(2) == 0 {
		var least []*fault
		for i := range faults {
			f := &faults[i]
			switch {
			case len(least) == 0 || w.sum.faults[f.name] < w.sum.faults[least[0].name]:
				least = []*fault{f}
			case w.sum.faults[f.name] == w.sum.faults[least[0].name]:
				least = append(least, f)
			}
		}
		return least[w.rng.IntN(len(least))]
	}
	n := 0
	for _, f := range faults {
		n += f.weight
	}
	n = w.rng.IntN(n)
	for i := range faults {
		if n -= faults[i].weight; n < 0 {
			return &faults[i]
		}
	}
	return nil
}

// fault breaks something, after it has mended some of what was broken before.
func (w *world) fault(ctx context.Context) error {
	now := time.Now()
	w.later = slices.DeleteFunc(w.later, func(l undo) bool {
		if now.Before(l.at) {
			return false
		}
		l.do()
		return true
	})
	if down := w.nodes(func(n *node) bool { return n.state != spare && n.state != departed && n.down }); len(down) > 0 && w.rng.IntN(2) == 0 {
		n := down[w.rng.IntN(len(down))]
		if err := w.startNode(n); err != nil {
			return err
		}
	}
	for range 20 {
		f := w.choose()
		what, err := f.do(w, ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if what != "" {
			w.sum.faults[f.name]++
			w.faults++
			w.history.log("FAULT %d, %s: %s", w.faults, f.name, what)
			break
		}
	}
	return pause.For(ctx, w.between(200*time.Millisecond, 2500*time.Millisecond))
}

func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)))
}

// undo ends something at a time, or when everything is healed.
type undo struct {
	at time.Time
	do func()
}

func (w *world) undoIn(d time.Duration, do func()) {
	w.later = append(w.later, undo{time.Now().Add(d), do})
}

// nodes returns those that are chosen, in order.
func (w *world) nodes(chosen func(*node) bool) []*node {
	var out []*node
	for _, n := range w.all {
		if chosen(n) {
			out = append(out, n)
		}
	}
	return out
}

// up returns the nodes that run, of those that belong to the group.
func (w *world) up() []*node {
	return w.nodes(func(n *node) bool { return n.state == member && !n.down && !n.paused && n.runs() })
}

func (w *world) anyUp() *node {
	up := w.up()
	if len(up) < 2 {
		return nil // one at least is left to look at
	}
	return up[w.rng.IntN(len(up))]
}

func (w *world) startNode(n *node) error {
	w.history.log("start %s", n.name)
	if err := n.start(w.bin); err != nil {
		return err
	}
	n.expect(n.damaged != "" || n.failing || n.state == leaving) // one that has left meanwhile ends
	return nil
}

// leaders returns the nodes that lead, as any node knows.
func (w *world) leaders(ctx context.Context) (meta string, shards []string) {
	for _, n := range w.up() {
		call, cancel := context.WithTimeout(ctx, time.Second)
		r, err := weirv1.NewClusterServiceClient(n.conn).GetStatus(call, &weirv1.GetStatusRequest{})
		cancel()
		if err != nil {
			continue
		}
		for _, l := range r.GetShardLogs() {
			shards = append(shards, l.GetLeader())
		}
		return r.GetMeta().GetLeader(), shards
	}
	return "", nil
}

func (w *world) byName(name string) *node {
	for _, n := range w.all {
		if n.name == name {
			return n
		}
	}
	return nil
}

// killing kills a node and counts what it was at.
func (w *world) killing(n *node, leads bool) {
	busy := false
	for _, s := range w.senders {
		busy = busy || s.busy.Load()
	}
	n.kill()
	if leads && busy {
		w.sum.sometimes["a leader killed while an append was under way"]++
	}
}

func (w *world) killAny(context.Context) (string, error) {
	n := w.anyUp()
	if n == nil {
		return "", nil
	}
	w.killing(n, false)
	return n.name, nil
}

func (w *world) killMetaLeader(ctx context.Context) (string, error) {
	if len(w.up()) < 2 {
		return "", nil
	}
	meta, _ := w.leaders(ctx)
	n := w.byName(meta)
	if n == nil || n.down || n.paused {
		return "", nil
	}
	w.killing(n, false)
	return n.name, nil
}

func (w *world) killShardLeader(ctx context.Context) (string, error) {
	if len(w.up()) < 2 {
		return "", nil
	}
	_, shards := w.leaders(ctx)
	if len(shards) == 0 {
		return "", nil
	}
	i := w.rng.IntN(len(shards))
	n := w.byName(shards[i])
	if n == nil || n.down || n.paused {
		return "", nil
	}
	w.killing(n, true)
	return fmt.Sprintf("%s, of shard %d", n.name, i), nil
}

// killAll kills all nodes and starts them again in any order.
func (w *world) killAll(ctx context.Context) (string, error) {
	if w.rng.IntN(2) == 0 {
		return "", nil // it takes long
	}
	all := w.nodes(func(n *node) bool { return n.state == member })
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, n := range all {
		n.kill()
	}
	var order []string
	for _, n := range all {
		if err := pause.For(ctx, w.between(0, 700*time.Millisecond)); err != nil {
			return "", err
		}
		if err := w.startNode(n); err != nil {
			return "", err
		}
		order = append(order, n.name)
	}
	w.sum.sometimes["a cold start of the whole group"]++
	return "started again in the order " + strings.Join(order, ", "), nil
}

func (w *world) restart(context.Context) (string, error) {
	n := w.anyUp()
	if n == nil || n.damaged != "" || n.full || n.failing {
		return "", nil
	}
	if err := n.stop(); err != nil {
		return "", err
	}
	return n.name + " in order", w.startNode(n)
}

func (w *world) pausing(n *node, d time.Duration) {
	n.paused = true
	_ = n.signal(syscall.SIGSTOP)
	w.undoIn(d, func() { w.wake(n) })
}

func (w *world) wake(n *node) {
	if n.paused {
		n.paused = false
		_ = n.signal(syscall.SIGCONT)
		w.history.log("%s goes on", n.name)
	}
}

func (w *world) pauseShort(context.Context) (string, error) {
	n := w.anyUp()
	if n == nil {
		return "", nil
	}
	d := w.between(100*time.Millisecond, 2*time.Second)
	w.pausing(n, d)
	return fmt.Sprintf("%s for %s", n.name, d.Round(time.Millisecond)), nil
}

// pauseLeader lets a leader sleep for longer than an election takes: it wakes as one that does not know of it.
func (w *world) pauseLeader(ctx context.Context) (string, error) {
	if len(w.up()) < 2 {
		return "", nil
	}
	meta, shards := w.leaders(ctx)
	n := w.byName(append(shards, meta)[w.rng.IntN(len(shards)+1)])
	if n == nil || n.down || n.paused {
		return "", nil
	}
	n.paused = true
	_ = n.signal(syscall.SIGSTOP)
	d := w.between(2*electionTimeout, 5*electionTimeout)
	w.undoIn(d, func() {
		if n.paused {
			if m, s := w.leaders(ctx); s != nil && m != n.name && !slices.Contains(s, n.name) && !slices.Contains(append(s, m), "") {
				w.sum.sometimes["a leader that was replaced while it slept"]++
			}
		}
		w.wake(n)
	})
	return fmt.Sprintf("%s for %s", n.name, d.Round(time.Millisecond)), nil
}

// others returns the names of the other nodes of the group.
func (w *world) others(n *node) []string {
	var out []string
	for _, o := range w.nodes(func(o *node) bool { return o != n && o.state != spare && o.state != departed }) {
		out = append(out, o.name)
	}
	return out
}

// pair returns two nodes of the group.
func (w *world) pair() (a, b string) {
	all := w.nodes(func(n *node) bool { return n.state == member })
	i := w.rng.IntN(len(all))
	j := (i + 1 + w.rng.IntN(len(all)-1)) % len(all)
	return all[i].name, all[j].name
}

// over ends a rule between two nodes after a while.
func (w *world) over(pairs [][2]string, r rule) string {
	d := w.between(300*time.Millisecond, 5*time.Second)
	for _, p := range pairs {
		w.net.set(p[0], p[1], r)
	}
	w.undoIn(d, func() {
		for _, p := range pairs {
			w.net.set(p[0], p[1], rule{})
			if r.swallow {
				w.net.reset(p[0], p[1])
			}
		}
	})
	return fmt.Sprintf(" for %s", d.Round(time.Millisecond))
}

func (w *world) isolate(context.Context) (string, error) {
	all := w.nodes(func(n *node) bool { return n.state == member })
	n := all[w.rng.IntN(len(all))]
	var pairs [][2]string
	for _, o := range w.others(n) {
		pairs = append(pairs, [2]string{n.name, o}, [2]string{o, n.name})
	}
	return n.name + w.over(pairs, rule{cut: true}), nil
}

func (w *world) isolateOneWay(context.Context) (string, error) {
	all := w.nodes(func(n *node) bool { return n.state == member })
	n := all[w.rng.IntN(len(all))]
	what, out := n.name+" hears nobody", w.rng.IntN(2) == 0
	if out {
		what = n.name + " is heard by nobody"
	}
	var pairs [][2]string
	for _, o := range w.others(n) {
		if out {
			pairs = append(pairs, [2]string{n.name, o})
		} else {
			pairs = append(pairs, [2]string{o, n.name})
		}
	}
	return what + w.over(pairs, rule{cut: true}), nil
}

func (w *world) cutPair(context.Context) (string, error) {
	a, b := w.pair()
	return a + " – " + b + w.over([][2]string{{a, b}, {b, a}}, rule{cut: true}), nil
}

func (w *world) cutOneWay(context.Context) (string, error) {
	a, b := w.pair()
	return a + " → " + b + w.over([][2]string{{a, b}}, rule{cut: true}), nil
}

func (w *world) delay(context.Context) (string, error) {
	d := w.between(2*time.Millisecond, 150*time.Millisecond)
	a, b := w.pair()
	pairs := [][2]string{{a, b}}
	if w.rng.IntN(2) == 0 {
		pairs = append(pairs, [2]string{b, a})
	}
	return fmt.Sprintf("%s, %v", d.Round(time.Millisecond), pairs) + w.over(pairs, rule{delay: d}), nil
}

func (w *world) slow(context.Context) (string, error) {
	a, b := w.pair()
	rate := 20_000 + w.rng.IntN(200_000)
	return fmt.Sprintf("%s – %s at %d bytes/s", a, b, rate) + w.over([][2]string{{a, b}, {b, a}}, rule{rate: rate}), nil
}

func (w *world) halfOpen(context.Context) (string, error) {
	a, b := w.pair()
	return a + " → " + b + w.over([][2]string{{a, b}}, rule{swallow: true}), nil
}

func (w *world) refuse(context.Context) (string, error) {
	a, b := w.pair()
	n := w.net.reset(a, b)
	return fmt.Sprintf("%s – %s, %d connections broken", a, b, n) + w.over([][2]string{{a, b}, {b, a}}, rule{refuse: true}), nil
}

func (w *world) resetPair(context.Context) (string, error) {
	a, b := w.pair()
	return fmt.Sprintf("%d connections of %s and %s", w.net.reset(a, b), a, b), nil
}

// admin makes a call that the faults may keep from being answered.
func (w *world) admin(ctx context.Context, what string, call func(context.Context) error) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	err := call(ctx)
	switch {
	case err == nil:
		return what, nil
	case errors.Is(explain(what, err, dataflow.ReasonNodeConflict, dataflow.ReasonNodeNotFound, dataflow.ReasonPipelineState, dataflow.ReasonPipelineNotFound, dataflow.ReasonPipelineExists), errAway):
		return what + ", not answered: " + short(err), nil
	}
	return "", explain(what, err)
}

func (w *world) drain(ctx context.Context) (string, error) {
	all := w.nodes(func(n *node) bool { return n.state == member })
	n := all[w.rng.IntN(len(all))]
	w.drained = append(w.drained, n)
	return w.admin(ctx, n.name, func(ctx context.Context) error {
		_, err := w.client.DrainNode(ctx, n.name, false)
		return err
	})
}

func (w *world) rebalance(ctx context.Context) (string, error) {
	return w.admin(ctx, "the leads", func(ctx context.Context) error {
		_, err := w.client.Rebalance(ctx)
		return err
	})
}

func (w *world) pipelineComesAndGoes(ctx context.Context) (string, error) {
	switch w.rng.IntN(6) {
	case 0, 1:
		return w.admin(ctx, "deploy extra", func(ctx context.Context) error {
			_, err := w.client.Deploy(ctx, weir.Deploy{Pipeline: "extra", SQL: extraSQL})
			return err
		})
	case 2:
		return w.admin(ctx, "delete extra", func(ctx context.Context) error {
			_, err := w.client.DeletePipeline(ctx, "extra")
			return err
		})
	case 3:
		return w.admin(ctx, "stop extra", func(ctx context.Context) error {
			_, err := w.client.StopPipeline(ctx, "extra")
			return err
		})
	case 4:
		return w.admin(ctx, "resume extra", func(ctx context.Context) error {
			_, err := w.client.ResumePipeline(ctx, "extra", false)
			return err
		})
	}
	return w.admin(ctx, "checkpoint words", func(ctx context.Context) error {
		_, err := w.client.TriggerCheckpoint(ctx, "words", true)
		return err
	})
}

func (w *world) stopAndResume(ctx context.Context) (string, error) {
	p := pipelines[w.rng.IntN(2)].name
	what, err := w.admin(ctx, "stop "+p, func(ctx context.Context) error {
		_, err := w.client.StopPipeline(ctx, p)
		return err
	})
	w.stopped[p] = true
	return what, err
}

// replaceSound has a new node take the place of one that is well.
func (w *world) replaceSound(context.Context) (string, error) {
	n := w.anyUp()
	if n == nil || !w.replace(n) {
		return "", nil
	}
	return n.name + " is to leave", nil
}

// emptyNode takes a node's directory away. Under its old name it must not come back.
func (w *world) emptyNode(ctx context.Context) (string, error) {
	n := w.anyUp()
	if n == nil || w.disk == n || w.busyWithNodes() || w.spares() == 0 {
		return "", nil
	}
	n.kill()
	if err := os.RemoveAll(n.dir); err != nil {
		return "", err
	}
	w.history.log("%s was emptied", n.name)
	if err := w.startNode(n); err != nil {
		return "", err
	}
	n.expect(true)
	refused := false
	for ends := time.Now().Add(10 * time.Second); time.Now().Before(ends) && !refused; {
		if n.serves(ctx) {
			return "", violation("C9: %s serves under its old name, after its directory was emptied", n.name)
		}
		refused = !n.runs()
		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return "", err
		}
	}
	n.kill()
	what := n.name + ", which found nobody to ask"
	if refused {
		w.sum.sometimes["an emptied node refused under its old name"]++
		what = n.name + ", which was refused under its old name"
	}
	w.replace(n)
	return what, nil
}

// damage flips a bit of a file of a node that is down.
func (w *world) damage(ctx context.Context) (string, error) {
	n := w.anyUp()
	if n == nil || w.busyWithNodes() || w.spares() == 0 {
		return "", nil
	}
	n.kill()
	what, err := flip(w.rng, n.dir)
	if err != nil {
		return "", err
	}
	n.damaged = what
	w.mu.Lock()
	w.mu.harmed[n.name] = true
	w.mu.Unlock()
	if err := w.startNode(n); err != nil {
		return "", err
	}
	for ends := time.Now().Add(5 * time.Second); time.Now().Before(ends) && n.runs() && !n.serves(ctx); {
		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return "", err
		}
	}
	if n.runs() {
		w.sum.sometimes["a damaged node that started all the same"]++
		return fmt.Sprintf("%s: %s; it starts", n.name, what), nil
	}
	w.sum.sometimes["a damaged node that refused to start"]++
	n.down = true
	w.replace(n)
	return fmt.Sprintf("%s: %s; it refuses to start", n.name, what), nil
}

// flip flips a bit of a file, at random: one kind of file is as likely as another.
func flip(rng *rand.Rand, dir string) (string, error) {
	kinds := make(map[string][]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() == 0 {
			return err
		}
		kind := filepath.Ext(path)
		if kind == "" {
			kind, _, _ = strings.Cut(filepath.Base(path), "-")
		}
		kinds[kind] = append(kinds[kind], path)
		return nil
	})
	if err != nil {
		return "", err
	}
	var names []string
	for k := range kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	files := kinds[names[rng.IntN(len(names))]]
	path := files[rng.IntN(len(files))]
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	// Files that were made long have zeros at their end that mean nothing: most bits that are flipped are not there.
	used := len(b)
	for used > 1 && b[used-1] == 0 && rng.IntN(1<<20) != 0 {
		used--
	}
	i, bit := rng.IntN(used), rng.IntN(8)
	b[i] ^= 1 << bit
	rel, _ := filepath.Rel(dir, path)
	return fmt.Sprintf("bit %d of byte %d of %d in %s is flipped", bit, i, len(b), rel), os.WriteFile(path, b, 0o600)
}

// fillDisk leaves little or nothing of a node's disk, for a while.
func (w *world) fillDisk(context.Context) (string, error) {
	n := w.disk
	if n == nil || n.state != member || n.down || n.damaged != "" {
		return "", nil
	}
	root := filepath.Dir(n.dir)
	filler := filepath.Join(root, "filler")
	var st syscall.Statfs_t
	if err := syscall.Statfs(root, &st); err != nil {
		return "", err
	}
	free := int64(st.Bavail) * st.Bsize
	leave := int64(0)
	what := "nothing is left"
	if w.rng.IntN(2) == 0 {
		leave, what = minFreeDisk/2, "less than it needs is left"
	}
	if free <= leave {
		return "", nil
	}
	n.expect(true)
	n.full = true
	f, err := os.Create(filler)
	if err != nil {
		return "", err
	}
	// The node writes meanwhile: what is free may be less by now.
	for err = errors.ErrUnsupported; err != nil && free > leave; free -= 1 << 20 {
		err = syscall.Fallocate(int(f.Fd()), 0, 0, free-leave)
	}
	if err != nil {
		return "", errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	d := w.between(time.Second, 5*time.Second)
	w.undoIn(d, func() {
		_ = os.Remove(filler) // it may be gone with the disk
		w.history.log("%s has room again", n.name)
	})
	return fmt.Sprintf("%s: %s for %s", n.name, what, d.Round(time.Millisecond)), nil
}
