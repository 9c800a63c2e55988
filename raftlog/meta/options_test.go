package meta_test

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

// What an entry does not say would be a default of the program that reads it.
func TestEntriesSayEveryOption(t *testing.T) {
	m := &model{fsm: meta.NewFSM()}
	log := meta.New(m, m.fsm, func() int64 { return 1 })
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(log.Bootstrap(ctx, "test", 1))
	def := meta.StreamDefinition{Name: "s", Schema: dataflow.Schema{{Name: "x", Type: dataflow.TypeBigInt}},
		Options: []dataflow.Option{{Name: "retention", Value: "1 h"}}}
	_, _, err := log.CreateStream(ctx, def)
	must(err)
	_, _, err = log.CreatePipeline(ctx, meta.CreatePipeline{Name: "p", Fingerprint: "f", Declared: []meta.StreamDefinition{def},
		Reads: map[string]dataflow.StreamID{"s": 0}, Options: []dataflow.Option{{Name: "on_error", Value: "skip"}}})
	must(err)

	stream := []string{"max_bytes=unbounded", "retention=1 h", "retention.grace=7 days"}
	want := map[string][]string{"stream": stream, "declared": stream}
	p, err := log.State().Pipeline("p")
	must(err)
	for _, o := range p.Options.List() {
		want["pipeline"] = append(want["pipeline"], o.Name+"="+o.Value)
	}
	got := map[string][]string{}
	add := func(what string, opts []*metav1.Option) {
		for _, o := range opts {
			got[what] = append(got[what], o.GetName()+"="+o.GetValue())
		}
	}
	for _, e := range m.entries {
		var c metav1.Command
		must(proto.Unmarshal(e, &c))
		add("stream", c.GetCreateStream().GetDefinition().GetOptions())
		add("pipeline", c.GetCreatePipeline().GetOptions())
		for _, d := range c.GetCreatePipeline().GetDeclared() {
			add("declared", d.GetOptions())
		}
	}
	for what, w := range want {
		if !slices.Equal(got[what], w) {
			t.Errorf("%s: %v, want %v", what, got[what], w)
		}
	}
	if len(want["pipeline"]) < 8 {
		t.Errorf("a pipeline has the options %v", want["pipeline"])
	}
}

// The log of a group is read again by later programs: an entry that lacks an option means for ever what it meant.
func TestOptionsThatAnEntryLacksNeverChange(t *testing.T) {
	fsm := meta.NewFSM()
	apply := func(i dataflow.LogIndex, c *metav1.Command) {
		t.Helper()
		b, err := proto.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if err, refused := fsm.Apply(i, b).(error); refused {
			t.Fatal(err)
		}
	}
	apply(1, &metav1.Command{Command: &metav1.Command_Bootstrap{Bootstrap: &metav1.Bootstrap{ClusterId: "test", Shards: 1}}})
	apply(2, &metav1.Command{Command: &metav1.Command_CreateStream{CreateStream: &metav1.CreateStream{
		Definition: &metav1.StreamDefinition{Name: "s", Columns: []*metav1.Column{{Name: "x", Type: uint32(dataflow.TypeBigInt)}}}}}})
	apply(3, &metav1.Command{Command: &metav1.Command_CreatePipeline{CreatePipeline: &metav1.CreatePipeline{
		Name: "p", Reads: []*metav1.ReadStream{{Name: "s"}}}}})
	st, err := fsm.State().Stream("s")
	if err != nil {
		t.Fatal(err)
	}
	p, err := fsm.State().Pipeline("p")
	if err != nil {
		t.Fatal(err)
	}
	var got string
	for _, o := range append(p.Options.List(), st.Options.List()...) {
		got += o.Name + "=" + o.Value + "\n"
	}
	const want = `checkpoint.interval=1 s
checkpoint.max_concurrent=1
checkpoint.min_pause=0 s
checkpoint.mode=exactly_once
checkpoint.retained=3
checkpoint.timeout=10 min
checkpoint.tolerable_failures=10
on_error=fail
max_bytes=unbounded
retention=7 days
retention.grace=7 days
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
