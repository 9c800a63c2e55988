package coordinator_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/coordinator"
)

// TestScenarios runs the transcripts in testdata. Each has two commands:
//
//	new [shards=N] [option=value …]       a machine that has not been elected; options as in SET
//	step                                  one event per line: TIME EVENT [argument=value …]
//
// The output of step shows each event as it prints itself, the actions below it, and the machine after the last event.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				s.start(t, d)
				return ""
			case "step":
				return s.steps(t, d)
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

type scenario struct {
	m       *coordinator.Machine
	options dataflow.PipelineOptions
	shards  int
}

func (s *scenario) start(t *testing.T, d *datadriven.TestData) {
	s.m, s.shards = coordinator.New(), 2
	s.options = dataflow.DefaultPipelineOptions()
	for _, a := range d.CmdArgs {
		if a.Key == "shards" {
			s.shards = atoi(t, d, a.Vals[0])
			continue
		}
		s.set(t, d, a.Key, a.Vals[0])
	}
}

func (s *scenario) set(t *testing.T, d *datadriven.TestData, name, value string) {
	o, err := s.options.With([]dataflow.Option{{Name: name, Value: value}})
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	s.options = o
}

func (s *scenario) steps(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	for line := range strings.Lines(d.Input) {
		at, ev := s.parse(t, d, strings.TrimSpace(line))
		fmt.Fprintf(&out, "%s %s\n", at, ev)
		for _, a := range s.m.Step(at.Microseconds(), ev) {
			fmt.Fprintf(&out, "  → %s\n", a)
		}
	}
	out.WriteString("= " + s.m.String())
	if dl := s.m.Deadline(); dl > 0 {
		fmt.Fprintf(&out, ", tick at %s", time.Duration(dl)*time.Microsecond)
	}
	return out.String() + "\n"
}

// parse reads "1s ack n=1 i=1 shard=0 seq=3 pos=5".
func (s *scenario) parse(t *testing.T, d *datadriven.TestData, line string) (time.Duration, coordinator.Event) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		d.Fatalf(t, "want TIME EVENT, got %q", line)
	}
	at, err := time.ParseDuration(fields[0])
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	args := map[string]string{}
	for _, f := range fields[2:] {
		k, v, _ := strings.Cut(f, "=")
		args[k] = v
	}
	num := func(k string) int {
		if args[k] == "" {
			return 0
		}
		return atoi(t, d, args[k])
	}
	inc := dataflow.Incarnation(num("i"))
	switch fields[1] {
	case "elected":
		return at, coordinator.Elected{}
	case "barrier-passed":
		return at, coordinator.BarrierPassed{View: s.view(t, d, args), Running: dataflow.Incarnation(num("running"))}
	case "reserved":
		first := dataflow.CheckpointID(num("first"))
		return at, coordinator.AttemptsReserved{First: first, End: first + dataflow.CheckpointID(max(num("count"), 1))}
	case "tick":
		return at, coordinator.Tick{}
	case "dirty":
		return at, coordinator.Dirty{}
	case "room-wanted":
		return at, coordinator.RoomWanted{}
	case "trigger":
		return at, coordinator.TriggerRequested{Waiter: uint64(num("waiter")), Hold: num("hold") == 1}
	case "ack":
		shard := dataflow.ShardID(num("shard"))
		return at, coordinator.Ack{Incarnation: inc, Checkpoint: dataflow.CheckpointID(num("n")), Shard: shard,
			Seq: dataflow.DeltaSeq(num("seq")), Index: dataflow.LogIndex(num("seq") * 10), Skipped: uint64(num("skipped")),
			Positions: dataflow.Positions{{Stream: 1, Shard: shard}: dataflow.Offset(num("pos"))}}
	case "task-failed":
		return at, coordinator.TaskFailed{Incarnation: inc, Failure: dataflow.PipelineFailure{
			Reason: dataflow.ReasonInternal, Message: "connection lost"}}
	case "lead-moved":
		return at, coordinator.TaskFailed{Incarnation: inc, Failure: dataflow.PipelineFailure{
			Reason: dataflow.ReasonNotLeader, Message: "node n1 does not lead shard 0 any more"}}
	case "row-failed":
		return at, coordinator.TaskFailed{Incarnation: inc, Permanent: true, Failure: dataflow.PipelineFailure{
			Reason: dataflow.ReasonExpressionFailed, Message: "bigint out of range", View: "totals", Line: 4, Column: 8,
			HasRow: true, Row: dataflow.SourceRow{Stream: 1, Shard: 1, Offset: 7}}}
	case "started":
		return at, coordinator.TasksStarted{Incarnation: inc}
	case "stopped":
		return at, coordinator.TasksStopped{Incarnation: inc}
	case "committed":
		return at, coordinator.CommitApplied{Commit: &dataflow.CheckpointCommit{ID: dataflow.CheckpointID(num("n"))}}
	case "refused":
		return at, coordinator.CommitRefused{Checkpoint: dataflow.CheckpointID(num("n")), Err: errors.New("not the current incarnation")}
	case "begun":
		return at, coordinator.IncarnationBegun{Incarnation: inc, Base: &dataflow.CheckpointCommit{ID: dataflow.CheckpointID(num("base"))}}
	case "begin-refused":
		return at, coordinator.BeginRefused{Err: errors.New("refused"), View: s.view(t, d, args)}
	case "set":
		for k, v := range args {
			s.set(t, d, k, v)
		}
		return at, coordinator.OptionsChanged{Options: s.options}
	case "stop":
		return at, coordinator.StopRequested{}
	case "resumed":
		return at, coordinator.Resumed{}
	case "deleted":
		return at, coordinator.Deleted{}
	case "deposed":
		return at, coordinator.Deposed{}
	}
	d.Fatalf(t, "unknown event %q", fields[1])
	return 0, nil
}

func (s *scenario) view(t *testing.T, d *datadriven.TestData, args map[string]string) coordinator.View {
	v := coordinator.View{Options: s.options, Shards: s.shards, State: dataflow.PipelineRunning, Incarnation: 1}
	for k, a := range args {
		switch k {
		case "state":
			for st := dataflow.PipelineRecovering; st <= dataflow.PipelineFailed; st++ {
				if st.String() == a {
					v.State = st
				}
			}
		case "i":
			v.Incarnation = dataflow.Incarnation(atoi(t, d, a))
		case "committed":
			v.Committed = dataflow.CheckpointID(atoi(t, d, a))
		case "fresh":
			v.Fresh = true
		}
	}
	v.Base = &dataflow.CheckpointCommit{ID: v.Committed}
	return v
}

func atoi(t *testing.T, d *datadriven.TestData, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}
