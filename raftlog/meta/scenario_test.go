package meta_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/raftlog/meta"
)

// model is a log of one member that applies at once. It is the second implementation of meta.Group.
type model struct {
	fsm     *meta.FSM
	index   dataflow.LogIndex
	entries [][]byte
}

var _ meta.Group = (*model)(nil)

func (m *model) Propose(_ context.Context, cmd []byte) (dataflow.LogIndex, any, error) {
	m.index++
	m.entries = append(m.entries, cmd)
	return m.index, m.fsm.Apply(m.index, cmd), nil
}

func (m *model) Barrier(context.Context) error { return nil }

// TestScenarios runs the transcripts in testdata/fsm. It has these commands:
//
//	new                   an empty log of a group with two shards
//	nothing               an empty log of no group
//	apply                 one command per line: TIME COMMAND [argument=value …]; prints the result or the refusal
//	show                  the state
//	holders stream=NAME   who holds rows of the stream
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/fsm", func(t *testing.T, path string) {
		var s *scenario
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				s = newScenario(t)
				return ""
			case "nothing":
				s = emptyScenario()
				return ""
			case "apply":
				var out strings.Builder
				for line := range strings.Lines(d.Input) {
					line = strings.TrimSpace(line)
					fmt.Fprintf(&out, "%s\n  → %s\n", line, s.apply(t, d, line))
				}
				return out.String()
			case "show":
				return show(s.log.State())
			case "holders":
				return s.holders(t, d)
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

type scenario struct {
	now int64
	log *meta.Log
}

func emptyScenario() *scenario {
	s := &scenario{}
	fsm := meta.NewFSM()
	s.log = meta.New(&model{fsm: fsm}, fsm, func() int64 { return s.now })
	return s
}

func newScenario(t *testing.T) *scenario {
	s := emptyScenario()
	if err := s.log.Bootstrap(context.Background(), "test", 2); err != nil {
		t.Fatal(err)
	}
	return s
}

type args map[string]string

func (a args) num(t *testing.T, k string) uint64 {
	if a[k] == "" {
		return 0
	}
	n, err := strconv.ParseUint(a[k], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// options reads name:value,name:value; an underscore stands for a space.
func (a args) options() []dataflow.Option {
	var out []dataflow.Option
	for o := range strings.SplitSeq(a["options"], ",") {
		if name, value, ok := strings.Cut(o, ":"); ok {
			out = append(out, dataflow.Option{Name: name, Value: strings.ReplaceAll(value, "_", " ")})
		}
	}
	return out
}

// positions reads STREAM/SHARD:OFFSET,….
func positions(t *testing.T, s string) dataflow.Positions {
	out := dataflow.Positions{}
	for p := range strings.SplitSeq(s, ",") {
		if p == "" {
			continue
		}
		var k dataflow.StreamShard
		var o dataflow.Offset
		if _, err := fmt.Sscanf(p, "%d/%d:%d", &k.Stream, &k.Shard, &o); err != nil {
			t.Fatalf("%q: %v", p, err)
		}
		out[k] = o
	}
	return out
}

func definition(name string, a args) meta.StreamDefinition {
	types := map[string]dataflow.Type{"text": dataflow.TypeText, "bigint": dataflow.TypeBigInt, "array": dataflow.LastType + 1}
	def := meta.StreamDefinition{Name: name, Options: a.options()}
	for c := range strings.SplitSeq(a["columns"], ",") {
		if col, typ, ok := strings.Cut(c, ":"); ok {
			def.Schema = append(def.Schema, dataflow.Column{Name: col, Type: types[typ]})
		}
	}
	if p := a["partition"]; p != "" {
		def.PartitionBy = []int{def.Schema.Index(p)}
	}
	return def
}

func (s *scenario) uid(a args) dataflow.PipelineUID {
	p, err := s.log.State().Pipeline(a["p"])
	if err != nil {
		return 99
	}
	return p.UID
}

func (s *scenario) apply(t *testing.T, d *datadriven.TestData, line string) string {
	ctx := context.Background()
	fields := strings.Fields(line)
	at, err := time.ParseDuration(fields[0])
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	s.now = at.Microseconds()
	a := args{}
	for _, f := range fields[2:] {
		k, v, _ := strings.Cut(f, "=")
		a[k] = v
	}
	inc := dataflow.Incarnation(a.num(t, "i"))
	switch fields[1] {
	case "bootstrap":
		return result(nil, s.log.Bootstrap(ctx, "other", int(a.num(t, "shards"))))
	case "found":
		return result(nil, s.log.Found(ctx, "other", int(a.num(t, "shards")), members(a["nodes"])))
	case "put-node":
		return result(s.log.PutMember(ctx, meta.Member{ID: a["id"], DataID: a["data"], PeerAddr: a["addr"]}))
	case "node":
		states := map[string]meta.MemberState{"joining": meta.MemberJoining, "active": meta.MemberActive, "drained": meta.MemberDrained, "leaving": meta.MemberLeaving, "gone": meta.MemberGone}
		return result(s.log.SetMemberState(ctx, a["id"], states[a["to"]]))
	case "place": // meta=NODE,… shards=NODE,…/NODE,…
		var p meta.Placement
		list := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) }
		p.Meta = list(a["meta"])
		for v := range strings.SplitSeq(a["shards"], "/") {
			p.Shards = append(p.Shards, list(v))
		}
		return result(nil, s.log.SetPlacement(ctx, a.num(t, "after"), p))
	case "replicas":
		return result(s.log.SetReplicas(ctx, int(a.num(t, "n"))))
	case "create-stream":
		st, created, err := s.log.CreateStream(ctx, definition(a["name"], a))
		if err == nil && !created {
			return fmt.Sprintf("as it was: stream %d", st.ID)
		}
		return result(st, err)
	case "set-stream":
		return result(s.log.SetStreamOptions(ctx, a["name"], a.options()))
	case "seal-stream":
		return result(s.log.SealStream(ctx, a["name"]))
	case "drop-stream":
		return result(s.log.DropStream(ctx, a["name"]))
	case "create-pipeline":
		c := meta.CreatePipeline{Name: a["name"], SQL: "SELECT", Fingerprint: a["fp"], Options: a.options(),
			Reads: map[string]dataflow.StreamID{}, Start: positions(t, a["start"]), DeployEnd: positions(t, a["end"])}
		for n := range strings.SplitSeq(a["reads"], ",") {
			name, id, _ := strings.Cut(n, ":")
			v, _ := strconv.Atoi(id)
			c.Reads[name] = dataflow.StreamID(v)
		}
		if n := a["declares"]; n != "" {
			c.Declared = []meta.StreamDefinition{definition(n, args{"columns": a["columns"]})}
		}
		p, created, err := s.log.CreatePipeline(ctx, c)
		if err == nil && !created {
			return "unchanged"
		}
		return result(p, err)
	case "delete-pipeline":
		return result(s.log.DeletePipeline(ctx, a["p"]))
	case "set":
		return result(s.log.SetOptions(ctx, s.uid(a), a.options()))
	case "stop":
		return result(s.log.Stop(ctx, s.uid(a)))
	case "resume":
		var skip []dataflow.SourceRow
		for k, o := range positions(t, a["skip"]) {
			skip = append(skip, dataflow.SourceRow{Stream: k.Stream, Shard: k.Shard, Offset: o})
		}
		return result(s.log.Resume(ctx, s.uid(a), skip...))
	case "mark-running":
		return result(s.log.MarkRunning(ctx, s.uid(a), inc))
	case "mark-stopped":
		return result(s.log.MarkStopped(ctx, s.uid(a), inc))
	case "mark-failed":
		reason := dataflow.ReasonExpressionFailed
		if a["reason"] != "" {
			reason = dataflow.Reason(a["reason"])
		}
		return result(s.log.MarkFailed(ctx, s.uid(a), dataflow.PipelineFailure{Reason: reason, Message: "bigint out of range",
			Incarnation: inc, View: "totals", Line: 4, Column: 8, HasRow: true, Row: dataflow.SourceRow{Stream: 1, Shard: 1, Offset: 7}}))
	case "reserve":
		_, fence := a["fence"]
		first, end, err := s.log.ReserveAttempts(ctx, s.uid(a), int(a.num(t, "count")), fence)
		if err != nil {
			return result(nil, err)
		}
		return fmt.Sprintf("attempts %d to %d", first, end-1)
	case "begin":
		return result(s.log.BeginIncarnation(ctx, s.uid(a), dataflow.Incarnation(a.num(t, "after")), nil, a["cause"]))
	case "commit":
		c := &dataflow.CheckpointCommit{Pipeline: s.uid(a), Incarnation: inc, ID: dataflow.CheckpointID(a.num(t, "n")),
			Guarantee: dataflow.GuaranteeExactlyOnce, TriggeredAt: s.now, Positions: positions(t, a["pos"])}
		for i := range strings.SplitSeq(a["seqs"], ",") {
			seq, _ := strconv.Atoi(i)
			c.Shards = append(c.Shards, dataflow.ShardCommit{Shard: dataflow.ShardID(len(c.Shards)), Seq: dataflow.DeltaSeq(seq),
				Index: dataflow.LogIndex(10 * seq), Skipped: a.num(t, "skipped")})
		}
		return result(s.log.CommitCheckpoint(ctx, c))
	case "lease":
		ttl, _ := time.ParseDuration(a["ttl"])
		l, err := s.log.Lease(ctx, s.uid(a), dataflow.CheckpointID(a.num(t, "n")), ttl)
		return lease(l, err)
	case "renew":
		ttl, _ := time.ParseDuration(a["ttl"])
		l, err := s.log.RenewLease(ctx, s.uid(a), a.num(t, "id"), ttl)
		return lease(l, err)
	case "release":
		return result(nil, s.log.ReleaseLease(ctx, s.uid(a), a.num(t, "id")))
	case "open-producer":
		return result(s.log.OpenProducer(ctx, a["name"], a["instance"]))
	case "expire":
		due := s.log.State().ExpireDue(s.now)
		if err := s.log.Expire(ctx); err != nil {
			return result(nil, err)
		}
		return fmt.Sprintf("was due: %t", due)
	}
	d.Fatalf(t, "unknown command %q", fields[1])
	return ""
}

func lease(l meta.Lease, err error) string {
	if err != nil {
		return result(nil, err)
	}
	return fmt.Sprintf("lease %d on %d until %s", l.ID, l.Checkpoint, span(l.ExpiresAt))
}

func result(v any, err error) string {
	if err != nil {
		s := fmt.Sprintf("%s: %v", dataflow.ReasonOf(err), err)
		for name, sentinel := range map[string]error{"stale incarnation": meta.ErrStaleIncarnation, "stale attempt": meta.ErrStaleAttempt, "bad commit": meta.ErrBadCommit} {
			if errors.Is(err, sentinel) {
				s += " {" + name + "}"
			}
		}
		return s
	}
	switch v := v.(type) {
	case nil:
		return "ok"
	case *meta.Pipeline:
		return describePipeline(v)
	case *meta.Stream:
		return describeStream(v)
	case meta.Member:
		return describeMember(v)
	}
	return fmt.Sprint(v)
}

func span(micros int64) string { return (time.Duration(micros) * time.Microsecond).String() }

// members reads NAME:DATA,….
func members(s string) []meta.Member {
	var out []meta.Member
	for n := range strings.SplitSeq(s, ",") {
		id, data, _ := strings.Cut(n, ":")
		out = append(out, meta.Member{ID: id, DataID: data, PeerAddr: id + ":7712"})
	}
	return out
}

func describeMember(m meta.Member) string {
	return fmt.Sprintf("node %s (data %s) at %s %s since %s", m.ID, m.DataID, m.PeerAddr, m.State, span(m.Since))
}

func describeStream(st *meta.Stream) string {
	s := fmt.Sprintf("stream %d %s %s", st.ID, st.Name, st.Schema)
	if len(st.PartitionBy) > 0 {
		s += fmt.Sprintf(" partition by %v", st.PartitionBy)
	}
	for _, o := range st.Options.List() {
		s += fmt.Sprintf(" %s=%s", o.Name, o.Value)
	}
	if st.Sealed {
		s += " sealed"
	}
	return s
}

func describePipeline(p *meta.Pipeline) string {
	var cuts []string
	for _, c := range p.Cuts {
		cuts = append(cuts, c.ID.String())
	}
	s := fmt.Sprintf("pipeline %d %s %s since %s i%d base %d cuts %s attempts %d to %d", p.UID, p.Name, p.State, span(p.StateSince),
		p.Incarnation, p.Base.ID, strings.Join(cuts, ","), p.AttemptsFrom, int64(p.AttemptsTo)-1)
	for _, l := range p.Leases {
		s += fmt.Sprintf(" lease %d on %d", l.ID, l.Checkpoint)
	}
	if p.Failure != nil {
		s += fmt.Sprintf(" failure {%s}", p.Failure)
	}
	if len(p.Skip) > 0 {
		s += fmt.Sprintf(" skips %v", p.Skip)
	}
	if p.ClaimExpired {
		s += " claim expired"
	}
	if !p.CaughtUp {
		s += " catching up"
	}
	return s
}

func show(s *meta.State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "index %d, time %s\n", s.Index, span(s.Now))
	for _, m := range s.Members {
		b.WriteString(describeMember(m) + "\n")
	}
	if p := s.Placement; p.Revision > 0 {
		fmt.Fprintf(&b, "placement %d: meta %s, shards %s; replicas %d\n", p.Revision, p.Meta, p.Shards, s.Replicas())
	}
	for _, st := range s.StreamList() {
		b.WriteString(describeStream(st) + "\n")
	}
	for _, p := range s.PipelineList() {
		b.WriteString(describePipeline(p) + "\n")
		for _, c := range p.Cuts {
			fmt.Fprintf(&b, "  %s at %s, entry %d\n", c, span(c.CommittedAt), c.MetaIndex)
		}
	}
	return b.String()
}

func (s *scenario) holders(t *testing.T, d *datadriven.TestData) string {
	var name string
	d.ScanArgs(t, "stream", &name)
	st, err := s.log.State().Stream(name)
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, h := range s.log.State().StreamHolders(st.ID) {
		fmt.Fprintf(&b, "%s %s holds [%s]", h.Name, h.State, h.Positions)
		if h.Until > 0 {
			fmt.Fprintf(&b, " until %s", span(h.Until))
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "nobody\n"
	}
	return b.String()
}
