package sim

import (
	"errors"
	"flag"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/raftlog/shard"
)

var mutantSeeds = flag.Int("mutant-seeds", 5000, "within how many seeds each mutant must be found")

// mutants are defects that the simulation can be given, each with what it breaks. Most are in what is modelled or in the
// wrapping of a machine: the code of the product has no hooks for them.
var mutants = []struct{ name, breaks string }{
	{"ack-before-quorum", "a shard's leader answers an append that no majority has"},
	{"snapshot-without-dedup", "a shard's snapshot leaves out what it knows of producers and keys"},
	{"snapshot-without-deltas", "a shard's snapshot leaves out the deltas that are not settled"},
	{"deltas-of-older-incarnations", "a shard takes deltas of an incarnation that is over (P2)"},
	{"epoch-not-checked", "a shard takes rows of a producer's older session (P8)"},
	{"commits-of-older-incarnations", "the meta log takes a commit of an incarnation that is over (P2), and blocks of numbers fence none (P3): each alone is caught by the other"},
	{"acks-of-older-incarnations", "a coordinator takes an acknowledgement of another attempt for its own"},
	{"attempt-numbers-reused", "a new coordinator goes on with the block of the one before (P3)"},
	{"base-newest-known", "tasks start from the newest cut that their node knows (P4)"},
	{"rows-lost-on-recovery", "sources go on at the stream's end instead of the base's positions"},
	{"barrier-not-aligned", "a task takes its snapshot at the first barrier that comes"},
	{"half-a-barrier", "a barrier that a deposed coordinator has put in at some nodes only stays out of the others"},
	{"positions-after-barrier", "a source says where it stands, not where it put the barrier in"},
	{"ack-before-delta", "an attempt is acknowledged before its delta is committed"},
	{"edge-resumes", "an edge between tasks goes on after it has lost a message"},
	{"settle-past-floor", "deltas are folded up to the newest cut instead of the release floor (P6)"},
	{"trim-past-claims", "rows are trimmed that a pipeline still needs (P6)"},
	{"reads-from-live-state", "committed reads are answered from the tasks' tables"},
	{"token-ignored", "a read looks at no session token"},
	{"read-without-barrier", "a linearizable read trusts a leader that may be deposed"},
	{"votes-twice", "a member votes twice in a term"},
	{"clock-in-apply", "a state machine takes the time of its node instead of the entry's"},
}

// applyShardMutated lets a shard take what it has refused.
func (w *world) applyShardMutated(m *shard.Machine, index uint64, e *entry, out shard.Outcome) shard.Outcome {
	again := func(cmd []byte) shard.Outcome {
		out, err := m.Apply(dataflow.LogIndex(index), cmd)
		if err != nil {
			w.fail("P2", "entry %d: %v", index, err)
		}
		return out
	}
	switch i := e.info.(type) {
	case *deltaInfo:
		if w.mutant != "deltas-of-older-incarnations" || !errors.Is(out.Err, shard.ErrStaleIncarnation) {
			break
		}
		if p, ok := m.Pipeline(i.id.Pipeline); ok {
			as := *i
			as.id.Incarnation, as.id.Seq = p.Incarnation, p.Last.Seq+1
			return again(as.entry().cmd)
		}
	case *appendInfo:
		if w.mutant != "epoch-not-checked" || dataflow.ReasonOf(out.Err) != dataflow.ReasonProducerFenced {
			break
		}
		for epoch := i.a.Epoch + 1; epoch < i.a.Epoch+20; epoch++ {
			a := i.a
			a.Epoch = epoch
			cmd, _ := shard.AppendEntry(a, 1000)
			if o := again(cmd); o.Err == nil {
				return o
			}
		}
	}
	return out
}

// applyMetaMutated lets the meta log take what it has refused.
func (w *world) applyMetaMutated(f *meta.FSM, index uint64, e *entry, err error) any {
	if w.mutant != "commits-of-older-incarnations" || !errors.Is(err, meta.ErrStaleIncarnation) {
		return err
	}
	var cmd metav1.Command
	if proto.Unmarshal(e.cmd, &cmd) != nil {
		return err
	}
	c, ok := cmd.Command.(*metav1.Command_CommitCheckpoint)
	if !ok {
		return err
	}
	p := f.State().Pipelines[dataflow.PipelineUID(c.CommitCheckpoint.Checkpoint.Pipeline)]
	c.CommitCheckpoint.Checkpoint.Incarnation = uint64(p.Incarnation)
	b, merr := proto.Marshal(&cmd)
	if merr != nil {
		return err
	}
	return f.Apply(dataflow.LogIndex(index), b)
}

// TestMutants: each defect is found within -mutant-seeds seeds. A simulation that finds none of them proves nothing.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	table := make([]string, len(mutants))
	t.Cleanup(func() { t.Logf("mutant, seed that found it, invariant:\n%s", strings.Join(table, "\n")) })
	var mu sync.Mutex
	for i, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= uint64(*mutantSeeds); seed++ {
				w := newWorld(seed, m.name, false)
				if v := w.run(); v != nil {
					mu.Lock()
					table[i] = m.name + "\t" + strconv.FormatUint(seed, 10) + "\t" + v.Error()
					mu.Unlock()
					return
				}
			}
			t.Errorf("%s is not found in %d seeds", m.breaks, *mutantSeeds)
		})
	}
}
