package meta

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func emptyState() *State {
	return &State{
		NextStream: 1, NextPipeline: 1,
		Streams: map[dataflow.StreamID]*Stream{}, Pipelines: map[dataflow.PipelineUID]*Pipeline{},
		streamNames: map[string]dataflow.StreamID{}, pipelineNames: map[string]dataflow.PipelineUID{},
	}
}

func (s *State) bootstrap(c *metav1.Bootstrap) (any, error) {
	if c.Shards < 1 || c.Shards > dataflow.MaxShards {
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "a group has 1 to %d shards, not %d", dataflow.MaxShards, c.Shards)
	}
	switch {
	case s.Shards == 0:
		if err := s.foundMembers(c.Members); err != nil {
			return nil, err
		}
		s.ClusterID, s.Shards = c.ClusterId, int(c.Shards)
	case s.Shards != int(c.Shards):
		return nil, dataflow.Errorf(dataflow.ReasonRequestInvalid, "this group was made with %d shards, which cannot become %d", s.Shards, c.Shards).
			WithHint("start the server without --shards, or with an empty data directory")
	}
	return none{}, nil
}

func (s *State) createStream(c *metav1.CreateStream) (any, error) {
	want, err := decodeStream(c.Definition)
	if err != nil {
		return nil, err
	}
	st, created, err := s.ensureStream(want)
	if err != nil {
		return nil, err
	}
	return streamResult{st, created}, nil
}

// ensureStream returns the stream that want describes, creating it when there is none of its name.
func (s *State) ensureStream(want *Stream) (st *Stream, created bool, err error) {
	if have, err := s.Stream(want.Name); err == nil {
		return have, false, streamConflict(have, want)
	}
	if len(s.Streams) >= MaxStreams {
		return nil, false, dataflow.Errorf(dataflow.ReasonTooLarge, "the group has %d streams, which is the limit", MaxStreams)
	}
	st = want
	st.ID, st.CreatedAt = s.NextStream, s.Now
	s.NextStream++
	s.Streams = maps.Clone(s.Streams)
	s.Streams[st.ID] = st
	s.streamNames = maps.Clone(s.streamNames)
	s.streamNames[st.Name] = st.ID
	return st, true, nil
}

// CheckStream reports whether a definition fits the streams that exist: STREAM_CONFLICT when there is one of its name that
// differs. Creating the stream may still be refused, when one is made meanwhile.
func (s *State) CheckStream(def StreamDefinition) error {
	want, err := decodeStream(def.encode())
	if err != nil {
		return err
	}
	have, err := s.Stream(def.Name)
	if err != nil {
		return nil // it will be created
	}
	return streamConflict(have, want)
}

// streamConflict compares a definition with the existing stream: with its options as they are, or as it was made with them, so
// that a file which made it says the same after they were changed.
func streamConflict(have, want *Stream) error {
	fixed, options := streamDifference(have, want)
	if want.Options == have.Declared {
		options = nil
	}
	if len(fixed)+len(options) == 0 {
		return nil
	}
	err := dataflow.Errorf(dataflow.ReasonStreamConflict, "stream %s exists and differs: %s", want.Name, strings.Join(slices.Concat(fixed, options), "; ")).WithMeta("stream", want.Name)
	if len(fixed) == 0 {
		err = err.WithHint("weir stream set %s changes its options", want.Name)
	}
	return err
}

// streamDifference says in what a definition differs from the existing stream: in what is fixed, and in options.
func streamDifference(have, want *Stream) (fixed, options []string) {
	if !have.Schema.Equal(want.Schema) {
		fixed = append(fixed, fmt.Sprintf("it has the columns %s, not %s", have.Schema, want.Schema))
	}
	if !slices.Equal(have.PartitionBy, want.PartitionBy) {
		fixed = append(fixed, fmt.Sprintf("it has PARTITION BY %s, not %s", have.partitionNames(), want.partitionNames()))
	}
	was, is := have.Options.List(), want.Options.List()
	for i := range was {
		if was[i] != is[i] {
			options = append(options, fmt.Sprintf("its %s is %s, not %s", was[i].Name, was[i].Value, is[i].Value))
		}
	}
	return fixed, options
}

// setStreamOptions changes options. What the tasks and the shards do with rows does not depend on them, so they can change at any
// time: retention reads them whenever it looks.
func (s *State) setStreamOptions(c *metav1.SetStreamOptions) (any, error) {
	st, err := s.Stream(c.Name)
	if err != nil {
		return nil, err
	}
	changed := *st
	if changed.Options, err = st.Options.With(decodeOptions(c.Options)); err != nil {
		return nil, fixedOption(st, c.Options, err)
	}
	if changed.Options.Grace < st.Options.Grace {
		for _, p := range s.PipelineList() {
			if !p.ReadsStream(st.ID) || p.State.Active() || p.ClaimExpired {
				continue
			}
			if idle := time.Duration(s.Now-p.StateSince) * time.Microsecond; idle >= changed.Options.Grace {
				return nil, dataflow.Errorf(dataflow.ReasonStreamInUse, "with retention.grace = '%s' pipeline %s, which is %s for %s, would lose the rows of stream %s that it needs at once",
					dataflow.FormatDuration(changed.Options.Grace), p.Name, p.State, idle.Truncate(time.Second), st.Name).
					WithHint("resume or delete the pipeline first, or set a longer grace").WithMeta("stream", st.Name).WithMeta("pipelines", p.Name)
			}
		}
	}
	s.Streams = maps.Clone(s.Streams)
	s.Streams[changed.ID] = &changed
	return &changed, nil
}

// fixedOption says of what a stream has and an option cannot change that it is fixed; other errors stay as they are.
func fixedOption(st *Stream, opts []*metav1.Option, err error) error {
	for _, o := range opts {
		switch o.Name {
		case "columns", "partition_by", "partition by", "name", "sealed", "shards":
			return dataflow.Errorf(dataflow.ReasonOptionInvalid, "%s of stream %s is fixed: rows are stored, and placed in shards, by it", o.Name, st.Name).
				WithHint("retention, max_bytes and retention.grace can be changed; for the rest make a stream of another name").WithMeta("option", o.Name)
		}
	}
	return err
}

func (st *Stream) partitionNames() string {
	names := make([]string, len(st.PartitionBy))
	for i, c := range st.PartitionBy {
		names[i] = st.Schema[c].Name
	}
	return "(" + strings.Join(names, ", ") + ")"
}

func (s *State) sealStream(c *metav1.SealStream) (any, error) {
	st, err := s.Stream(c.Name)
	if err != nil || st.Sealed {
		return st, err
	}
	sealed := *st
	sealed.Sealed = true
	s.Streams = maps.Clone(s.Streams)
	s.Streams[sealed.ID] = &sealed
	return &sealed, nil
}

func (s *State) dropStream(c *metav1.DropStream) (any, error) {
	st, err := s.Stream(c.Name)
	if err != nil {
		return nil, err
	}
	var readers []string
	for _, p := range s.PipelineList() {
		if p.ReadsStream(st.ID) {
			readers = append(readers, p.Name)
		}
	}
	if len(readers) > 0 {
		names := strings.Join(readers, ", ")
		return nil, dataflow.Errorf(dataflow.ReasonStreamInUse, "stream %s is read by %s", st.Name, names).
			WithHint("delete the pipelines first: weir pipeline delete %s", readers[0]).WithMeta("stream", st.Name).WithMeta("pipelines", names)
	}
	s.Streams = maps.Clone(s.Streams)
	delete(s.Streams, st.ID)
	s.streamNames = maps.Clone(s.streamNames)
	delete(s.streamNames, st.Name)
	return st.ID, nil
}

func (s *State) openProducer(c *metav1.OpenProducer) (any, error) {
	if dataflow.IsAnonymousProducer(c.Name) {
		return nil, dataflow.Errorf(dataflow.ReasonNameInvalid, "producer %q is anonymous: its epoch is always 1", c.Name)
	}
	if c.Name == "" || len(c.Name) > dataflow.MaxProducerName || len(c.Instance) > MaxInstance {
		return nil, dataflow.Errorf(dataflow.ReasonNameInvalid, "a producer's name has 1 to %d bytes", dataflow.MaxProducerName)
	}
	p := s.producers.get(c.Name)
	if p.epoch > 0 && p.instance == c.Instance && c.Instance != "" {
		return p.epoch, nil
	}
	// A shard may still know a producer that was forgotten here, so its next epoch is above the one it had.
	p = producer{epoch: max(p.epoch, s.forgottenEpoch) + 1, instance: c.Instance, opened: s.Now}
	s.producers = s.producers.with(c.Name, p)
	return p.epoch, nil
}
