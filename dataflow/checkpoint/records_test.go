package checkpoint_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/checkpoint"
	"github.com/weirdb/weir/dataflow/state"
)

// TestRecordScenarios runs the transcripts in testdata/records: a source, and keyed instances that sum by key, as the
// books draw them. Everything happens by hand, a message at a time. Commands:
//
//	instances NAME…        keyed instances; a record goes to the one whose name is its key
//	record KEY VALUE       the source reads the next record and sends it to its instance
//	barrier N              the source puts barrier N into the stream and notes its position
//	deliver NAME           the instance takes its next message
//	commit N               every instance has frozen N: its deltas and the source's position are the checkpoint
//	reread                 the source reads the next record again, after a crash
//	crash                  everything that is not committed is lost; tables and source go back to the last commit
//	show                   positions, tables and what is under way
func TestRecordScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/records", func(t *testing.T, path string) {
		w := &world{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			args := make([]string, len(d.CmdArgs))
			for i, a := range d.CmdArgs {
				args[i] = a.Key
			}
			out, err := w.run(d.Cmd, args)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return out
		})
	})
}

type world struct {
	names     []string
	instances map[string]*instance
	log       []string // all records, for a source that reads again
	pos       int      // the source's position
	barriers  map[dataflow.CheckpointID]int
	committed struct {
		id    dataflow.CheckpointID
		pos   int
		state map[string]string
	}
}

type instance struct {
	name    string
	queue   []message
	aligner *checkpoint.Aligner[message]
	table   *state.Table
	frozen  map[dataflow.CheckpointID]*state.Frozen
}

type message struct {
	barrier dataflow.CheckpointID
	value   int
}

func (m message) String() string {
	if m.barrier != 0 {
		return fmt.Sprintf("|%d", m.barrier)
	}
	return fmt.Sprint(m.value)
}

func (w *world) run(cmd string, args []string) (string, error) {
	switch cmd {
	case "instances":
		w.names, w.instances = args, make(map[string]*instance)
		w.barriers = make(map[dataflow.CheckpointID]int)
		w.committed.state = make(map[string]string)
		w.restart()
		return w.show(), nil
	case "record":
		w.log = append(w.log, strings.Join(args, " "))
		return w.read()
	case "reread":
		if w.pos == len(w.log) {
			return "at the end of the stream\n", nil
		}
		return w.read()
	case "barrier":
		var n uint64
		fmt.Sscan(args[0], &n)
		id := dataflow.CheckpointID(n)
		w.barriers[id] = w.pos
		for _, name := range w.names {
			w.instances[name].queue = append(w.instances[name].queue, message{barrier: id})
		}
		return fmt.Sprintf("barrier %d at position %d\n", n, w.pos), nil
	case "deliver":
		return w.deliver(w.instances[args[0]])
	case "commit":
		var n uint64
		fmt.Sscan(args[0], &n)
		return w.commit(dataflow.CheckpointID(n)), nil
	case "crash":
		w.restart()
		return w.show(), nil
	case "show":
		return w.show(), nil
	}
	return "", fmt.Errorf("unknown command %s", cmd)
}

func (w *world) read() (string, error) {
	var key string
	var value int
	fmt.Sscan(w.log[w.pos], &key, &value)
	w.pos++
	in := w.instances[key]
	if in == nil {
		return "", fmt.Errorf("no instance %s", key)
	}
	in.queue = append(in.queue, message{value: value})
	return fmt.Sprintf("[%s,%d] sent, source at %d\n", key, value, w.pos), nil
}

func (w *world) deliver(in *instance) (string, error) {
	if len(in.queue) == 0 {
		return "nothing is under way\n", nil
	}
	m := in.queue[0]
	in.queue = in.queue[1:]
	if m.barrier == 0 {
		for _, d := range in.aligner.Message(0, m).Deliver {
			in.add(d.Msg.value)
		}
		return fmt.Sprintf("%s = %s\n", in.name, in.value()), nil
	}
	acts, err := in.aligner.Barrier(0, m.barrier)
	if err != nil {
		return "", err
	}
	in.frozen[acts.Aligned] = in.table.Freeze(acts.Aligned)
	if _, err := in.aligner.Resume(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s freezes %s for %d and goes on\n", in.name, in.value(), acts.Aligned), nil
}

func (in *instance) add(v int) {
	key := []byte(in.name)
	in.table.Lock()
	defer in.table.Unlock()
	s := in.table.Change(dataflow.HashKey(key), key)
	old := 0
	fmt.Sscan(string(s.Value()), &old)
	s.Set(fmt.Append(nil, old+v))
}

func (in *instance) value() string {
	v, a, _ := in.table.Get([]byte(in.name), nil)
	if a != state.Found {
		return "-"
	}
	return string(v)
}

// commit gathers what every instance froze for n. An instance that has not met the barrier makes it impossible.
func (w *world) commit(n dataflow.CheckpointID) string {
	for _, name := range w.names {
		if w.instances[name].frozen[n] == nil {
			return fmt.Sprintf("%d cannot be committed: %s has not met the barrier\n", n, name)
		}
	}
	for _, name := range w.names {
		in := w.instances[name]
		for _, id := range slices.Sorted(maps.Keys(in.frozen)) { // an attempt that was given up counts for the next (P2)
			if id > n {
				break
			}
			f := in.frozen[id]
			for !in.table.Gather(f, 1, func(key, val []byte) { w.committed.state[string(key)] = string(val) }) {
			}
			delete(in.frozen, id)
		}
	}
	w.committed.id, w.committed.pos = n, w.barriers[n]
	return w.describeCommit()
}

// restart puts every table and the source back to the last commit.
func (w *world) restart() {
	w.pos = w.committed.pos
	for _, name := range w.names {
		in := &instance{name: name, aligner: checkpoint.NewAligner[message](1), table: state.NewTable(state.Shape{KeyBytes: 16}, nil), frozen: make(map[dataflow.CheckpointID]*state.Frozen)}
		if v, ok := w.committed.state[name]; ok {
			in.table.Load([]byte(name), []byte(v))
		}
		w.instances[name] = in
	}
}

func (w *world) describeCommit() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(w.committed.state)) {
		parts = append(parts, k+"="+w.committed.state[k])
	}
	return fmt.Sprintf("committed %d: position %d, %s\n", w.committed.id, w.committed.pos, strings.Join(parts, " "))
}

func (w *world) show() string {
	var b strings.Builder
	fmt.Fprintf(&b, "source at %d\n", w.pos)
	for _, name := range w.names {
		in := w.instances[name]
		fmt.Fprintf(&b, "%s = %s, under way %v\n", name, in.value(), in.queue)
	}
	return b.String() + w.describeCommit()
}
